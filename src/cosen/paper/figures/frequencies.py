"""Training images by class, of one dataset or of several side by side (Fig. intro, exp_set)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from cosen.errors import InputError
from cosen.paper.figures.lettering import one_line, put_title, shortened, text_width
from cosen.paper.figures.style import (
    BLUE,
    COLUMN,
    LINE,
    POINT,
    SMALL,
    new_figure,
    paper_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST_PANEL = 1.6
"""Inches that a dataset needs beside others."""

LONGEST_NAME = 0.9
"""Inches that an upright name of a class may have."""

_MARGIN = 0.5
"""Inches of a panel that its axis of counts takes."""


@dataclass(frozen=True)
class ClassCounts:
    """The training images of a dataset.

    Attributes:
        name: What to call it.
        class_names: The names of the classes.
        counts: How many images each has.
    """

    name: str
    class_names: tuple[str, ...]
    counts: tuple[int, ...]


@paper_style()
def draw_frequencies(
    datasets: Sequence[ClassCounts],
    *,
    by_frequency: bool = False,
    log: bool = False,
    ylabel: str = "training images",
    width: float = COLUMN,
) -> "Figure":
    """A bar for each class, a panel for each dataset.

    Classes have their names where these fit, else numbers from 0 on, as ``odd:0.1`` counts them.

    Args:
        datasets: One or more.
        by_frequency: The most frequent class first, instead of the order of the classes.
        log: Counts on a logarithmic axis, where rare classes would be too small to see.
        ylabel: What is counted.
        width: Inches.
    """
    if not datasets:
        raise InputError("there is no dataset to count: give one or more")
    rows = math.ceil(len(datasets) / max(1, int(width / LEAST_PANEL)))
    columns = math.ceil(len(datasets) / rows)
    axis_of_names = [_Axis(one, by_frequency, width / columns - _MARGIN) for one in datasets]
    heights = [
        1.55 + max(axis.height for axis in axis_of_names[first : first + columns])
        for first in range(0, len(datasets), columns)
    ]
    numbered = all(axis.holds_counts for axis in axis_of_names)
    figure = new_figure(width, sum(heights))
    grid = figure.subplots(rows, columns, squeeze=False, height_ratios=heights)
    for place, (dataset, axis) in enumerate(zip(datasets, axis_of_names, strict=True)):
        axes = grid[place // columns, place % columns]
        _draw_panel(axes, dataset, axis, log=log, numbered=numbered, width=width / columns)
        if place % columns == 0:
            axes.set_ylabel(ylabel)
    for place in range(len(datasets), rows * columns):
        grid[place // columns, place % columns].set_axis_off()
    figure.align_ylabels()
    return figure


class _Axis:
    """The classes of a dataset along an axis of so many inches: in which order, with what names.

    Attributes:
        order: Labels from left to right.
        pitch: Inches from one bar to the next.
        names: What stands below each bar; None where names do not fit.
        upright: Whether names are turned.
        height: Inches that names take.
        holds_counts: Whether the count of a class fits above its bar.
    """

    def __init__(self, dataset: ClassCounts, by_frequency: bool, length: float) -> None:
        counts = np.asarray(dataset.counts)
        classes = np.arange(len(counts))
        self.by_frequency = by_frequency
        self.order = np.argsort(-counts, kind="stable") if by_frequency else classes
        self.pitch = length / max(1, len(counts))
        names = [one_line(dataset.class_names[label]) for label in self.order]
        widest = max(text_width(str(count)) for count in dataset.counts)
        self.holds_counts = widest < 0.95 * self.pitch
        self.names: list[str] | None = None
        self.upright = False
        self.height = LINE * SMALL * POINT
        if max(map(text_width, names)) < 0.9 * self.pitch:
            self.names = names
        elif self.pitch >= SMALL * POINT:
            self.names = [shortened(name, LONGEST_NAME) for name in names]
            self.upright = True
            self.height = max(map(text_width, self.names))


def _draw_panel(
    axes: "Axes", dataset: ClassCounts, axis: _Axis, *, log: bool, numbered: bool, width: float
) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

    counts = np.asarray(dataset.counts)[axis.order]
    # ranks count from 1, classes from 0
    places = np.arange(len(counts)) + (axis.by_frequency and axis.names is None)
    axes.bar(places, counts, width=0.8, color=BLUE)
    axes.set_xlim(places[0] - 0.7, places[-1] + 0.7)
    axes.set_ymargin(0.15 if numbered else 0.05)
    if log:
        axes.set_yscale("log")
        axes.set_ylim(bottom=_below_all(dataset.counts))
        axes.yaxis.set_minor_locator(NullLocator())
    else:
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    if numbered:
        for place, count in zip(places, counts, strict=True):
            axes.annotate(
                str(count),
                (place, count),
                xytext=(0, 1),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=SMALL,
            )
    if axis.names is not None:
        turn = 90 if axis.upright else 0
        axes.set_xticks(places, axis.names, rotation=turn, parse_math=False)
        axes.tick_params(axis="x", length=0)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_xlabel(_axis_label(axis))
    put_title(axes, dataset.name, _facts(dataset), width=width - _MARGIN + 0.05)


def _below_all(counts: Sequence[int]) -> float:
    """Where a logarithmic axis begins: a power of ten clearly below the least bar.

    Example:
        >>> _below_all([92, 5364]), _below_all([10, 100])
        (10.0, 1.0)
    """
    least = min((count for count in counts if count > 0), default=1)
    return float(10.0 ** math.floor(math.log10(least / 1.5)))


def _axis_label(axis: _Axis) -> str:
    if axis.by_frequency:
        return "class, by frequency" if axis.names else "rank of the class"
    return "class" if axis.names else "class number"


def _facts(dataset: ClassCounts) -> str:
    least, most = min(dataset.counts), max(dataset.counts)
    spread = f"{most} each" if least == most else f"{least}–{most}"
    return f"{len(dataset.counts)} classes, {spread}"


def _short(count: float) -> str:
    """A count on an axis.

    Example:
        >>> _short(500.0), _short(6000.0), _short(150000.0)
        ('500', '6000', '150k')
    """
    return f"{count / 1000:g}k" if count >= 10_000 else f"{count:g}"
