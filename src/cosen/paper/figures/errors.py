"""Training and validation error by epoch (Fig. CIFAR_error)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cosen.errors import InputError
from cosen.paper.figures.lettering import one_line, shortened, text_width
from cosen.paper.figures.style import COLOURS, COLUMN, DASHES, new_figure, paper_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST_NAME = 1.15
"""Inches that the name of a method may have in the legend."""

MARKERS = ("o", "s", "^", "D", "v", "P")
"""One for each colour: methods are told apart in grey print too."""


@dataclass(frozen=True, eq=False)
class ErrorCurves:
    """The errors of one method, over one run or several.

    Attributes:
        name: What to call it.
        epochs: Counted from 1, shape ``(epochs,)``.
        train: Shares of 1, shape ``(runs, epochs)``.
        val: The same on validation.
    """

    name: str
    epochs: NDArray[np.int64]
    train: NDArray[np.float64]
    val: NDArray[np.float64]


@paper_style()
def draw_errors(
    methods: Sequence[ErrorCurves],
    *,
    val_words: str = "validation",
    width: float = COLUMN,
) -> "Figure":
    """A colour and a mark for each method, validation drawn full and training dashed.

    Lines are means over runs; where there are several, a band spans the least and the most of them
    on validation.

    Args:
        methods: At most as many as there are colours.
        val_words: What the errors on validation are called.
        width: Inches.
    """
    from matplotlib.ticker import MaxNLocator

    if not methods:
        raise InputError("there is no run to draw errors of: give one or more")
    if len(methods) > len(COLOURS):
        raise InputError(
            f"{len(methods)} methods in one figure cannot be told apart: choose up to "
            f"{len(COLOURS)} with --methods"
        )
    names = [shortened(one_line(curves.name), LONGEST_NAME) for curves in methods]
    widest = max(text_width(f"{name}, {val_words}") for name in names)
    columns = 2 if 2 * (widest + 0.45) < width else 1
    figure = new_figure(width, 2.1 + 0.13 * len(methods) * (3 - columns))
    axes = figure.subplots()
    for name, curves, colour, marker in zip(names, methods, COLOURS, MARKERS, strict=False):
        epochs, train, val = curves.epochs, 100 * curves.train, 100 * curves.val
        if len(val) > 1:
            axes.fill_between(epochs, val.min(0), val.max(0), color=colour, alpha=0.18, lw=0)
        for errors, part, dashes in ((train, "training", DASHES[1]), (val, val_words, "-")):
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
