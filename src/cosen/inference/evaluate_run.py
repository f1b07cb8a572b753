"""Metrics of a finished run: on its own test images, or on other data."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cosen.costs import Objective
from cosen.data.labelled import LabelledImages
from cosen.data.sources import open_data
from cosen.errors import DataError, InputError
from cosen.files import expand_user
from cosen.inference.decisions import Known, LowestCost, Rule, parse_rule
from cosen.inference.predict import Models, Prior, open_models
from cosen.networks.network import Outputs
from cosen.training.evaluation import summarise
from cosen.training.records import Metrics, ModelInfo, RunMetrics
from cosen.training.run_folder import RunFolder

_log = logging.getLogger("cosen")


def evaluate_run(
    runs: Path | str | Sequence[Path | str],
    data: Any,
    *,
    data_root: Path | None = None,
    exclude: tuple[str, ...] = (),
    objective: Objective | None = None,
    prior: Prior | None = None,
    decide: str | None = None,
    flip: bool = False,
    validation_runs: Sequence[Path] = (),
    network: Callable[[], nn.Module] | None = None,
    **options: Any,
) -> Metrics:
    """Compute the metrics of a run, or of the average of several, on all images of other data.

    Args:
        runs: The run folder, or several.
        data: A folder of class folders, a CSV, the name of a dataset, a dataset or arrays, with
            the classes of the run.
        data_root: The folder of named datasets.
        exclude: Classes of the data to exclude.
        objective: What ``error`` measures; by default what the run measured.
        prior: The class shares that decisions are made for, as for
            :func:`~cosen.inference.predict.predict_images`.
        decide: A rule as for :func:`~cosen.inference.predict.predict_images`, or ``costs`` to
            decide by the misclassification costs of the objective; what it gives is
            logged. The metrics are those of the most probable classes.
        flip: Average the outputs for each image and its mirror image.
        validation_runs: Runs whose validation images the rule is fitted to; by default ``runs``.
        network: Creates the network, if the run trained a custom one.
        options: ``skip_broken``, ``batch_size``, ``device`` and ``progress``, as for
            :func:`~cosen.inference.predict.predict_images`.
    """
    folder = RunFolder.existing(runs if isinstance(runs, str | Path) else runs[0])
    models = open_models(runs, network, flip=flip, validation_runs=validation_runs)
    record = folder.record()
    found = _with_classes_of(models.infos[0], open_data(data, root=data_root, exclude=exclude))
    if isinstance(data, str | Path) and _is_same(str(data), record.config.data):
        _log.warning(
            "%s is the data that the run was trained on, so these metrics are too optimistic; "
            "omit DATA to use the test images of the run",
            data,
        )
    found, logits = models.logits(found, **options)
    return _evaluated(
        models, logits, torch.from_numpy(found.labels), objective or record.objective, prior, decide
    )


def stored_metrics(
    run: Path | str,
    objective: Objective | None = None,
    prior: Prior | None = None,
    decide: str | None = None,
    validation_runs: Sequence[Path] = (),
) -> RunMetrics:
    """Return the metrics on the run's own validation and test images.

    ``objective`` is what ``error`` measures; by default what the run measured. ``prior`` are the
    class shares that decisions are made for. ``decide`` is a rule and ``validation_runs`` are runs
    to fit it to, as for :func:`evaluate_run`.
    """
    folder = RunFolder.existing(run)
    if objective is None and prior is None and decide is None:
        return folder.metrics()
    record, outputs = folder.record(), folder.predictions()
    names = record.prepared.class_names
    models = Models(
        [folder.path],
        [],
        [],
        [record.calibration],
        names,
        validation_runs=tuple(validation_runs),
        excluded=frozenset(folder.image_names().test),
    )
    goal = objective or record.objective
    val, test = (
        _evaluated(models, [own.logits], own.target, goal, prior, rule)
        for own, rule in ((outputs["val"], None), (outputs["test"], decide))
    )
    return RunMetrics(val=val, test=test)


def _evaluated(
    models: Models,
    logits: list[Tensor],
    target: Tensor,
    objective: Objective,
    prior: Prior | None,
    decide: str | None,
) -> Metrics:
    """Compute the metrics of decisions for class shares, and log what a rule gives."""
    shares = models.shares(prior, logits)
    probabilities = models.probabilities(logits, shares)
    if decide is not None:
        rule = _rule(decide, objective)
        real = models.shares("train") if isinstance(rule, LowestCost) else None  # costs need them
        assumed = real if shares is None else shares
        fitted = models.fitted(rule, assumed)
        known = Known(models.probabilities(logits, assumed), target, models.class_names)
        if fitted.sentence:
            _log.warning(fitted.sentence)
        _log.warning("on %d test images: %s", len(target), fitted.rule.describe(known))
    calibration, outputs = models.calibrations[0], logits[0]
    if shares is not None or len(logits) > 1:
        outputs = probabilities.log().clamp(min=-100).float()
        calibration = replace(calibration, temperature=1.0)
        if shares is not None:
            calibration = calibration.of_shares(shares)
    return summarise(
        Outputs(outputs, outputs[:, :0], target), objective=objective, calibration=calibration
    )


def _rule(decide: str, objective: Objective) -> Rule:
    """Parse a rule; ``costs`` are those of the objective."""
    if decide.strip() != LowestCost.kind:
        return parse_rule(decide)
    if objective.misclassification_costs is None:
        raise InputError("--decide costs needs misclassification costs: give --objective costs.csv")
    return LowestCost(objective.misclassification_costs)


def _with_classes_of(info: ModelInfo, data: LabelledImages) -> LabelledImages:
    """Return the data with its labels numbered as the outputs of the model."""
    unknown = [name for name in data.class_names if name not in info.class_names]
    if len(unknown) == len(data.class_names):
        raise DataError(
            f"{data.source} has none of the model's classes "
            f"({', '.join(map(repr, info.class_names))}): use the same class names"
        )
    if unknown:
        raise DataError(
            f"{data.source} has classes that the model does not know: "
            f"{', '.join(map(repr, unknown))}; remove them with --exclude"
        )
    missing = [name for name in info.class_names if name not in data.class_names]
    if missing:
        _log.warning("%s has no images of %s", data.source, ", ".join(map(repr, missing)))
    numbers = np.array([info.class_names.index(name) for name in data.class_names])
    return replace(data, labels=numbers[data.labels], class_names=info.class_names)


def _is_same(data: str, trained: str) -> bool:
    first, second = expand_user(data), expand_user(trained)
    return data == trained or (first.exists() and second.exists() and first.samefile(second))
