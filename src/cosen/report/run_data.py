"""Read run and study folders for a report. No other module of ``report/`` reads them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from cosen import functional as F
from cosen.comparing.bootstrap import Change, paired_change
from cosen.comparing.choice import Choice
from cosen.comparing.leaderboard import Leaderboard
from cosen.comparing.study_folder import StudyFolder
from cosen.costs import Objective
from cosen.costs.step_files import step_matrices
from cosen.errors import InputError, RunError
from cosen.files import is_folder
from cosen.inference.label_problems import HeldOut, held_out_predictions
from cosen.training.config import TrainConfig
from cosen.training.records import DataRecord, EpochRecord, Metrics, RunRecord, StartRecord
from cosen.training.run_folder import RunFolder, open_tensors
from cosen.training.thumbnails import Thumbnail, read_thumbnails

MOST_CHECKED = F.MANY_CLASSES
"""Classes up to which labels are checked."""


@dataclass(frozen=True, eq=False)
class RunData:
    """A finished run and its outputs for the test images."""

    record: RunRecord
    metrics: Metrics  # on test
    history: Sequence[EpochRecord]  # empty if no network was trained
    logits: Tensor  # on test, shape (n, C)
    target: Tensor  # true classes, shape (n,)
    names: Sequence[str]  # of the test images
    thumbnails: Mapping[int, Thumbnail] | None  # by row of the test split

    @property
    def data(self) -> DataRecord:
        return self.record.prepared

    @cached_property
    def predicted(self) -> Tensor:
        """Predicted classes, shape ``(n,)``."""
        return self.logits.argmax(1)

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each prediction is correct, shape ``(n,)``."""
        return np.asarray((self.predicted == self.target).numpy())

    @cached_property
    def probabilities(self) -> Tensor:
        """Probabilities of the outputs as they are, shape ``(n, C)``."""
        return self.record.calibration.probabilities(self.logits).float()

    @cached_property
    def confusion(self) -> Tensor:
        """Counts on test, row = true class, shape ``(C, C)``; sparse with many classes."""
        classes = len(self.data.class_names)
        return F.confusion_matrix(
            self.target, self.predicted, num_classes=classes, sparse=classes > F.MANY_CLASSES
        )


@dataclass(frozen=True, eq=False)
class MethodRuns:
    """The runs of one method."""

    name: str  # on the page
    runs: Mapping[int, RunData]  # by seed, at least one

    @cached_property
    def confusion(self) -> Tensor:
        """Counts on test over all seeds, row = true class, shape ``(C, C)``."""
        first, *others = [run.confusion for run in self.runs.values()]
        total = sum(others, first)
        return total.coalesce() if total.is_sparse else total

    @cached_property
    def sums(self) -> F.ConfusionSums:
        """The diagonal and the sums of the confusions."""
        return F.confusion_sums(self.confusion)


@dataclass(frozen=True)
class CostSteps:
    """The cost matrices that a run learned, one file per step."""

    name: str  # of the method, on the page
    config: TrainConfig
    class_counts: Tensor  # of the training set
    files: Sequence[Path]

    def facts(self) -> list[dict[str, str]]:
        """Read the numbers of all steps."""
        return [dict(open_tensors(path).metadata() or {}) for path in self.files]

    def matrices(self, steps: Iterable[int]) -> list[dict[str, NDArray[np.float64]]]:
        """Read the matrices of some steps, by name."""
        found = []
        for step in steps:
            file = open_tensors(self.files[step])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            matrices = step_matrices(tensors)
            found.append({name: matrix.double().numpy() for name, matrix in matrices.items()})
        return found


@dataclass(frozen=True, eq=False)
class ReportData:
    """The content of a run folder, of two, or of a study folder."""

    kind: Literal["study", "run"]
    start: StartRecord
    options: Mapping[str, Mapping[str, Any]]  # of each method
    chosen: MethodRuns
    baseline: MethodRuns | None  # has the same seeds
    costs: CostSteps | None  # None if no run learned costs
    held_out: HeldOut | None  # of the chosen method for validation and test; None if too many
    choice: Choice | None = None  # of a study
    leaderboard: Leaderboard | None = None  # of a study

    @property
    def methods(self) -> dict[str, MethodRuns]:
        """The methods on the page by their role, ``chosen`` and ``baseline``."""
        chosen = {"chosen": self.chosen}
        return chosen if self.baseline is None else chosen | {"baseline": self.baseline}

    @property
    def seeds(self) -> list[int]:
        return list(self.chosen.runs)

    @property
    def first(self) -> RunData:
        """The chosen method's run of the first seed."""
        return next(iter(self.chosen.runs.values()))

    @property
    def class_names(self) -> Sequence[str]:
        return self.first.data.class_names

    @cached_property
    def class_counts(self) -> NDArray[np.float64]:
        """Training samples per class, mean over seeds, shape ``(C,)``."""
        counts = [run.data.class_counts.train.numpy() for run in self.chosen.runs.values()]
        return np.asarray(np.mean(counts, axis=0))

    @property
    def objective(self) -> Objective:
        """What the runs measure."""
        return self.first.record.objective

    def error(self, method: MethodRuns) -> float:
        """The error of a method on test, as the objective defines it."""
        return self.objective.error(method.confusion)

    def change(self, baseline: MethodRuns) -> Change:
        """Compare the chosen method with the baseline, sample by sample."""
        others = [baseline.runs[seed] for seed in self.seeds]
        return paired_change(list(self.chosen.runs.values()), others, self.objective)


def read_report_data(path: Path, against: Path | None = None) -> ReportData:
    """Read a run, a run and another one with the same split to compare it with, or a study."""
    study = StudyFolder(path)
    if study.has_study:
        if against is not None:
            raise InputError(
                f"{path} is a study and has its own baseline: remove --against, or report one of "
                f"its runs, such as {path / 'runs' / 'METHOD' / 'SEED'}"
            )
        return _read_study(study)
    if not RunFolder(path).has_run:
        reason = "it has no run.json and no study.json" if is_folder(path) else "no such folder"
        raise RunError(f"{path} is not a run folder or a study folder: {reason}")
    return _read_runs(path, against)


def _read_runs(path: Path, against: Path | None) -> ReportData:
    run, other = _read_run(_finished(path)), None
    names = [run.record.config.method]
    if against is not None:
        if StudyFolder(against).has_study:
            raise InputError(f"{against} is a study: name one of its runs with --against")
        other = _read_run(_finished(against))
        if path.resolve() == against.resolve():
            raise InputError(f"{path} cannot be compared with itself: name another run")
        same_images = run.names == other.names and run.target.equal(other.target)
        if run.data.fingerprint != other.data.fingerprint or not same_images:
            raise RunError(
                f"{path} and {against} do not have the same split, so they cannot be compared: "
                "train with the same data, --seed, --split, --imbalance, --size and --objective"
            )
        names.append(other.record.config.method)
        if names[0] == names[1]:
            names = [f"{names[0]} ({folder.resolve().name})" for folder in (path, against)]
        if names[0] == names[1]:
            names = [f"{run.record.config.method} ({folder})" for folder in (path, against)]
    folders = [RunFolder(folder) for folder in (path, against) if folder is not None]
    seed = run.record.config.seed
    return ReportData(
        kind="run",
        start=run.record,
        options={run.record.config.method: run.record.config.options},
        chosen=MethodRuns(names[0], {seed: run}),
        baseline=None if other is None else MethodRuns(names[1], {seed: other}),
        costs=_first_costs(zip(names, folders, strict=True)),
        held_out=_held_out(folders[:1]),
    )


def _read_study(study: StudyFolder) -> ReportData:
    record, board, choice = study.record(), study.leaderboard(), study.choice()
    if choice.method is None:
        raise RunError(f"{study.path} has no finished run: there is nothing to report")
    chosen = choice.challenger or choice.method  # never the baseline, unless it is alone

    def runs_of(method: str) -> MethodRuns:
        runs = {seed: _read_run(study.run(method, seed)) for seed in choice.seeds}
        return MethodRuns(method, runs)

    seeds = {row.method: row.seeds for row in board.rows}
    preferred = dict.fromkeys([chosen, "cosen", *seeds])
    return ReportData(
        kind="study",
        start=record,
        options={label: method.options for label, method in record.methods.items()},
        chosen=runs_of(chosen),
        baseline=None if board.baseline in (None, chosen) else runs_of(board.baseline),
        costs=_first_costs(
            (method, study.run(method, seed))
            for method in preferred
            for seed in seeds.get(method, ())
        ),
        held_out=_held_out([study.run(chosen, seed) for seed in choice.seeds]),
        choice=choice,
        leaderboard=board,
    )


def _finished(path: Path) -> RunFolder:
    run = RunFolder.existing(path)
    if not run.is_finished:
        raise RunError(f"{path} is not finished: resume it with cosen train --resume {path}")
    return run


def _read_run(folder: RunFolder) -> RunData:
    test, names = folder.predictions()["test"], folder.image_names().test
    if not len(names) == len(test.logits) == len(test.target):
        raise RunError(f"{folder.path} is damaged: its predictions have {len(names)} names")
    return RunData(
        record=folder.record(),
        metrics=folder.metrics().test,
        history=folder.history(),
        logits=test.logits,
        target=test.target,
        names=names,
        thumbnails=read_thumbnails(folder),
    )


def _held_out(runs: list[RunFolder]) -> HeldOut | None:
    """Predictions to check labels with; with many classes they would take gigabytes."""
    classes = len(runs[0].record().prepared.class_names)
    return None if classes > MOST_CHECKED else held_out_predictions(runs)


def _first_costs(runs: Iterable[tuple[str, RunFolder]]) -> CostSteps | None:
    """The learned costs of the first run that has any."""
    for name, run in runs:
        files = sorted((run.path / "costs").glob("*.safetensors"))
        if files:
            record = run.record()
            return CostSteps(name, record.config, record.prepared.class_counts.train, files)
    return None
