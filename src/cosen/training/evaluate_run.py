"""Measuring a finished run: what its own test set said, or what other data say."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cosen.costs import Objective
from cosen.data.decoding import Progress
from cosen.data.labelled import LabelledImages
from cosen.data.open import open_data
from cosen.errors import DataError
from cosen.networks.output import Outputs
from cosen.training.evaluation import summarise
from cosen.training.model_file import ModelFacts, load_facts
from cosen.training.predict import image_logits, open_model
from cosen.training.run import saved_config
from cosen.training.run_folder import RunFolder

_log = logging.getLogger("cosen")


def evaluate_run(
    run: Path | str,
    data: str | Path | None = None,
    *,
    data_root: Path | None = None,
    exclude: tuple[str, ...] = (),
    objective: Objective | None = None,
    skip_broken: bool = False,
    batch_size: int = 64,
    device: str = "auto",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The metrics of a run: those stored with it, or those on all images of other data.

    Args:
        run: The run folder.
        data: A folder of class folders, a CSV or a dataset's name, with the classes of the run;
            None for the stored metrics.
        data_root: Where named datasets are.
        exclude: Classes of the data to leave out.
        objective: What ``error`` measures on other data; what the run measured if not given.
        skip_broken: Leave out images that do not decode.
        batch_size: Images at once.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        progress: Told how far it is.

    Returns:
        ``{"val": ..., "test": ...}`` as stored, or ``{"all": ...}`` for other data, each as
        :func:`~cosen.training.evaluation.summarise` gives it.
    """
    folder = RunFolder.existing(run)
    if data is None:
        return folder.metrics() if objective is None else _stored(folder, objective)
    classifier, facts = open_model(run)
    config = saved_config(folder)
    if objective is None and config.expert:
        objective = torch.tensor(folder.about()["expert"])
    found = _with_classes_of(facts, open_data(data, root=data_root, exclude=exclude))
    if _is_same(str(data), config.data):
        _log.warning(
            "%s is what the run was trained on: these numbers flatter it; without DATA you get "
            "those of its test images alone",
            data,
        )
    found, logits = image_logits(
        classifier,
        facts,
        found,
        skip_broken=skip_broken,
        batch_size=batch_size,
        device=device,
        progress=progress,
    )
    outputs = Outputs(
        logits=logits,
        features=logits.new_empty(len(logits), 0),  # no metric needs them
        target=torch.from_numpy(found.labels),
    )
    return {
        "all": summarise(
            outputs,
            class_counts=facts.class_counts,
            objective=config.objective if objective is None else objective,
            temperature=facts.temperature,
        )
    }


def _stored(folder: RunFolder, objective: Objective) -> dict[str, Any]:
    """The metrics of the stored predictions, with another objective."""
    facts = load_facts(folder.path)
    tensors, _ = folder.predictions()
    return {
        part: summarise(
            Outputs(
                logits=tensors[f"{part}_logits"],
                features=tensors[f"{part}_logits"][:, :0],
                target=tensors[f"{part}_target"],
            ),
            class_counts=facts.class_counts,
            objective=objective,
            temperature=facts.temperature,
        )
        for part in ("val", "test")
    }


def _with_classes_of(facts: ModelFacts, data: LabelledImages) -> LabelledImages:
    """The data with its classes numbered as the model's outputs; it may lack some of them."""
    unknown = [name for name in data.class_names if name not in facts.class_names]
    if len(unknown) == len(data.class_names):
        raise DataError(
            f"{data.source} has none of the model's classes, which are "
            f"{', '.join(map(repr, facts.class_names))}: name its classes as the model does"
        )
    if unknown:
        raise DataError(
            f"{data.source} has classes that the model does not know: "
            f"{', '.join(map(repr, unknown))}; leave them out with --exclude"
        )
    missing = [name for name in facts.class_names if name not in data.class_names]
    if missing:
        _log.warning("%s has no image of %s", data.source, ", ".join(map(repr, missing)))
    numbers = np.array([facts.class_names.index(name) for name in data.class_names])
    return replace(data, labels=numbers[data.labels], class_names=facts.class_names)


def _is_same(data: str, trained: str) -> bool:
    if data == trained:
        return True
    paths = Path(data).expanduser(), Path(trained).expanduser()
    return all(path.exists() for path in paths) and paths[0].samefile(paths[1])
