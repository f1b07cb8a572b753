"""A leaderboard as people read it: in a terminal, and in Markdown."""

import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from cosen.comparing.bootstrap import LEVEL, Change
from cosen.costs import Objective

if TYPE_CHECKING:
    from rich.table import Table

    from cosen.comparing.leaderboard import Leaderboard, MethodRow
    from cosen.comparing.spread import Spread

HEADINGS = {
    "accuracy": "accuracy",
    "mean_recall": "mean recall",
    "g_mean": "G-mean",
    "macro_f1": "macro F1",
    "rare_recall": "rarest third",
}
"""The metrics that are shown."""

NARROWEST_NAME = 12
"""Where space is short, names of methods are broken at hyphens, but not below this."""


@dataclass(frozen=True)
class Measure:
    """The objective that methods are judged by, and how people are told of it.

    Attributes:
        objective: ``"overall"``, ``"balanced"`` or ``"expert"``.
        largest_cost: The expert's largest cost, which errors are shares of; else None.
    """

    objective: Literal["overall", "balanced", "expert"]
    largest_cost: float | None = None

    @classmethod
    def of(cls, objective: Objective) -> "Measure":
        """How an objective is told."""
        if isinstance(objective, Tensor):
            return cls("expert", float(objective.max()))
        return cls(objective)

    @property
    def name(self) -> str:
        names = {"overall": "overall accuracy", "balanced": "mean class recall"}
        return names.get(self.objective, "the expert's costs")

    def value(self, error: float) -> str:
        """An error as what is measured: the per cent that are right, or the mean cost.

        Example:
            >>> Measure("balanced").value(0.088), Measure("expert", largest_cost=5.0).value(0.088)
            ('91.2', '0.44')
        """
        return self._text(1 - error if self.largest_cost is None else error)

    def spread(self, spread: float) -> str:
        """A standard deviation of errors, on the scale of :meth:`value`."""
        return self._text(spread)

    def change(self, change: Change) -> tuple[str, str, str]:
        """A change and both ends of its interval, on the scale of :meth:`value`.

        Example:
            >>> Measure("balanced").change(Change(0.062, 0.021, 0.098))
            ('+6.2', '+2.1', '+9.8')
            >>> Measure("expert", largest_cost=5.0).change(Change(0.1, -0.02, 0.3))
            ('-0.50', '-1.50', '+0.10')
        """
        mean, low, high = change.mean, change.low, change.high
        if self.largest_cost is not None:  # a gain is a cost that falls
            mean, low, high = -mean, -high, -low
        return self._text(mean, "+"), self._text(low, "+"), self._text(high, "+")

    def _text(self, share: float, sign: Literal["", "+"] = "") -> str:
        """A share of the scale, to a thousandth of it: a tenth of a per cent, or as with costs."""
        scale = 100.0 if self.largest_cost is None else self.largest_cost
        decimals = max(0, 3 - math.ceil(math.log10(scale)))
        return f"{round(share * scale, decimals) + 0.0:{sign}.{decimals}f}"  # never -0.0


def leaderboard_table(board: "Leaderboard", *, width: int = 120) -> "Table":
    """The leaderboard for a terminal, its notes below it.

    Args:
        board: The leaderboard.
        width: Of the terminal. Where it is short, spreads and intervals stand on a second line.
    """
    from rich.table import Table
    from rich.text import Text

    headings = headings_of(board)
    lines = [cells_of(board, row) for row in board.rows]
    columns = list(zip([(heading,) for heading in headings], *lines, strict=True))
    gap, between = 2, " "
    if _width(columns, between) + gap * (len(headings) - 1) > width:
        gap, between = 1, "\n"
        headings = [heading.replace(" ", "\n") for heading in headings]
        columns = list(zip([(heading,) for heading in headings], *lines, strict=True))
        left = width - _width(columns[1:], between) - gap * (len(headings) - 1)
        names = max(NARROWEST_NAME, left)
        lines = [[tuple(textwrap.wrap(row[0][0], names)), *row[1:]] for row in lines]
    table = Table(
        box=None,
        padding=(0, gap, 0, 0),
        pad_edge=False,
        caption=Text("\n".join(notes_of(board))),
        caption_style="",
        caption_justify="left",
    )
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number else "left", overflow="fold")
    for line in lines:
        table.add_row(*(Text(between.join(cell)) for cell in line))
    return table


def markdown_table(board: "Leaderboard") -> str:
    """The leaderboard in Markdown, its notes below it."""
    headings = headings_of(board)
    lines = [headings, ["---"] + ["---:"] * (len(headings) - 1)]
    lines += [[" ".join(cell) for cell in cells_of(board, row)] for row in board.rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return "\n\n".join([table, *notes_of(board)]) + "\n"


def headings_of(board: "Leaderboard") -> list[str]:
    """What stands above the columns."""
    cost = [] if board.measure.largest_cost is None else ["mean cost"]
    return ["method", *HEADINGS.values(), *cost, "change", "seconds"]


def cells_of(board: "Leaderboard", row: "MethodRow") -> list[tuple[str, ...]]:
    """The cells of a row, each in the parts that may stand below each other."""
    measure, change = board.measure, row.changes.get("objective")
    cells = [
        (row.method,),
        *(_with_spread(row.test.get(name), _per_cent, _per_cent) for name in HEADINGS),
    ]
    if measure.largest_cost is not None:
        cells.append(_with_spread(row.test.get("error"), measure.value, measure.spread))
    if change is None:
        cells.append(("-",))
    else:
        mean, low, high = measure.change(change)
        cells.append((mean, f"({low} to {high})"))
    cells.append(("-" if row.seconds is None else _seconds(row.seconds),))
    return cells


def notes_of(board: "Leaderboard") -> list[str]:
    """What the numbers are, then which runs are missing and why."""
    many = len(board.seeds) > 1
    over = f"mean ± standard deviation over {len(board.seeds)} seeds" if many else "one seed"
    costs = board.measure.largest_cost is not None
    about = f"On test, in per cent{' but for costs' if costs else ''}, {over}."
    if board.baseline is not None:
        what = "the mean cost" if costs else board.measure.name
        about += (
            f" Change: of {what} against {board.baseline}, with its {100 * LEVEL:.0f} % interval."
        )
    missing = [row for row in board.rows if row.failures]
    return [about, *(_what_is_missing(row) for row in missing)]


def _what_is_missing(row: "MethodRow") -> str:
    reasons: dict[str, list[str]] = {}
    for seed, reason in row.failures.items():
        reasons.setdefault(" ".join(reason.split()), []).append(str(seed))
    if row.has_failed and len(reasons) == 1:
        return f"{row.method} failed: {next(iter(reasons))}"
    told = "; ".join(
        f"seed{'s' * (len(seeds) > 1)} {', '.join(seeds)}: {reason}"
        for reason, seeds in reasons.items()
    )
    if row.has_failed:
        return f"{row.method} failed: {told}"
    of = len(row.seeds) + len(row.failures)
    return f"{row.method} rests on {len(row.seeds)} of {of} seeds; failed: {told}"


def _with_spread(
    figure: "Spread | None", value: Callable[[float], str], spread: Callable[[float], str]
) -> tuple[str, ...]:
    if figure is None:
        return ("-",)
    if figure.deviation is None:
        return (value(figure.mean),)
    return value(figure.mean), f"± {spread(figure.deviation)}"


def _per_cent(share: float) -> str:
    return f"{100 * share:.1f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"


def _width(columns: list[tuple[tuple[str, ...], ...]], between: str) -> int:
    """The width of some columns without the gaps."""
    return sum(
        max(len(line) for cell in column for line in between.join(cell).split("\n"))
        for column in columns
    )
