"""The layers of a network, from the image down to the outputs (Fig. cnn_arch)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cosen.errors import InputError
from cosen.networks.summary import LayerRow, table_totals
from cosen.paper.figures.lettering import one_line, shortened, text_width
from cosen.paper.figures.style import (
    COLUMN,
    GREY,
    PALE_BLUE,
    PALE_GREY,
    PALE_ORANGE,
    SMALL,
    new_figure,
    paper_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_BLOCKS = 30
"""With more than these, blocks of the same kind that follow each other are drawn as one."""

ROW = 0.165
"""Inches from block to block."""

_WORDS = {
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
"""Kinds of layers in short; others go by their class."""


@dataclass(frozen=True)
class Block:
    """What is drawn as one: a weight layer with what follows it, or a pooling.

    Attributes:
        name: Of the weight layer, as in the network; where it stands for several, of the module
            that holds them.
        kinds: Of its layers, in order.
        output_shape: What it gives for one image.
        parameters: Of all its layers.
        weight_layers: How many it stands for.
    """

    name: str
    kinds: tuple[str, ...]
    output_shape: tuple[int, ...] | None
    parameters: int
    weight_layers: int


def pretrained_layers(network: str, rows: Sequence[LayerRow]) -> list[str]:
    """Weight layers that start from VGG-16's weights: of the paper's network, those named as there.

    The layers that the paper adds start random; so do all of the other networks.
    """
    if network != "paper":
        return []
    weights = [row.name for row in rows if row.is_weight_layer]
    return [name for name in weights if name.split(".")[0] in ("features", "classifier")]


def blocks_of(rows: Sequence[LayerRow]) -> list[Block]:
    """A block for each weight layer, with the layers after it that keep its shape.

    Example:
        >>> from cosen.networks.head import Head
        >>> from cosen.networks.summary import layer_table
        >>> for block in blocks_of(layer_table(Head(64, 10, width=32), (64,))):
        ...     print(block.name, block.kinds, block.parameters)
        hidden.0 ('Linear', 'ReLU', 'Dropout') 2080
        output ('Linear',) 330
    """
    blocks: list[Block] = []
    for row in rows:
        last = blocks[-1] if blocks else None
        joins = last is not None and row.output_shape in (last.output_shape, None)
        if last is not None and joins and not row.is_weight_layer:
            if row.kind != "AdaptiveAvgPool2d":  # that changed nothing here
                last = replace(last, kinds=(*last.kinds, row.kind))
            blocks[-1] = replace(last, parameters=last.parameters + row.parameters)
        else:
            own = (row.name, (row.kind,), row.output_shape, row.parameters)
            blocks.append(Block(*own, weight_layers=int(row.is_weight_layer)))
    return blocks


def join_alike(blocks: Sequence[Block]) -> list[Block]:
    """One block for those of one part, kind and shape that follow each other, by the part's name.

    Example:
        >>> one = Block("stages.0.0.conv1", ("Conv2d", "BatchNorm2d"), (16, 32, 32), 2336, 1)
        >>> other = Block("stages.0.1.conv1", ("Conv2d", "BatchNorm2d"), (16, 32, 32), 2336, 1)
        >>> (joined,) = join_alike([one, other])
        >>> joined.name, joined.weight_layers, joined.parameters
        ('stages.0', 2, 4672)
    """
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else None
        part = _shared_part(last.name, block.name) if last is not None else ""
        if (
            last is not None
            and part
            and last.weight_layers
            and block.weight_layers
            and (last.kinds[0], last.output_shape) == (block.kinds[0], block.output_shape)
        ):
            joined[-1] = replace(
                last,
                name=part,
                parameters=last.parameters + block.parameters,
                weight_layers=last.weight_layers + block.weight_layers,
            )
        else:
            joined.append(block)
    return joined


def _shared_part(first: str, second: str) -> str:
    """The module that holds both: ``stages.0`` of ``stages.0.0.conv1`` and ``stages.0.1.conv2``."""
    shared = []
    for one, other in zip(first.split("."), second.split("."), strict=False):
        if one != other:
            break
        shared.append(one)
    return ".".join(shared)


@paper_style()
def draw_network(
    rows: Sequence[LayerRow],
    image_shape: Sequence[int],
    *,
    pretrained: Collection[str] = (),
    width: float = COLUMN,
) -> "Figure":
    """A row for each weight layer: name, what it is, its output's size, its parameters.

    Args:
        rows: From :func:`cosen.networks.summary.layer_table`.
        image_shape: What the network is given.
        pretrained: Names of weight layers that start from pre-trained weights; with any, these
            and the random ones are told apart by colour and edge.
        width: Inches.
    """
    if not rows:
        raise InputError("a network without layers cannot be drawn")
    blocks = blocks_of(rows)
    if len(blocks) > MOST_BLOCKS:
        blocks = join_alike(blocks)
    lines = len(blocks) + (4 if pretrained else 3)  # with headings, input, totals and key
    height = ROW * (lines + 0.4)
    figure = new_figure(width, height, by_hand=True)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)  # inches, downward
    _Column(axes, width).draw(blocks, rows, tuple(image_shape), frozenset(pretrained))
    return figure


class _Column:
    """Rows of text and boxes from top to bottom, in inches."""

    def __init__(self, axes: "Axes", width: float) -> None:
        self.axes, self.width = axes, width
        self.y = 0.7 * ROW
        self.parameters = width - 0.08  # right end
        self.size = self.parameters - text_width("142,498,610") - 0.1  # right end
        self.box = (0.08, self.size - text_width("512 × 224 × 224") - 0.12)

    def draw(
        self,
        blocks: Sequence[Block],
        rows: Sequence[LayerRow],
        image_shape: tuple[int, ...],
        pretrained: frozenset[str],
    ) -> None:
        self._line("", "output size", "parameters", colour=GREY)
        self._line("input", _shape(image_shape), "")
        for block in blocks:
            self._block(block, random=bool(pretrained) and block.name not in pretrained)
        totals = table_totals(rows)
        words = f"{totals.weight_layers} weight layers"
        self._line(words, "", f"{totals.parameters:,}")
        if pretrained:
            self._key()

    def _line(self, left: str, size: str, parameters: str, *, colour: str = "black") -> None:
        self._text(self.box[0], left, "left", colour)
        self._text(self.size, size, "right", colour)
        self._text(self.parameters, parameters, "right", colour)
        self.y += ROW

    def _block(self, block: Block, *, random: bool) -> None:
        left, right = self.box
        if not block.weight_layers:
            self._box(left, right - left, PALE_GREY)
        else:
            self._box(left, right - left, PALE_ORANGE if random else PALE_BLUE, random=random)
        kinds = ", ".join(_WORDS.get(kind, kind) for kind in dict.fromkeys(block.kinds))
        if block.weight_layers > 1:
            kinds = f"{block.weight_layers} × {kinds}"
        room = right - left - 0.16
        if not block.weight_layers:
            self._text((left + right) / 2, kinds, "center", "black")
        else:
            name = shortened(one_line(block.name), room - text_width(kinds) - 0.05)
            self._text(left + 0.05, name, "left", "black")
            self._text(right - 0.05, shortened(kinds, room), "right", "black")
        self._text(self.size, _shape(block.output_shape), "right", "black")
        self._text(
            self.parameters, f"{block.parameters:,}" if block.parameters else "", "right", "black"
        )
        self.y += ROW

    def _key(self) -> None:
        left = self.box[0]
        for words, random in (("pre-trained", False), ("random", True)):
            self._box(left, 0.22, PALE_ORANGE if random else PALE_BLUE, random=random)
            self._text(left + 0.28, words, "left", "black")
            left += 0.5 + text_width(words)
        self.y += ROW

    def _box(self, left: float, width: float, colour: str, *, random: bool = False) -> None:
        from matplotlib.patches import Rectangle

        tall = ROW - 0.03
        box = Rectangle((left, self.y - tall / 2), width, tall, facecolor=colour)
        box.set_edgecolor("black" if random else GREY)
        box.set_linestyle((0, (3, 2)) if random else "-")  # told apart in grey print too
        box.set_linewidth(0.8 if random else 0.5)
        self.axes.add_patch(box)

    def _text(self, x: float, words: str, side: str, colour: str) -> None:
        if words:
            self.axes.text(
                *(x, self.y, words),
                ha=side,
                va="center_baseline",
                fontsize=SMALL,
                color=colour,
                parse_math=False,
            )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "did not run" if shape is None else " × ".join(str(side) for side in shape)
