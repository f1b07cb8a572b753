"""Read confusion matrices and error curves from run and study folders."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cosen.comparing.study_folder import StudyFolder
from cosen.errors import InputError, RunError, choices_hint
from cosen.paper.figures.run_figures import ErrorCurves, NamedConfusion
from cosen.training.run_folder import RunFolder

MEASURES = {"overall": "val_accuracy", "balanced": "mean_recall"}
"""Validation errors by name, and the column of the history that they are computed from."""


def holds_runs(path: Path) -> bool:
    """Whether a folder is a run or a study."""
    return RunFolder(path).has_run or StudyFolder(path).has_study


def check_folder(path: Path) -> None:
    """Raise RunError if a folder is neither a run nor a study."""
    if not holds_runs(path):
        raise RunError(f"{path} is neither a run nor a study: it has no run.json or study.json")


def any_run(path: Path) -> RunFolder:
    """The run in a folder, or the first finished run of a study."""
    study = StudyFolder(path)
    if not study.has_study:
        return RunFolder.existing(path)
    runs = [run for by_seed in study.finished_runs().values() for run in by_seed.values()]
    if not runs:
        raise RunError(f"{path} has no finished run yet: resume it with its command")
    return runs[0]


def read_confusions(
    paths: Sequence[Path], *, methods: Sequence[str] = ()
) -> tuple[list[NamedConfusion], tuple[str, ...]]:
    """Read confusion matrices on test and the class names.

    There is one matrix for each run folder, and one for each shown method of a study folder, over
    the seeds that all of these methods have finished.
    """
    series = _read_series(paths, methods, ready=lambda run: run.is_finished)
    first = series[0].runs[0]
    class_names = first.record().prepared.class_names
    confusions = []
    for one in series:
        total = np.zeros((len(class_names), len(class_names)), dtype=np.int64)
        for run in one.runs:
            if run.record().prepared.class_names != class_names:
                raise InputError(
                    f"{run.path} has other classes than {first.path}: draw them in two figures, "
                    "each with its own --out"
                )
            total += run.metrics().test.counts.to_dense().numpy()
        confusions.append(NamedConfusion(one.name, total))
    return confusions, class_names


def read_curves(
    paths: Sequence[Path], *, methods: Sequence[str] = (), measure: str = "overall"
) -> list[ErrorCurves]:
    """Read errors by epoch; runs need not be finished.

    ``measure`` is the validation error. Training errors are always overall.
    """
    if measure not in MEASURES:
        raise InputError(f"there is no measure {measure!r}{choices_hint(measure, MEASURES)}")
    series = _read_series(paths, methods, ready=_has_epochs)
    return [_curves(one, MEASURES[measure]) for one in series]


def shown_methods(
    study: StudyFolder, ready: Collection[str], *, asked: Sequence[str] = ()
) -> list[str]:
    """Methods of a study to show: the given ones, else the baseline and one other.

    The other method is the chosen one; ``cosen`` if the study chose the baseline; else the first
    method that is ``ready``, which means it has the data for the figure.
    """
    known = list(study.record().methods)
    for method in asked:
        if method not in known:
            raise InputError(f"{study.path} has no method {method!r}{choices_hint(method, known)}")
        if method not in ready:
            raise RunError(f"{study.path} has no run of {method} that this figure can show")
    if asked:
        return list(asked)
    if not ready:
        raise RunError(f"{study.path} has no run to show yet: resume it with its command")
    chosen = study.choice().method if (study.path / "choice.json").exists() else None
    preferred = [chosen, "cosen", *known]
    others = [name for name in preferred if name in ready and name != "baseline"]
    return ["baseline"] * ("baseline" in ready) + [name for name in others[:1] if name]


@dataclass(frozen=True)
class _Series:
    """One matrix or curve of a figure: a run, or the runs of a method."""

    name: str
    folder: Path
    runs: tuple[RunFolder, ...]


def _read_series(
    paths: Sequence[Path], methods: Sequence[str], *, ready: Callable[[RunFolder], bool]
) -> list[_Series]:
    series = []
    for path in paths:
        if StudyFolder(path).has_study:
            series += _of_study(StudyFolder(path), methods, ready=ready)
            continue
        check_folder(path)
        run = RunFolder(path)
        series.append(_Series(run.record().config.method, path, (run,)))
    if not series:
        raise InputError("there is no run to show: give a run or a study folder")
    counts = Counter(one.name for one in series)
    return [
        replace(one, name=f"{one.name} ({one.folder.resolve().name})")
        if counts[one.name] > 1
        else one
        for one in series
    ]


def _of_study(
    study: StudyFolder, asked: Sequence[str], *, ready: Callable[[RunFolder], bool]
) -> list[_Series]:
    record = study.record()
    runs = {
        method: {
            seed: run
            for seed in record.seeds
            if (run := study.run(method, seed)).has_run and ready(run)
        }
        for method in record.methods
    }
    shown = shown_methods(study, [name for name, found in runs.items() if found], asked=asked)
    seeds = [seed for seed in record.seeds if all(seed in runs[method] for method in shown)]
    if not seeds:
        raise RunError(f"{study.path} has no seed yet with finished runs of {' and '.join(shown)}")
    return [
        _Series(method, study.path, tuple(runs[method][seed] for seed in seeds)) for method in shown
    ]


def _has_epochs(run: RunFolder) -> bool:
    return (run.path / "history.csv").is_file() and bool(run.history())


def _curves(series: _Series, column: str) -> ErrorCurves:
    for run in series.runs:
        if not _has_epochs(run):
            reason = "its method has no epochs" if run.is_finished else "no epoch has ended yet"
            raise RunError(f"{run.path} has no errors by epoch: {reason}")
    histories = [run.history() for run in series.runs]
    shared = min(map(len, histories))  # runs may stop early; means are over all runs
    train = [[epoch.train_error for epoch in runs[:shared]] for runs in histories]
    val = [[1 - getattr(epoch, column) for epoch in runs[:shared]] for runs in histories]
    return ErrorCurves(
        series.name, np.arange(1, shared + 1), np.array(train, float), np.array(val, float)
    )
