"""Results of runs: confusion matrices (Fig. CM) and errors by epoch (Fig. CIFAR_error)."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from cosen import functional as F
from cosen.errors import InputError
from cosen.paper.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

MAX_CLASS_NAME, MAX_METHOD_NAME = 0.8, 1.15  # inches
MAX_HEIGHT = 8.5  # inches of matrices in one column
MAX_CELL, MIN_SIDE = 0.3, 1.1  # inches; a matrix of few classes has larger cells, for its title

# Inches: gap between matrices, axis labels, titles, colour bar, right edge
_GAP, _LABEL, _TITLE, _BAR, _EDGE = 0.12, 0.2, 0.32, 0.58, 0.05

MARKERS = ("o", "s", "^", "D", "v", "P")  # one for each colour, for black-and-white print

Box = tuple[float, float, float, float]  # left, bottom, width, height


@dataclass(frozen=True, eq=False)
class NamedConfusion:
    """Confusion matrix of one method: row = true class, column = prediction."""

    name: str
    counts: NDArray[np.int64]  # (C, C)

    @property
    def rates(self) -> NDArray[np.float64]:
        """Counts as fractions of their row; zeros for a class without images."""
        found: NDArray[np.float64] = F.confusion_rates(torch.from_numpy(self.counts)).numpy()
        return found


@style.paper_style()
def draw_confusion(
    methods: Sequence[NamedConfusion], class_names: Sequence[str], *, width: float = style.COLUMN
) -> "Figure":
    """Draw a confusion matrix for each method, in per cent of each true class.

    Matrices are drawn side by side, or in one column if only then numbers or class names fit. Zeros
    and numbers that do not fit are omitted. If names do not fit, classes are numbered from 0.
    """
    if not methods:
        raise InputError("there is no confusion matrix to draw: give one or more")
    for method in methods:
        if method.counts.shape != (len(class_names), len(class_names)):
            raise InputError(
                f"the confusion matrix of {method.name} is {method.counts.shape}, but there are "
                f"{len(class_names)} classes"
            )
    layout = _Layout(methods, [style.one_line(name) for name in class_names], width)
    figure = style.new_figure(width, layout.height, manual_layout=True)
    for place, method in enumerate(methods):
        axes = figure.add_axes(layout.matrix_box(place))
        image = _draw_matrix(axes, method, layout)
        layout.label_axes(axes, place)
    if not layout.has_numbers:
        bar = figure.colorbar(image, cax=figure.add_axes(layout.bar_box()))
        bar.set_label("% of true class", labelpad=1)
        bar.outline.set_linewidth(0.6)
    return figure


class _Layout:
    """Sizes and positions of the matrices in inches."""

    def __init__(self, methods: Sequence[NamedConfusion], names: list[str], width: float) -> None:
        self.width, self.classes = width, len(names)
        texts = {cell_text(rate) for method in methods for rate in method.rates.flat}
        short = [style.shortened(name, MAX_CLASS_NAME) for name in names]
        self.columns, self.has_numbers, has_names = self._arrange(len(methods), short, texts)
        self.names = short if has_names else None  # None if they do not fit
        longest = max(map(style.text_width, short if has_names else [str(self.classes)]))
        self.cell = self._cell(self.columns, longest, bar=not self.has_numbers)
        self.vertical = has_names and longest > 0.92 * self.cell  # column names are rotated
        self.side = self.classes * self.cell
        self._below = (
            _LABEL
            + (longest if self.vertical else style.LINE * style.SMALL * style.POINT)
            + 4 * style.POINT
        )
        self._row = self._below + self.side + _TITLE
        self.height = math.ceil(len(methods) / self.columns) * self._row
        left = _LABEL + longest + 4 * style.POINT
        used = left + self.columns * self.side + (self.columns - 1) * _GAP + _EDGE
        self._left = left + max(0.0, width - used - (0 if self.has_numbers else _BAR)) / 2

    def _arrange(
        self, methods: int, names: list[str], texts: Collection[str]
    ) -> tuple[int, bool, bool]:
        """Number of columns, whether numbers fit and whether names fit.

        Numbers are more important than names, and names more than a small figure.
        """
        longest = max(map(style.text_width, names))
        number = max(
            style.text_width(text) + (0.3 if len(text) > 2 else 2) * style.POINT for text in texts
        )
        for min_cell, bar in (
            (max(number, style.LINE * style.SMALL * style.POINT), False),
            (style.SMALL * style.POINT, True),
        ):
            for columns in (methods, 1):
                cell = self._cell(columns, longest, bar=bar)
                row = self.classes * cell + longest + _LABEL + _TITLE + 4 * style.POINT
                if cell >= min_cell and (columns > 1 or methods * row <= MAX_HEIGHT):
                    return columns, not bar, True
        return methods, False, False

    def _cell(self, columns: int, longest_name: float, *, bar: bool) -> float:
        room = self.width - (_LABEL + longest_name + 4 * style.POINT) - (columns - 1) * _GAP - _EDGE
        largest = max(MAX_CELL, MIN_SIDE / self.classes)
        return min(largest, (room - _BAR * bar) / (columns * self.classes))

    def matrix_box(self, place: int) -> Box:
        """Position of a matrix, as fractions of the figure."""
        row, column = divmod(place, self.columns)
        bottom = self.height - (row + 1) * self._row + self._below
        return self._fractions(self._left + column * (self.side + _GAP), bottom, self.side)

    def bar_box(self) -> Box:
        """Position of the colour bar, as fractions of the figure."""
        left = self._left + self.columns * (self.side + _GAP) - 0.03
        return self._fractions(left, self._below, 0.08)

    def _fractions(self, left: float, bottom: float, wide: float) -> Box:
        return left / self.width, bottom / self.height, wide / self.width, self.side / self.height

    def label_axes(self, axes: "Axes", place: int) -> None:
        """Label the axes with class names; only the leftmost matrices have row labels."""
        from matplotlib.ticker import MaxNLocator

        first = place % self.columns == 0
        if self.names is None:
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(MaxNLocator(4, integer=True))
        else:
            turn = 90 if self.vertical else 0
            places = range(self.classes)
            axes.set_xticks(places, self.names, rotation=turn, parse_math=False)
            axes.set_yticks(places, self.names, parse_math=False)
        axes.tick_params(length=0 if self.names else 2, labelleft=first)
        axes.set_xlabel("predicted class")
        if first:
            axes.set_ylabel("true class")


def cell_text(rate: float) -> str:
    """Text of a cell: per cent, empty below half a per cent.

    Example:
        >>> cell_text(0.934), cell_text(0.004)
        ('93', '')
    """
    return f"{100 * rate:.0f}" if 100 * rate >= 0.5 else ""


def _draw_matrix(axes: "Axes", method: NamedConfusion, layout: _Layout) -> "AxesImage":
    rates = method.rates
    image = axes.imshow(100 * rates, cmap=style.SHADES, vmin=0, vmax=100, interpolation="nearest")
    for spine in axes.spines.values():
        spine.set_visible(True)
    if layout.has_numbers:
        for (row, column), rate in np.ndenumerate(rates):
            if text := cell_text(rate):
                colour = "white" if rate > 0.68 else "black"
                place = {"ha": "center", "va": "center_baseline"}
                axes.text(column, row, text, place, size=style.SMALL, color=colour)
    mean_recall = float(F.mean_recall(torch.from_numpy(method.counts)))
    facts = f"mean recall {100 * mean_recall:.1f} %"
    style.put_title(axes, method.name, facts, width=layout.side + _GAP)
    return image


@dataclass(frozen=True, eq=False)
class ErrorCurves:
    """Errors in [0, 1] of one method over one or more runs."""

    name: str
    epochs: NDArray[np.int64]  # from 1
    train: NDArray[np.float64]  # (runs, epochs)
    val: NDArray[np.float64]  # (runs, epochs)


@style.paper_style()
def draw_errors(
    methods: Sequence[ErrorCurves], *, val_label: str = "validation", width: float = style.COLUMN
) -> "Figure":
    """Draw validation errors (solid) and training errors (dashed) by epoch.

    Lines are means over runs. With several runs, a band shows the smallest and the largest
    validation error.
    """
    from matplotlib.ticker import MaxNLocator

    if not methods:
        raise InputError("there is no run to draw errors of: give one or more")
    if len(methods) > len(style.COLOURS):
        raise InputError(
            f"{len(methods)} methods are too many for one figure: choose up to "
            f"{len(style.COLOURS)} with --methods"
        )
    names = [style.shortened(style.one_line(curves.name), MAX_METHOD_NAME) for curves in methods]
    widest = max(style.text_width(f"{name}, {val_label}") for name in names)
    columns = 2 if 2 * (widest + 0.45) < width else 1
    figure = style.new_figure(width, 2.1 + 0.13 * len(methods) * (3 - columns))
    axes = figure.subplots()
    for name, curves, colour, marker in zip(names, methods, style.COLOURS, MARKERS, strict=False):
        epochs, train, val = curves.epochs, 100 * curves.train, 100 * curves.val
        if len(val) > 1:
            axes.fill_between(epochs, val.min(0), val.max(0), color=colour, alpha=0.18, lw=0)
        for errors, part, dashes in ((train, "training", style.DASHES[1]), (val, val_label, "-")):
            axes.plot(
                *(epochs, errors.mean(0)),
                color=colour,
                linestyle=dashes,
                marker=marker,
                markevery=max(1, len(epochs) // 8),
                markersize=3,
                markerfacecolor="white" if part == "training" else colour,
                label=f"{name}, {part}",
            )
    last = max(int(curves.epochs[-1]) for curves in methods)
    most = max(max(curves.train.max(), curves.val.max()) for curves in methods)
    axes.set_xlabel("epoch")
    axes.set_ylabel("classification error (%)")
    axes.set_xlim(1 - 0.02 * last, last + 0.02 * last)
    axes.set_ylim(0, max(1.0, 105 * float(most)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.5)
    axes.set_axisbelow(True)
    figure.legend(loc="outside upper center", ncols=columns, columnspacing=1.2, handlelength=2.8)
    return figure
