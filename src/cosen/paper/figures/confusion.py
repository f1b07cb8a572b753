"""Confusion matrices side by side (Fig. CM)."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from cosen import functional as F
from cosen.errors import InputError
from cosen.paper.figures.lettering import one_line, put_title, shortened, text_width
from cosen.paper.figures.style import (
    COLUMN,
    LINE,
    POINT,
    SHADES,
    SMALL,
    new_figure,
    paper_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

LONGEST_NAME = 0.8
"""Inches that the name of a class may have."""

TALLEST = 8.5
"""Inches: matrices are put below each other only up to this."""

LARGEST_CELL, LEAST_SIDE = 0.3, 1.1
"""Inches: no cell is larger, unless the matrix would be too small for its title."""

# Inches: between matrices, of the labels of axes, of titles, of the bar of colours, at the edge
_GAP, _LABEL, _TITLE, _BAR, _EDGE = 0.12, 0.2, 0.32, 0.58, 0.05


@dataclass(frozen=True, eq=False)
class NamedConfusion:
    """The decisions of one method.

    Attributes:
        name: What to call it.
        counts: Row = true class, column = output, shape ``(C, C)``.
    """

    name: str
    counts: NDArray[np.int64]

    @property
    def rates(self) -> NDArray[np.float64]:
        """Rows as shares of their class; zeros for a class without images."""
        found: NDArray[np.float64] = F.confusion_rates(torch.from_numpy(self.counts)).numpy()
        return found

    @property
    def mean_recall(self) -> float:
        return float(F.mean_recall(torch.from_numpy(self.counts)))


@paper_style()
def draw_confusion(
    methods: Sequence[NamedConfusion], class_names: Sequence[str], *, width: float = COLUMN
) -> "Figure":
    """Shares of each true class in per cent, a matrix for each method.

    Matrices stand side by side; below each other where that makes room for numbers in the cells,
    or for the names of classes. Numbers are left out where they do not fit, and zeros always;
    classes whose names do not fit are numbered from 0 on.

    Args:
        methods: One or more, all with the same classes.
        class_names: Names of the classes.
        width: Inches.
    """
    if not methods:
        raise InputError("there is no confusion matrix to draw: give one or more")
    for method in methods:
        if method.counts.shape != (len(class_names), len(class_names)):
            raise InputError(
                f"the confusion matrix of {method.name} is {method.counts.shape}, but there are "
                f"{len(class_names)} classes"
            )
    plan = _Plan(methods, [one_line(name) for name in class_names], width)
    figure = new_figure(width, plan.height, by_hand=True)
    for place, method in enumerate(methods):
        axes = figure.add_axes(plan.panel(place))
        image = _draw_matrix(axes, method, plan)
        plan.letter(axes, place)
    if not plan.has_numbers:
        bar = figure.colorbar(image, cax=figure.add_axes(plan.bar()))
        bar.set_label("% of true class", labelpad=1)
        bar.outline.set_linewidth(0.6)
    return figure


class _Plan:
    """Where everything goes, in inches from the lower left.

    Attributes:
        columns: Matrices beside each other.
        cell: A cell's side.
        has_numbers: Whether numbers fit in the cells.
        names: Of the classes, shortened; None where they do not fit.
        upright: Whether names of columns are turned.
        height: Of the figure.
    """

    def __init__(self, methods: Sequence[NamedConfusion], names: list[str], width: float) -> None:
        self.width, self.classes = width, len(names)
        written = {cell_text(rate) for method in methods for rate in method.rates.flat}
        short = [shortened(name, LONGEST_NAME) for name in names]
        self.columns, self.has_numbers, has_names = self._arranged(len(methods), short, written)
        self.names = short if has_names else None
        longest = max(map(text_width, short if has_names else [str(self.classes)]))
        self.cell = self._cell(self.columns, longest, bar=not self.has_numbers)
        self.upright = has_names and longest > 0.92 * self.cell
        self._side = self.classes * self.cell
        self._below = _LABEL + (longest if self.upright else LINE * SMALL * POINT) + 4 * POINT
        self.height = math.ceil(len(methods) / self.columns) * self._row
        self._left = _LABEL + longest + 4 * POINT
        used = self._left + self.columns * self._side + (self.columns - 1) * _GAP + _EDGE
        spare = width - used - (0 if self.has_numbers else _BAR)
        self._left += max(0.0, spare) / 2

    def _arranged(
        self, methods: int, names: list[str], written: Collection[str]
    ) -> tuple[int, bool, bool]:
        """Matrices beside each other, whether there are numbers, and whether there are names.

        Numbers are worth more than names, these more than a small figure.
        """
        longest = max(map(text_width, names))
        number = max(text_width(text) + (0.3 if len(text) > 2 else 2) * POINT for text in written)
        line = LINE * SMALL * POINT
        for least, bar in ((max(number, line), False), (SMALL * POINT, True)):
            for columns in (methods, 1):
                cell = self._cell(columns, longest, bar=bar)
                row = self.classes * cell + longest + _LABEL + _TITLE + 4 * POINT
                if cell >= least and (columns > 1 or methods * row <= TALLEST):
                    return columns, not bar, True
        return methods, False, False

    def _cell(self, columns: int, longest_name: float, *, bar: bool) -> float:
        room = self.width - (_LABEL + longest_name + 4 * POINT) - (columns - 1) * _GAP - _EDGE
        largest = max(LARGEST_CELL, LEAST_SIDE / self.classes)
        return min(largest, (room - _BAR * bar) / (columns * self.classes))

    @property
    def _row(self) -> float:
        return self._below + self._side + _TITLE

    def panel(self, place: int) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of a matrix, as shares of the figure."""
        row, column = divmod(place, self.columns)
        left = self._left + column * (self._side + _GAP)
        bottom = self.height - (row + 1) * self._row + self._below
        return self._shares(left, bottom, self._side, self._side)

    def bar(self) -> tuple[float, float, float, float]:
        """The same of the bar of colours."""
        left = self._left + self.columns * (self._side + _GAP) - 0.03
        return self._shares(left, self._below, 0.08, self._side)

    def _shares(
        self, left: float, bottom: float, wide: float, tall: float
    ) -> tuple[float, float, float, float]:
        return left / self.width, bottom / self.height, wide / self.width, tall / self.height

    def letter(self, axes: "Axes", place: int) -> None:
        """Names of the classes along the axes; rows have them on the left of the figure only."""
        from matplotlib.ticker import MaxNLocator

        first = place % self.columns == 0
        if self.names is None:
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(MaxNLocator(4, integer=True))
        else:
            turn = 90 if self.upright else 0
            places = range(self.classes)
            axes.set_xticks(places, self.names, rotation=turn, parse_math=False)
            axes.set_yticks(places, self.names, parse_math=False)
        axes.tick_params(length=0 if self.names else 2, labelleft=first)
        axes.set_xlabel("predicted class")
        if first:
            axes.set_ylabel("true class")


def cell_text(rate: float) -> str:
    """What stands in a cell: per cent, and nothing for what would be 0.

    Example:
        >>> cell_text(0.934), cell_text(0.004)
        ('93', '')
    """
    return f"{100 * rate:.0f}" if 100 * rate >= 0.5 else ""


def _draw_matrix(axes: "Axes", method: NamedConfusion, plan: _Plan) -> "AxesImage":
    rates = method.rates
    image = axes.imshow(100 * rates, cmap=SHADES, vmin=0, vmax=100, interpolation="nearest")
    for spine in axes.spines.values():
        spine.set_visible(True)
    if plan.has_numbers:
        for (row, column), rate in np.ndenumerate(rates):
            if text := cell_text(rate):
                colour = "white" if rate > 0.68 else "black"
                axes.text(
                    *(column, row, text),
                    color=colour,
                    fontsize=SMALL,
                    ha="center",
                    va="center_baseline",
                )
    facts = f"mean recall {100 * method.mean_recall:.1f} %"
    put_title(axes, method.name, facts, width=plan.classes * plan.cell + _GAP)
    return image
