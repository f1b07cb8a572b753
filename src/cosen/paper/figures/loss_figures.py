"""The losses under costs: by margin (Fig. SurrogateLF) and over two outputs (Fig. loss_func)."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosen import functional as F
from cosen.paper.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

Floats = NDArray[np.float64]
Loss = Callable[..., Tensor]

COSTS = (1.0, 0.5, 0.1)
MARGINS = np.linspace(-4, 4, 321)
LOSSES: dict[str, tuple[Loss, str]] = {
    "cross-entropy (CE)": (F.cost_sensitive_cross_entropy, style.BLUE),
    "hinge": (F.cost_sensitive_hinge, style.RED),
    "MSE": (F.cost_sensitive_mse, style.GREEN),
}


def loss_by_margin(loss: Loss, margins: Floats, cost: float) -> Floats:
    r"""Loss of one sample of the first of two classes, for each margin between the outputs.

    The outputs are :math:`o = (m/2, -m/2)`, so the margin is :math:`o_p - o_n = m`. The cost
    is :math:`\xi_{p,p}`; all other costs are 1.

    Example:
        >>> loss_by_margin(F.cost_sensitive_hinge, np.array([-2.0, 0.0, 2.0]), 1.0)
        array([4., 2., 0.])
    """
    half = torch.from_numpy(margins) / 2
    logits = torch.stack([half, -half], dim=1)  # (margins, 2)
    costs = torch.tensor([[cost, 1.0], [1.0, 1.0]], dtype=logits.dtype)
    target = torch.zeros(len(logits), dtype=torch.long)
    found: Floats = loss(logits, target, costs, reduction="none").numpy()
    return found


@style.paper_style()
def draw_surrogates(*, width: float = style.COLUMN) -> "Figure":
    """Draw the 0-1 loss and its surrogates without costs, then each surrogate with ``COSTS``."""
    wide = width >= 1.6 * style.COLUMN
    figure = style.new_figure(width, 1.9 if wide else 3.5)
    panels = list(figure.subplots(*((1, 4) if wide else (2, 2)), sharex=True).flat)
    _draw_zero_one(panels[0], style.BLACK, "0-1")
    for (name, (loss, colour)), dashes in zip(LOSSES.items(), style.DASHES, strict=False):
        short = "CE" if loss is F.cost_sensitive_cross_entropy else name
        values = loss_by_margin(loss, MARGINS, 1.0)
        panels[0].plot(MARGINS, values, color=colour, linestyle=dashes, label=short)
    panels[0].set_title("without costs")
    for axes, (name, (loss, colour)) in zip(panels[1:], LOSSES.items(), strict=True):
        _draw_zero_one(axes, style.GREY, "_0-1")  # the underscore keeps it out of the legend
        for cost, dashes in zip(COSTS, style.DASHES, strict=False):
            values = loss_by_margin(loss, MARGINS, cost)
            axes.plot(MARGINS, values, color=colour, linestyle=dashes, label=f"ξₚₚ = {cost:g}")
        axes.set_title(name)
    for axes in panels:
        axes.legend(loc="upper right")
        axes.set_xlim(MARGINS[0], MARGINS[-1])
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.55))  # room for the legend above the 0-1 loss
        axes.set_xticks([-4, -2, 0, 2, 4])
    figure.supxlabel("margin of the true class, oₚ − oₙ", fontsize="medium")
    figure.supylabel("loss", fontsize="medium")
    return figure


def _draw_zero_one(axes: "Axes", colour: str, label: str) -> None:
    margins = [MARGINS[0], 0, 0, MARGINS[-1]]
    axes.plot(margins, [1, 1, 0, 0], color=colour, linewidth=0.8, label=label, clip_on=False)


# The loss over two outputs

LIMIT, POINTS = 4.0, 121  # outputs range from -LIMIT to LIMIT
CONTOURS = (2, 4, 6, 8)  # losses with a contour line
CASES = {
    "high cost for C1": (1.0, 0.1),
    "no costs": (1.0, 1.0),
    "high cost for C2": (0.1, 1.0),
}
"""The paper's cases: the costs of the two outputs, the same for both true classes."""


def loss_surfaces(costs: tuple[float, float]) -> tuple[Floats, Floats]:
    """Cross-entropy of C1 and of C2 over a grid of outputs, row = o₂, column = o₁."""
    outputs = np.linspace(-LIMIT, LIMIT, POINTS)
    logits = torch.from_numpy(np.stack(np.meshgrid(outputs, outputs), axis=-1).reshape(-1, 2))
    matrix = torch.tensor([costs, costs], dtype=logits.dtype)
    first, second = (
        F.cost_sensitive_cross_entropy(
            logits, torch.full((len(logits),), label), matrix, reduction="none"
        )
        .reshape(POINTS, POINTS)
        .numpy()
        for label in (0, 1)
    )
    return first, second


@style.paper_style()
def draw_loss_surface(*, width: float = style.COLUMN) -> "Figure":
    """Draw the loss of a C1 sample (above) and the smaller of both classes' losses (below).

    One column for each of ``CASES``. On the solid line both classes have the same loss: this is the
    boundary during training. On the dashed line the outputs are equal: this is the boundary of
    predictions.
    """
    from matplotlib.ticker import MaxNLocator

    side = (width - 1.05) / len(CASES)
    figure = style.new_figure(width, 2 * side + 0.8)
    grid = figure.subplots(2, len(CASES), sharex=True, sharey=True, squeeze=False)
    found = [loss_surfaces(costs) for costs in CASES.values()]
    smaller = [np.minimum(first, second) for first, second in found]
    max_above = max(float(first.max()) for first, _ in found)
    max_below = max(float(losses.max()) for losses in smaller)
    outputs, ends = np.linspace(-LIMIT, LIMIT, POINTS), [-LIMIT, LIMIT]
    for column, (name, costs) in enumerate(CASES.items()):
        (top, bottom), (first, second) = grid[:, column], found[column]
        upper = _draw_surface(top, first, max_above)
        lower = _draw_surface(bottom, smaller[column], max_below)
        top.contour(outputs, outputs, first, levels=CONTOURS, colors=style.GREY, linewidths=0.5)
        bottom.contour(
            outputs, outputs, first - second, levels=[0], colors=style.RED, linewidths=1.3
        )
        bottom.plot(ends, ends, color=style.BLACK, linewidth=0.8, linestyle=(0, (3, 2)))
        for text, x, y in (("C1", 0.82, 0.14), ("C2", 0.18, 0.86)):
            place = {"transform": bottom.transAxes, "ha": "center", "va": "center"}
            bottom.text(x, y, text, fontsize=style.SMALL, **place)
        top.set_title(f"{name}\nξₚ = ({costs[0]:g}, {costs[1]:g})", fontsize=style.SMALL)
        bottom.set_xlabel("o₁")
    for axes in grid[:, 0]:
        axes.set_ylabel("o₂")
    for row, (image, label) in enumerate([(upper, "loss of C1"), (lower, "smaller loss")]):
        bar = figure.colorbar(image, ax=list(grid[row]), label=label, pad=0.02, aspect=12)
        bar.locator = MaxNLocator(4)
        bar.outline.set_linewidth(0.6)
    return figure


def _draw_surface(axes: "Axes", loss: Floats, vmax: float) -> "AxesImage":
    axes.set_xticks([-LIMIT, 0, LIMIT])
    axes.set_yticks([-LIMIT, 0, LIMIT])
    return axes.imshow(
        loss,
        origin="lower",
        extent=(-LIMIT, LIMIT, -LIMIT, LIMIT),
        cmap=style.SHADES,
        vmin=0,
        vmax=vmax,
        interpolation="bilinear",
    )
