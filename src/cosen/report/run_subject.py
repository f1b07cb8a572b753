"""A report about a run, alone or beside another."""

from collections.abc import Iterator
from pathlib import Path

from cosen.comparing.study_folder import StudyFolder
from cosen.errors import InputError, RunError
from cosen.report.learned_costs import learned_costs
from cosen.report.provenance import title
from cosen.report.run_data import Shown, Side, finished_run, read_shown
from cosen.report.subject import Subject
from cosen.report.verdict import caveats, verdict
from cosen.training.run_folder import RunFolder


def run_subject(path: Path, against: Path | None) -> Subject:
    """A run, alone or beside another on the same split."""
    shown = _shown(path, against)
    about, objective = shown.first.about, shown.first.folder.objective()
    costs, why_no_costs = learned_costs(_runs(shown))
    beside = "" if shown.baseline is None else f" against {shown.baseline.name}"
    return Subject(
        kind="run",
        title=f"{title(about)}, {shown.chosen.name}{beside}",
        shown=shown,
        about=about,
        objective=objective,
        verdict=verdict(shown, objective),
        caveats=caveats(shown) + ([why_no_costs] if why_no_costs else []),
        costs=costs,
    )


def _shown(path: Path, against: Path | None) -> Shown:
    run = read_shown(finished_run(path))
    seed, method = run.about["config"]["seed"], run.about["config"]["method"]
    if against is None:
        return Shown(Side(method, {seed: run}))
    if StudyFolder(against).has_study:
        raise InputError(f"{against} is a study: name one of its runs with --against")
    other = read_shown(finished_run(against))
    if path.resolve() == against.resolve():
        raise InputError(f"{path} cannot be held against itself: name another run with --against")
    same = run.about.get("fingerprint") == other.about.get("fingerprint")
    if not same or run.names != other.names or not run.target.equal(other.target):
        raise RunError(
            f"{path} and {against} were not made on the same split, so they cannot be compared "
            "image by image: train with the same data, --seed, --split, --imbalance, --size and "
            "--objective"
        )
    names = [method, other.about["config"]["method"]]
    if names[0] == names[1]:
        names = [f"{method} ({folder.resolve().name})" for folder in (path, against)]
    if names[0] == names[1]:
        names = [f"{method} ({folder})" for folder in (path, against)]
    return Shown(Side(names[0], {seed: run}), Side(names[1], {seed: other}))


def _runs(shown: Shown) -> Iterator[tuple[str, int, RunFolder]]:
    for _, side in shown.sides():
        for seed, run in side.runs.items():
            yield side.name, seed, run.folder
