"""Diagrams: the layers of a network (Fig. cnn_arch) and how θ and ξ are learned (overview_fig)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, takewhile
from typing import TYPE_CHECKING

from cosen.errors import InputError
from cosen.networks.layer_table import LayerRow, table_totals
from cosen.paper.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The layers of a network

MAX_BLOCKS = 30  # with more, consecutive blocks of the same kind are drawn as one
ROW = 0.165  # inches from block to block

_SHORT_KINDS = {
    "Conv2d": "conv",
    "Linear": "FC",
    "BatchNorm2d": "norm",
    "BatchNorm1d": "norm",
    "ReLU": "ReLU",
    "Dropout": "dropout",
    "MaxPool2d": "max pool",
    "AvgPool2d": "mean pool",
    "AdaptiveAvgPool2d": "mean pool",
}
"""Short names of layer classes; other layers keep their class name."""


@dataclass(frozen=True)
class Block:
    """One box of the diagram: a weight layer and the layers after it, or a pooling layer."""

    name: str  # of the weight layer; of joined blocks, the module that holds them
    kinds: tuple[str, ...]  # classes of its layers
    output_shape: tuple[int, ...] | None
    parameters: int
    weight_layers: int


def pretrained_layers(network: str, rows: Sequence[LayerRow]) -> list[str]:
    """Weight layers that start from VGG-16's weights; only the paper's network has any."""
    if network != "paper":
        return []
    weights = [row.name for row in rows if row.is_weight_layer]
    return [name for name in weights if name.split(".")[0] in ("features", "classifier")]


def blocks_of(rows: Sequence[LayerRow]) -> list[Block]:
    """Group each weight layer with the layers after it that keep its shape.

    Example:
        >>> from cosen.networks.small import Head
        >>> from cosen.networks.layer_table import layer_table
        >>> for block in blocks_of(layer_table(Head(64, 10, width=32), (64,))):
        ...     print(block.name, block.kinds, block.parameters)
        hidden.0 ('Linear', 'ReLU', 'Dropout') 2080
        output ('Linear',) 330
    """
    blocks: list[Block] = []
    for row in rows:
        last = blocks[-1] if blocks else None
        same_shape = last is not None and row.output_shape in (last.output_shape, None)
        if last is not None and same_shape and not row.is_weight_layer:
            if row.kind != "AdaptiveAvgPool2d":  # it changed nothing here
                last = replace(last, kinds=(*last.kinds, row.kind))
            blocks[-1] = replace(last, parameters=last.parameters + row.parameters)
        else:
            own = (row.name, (row.kind,), row.output_shape, row.parameters)
            blocks.append(Block(*own, weight_layers=int(row.is_weight_layer)))
    return blocks


def join_blocks(blocks: Sequence[Block]) -> list[Block]:
    """Join consecutive blocks of the same module, kind and shape.

    Example:
        >>> one = Block("stages.0.0.conv1", ("Conv2d", "BatchNorm2d"), (16, 32, 32), 2336, 1)
        >>> other = Block("stages.0.1.conv1", ("Conv2d", "BatchNorm2d"), (16, 32, 32), 2336, 1)
        >>> (joined,) = join_blocks([one, other])
        >>> joined.name, joined.weight_layers, joined.parameters
        ('stages.0', 2, 4672)
    """
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else block
        pairs = zip(last.name.split("."), block.name.split("."), strict=False)
        module = ".".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if (
            joined
            and module
            and last.weight_layers
            and block.weight_layers
            and (last.kinds[0], last.output_shape) == (block.kinds[0], block.output_shape)
        ):
            joined[-1] = replace(
                last,
                name=module,
                parameters=last.parameters + block.parameters,
                weight_layers=last.weight_layers + block.weight_layers,
            )
        else:
            joined.append(block)
    return joined


@style.paper_style()
def draw_network(
    rows: Sequence[LayerRow],
    image_shape: Sequence[int],
    *,
    pretrained: Collection[str] = (),
    width: float = style.COLUMN,
) -> "Figure":
    """Draw a row for each weight layer: name, layers, output size and parameters.

    If weight layers are ``pretrained``, they and the random ones differ in colour and edge.
    """
    if not rows:
        raise InputError("a network without layers cannot be drawn")
    blocks = blocks_of(rows)
    if len(blocks) > MAX_BLOCKS:
        blocks = join_blocks(blocks)
    lines = len(blocks) + (4 if pretrained else 3)  # with headings, input, totals and key
    height = ROW * (lines + 0.4)
    figure = style.new_figure(width, height, manual_layout=True)
    table = _LayerTable(_inch_axes(figure, width, height), width)
    table.axes.invert_yaxis()
    table.add_line("", "output size", "parameters", colour=style.GREY)
    table.add_line("input", _shape_text(tuple(image_shape)), "")
    for block in blocks:
        table.add_block(block, random=bool(pretrained) and block.name not in pretrained)
    totals = table_totals(rows)
    table.add_line(f"{totals.weight_layers} weight layers", "", f"{totals.parameters:,}")
    if pretrained:
        table.add_key()
    return figure


class _LayerTable:
    """Rows of text and boxes from top to bottom, in inches."""

    def __init__(self, axes: "Axes", width: float) -> None:
        self.axes = axes
        self.y = 0.7 * ROW
        self.parameters = width - 0.08  # right end
        self.size = self.parameters - style.text_width("142,498,610") - 0.1  # right end
        self.box = (0.08, self.size - style.text_width("512 × 224 × 224") - 0.12)

    def add_line(self, left: str, size: str, parameters: str, *, colour: str = "black") -> None:
        self._text(self.box[0], left, "left", colour)
        self._text(self.size, size, "right", colour)
        self._text(self.parameters, parameters, "right", colour)
        self.y += ROW

    def add_block(self, block: Block, *, random: bool) -> None:
        left, right = self.box
        room = right - left - 0.16
        kinds = ", ".join(_SHORT_KINDS.get(kind, kind) for kind in dict.fromkeys(block.kinds))
        if block.weight_layers:
            kinds = f"{block.weight_layers} × {kinds}" if block.weight_layers > 1 else kinds
            name = style.shortened(
                style.one_line(block.name), room - style.text_width(kinds) - 0.05
            )
            self._box(
                left, right - left, style.PALE_ORANGE if random else style.PALE_BLUE, random=random
            )
            self._text(left + 0.05, name, "left")
            self._text(right - 0.05, style.shortened(kinds, room), "right")
        else:
            self._box(left, right - left, style.PALE_GREY)
            self._text((left + right) / 2, kinds, "center")
        parameters = f"{block.parameters:,}" if block.parameters else ""
        self.add_line("", _shape_text(block.output_shape), parameters)

    def add_key(self) -> None:
        left = self.box[0]
        for text, random in (("pre-trained", False), ("random", True)):
            self._box(left, 0.22, style.PALE_ORANGE if random else style.PALE_BLUE, random=random)
            self._text(left + 0.28, text, "left")
            left += 0.5 + style.text_width(text)

    def _box(self, left: float, width: float, colour: str, *, random: bool = False) -> None:
        from matplotlib.patches import Rectangle

        tall = ROW - 0.03
        box = Rectangle((left, self.y - tall / 2), width, tall, facecolor=colour)
        box.set_edgecolor("black" if random else style.GREY)
        box.set_linestyle((0, (3, 2)) if random else "-")  # for black-and-white print
        box.set_linewidth(0.8 if random else 0.5)
        self.axes.add_patch(box)

    def _text(self, x: float, text: str, side: str, colour: str = "black") -> None:
        if text:
            place = {"ha": side, "va": "center_baseline"}
            self.axes.text(x, self.y, text, place, size=style.SMALL, color=colour, parse_math=False)


def _shape_text(shape: tuple[int, ...] | None) -> str:
    return "did not run" if shape is None else " × ".join(str(side) for side in shape)


def _inch_axes(figure: "Figure", width: float, height: float) -> "Axes":
    """Axes without frame over the whole figure, in inches."""
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    return axes


# How the network and the costs are learned in turn

HEIGHT, BOX_HEIGHT = 3.15, 0.46  # inches

BOXES: dict[str, tuple[float, float, float, str]] = {
    # left, vertical centre and width in inches; text
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

ARROWS = (
    ("training", "network", "loss"),
    ("training", "frequencies", "target", "costs", "loss"),
    ("validation", "network again", "statistics", "costs"),
)
"""Boxes connected by straight arrows."""


@style.paper_style()
def draw_overview(*, width: float = style.COLUMN) -> "Figure":
    """Draw what happens in every batch (θ is learned) and in every epoch (ξ is learned)."""
    from matplotlib.patches import FancyBboxPatch, Rectangle

    figure = style.new_figure(width, HEIGHT, manual_layout=True)
    axes = _inch_axes(figure, style.COLUMN, HEIGHT)  # boxes scale with the figure, text does not
    for bottom, top, colour in (
        (1.93, HEIGHT - 0.03, style.PALE_BLUE),
        (0.03, 1.87, style.PALE_ORANGE),
    ):
        axes.add_patch(
            Rectangle((0.03, bottom), style.COLUMN - 0.06, top - bottom, facecolor=colour, lw=0)
        )
    for left, middle, wide, text in BOXES.values():
        axes.add_patch(
            FancyBboxPatch(
                (left, middle - BOX_HEIGHT / 2),
                wide,
                BOX_HEIGHT,
                boxstyle="round,pad=0,rounding_size=0.05",
                facecolor="white",
                edgecolor=style.GREY,
                linewidth=0.7,
            )
        )
        _add_text(axes, left + wide / 2, middle, text)
    for first, second in chain.from_iterable(map(pairwise, ARROWS)):
        _add_arrow(axes, _straight(first, second))
    loss, network = _centre("loss"), _centre("network")
    top = BOXES["loss"][1] + BOX_HEIGHT / 2
    _add_arrow(axes, [(loss, top), (loss, 2.88), (network, 2.88), (network, top)])
    corner, below_target = 2.62, BOXES["target"][1] - BOX_HEIGHT / 2
    bend = [(corner, BOXES["statistics"][1] + BOX_HEIGHT / 2), (corner, 0.92), (network, 0.92)]
    _add_arrow(axes, [*bend, (network, below_target)])
    for x, y, text in (
        ((loss + network) / 2, 2.99, "θ by back-propagation"),
        ((2.04 + 2.38) / 2, 2.58, "o"),
        (loss + 0.1, 2.1, "ξ"),
        ((corner + network) / 2, 1.01, "S, R"),
        (loss + 0.25, 0.92, "E sets γ"),
        (1.66, 2.07, "every batch: θ is learned, ξ stays"),
        (1.66, 1.73, "every epoch: ξ is learned, θ stays"),
    ):
        _add_text(axes, x, y, text)
    return figure


def _centre(name: str) -> float:
    left, _, wide, _ = BOXES[name]
    return left + wide / 2


def _straight(first: str, second: str) -> list[tuple[float, float]]:
    """Ends of a straight arrow between the facing sides of two boxes."""
    left, middle, wide, _ = BOXES[first]
    other_left, other_middle, _, _ = BOXES[second]
    if middle == other_middle:
        return [(left + wide, middle), (other_left, middle)]
    half = BOX_HEIGHT / 2 if other_middle > middle else -BOX_HEIGHT / 2
    return [(_centre(first), middle + half), (_centre(first), other_middle - half)]


def _add_arrow(axes: "Axes", points: Sequence[tuple[float, float]]) -> None:
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


def _add_text(axes: "Axes", x: float, y: float, text: str) -> None:
    axes.text(x, y, text, ha="center", va="center", fontsize=style.SMALL, linespacing=1.15)
