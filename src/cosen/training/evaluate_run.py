"""Measuring a finished run: what its own test set said, or what other data say."""

import logging
from pathlib import Path
from typing import Any

import torch

from cosen.costs import Objective
from cosen.data.decoding import Progress
from cosen.data.labelled import LabelledImages
from cosen.data.open import open_data
from cosen.errors import DataError
from cosen.training.evaluation import Outputs, summarise
from cosen.training.expert import read_expert
from cosen.training.model_file import ModelFacts
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
        return folder.metrics()
    classifier, facts = open_model(run)
    config = saved_config(folder)
    if objective is None and config.expert:
        objective = read_expert(Path(config.expert), facts.class_names)
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


def _with_classes_of(facts: ModelFacts, data: LabelledImages) -> LabelledImages:
    """The data with its classes numbered as the model's outputs."""
    unknown = [name for name in data.class_names if name not in facts.class_names]
    missing = [name for name in facts.class_names if name not in data.class_names]
    if unknown or missing:
        differ = []
        if unknown:
            differ.append(f"the model does not know {', '.join(map(repr, unknown))}")
        if missing:
            differ.append(f"the data lack {', '.join(map(repr, missing))}")
        hint = "; leave classes out with --exclude" if unknown and not missing else ""
        raise DataError(
            f"{data.source} has other classes than the run: {', and '.join(differ)}{hint}"
        )
    return data.only_classes(list(facts.class_names))


def _is_same(data: str, trained: str) -> bool:
    if data == trained:
        return True
    paths = Path(data).expanduser(), Path(trained).expanduser()
    return all(path.exists() for path in paths) and paths[0].samefile(paths[1])
