"""The leaderboard as text: a table for terminals, a Markdown table, and notes."""

import math
import textwrap
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from cosen import functional as F
from cosen.comparing.bootstrap import LEVEL, Change, Spread
from cosen.costs import Objective

if TYPE_CHECKING:
    from rich.table import Table

    from cosen.comparing.leaderboard import Leaderboard, MethodRow

HEADINGS = {
    "accuracy": "accuracy",
    "mean_recall": "mean recall",
    "g_mean": "G-mean",
    "macro_f1": "macro F1",
    "rare_recall": "rarest third",
}
"""Headings of the metrics in the table."""

GROUP_HEADINGS = {
    "accuracy": "accuracy",
    "mean_recall": "mean recall",
    "many_recall": "many shot",
    "medium_recall": "medium shot",
    "few_recall": "few shot",
}
"""Headings with many classes; the G-mean is then often 0."""

MIN_NAME_WIDTH = 12
"""In a narrow table, names of methods are wrapped at hyphens, but not below this width."""


def format_error(error: float, largest_cost: float | None) -> str:
    """Format an error as the percentage that is right, or as a mean cost.

    Args:
        error: The error, between 0 and 1.
        largest_cost: The largest misclassification cost, or None without costs.

    Example:
        >>> format_error(0.088, None), format_error(0.088, 5.0)
        ('91.2', '0.44')
    """
    return format_share(1 - error if largest_cost is None else error, largest_cost)


def format_change(change: Change, largest_cost: float | None) -> tuple[str, str, str]:
    """Format a change and both ends of its interval, in the units of :func:`format_error`.

    Example:
        >>> format_change(Change(0.062, 0.021, 0.098), None)
        ('+6.2', '+2.1', '+9.8')
        >>> format_change(Change(0.1, -0.02, 0.3), 5.0)
        ('-0.50', '-1.50', '+0.10')
    """
    mean, low, high = change.mean, change.low, change.high
    if largest_cost is not None:  # a better method has a lower cost
        mean, low, high = -mean, -high, -low
    signed = [format_share(share, largest_cost, sign="+") for share in (mean, low, high)]
    return signed[0], signed[1], signed[2]


def format_share(share: float, largest_cost: float | None, *, sign: Literal["", "+"] = "") -> str:
    """Format a share of 1 as a percentage, or as a share of the largest cost.

    The last decimal is about a thousandth of the largest value.
    """
    scale = 100.0 if largest_cost is None else largest_cost
    decimals = max(0, 3 - math.ceil(math.log10(scale)))
    return f"{round(share * scale, decimals) + 0.0:{sign}.{decimals}f}"  # never -0.0


def leaderboard_table(board: "Leaderboard", *, width: int) -> "Table":
    """Return the table for a terminal, with the notes below it.

    Args:
        board: The leaderboard.
        width: Width of the terminal. If the table does not fit, deviations and intervals go to a
            second line.
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
        names = max(MIN_NAME_WIDTH, left)
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


def markdown_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], *, left: Collection[str] = ("method",)
) -> str:
    """Return a Markdown table.

    Args:
        headings: The headings of the columns.
        rows: The cells of each row.
        left: Headings of the columns to align left; all others are aligned right.

    Example:
        >>> print(markdown_table(["method", "recall"], [["cosen", "96.1"]]))
        | method | recall |
        | --- | ---: |
        | cosen | 96.1 |
    """
    rule = ["---" if heading in left else "---:" for heading in headings]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rule, *rows))


def leaderboard_markdown(board: "Leaderboard") -> str:
    """Return the Markdown table of a leaderboard, with the notes below it."""
    rows = [[" ".join(cell) for cell in cells_of(board, row)] for row in board.rows]
    return "\n\n".join([markdown_table(headings_of(board), rows), *notes_of(board)]) + "\n"


def headings_of(board: "Leaderboard") -> list[str]:
    """Return the headings of the columns."""
    cost = [] if board.largest_cost is None else ["mean cost"]
    return ["method", *_metrics_of(board).values(), *cost, "change", "seconds"]


def _metrics_of(board: "Leaderboard") -> dict[str, str]:
    """Return the metrics in the table and their headings."""
    has_groups = any("few_recall" in row.test for row in board.rows)
    return GROUP_HEADINGS if has_groups else HEADINGS


def cells_of(board: "Leaderboard", row: "MethodRow") -> list[tuple[str, ...]]:
    """Return the cells of a row, each as a tuple of parts that can go to separate lines."""
    cost, change = board.largest_cost, row.changes.get("objective")
    cells = [
        (row.method,),
        *(_mean_cell(row.test.get(name), None) for name in _metrics_of(board)),
    ]
    if cost is not None:
        cells.append(_mean_cell(row.test.get("error"), cost))
    if change is None:
        cells.append(("-",))
    else:
        mean, low, high = format_change(change, cost)
        cells.append((mean, f"({low} to {high})"))
    cells.append(("-" if row.seconds is None else _seconds(row.seconds),))
    return cells


def notes_of(board: "Leaderboard") -> list[str]:
    """Return the notes below the table: what the numbers mean, and which runs failed."""
    seeds, costs = len(board.seeds), board.largest_cost is not None
    over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    note = f"On test, in per cent{' except for costs' if costs else ''}, {over}."
    if _metrics_of(board) is GROUP_HEADINGS:
        note += (
            f" Many, medium and few shot: mean recall of classes with more than {F.MANY_SHOT}, "
            f"{F.FEW_SHOT} to {F.MANY_SHOT}, and fewer than {F.FEW_SHOT} training images."
        )
    if board.baseline is not None:
        value = "mean cost" if costs else Objective.LABELS[board.objective]
        note += f" Change in {value} against {board.baseline}, with {100 * LEVEL:.0f} % interval."
    return [note, *(_failure_note(row) for row in board.rows if row.failures)]


def _failure_note(row: "MethodRow") -> str:
    reasons = {seed: " ".join(reason.split()) for seed, reason in row.failures.items()}
    different = dict.fromkeys(reasons.values())
    if row.has_failed and len(different) == 1:
        return f"{row.method} failed: {next(iter(different))}"
    by_seed = "; ".join(f"seed {seed}: {reason}" for seed, reason in reasons.items())
    if row.has_failed:
        return f"{row.method} failed: {by_seed}"
    total = len(row.seeds) + len(row.failures)
    return f"{row.method} has {len(row.seeds)} of {total} seeds; failed: {by_seed}"


def _mean_cell(spread: Spread | None, largest_cost: float | None) -> tuple[str, ...]:
    if spread is None:
        return ("-",)
    mean = format_share(spread.mean, largest_cost)
    if spread.deviation is None:
        return (mean,)
    return mean, f"± {format_share(spread.deviation, largest_cost)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds < 10 else f"{seconds:.0f}"


def _width(columns: list[tuple[tuple[str, ...], ...]], between: str) -> int:
    """Return the width of columns without the gaps."""
    return sum(
        max(len(line) for cell in column for line in between.join(cell).split("\n"))
        for column in columns
    )
