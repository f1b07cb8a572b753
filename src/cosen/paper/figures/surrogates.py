"""The surrogate losses against the margin, without costs and with them (Fig. SurrogateLF)."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosen import functional as F
from cosen.paper.figures.style import (
    BLACK,
    BLUE,
    COLUMN,
    DASHES,
    GREEN,
    GREY,
    RED,
    new_figure,
    paper_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COSTS = (1.0, 0.5, 0.1)
MARGINS = np.linspace(-4, 4, 321)

Loss = Callable[..., Tensor]
LOSSES: dict[str, tuple[Loss, str]] = {
    "cross-entropy (CE)": (F.cost_sensitive_cross_entropy, BLUE),
    "hinge": (F.cost_sensitive_hinge, RED),
    "MSE": (F.cost_sensitive_mse, GREEN),
}


def loss_by_margin(loss: Loss, margins: NDArray[np.float64], cost: float) -> NDArray[np.float64]:
    r"""The loss of one sample of the first of two classes, at each margin between the outputs.

    The outputs are :math:`o = (m/2, -m/2)`, so that the margin is :math:`o_p - o_n = m`; the cost
    is :math:`\xi_{p,p}`, and all others are 1.

    Example:
        >>> loss_by_margin(F.cost_sensitive_hinge, np.array([-2.0, 0.0, 2.0]), 1.0)
        array([4., 2., 0.])
    """
    half = torch.from_numpy(margins) / 2
    logits = torch.stack([half, -half], dim=1)  # (margins, 2)
    costs = torch.tensor([[cost, 1.0], [1.0, 1.0]], dtype=logits.dtype)
    target = torch.zeros(len(logits), dtype=torch.long)
    found: NDArray[np.float64] = loss(logits, target, costs, reduction="none").numpy()
    return found


@paper_style()
def draw_surrogates(*, costs: Sequence[float] = COSTS, width: float = COLUMN) -> "Figure":
    """The 0-1 loss and its surrogates without costs; then each surrogate under several costs.

    Args:
        costs: Costs ξ of the true class on itself, in (0, 1]; at most four.
        width: Inches.
    """
    wide = width >= 1.6 * COLUMN
    figure = new_figure(width, 1.9 if wide else 3.5)
    panels = list(figure.subplots(*((1, 4) if wide else (2, 2)), sharex=True).flat)
    _draw_all(panels[0])
    for axes, (name, (loss, colour)) in zip(panels[1:], LOSSES.items(), strict=True):
        _draw_zero_one(axes, colour=GREY)
        for cost, dashes in zip(costs, DASHES, strict=False):
            values = loss_by_margin(loss, MARGINS, cost)
            axes.plot(MARGINS, values, color=colour, linestyle=dashes, label=f"ξₚₚ = {cost:g}")
        axes.set_title(name)
        axes.legend(loc="upper right")
    for axes in panels:
        axes.set_xlim(MARGINS[0], MARGINS[-1])
        axes.set_ylim(0, max(axes.get_ylim()[1], 1.55))  # a legend has room above the step of 0-1
        axes.set_xticks([-4, -2, 0, 2, 4])
    figure.supxlabel("margin of the true class, oₚ − oₙ", fontsize="medium")
    figure.supylabel("loss", fontsize="medium")
    return figure


def _draw_all(axes: "Axes") -> None:
    _draw_zero_one(axes, colour=BLACK)
    for (name, (loss, colour)), dashes in zip(LOSSES.items(), DASHES, strict=False):
        values = loss_by_margin(loss, MARGINS, 1.0)
        short = "CE" if loss is F.cost_sensitive_cross_entropy else name
        axes.plot(MARGINS, values, color=colour, linestyle=dashes, label=short)
    axes.set_title("without costs")
    axes.legend(loc="upper right")


def _draw_zero_one(axes: "Axes", *, colour: str) -> None:
    """1 where the true class does not win: the step that the surrogates stand in for."""
    label = "0-1" if colour == BLACK else "_0-1"  # an underscore keeps it out of the legend
    margins = [MARGINS[0], 0, 0, MARGINS[-1]]
    axes.plot(margins, [1, 1, 0, 0], color=colour, linewidth=0.8, label=label, clip_on=False)
