"""How the network's parameters θ and the costs ξ are learned in turn (Fig. overview_fig)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cosen.paper.figures.style import (
    COLUMN,
    GREY,
    PALE_BLUE,
    PALE_ORANGE,
    SMALL,
    new_figure,
    paper_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEIGHT = 3.15
TALL = 0.46
"""Inches of a box."""

BOXES: dict[str, tuple[float, float, float, str]] = {
    # left, middle (from below) and width in inches of a column; what stands in it
    "training": (0.12, 2.5, 0.78, "training\nimages x, d"),
    "network": (1.26, 2.5, 0.78, "network\nθ"),
    "loss": (2.38, 2.5, 1.0, "loss\nℓ(d, F(ξₚ, o))"),
    "frequencies": (0.12, 1.38, 0.78, "class fre-\nquencies H"),
    "target": (1.26, 1.38, 0.78, "target T =\nH∘g(S)∘g(R)"),
    "costs": (2.38, 1.38, 1.0, "costs\nξ ← ξ + γ(T−ξ)"),
    "validation": (0.12, 0.42, 0.78, "validation\nimages"),
    "network again": (1.26, 0.42, 0.78, "network\nθ"),
    "statistics": (2.38, 0.42, 1.0, "separability S\nconfusion R\nerror E"),
}

ARROWS: tuple[tuple[str, str], ...] = (
    ("training", "network"),
    ("network", "loss"),
    ("training", "frequencies"),
    ("frequencies", "target"),
    ("target", "costs"),
    ("costs", "loss"),
    ("validation", "network again"),
    ("network again", "statistics"),
    ("statistics", "costs"),
)
"""Straight ones, from box to box."""


@paper_style()
def draw_overview(*, width: float = COLUMN) -> "Figure":
    """Above, every batch: θ is learned. Below, every epoch: ξ is, and the loss changes with it."""
    figure = new_figure(width, HEIGHT, by_hand=True)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, COLUMN)  # boxes grow with the figure, their text does not
    axes.set_ylim(0, HEIGHT)
    _band(axes, 1.93, HEIGHT - 0.03, PALE_BLUE)
    _band(axes, 0.03, 1.87, PALE_ORANGE)
    for left, middle, wide, words in BOXES.values():
        _box(axes, left, middle, wide, words)
    for first, second in ARROWS:
        _arrow(axes, _straight(first, second))
    middle_of_loss, middle_of_network = _across("loss"), _across("network")
    top = BOXES["loss"][1] + TALL / 2
    back = [(middle_of_loss, top), (middle_of_loss, 2.88), (middle_of_network, 2.88)]
    _arrow(axes, [*back, (middle_of_network, top)])
    corner, below_target = 2.62, BOXES["target"][1] - TALL / 2
    bend = [(corner, BOXES["statistics"][1] + TALL / 2), (corner, 0.92), (middle_of_network, 0.92)]
    _arrow(axes, [*bend, (middle_of_network, below_target)])

    _words(axes, (middle_of_loss + middle_of_network) / 2, 2.99, "θ by back-propagation")
    _words(axes, (2.04 + 2.38) / 2, 2.58, "o")
    _words(axes, middle_of_loss + 0.1, 2.1, "ξ")
    _words(axes, (corner + middle_of_network) / 2, 1.01, "S, R")
    _words(axes, middle_of_loss + 0.25, 0.92, "E sets γ")
    _words(axes, 1.66, 2.07, "every batch: θ is learned, ξ stays")
    _words(axes, 1.66, 1.73, "every epoch: ξ is learned, θ stays")
    return figure


def _across(name: str) -> float:
    left, _, wide, _ = BOXES[name]
    return left + wide / 2


def _straight(first: str, second: str) -> list[tuple[float, float]]:
    """From the side of one box to the side of the other that faces it."""
    left, middle, wide, _ = BOXES[first]
    other_left, other_middle, _, _ = BOXES[second]
    if middle == other_middle:
        return [(left + wide, middle), (other_left, middle)]
    half = TALL / 2 if other_middle > middle else -TALL / 2
    return [(_across(first), middle + half), (_across(first), other_middle - half)]


def _box(axes: "Axes", left: float, middle: float, wide: float, words: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.add_patch(
        FancyBboxPatch(
            (left, middle - TALL / 2),
            wide,
            TALL,
            boxstyle="round,pad=0,rounding_size=0.05",
            facecolor="white",
            edgecolor=GREY,
            linewidth=0.7,
        )
    )
    _words(axes, left + wide / 2, middle, words)


def _band(axes: "Axes", bottom: float, top: float, colour: str) -> None:
    from matplotlib.patches import Rectangle

    axes.add_patch(Rectangle((0.03, bottom), COLUMN - 0.06, top - bottom, facecolor=colour, lw=0))


def _arrow(axes: "Axes", points: Sequence[tuple[float, float]]) -> None:
    from matplotlib.patches import FancyArrowPatch
    from matplotlib.path import Path

    axes.add_patch(
        FancyArrowPatch(
            path=Path(list(points)),
            arrowstyle="-|>",
            mutation_scale=7,
            linewidth=0.9,
            color="black",
            joinstyle="miter",
        )
    )


def _words(axes: "Axes", x: float, y: float, words: str) -> None:
    axes.text(x, y, words, ha="center", va="center", fontsize=SMALL, linespacing=1.15)
