"""What figures take from run and study folders; the data itself is not needed."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cosen.comparing.study_folder import StudyFolder
from cosen.errors import InputError, RunError, choices_hint
from cosen.paper.figures.confusion import NamedConfusion
from cosen.paper.figures.errors import ErrorCurves
from cosen.training.run_folder import RunFolder

BASELINE, OURS = "baseline", "cosen"

MEASURES = {"overall": "val_accuracy", "balanced": "mean_recall"}
"""Validation errors, the share of images that are wrong or the mean of the classes' shares, and
what a history has instead of them."""


def holds_runs(path: Path) -> bool:
    """Whether a folder is a run or a study."""
    return RunFolder(path).has_run or StudyFolder(path).has_study


def check_folder(path: Path) -> None:
    """Refuse a folder that is neither a run nor a study."""
    if not holds_runs(path):
        raise RunError(
            f"{path} is neither a run nor a study: there is no run.json or study.json in it"
        )


def any_run(path: Path) -> RunFolder:
    """The run in a folder, of a study the first that is finished."""
    study = StudyFolder(path)
    if not study.has_study:
        return RunFolder.existing(path)
    runs = [run for by_seed in study.finished_runs().values() for run in by_seed.values()]
    if not runs:
        raise RunError(f"{path} has no finished run yet: go on with its command")
    return runs[0]


def read_confusions(
    paths: Sequence[Path], *, methods: Sequence[str] = ()
) -> tuple[list[NamedConfusion], tuple[str, ...]]:
    """Confusion matrices on test, with the names of the classes.

    Args:
        paths: Run folders, a matrix for each; or study folders, a matrix for each method that is
            shown (:func:`shown_methods`), over the seeds that all of these have finished.
        methods: Of a study, in this order.
    """
    lines = _lines(paths, methods, having=lambda run: run.is_finished)
    first = lines[0].runs[0]
    class_names = tuple(first.about()["class_names"])
    confusions = []
    for line in lines:
        total = np.zeros((len(class_names), len(class_names)), dtype=np.int64)
        for run in line.runs:
            if tuple(run.about()["class_names"]) != class_names:
                raise InputError(
                    f"{run.path} has other classes than {first.path}: draw them in two figures, "
                    "each with an --out of its own"
                )
            total += np.asarray(run.metrics()["test"]["confusion"], dtype=np.int64)
        confusions.append(NamedConfusion(line.name, total))
    return confusions, class_names


def read_curves(
    paths: Sequence[Path], *, methods: Sequence[str] = (), measure: str = "overall"
) -> list[ErrorCurves]:
    """Errors by epoch; runs need not be finished.

    Args:
        paths: Run folders; or study folders, of which those methods are taken that are shown.
        methods: Of a study, in this order.
        measure: One of ``MEASURES``. Training errors are overall in any case: no other is kept.
    """
    if measure not in MEASURES:
        raise InputError(f"there is no measure {measure!r}{choices_hint(measure, MEASURES)}")
    lines = _lines(paths, methods, having=_has_epochs)
    return [_curves(line, MEASURES[measure]) for line in lines]


def shown_methods(
    study: StudyFolder, able: Collection[str], *, asked: Sequence[str] = ()
) -> list[str]:
    """The methods of a study to show: those asked for, else the baseline and one beside it.

    That is the method that the study chose; where it chose the baseline, ``cosen``; where there is
    none, the first of the others.

    Args:
        study: The study.
        able: Those of its methods that have what the figure needs.
        asked: By name.
    """
    known = list(study.about()["methods"])
    for method in asked:
        if method not in known:
            raise InputError(f"{study.path} has no method {method!r}{choices_hint(method, known)}")
        if method not in able:
            raise RunError(f"{study.path} has no run of {method} that this figure can show")
    if asked:
        return list(asked)
    if not able:
        raise RunError(f"{study.path} has no run to show yet: go on with its command")
    wanted = [_chosen(study), OURS, *known]
    beside = next((name for name in wanted if name in able and name != BASELINE), None)
    return [name for name in (BASELINE, beside) if name is not None and name in able]


def _chosen(study: StudyFolder) -> str | None:
    try:
        choice = json.loads((study.path / "choice.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except json.JSONDecodeError as error:
        raise RunError(f"{study.path / 'choice.json'} is damaged: {error}") from error
    found: str | None = choice["method"]
    return found


@dataclass(frozen=True)
class _Line:
    """One thing to show: a run, or the runs of a method."""

    name: str
    folder: Path
    runs: tuple[RunFolder, ...]


def _lines(
    paths: Sequence[Path], methods: Sequence[str], *, having: Callable[[RunFolder], bool]
) -> list[_Line]:
    lines = []
    for path in paths:
        if StudyFolder(path).has_study:
            lines += _of_study(StudyFolder(path), methods, having=having)
            continue
        check_folder(path)
        run = RunFolder(path)
        lines.append(_Line(run.about()["config"]["method"], path, (run,)))
    if not lines:
        raise InputError("there is no run to show: give a run or a study folder")
    often = Counter(line.name for line in lines)
    return [
        replace(line, name=f"{line.name} ({line.folder.resolve().name})")
        if often[line.name] > 1
        else line
        for line in lines
    ]


def _of_study(
    study: StudyFolder, asked: Sequence[str], *, having: Callable[[RunFolder], bool]
) -> list[_Line]:
    about = study.about()
    ready = {
        method: {
            seed: run
            for seed in about["seeds"]
            if (run := study.run(method, seed)).has_run and having(run)
        }
        for method in about["methods"]
    }
    able = [method for method, by_seed in ready.items() if by_seed]
    shown = shown_methods(study, able, asked=asked)
    seeds = [seed for seed in about["seeds"] if all(seed in ready[method] for method in shown)]
    if not seeds:
        raise RunError(f"{study.path} has no seed yet that {' and '.join(shown)} both have")
    return [
        _Line(method, study.path, tuple(ready[method][seed] for seed in seeds)) for method in shown
    ]


def _has_epochs(run: RunFolder) -> bool:
    return (run.path / "history.csv").is_file() and bool(run.history())


def _curves(line: _Line, kept_as: str) -> ErrorCurves:
    for run in line.runs:
        if not _has_epochs(run):
            reason = "it was not trained by epochs" if run.is_finished else "none has ended yet"
            raise RunError(f"{run.path} has no epochs to show: {reason}")
    histories = [run.history() for run in line.runs]
    shared = min(map(len, histories))  # runs may stop early: a mean is over all of them
    try:
        train = [[float(epoch["train_error"]) for epoch in runs[:shared]] for runs in histories]
        val = [[1 - float(epoch[kept_as]) for epoch in runs[:shared]] for runs in histories]
    except (KeyError, ValueError) as error:
        raise RunError(f"a history.csv of {line.name} in {line.folder} is damaged") from error
    return ErrorCurves(
        line.name, np.arange(1, shared + 1), np.array(train, float), np.array(val, float)
    )
