"""What a report shows: the runs of one method, beside those of a baseline where there is one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor

from cosen import functional as F
from cosen.comparing.bootstrap import Change, make_pair, paired_change
from cosen.costs import Objective
from cosen.errors import RunError
from cosen.training.model_file import calibrated_temperature
from cosen.training.run_folder import RunFolder


@dataclass(frozen=True, eq=False)
class ShownRun:
    """A finished run, and what it gave for the test images.

    Attributes:
        folder: Its folder.
        about: What it was made of.
        metrics: On test, as stored.
        logits: Shape ``(n, C)``.
        target: True classes, shape ``(n,)``.
        names: Of the images.
        temperature: Divides the logits for calibrated probabilities.
    """

    folder: RunFolder
    about: dict[str, Any]
    metrics: dict[str, Any]
    logits: Tensor
    target: Tensor
    names: list[str]
    temperature: float

    @property
    def class_names(self) -> list[str]:
        found: list[str] = self.about["class_names"]
        return found

    @property
    def train_counts(self) -> list[int]:
        """Training images of each class."""
        found: list[int] = self.about["class_counts"]["train"]
        return found

    @cached_property
    def predicted(self) -> Tensor:
        """Shape ``(n,)``."""
        return self.logits.argmax(1)

    @cached_property
    def right(self) -> NDArray[np.bool_]:
        """Whether each test image was, shape ``(n,)``."""
        return np.asarray((self.predicted == self.target).numpy())

    @cached_property
    def probabilities(self) -> Tensor:
        """Calibrated, shape ``(n, C)``."""
        return (self.logits / self.temperature).softmax(1)

    @cached_property
    def confusion(self) -> Tensor:
        """Counts, row = true class, shape ``(C, C)``."""
        classes = len(self.class_names)
        return F.confusion_matrix(self.target, self.predicted, num_classes=classes)


@dataclass(frozen=True, eq=False)
class Side:
    """The runs of one method.

    Attributes:
        name: What the page calls it.
        runs: By seed, at least one.
    """

    name: str
    runs: Mapping[int, ShownRun]

    @cached_property
    def confusion(self) -> Tensor:
        """Counts over all seeds, row = true class, shape ``(C, C)``."""
        first, *others = [run.confusion for run in self.runs.values()]
        return sum(others, first)


@dataclass(frozen=True, eq=False)
class Shown:
    """The method that a report is about, and what it is held against.

    Attributes:
        chosen: The method.
        baseline: What it is held against, with the same seeds; None where there is nothing.
    """

    chosen: Side
    baseline: Side | None = None

    @property
    def seeds(self) -> list[int]:
        return list(self.chosen.runs)

    @property
    def first(self) -> ShownRun:
        """The chosen method's run of the first seed."""
        return next(iter(self.chosen.runs.values()))

    @property
    def class_names(self) -> list[str]:
        return self.first.class_names

    @cached_property
    def train_counts(self) -> NDArray[np.float64]:
        """Training images of each class, the mean over seeds, shape ``(C,)``."""
        counts = [run.train_counts for run in self.chosen.runs.values()]
        return np.asarray(np.mean(counts, axis=0))

    def sides(self) -> Sequence[tuple[str, Side]]:
        """Both sides by their roles, the chosen one first."""
        baseline = [] if self.baseline is None else [("baseline", self.baseline)]
        return [("chosen", self.chosen), *baseline]

    def change(self, objective: Objective) -> Change:
        """How much better the chosen method is than the baseline, test image by test image."""
        assert self.baseline is not None  # who asks has seen to it
        scored = objective.double().numpy() if isinstance(objective, Tensor) else objective
        pairs = [
            make_pair(
                run.target.numpy(),
                run.predicted.numpy(),
                self.baseline.runs[seed].predicted.numpy(),
                scored,
            )
            for seed, run in self.chosen.runs.items()
        ]
        same = all(run.names == self.first.names for run in self.chosen.runs.values())
        return paired_change(pairs, same_samples=same)


def read_shown(folder: RunFolder) -> ShownRun:
    """Read a finished run; one that is not finished, or damaged, is refused."""
    about, metrics = folder.about(), folder.metrics()
    try:
        tensors, names = folder.predictions()
        temperature = about.get("temperature")
        if temperature is None:
            temperature = calibrated_temperature(tensors["val_logits"], tensors["val_target"])
        return ShownRun(
            folder=folder,
            about=about,
            metrics=metrics["test"],
            logits=tensors["test_logits"].float(),
            target=tensors["test_target"].long(),
            names=names["test"],
            temperature=float(temperature),
        )
    except (KeyError, ValueError, SafetensorError) as error:
        raise RunError(f"{folder.path} is damaged: {error}") from error


def finished_run(path: Path) -> RunFolder:
    """The run in a folder; one that is not finished is refused."""
    run = RunFolder.existing(path)
    if not run.is_finished:
        raise RunError(f"{path} is not finished: go on with cosen train --resume {path}")
    return run
