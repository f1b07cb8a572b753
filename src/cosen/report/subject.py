"""What a report is about: the runs it shows, and what is said of them together."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cosen.costs import Objective
from cosen.report.run_data import Shown


@dataclass(frozen=True, eq=False)
class Subject:
    """A run, a run beside another, or a study.

    Attributes:
        kind: Of what.
        title: The data, and of a run its method.
        shown: The runs that are shown in full.
        about: What the run or the study was made of.
        objective: What it is judged by.
        verdict: One sentence with its numbers.
        caveats: What the reader should know besides.
        costs: The costs that were learned, or None.
        leaderboard: Methods side by side, in a study.
    """

    kind: Literal["study", "run"]
    title: str
    shown: Shown
    about: Mapping[str, Any]
    objective: Objective
    verdict: str
    caveats: list[str]
    costs: dict[str, Any] | None
    leaderboard: dict[str, Any] | None = None
