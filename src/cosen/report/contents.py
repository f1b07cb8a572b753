"""What a report shows, read from run and study folders alone: it needs neither data nor model."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from cosen.comparing.study_folder import StudyFolder
from cosen.errors import InputError, RunError
from cosen.report.classes import by_rarity, class_table, confusions
from cosen.report.curves import curves
from cosen.report.gallery import gallery
from cosen.report.headline import headline
from cosen.report.provenance import command, made
from cosen.report.reliability import reliability
from cosen.report.run_subject import run_subject
from cosen.report.study_subject import study_subject
from cosen.report.subject import Subject
from cosen.report.tradeoff import tradeoff
from cosen.training.run_folder import RunFolder

FORMAT = 1


@dataclass(frozen=True)
class Contents:
    """What a page shows, in plain values: labels are places in ``classes``, rates are 0 to 1.

    Attributes:
        kind: Of what.
        title: The data.
        verdict: One sentence with its numbers.
        caveats: What the reader should know besides.
        leaderboard: Methods side by side, in a study.
        figures: What the whole test set says.
        methods: The names of the baseline (or None) and of the method that is shown beside it.
        seeds: Of what is shown.
        classes: Images and recall of each class.
        by_rarity: Labels, the rarest first.
        confusion: Counts over all seeds, row = true class.
        costs: The costs that were learned, or None.
        curves: Errors by epoch.
        gallery: Pictures.
        tradeoff: Scores to decide anew by, or None.
        reliability: Confidence against accuracy.
        made: How it was made.
        command: What repeats it.
    """

    kind: Literal["study", "run"]
    title: str
    verdict: str
    caveats: list[str]
    leaderboard: dict[str, Any] | None
    figures: list[dict[str, str | None]]
    methods: dict[str, str | None]
    seeds: list[int]
    classes: list[dict[str, Any]]
    by_rarity: list[int]
    confusion: dict[str, Any]
    costs: dict[str, Any] | None
    curves: list[dict[str, Any]]
    gallery: dict[str, Any]
    tradeoff: dict[str, Any] | None
    reliability: dict[str, Any]
    made: list[dict[str, str]]
    command: str

    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}


def read_contents(path: Path | str, *, against: Path | str | None = None) -> Contents:
    """What there is to show of a run, of a run beside another, or of a study.

    Args:
        path: A run folder or a study folder.
        against: A run folder that a run is held against, on the same split.
    """
    path, against = Path(path), None if against is None else Path(against)
    study = StudyFolder(path)
    if study.has_study:
        if against is not None:
            raise InputError(
                f"{path} is a study, which has a baseline of its own: leave --against out, or "
                f"name one of its runs, such as {path / 'runs' / 'METHOD' / 'SEED'}"
            )
        return _contents(study_subject(study))
    if not RunFolder(path).has_run:
        raise RunError(
            f"{path} is no run folder and no study folder: there is no run.json and no study.json "
            "in it"
        )
    return _contents(run_subject(path, against))


def _contents(subject: Subject) -> Contents:
    shown, scores = subject.shown, tradeoff(subject.shown)
    too_many = (
        f"The scores of {len(shown.class_names)} classes are too large for a trade-off to be shown."
    )
    return Contents(
        kind=subject.kind,
        title=subject.title,
        verdict=subject.verdict,
        caveats=[*subject.caveats, *([too_many] if scores is None else [])],
        leaderboard=subject.leaderboard,
        figures=headline(shown, subject.objective),
        methods={"baseline": None} | {role: side.name for role, side in shown.sides()},
        seeds=shown.seeds,
        classes=class_table(shown),
        by_rarity=by_rarity(shown),
        confusion=confusions(shown),
        costs=subject.costs,
        curves=curves(shown),
        gallery=gallery(shown),
        tradeoff=scores,
        reliability=reliability(shown),
        made=made(shown, subject.about),
        command=command(subject.about),
    )
