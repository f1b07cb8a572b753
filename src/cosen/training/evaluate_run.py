"""Metrics of a finished run: on its own test images, or on other data."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from cosen.costs import Objective
from cosen.data.labelled import LabelledImages
from cosen.data.sources import open_data
from cosen.errors import DataError
from cosen.files import expand_user
from cosen.networks.network import Outputs
from cosen.training.calibration import Calibration
from cosen.training.decisions import Known, parse_rule
from cosen.training.evaluation import summarise
from cosen.training.model_file import load_info
from cosen.training.predict import Prior, fitted_rule, image_logits, open_model, prior_shares
from cosen.training.records import Metrics, ModelInfo, RunMetrics
from cosen.training.run_folder import RunFolder

_log = logging.getLogger("cosen")


def evaluate_run(
    run: Path | str,
    data: Any,
    *,
    data_root: Path | None = None,
    exclude: tuple[str, ...] = (),
    objective: Objective | None = None,
    prior: Prior | None = None,
    decide: str | None = None,
    network: Callable[[], nn.Module] | None = None,
    **options: Any,
) -> Metrics:
    """Compute the metrics of a run on all images of other data.

    Args:
        run: The run folder.
        data: A folder of class folders, a CSV, the name of a dataset, a dataset or arrays, with
            the classes of the run.
        data_root: The folder of named datasets.
        exclude: Classes of the data to exclude.
        objective: What ``error`` measures; by default what the run measured.
        prior: The class shares that decisions are made for, as for
            :func:`~cosen.training.predict.predict_images`.
        decide: A rule as for :func:`~cosen.training.predict.predict_images`; what it gives is
            logged. The metrics are those of the most probable classes.
        network: Creates the network, if the run trained a custom one.
        options: ``skip_broken``, ``batch_size``, ``device`` and ``progress``, as for
            :func:`~cosen.training.predict.predict_images`.
    """
    folder = RunFolder.existing(run)
    classifier, info = open_model(run, network)
    record = folder.record()
    found = _with_classes_of(info, open_data(data, root=data_root, exclude=exclude))
    if isinstance(data, str | Path) and _is_same(str(data), record.config.data):
        _log.warning(
            "%s is the data that the run was trained on, so these metrics are too optimistic; "
            "omit DATA to use the test images of the run",
            data,
        )
    found, logits = image_logits(classifier, info, found, **options)
    outputs = Outputs(logits, logits.new_empty(len(logits), 0), torch.from_numpy(found.labels))
    goal = objective or record.objective
    if decide is not None:
        _log_decisions(decide, Path(run), info, outputs, prior)
    return _summary(outputs, info.calibration, goal, prior, info.class_names)


def stored_metrics(
    run: Path | str,
    objective: Objective | None = None,
    prior: Prior | None = None,
    decide: str | None = None,
) -> RunMetrics:
    """Return the metrics on the run's own validation and test images.

    ``objective`` is what ``error`` measures; by default what the run measured. ``prior`` are the
    class shares that decisions are made for, and ``decide`` is a rule, as for
    :func:`evaluate_run`.
    """
    folder = RunFolder.existing(run)
    if decide is not None:
        test_outputs = folder.predictions()["test"]
        _log_decisions(decide, folder.path, load_info(folder.path), test_outputs, prior)
    if objective is None and prior is None:
        return folder.metrics()
    record, outputs = folder.record(), folder.predictions()
    how = (record.calibration, objective or record.objective, prior, record.prepared.class_names)
    val, test = (_summary(outputs[part], *how) for part in ("val", "test"))
    return RunMetrics(val=val, test=test)


def _log_decisions(
    decide: str, run: Path, info: ModelInfo, outputs: Outputs, prior: Prior | None
) -> None:
    """Fit a rule to the validation images, and log what it gives for other images."""
    rule = fitted_rule(parse_rule(decide), run, info, prior=prior)
    shares = prior_shares(prior, info.class_names, info.calibration, outputs.logits)
    probabilities = info.calibration.probabilities(outputs.logits, shares)
    known = Known(probabilities, outputs.target, info.class_names)
    _log.warning("on %d test images: %s", len(outputs.target), rule.describe(known))


def _summary(
    outputs: Outputs,
    calibration: Calibration,
    objective: Objective,
    prior: Prior | None,
    class_names: tuple[str, ...],
) -> Metrics:
    """Compute the metrics of decisions for class shares."""
    shares = prior_shares(prior, class_names, calibration, outputs.logits)
    if shares is not None:
        logits = calibration.logits(outputs.logits, shares).float()
        outputs, calibration = replace(outputs, logits=logits), calibration.of_shares(shares)
    return summarise(outputs, objective=objective, calibration=calibration)


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
