"""The cross-entropy of two classes over their two outputs, under costs (Fig. loss_func)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from cosen import functional as F
from cosen.paper.figures.style import (
    BLACK,
    COLUMN,
    GREY,
    RED,
    SHADES,
    SMALL,
    new_figure,
    paper_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

REACH = 4.0
"""Outputs run from minus this to this."""

LOW_COST = 0.1

LEVELS = (2, 4, 6, 8)
"""Losses with a line of their own."""


@dataclass(frozen=True)
class CostCase:
    """Costs of two classes, and what to call them.

    Attributes:
        name: The paper's words.
        costs: The cost of each output, the same for both true classes: the rows of ξ are alike.
    """

    name: str
    costs: tuple[float, float]


CASES = (
    CostCase("high cost for C1", (1.0, LOW_COST)),
    CostCase("no costs", (1.0, 1.0)),
    CostCase("high cost for C2", (LOW_COST, 1.0)),
)


@dataclass(frozen=True, eq=False)
class Surfaces:
    """Cross-entropy over a grid of outputs, row = :math:`o_2`, column = :math:`o_1`.

    Attributes:
        outputs: The values along each side.
        first: The loss where C1 is the true class, shape ``(n, n)``.
        second: The loss where C2 is.
    """

    outputs: NDArray[np.float64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]

    @property
    def least(self) -> NDArray[np.float64]:
        """The loss of the class that the outputs suit better."""
        found: NDArray[np.float64] = np.minimum(self.first, self.second)
        return found


def loss_surfaces(case: CostCase, *, points: int = 121) -> Surfaces:
    """The loss of each class for all outputs between ``-REACH`` and ``REACH``."""
    outputs = np.linspace(-REACH, REACH, points)
    first_output, second_output = np.meshgrid(outputs, outputs)
    logits = torch.from_numpy(np.stack([first_output, second_output], axis=-1).reshape(-1, 2))
    costs = torch.tensor([case.costs, case.costs], dtype=logits.dtype)

    def of_class(label: int) -> NDArray[np.float64]:
        target = torch.full((len(logits),), label)
        losses = F.cost_sensitive_cross_entropy(logits, target, costs, reduction="none")
        found: NDArray[np.float64] = losses.reshape(points, points).numpy()
        return found

    return Surfaces(outputs, of_class(0), of_class(1))


@paper_style()
def draw_loss_surface(*, width: float = COLUMN) -> "Figure":
    """Above, the loss of a sample of C1; below, the lesser of the losses of both classes.

    A column for each of ``CASES``. The full line is where both classes have the same loss: the
    boundary that the network is trained to. The dashed one is where the outputs are equal: the
    boundary that it decides by.
    """
    from matplotlib.ticker import MaxNLocator

    side = (width - 1.05) / len(CASES)
    figure = new_figure(width, 2 * side + 0.8)
    grid = figure.subplots(2, len(CASES), sharex=True, sharey=True, squeeze=False)
    found = [loss_surfaces(case) for case in CASES]
    above = max(float(surfaces.first.max()) for surfaces in found)
    below = max(float(surfaces.least.max()) for surfaces in found)
    for column, (case, surfaces) in enumerate(zip(CASES, found, strict=True)):
        top, bottom = grid[0, column], grid[1, column]
        upper = _draw_surface(top, surfaces.first, above)
        lower = _draw_surface(bottom, surfaces.least, below)
        outputs = surfaces.outputs
        top.contour(outputs, outputs, surfaces.first, levels=LEVELS, colors=GREY, linewidths=0.5)
        _draw_boundaries(bottom, surfaces)
        top.set_title(f"{case.name}\nξₚ = ({case.costs[0]:g}, {case.costs[1]:g})", fontsize=SMALL)
        bottom.set_xlabel("o₁")
    for axes in grid[:, 0]:
        axes.set_ylabel("o₂")
    for row, (image, words) in enumerate([(upper, "loss of C1"), (lower, "lesser loss")]):
        bar = figure.colorbar(image, ax=list(grid[row]), label=words, pad=0.02, aspect=12)
        bar.locator = MaxNLocator(4)
        bar.outline.set_linewidth(0.6)
    return figure


def _draw_surface(axes: "Axes", loss: NDArray[np.float64], most: float) -> "AxesImage":
    axes.set_xticks([-REACH, 0, REACH])
    axes.set_yticks([-REACH, 0, REACH])
    return axes.imshow(
        loss,
        origin="lower",
        extent=(-REACH, REACH, -REACH, REACH),
        cmap=SHADES,
        vmin=0,
        vmax=most,
        interpolation="bilinear",
    )


def _draw_boundaries(axes: "Axes", surfaces: Surfaces) -> None:
    ends = [-REACH, REACH]
    outputs, difference = surfaces.outputs, surfaces.first - surfaces.second
    axes.contour(outputs, outputs, difference, levels=[0], colors=RED, linewidths=1.3)
    axes.plot(ends, ends, color=BLACK, linewidth=0.8, linestyle=(0, (3, 2)))
    for words, x, y in (("C1", 0.82, 0.14), ("C2", 0.18, 0.86)):
        axes.text(x, y, words, transform=axes.transAxes, ha="center", va="center", fontsize=SMALL)
