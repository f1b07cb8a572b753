"""Networks: by name, or any module of the user's."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from cosen.errors import InputError, choices_hint
from cosen.networks.cosine import SCALE, CosineOutput, use_cosine_output
from cosen.networks.head import Head
from cosen.networks.output import Network, NetworkOutput
from cosen.networks.paper import PaperNetwork
from cosen.networks.resnet import ResNet32
from cosen.networks.small_cnn import SmallCNN
from cosen.networks.wrapping import as_network

__all__ = [
    "NETWORKS",
    "CosineOutput",
    "Network",
    "NetworkEntry",
    "NetworkOutput",
    "as_network",
    "build_network",
    "find_network",
]


@dataclass(frozen=True)
class NetworkEntry:
    """A network that can be asked for by name.

    Attributes:
        build: Makes one from keywords: ``num_classes``, ``channels`` or ``in_features`` where it
            has them, and its own options.
        description: One line: what it is, and when to use it.
        image_size: Height and width that images get by default; None where it takes features.
        channels: Numbers of image channels it can be built for; none where it takes features.
    """

    build: Callable[..., Network]
    description: str
    image_size: int | None
    channels: tuple[int, ...]


NETWORKS: dict[str, NetworkEntry] = {
    "paper": NetworkEntry(
        PaperNetwork,
        "the paper's 18 layers on VGG-16; photographs, with pre-trained weights",
        image_size=224,
        channels=(3,),
    ),
    "resnet32": NetworkEntry(
        ResNet32,
        "ResNet-32 as for CIFAR; small photographs, trained from scratch",
        image_size=32,
        channels=(1, 3),
    ),
    "small-cnn": NetworkEntry(
        SmallCNN,
        "four convolutions; digits and other images of 8 to 64 pixels, quick on a CPU",
        image_size=32,
        channels=(1, 3),
    ),
    "head": NetworkEntry(
        Head,
        "one hidden layer on features, such as those of a frozen network",
        image_size=None,
        channels=(),
    ),
}
"""Every network that can be asked for by name."""


def find_network(name: str) -> NetworkEntry:
    """The entry of this name in :data:`NETWORKS`."""
    if name not in NETWORKS:
        raise InputError(f"there is no network {name!r}{choices_hint(name, NETWORKS)}")
    return NETWORKS[name]


def build_network(
    name: str,
    *,
    num_classes: int,
    channels: int = 3,
    in_features: int | None = None,
    output: Literal["linear", "cosine"] = "linear",
    output_scale: float = SCALE,
    **options: Any,
) -> Network:
    """A network by its name, with random weights from torch's generator.

    Args:
        name: One of :data:`NETWORKS`.
        num_classes: How many logits.
        channels: Channels of the images; of no concern to ``head``.
        in_features: Width of the features that ``head`` takes; for no other network.
        output: ``"cosine"`` for an output layer of scaled cosines.
        output_scale: What those cosines are multiplied by.
        options: The network's own, such as ``reading`` for ``paper`` or ``width`` for ``head``.

    Example:
        >>> network = build_network("head", num_classes=10, in_features=64, width=32)
        >>> network.output
        Linear(in_features=32, out_features=10, bias=True)
    """
    entry = find_network(name)
    keywords: dict[str, Any] = {"num_classes": num_classes}
    accepted = inspect.signature(entry.build).parameters
    if entry.image_size is None:
        if in_features is None:
            raise InputError(f"{name} takes features: say how wide they are with in_features")
        keywords["in_features"] = in_features
    else:
        if in_features is not None:
            raise InputError(f"{name} takes images, not features: leave in_features out")
        if channels not in entry.channels:
            able = " or ".join(str(number) for number in entry.channels)
            raise InputError(
                f"{name} takes images of {able} channels, but they have {channels}: "
                "convert them, or choose another network"
            )
        if "channels" in accepted:
            keywords["channels"] = channels
    own = [option for option in accepted if option not in (*keywords, "channels", "in_features")]
    for option in options:
        if option not in own:
            raise InputError(f"{name} has no option {option!r}{choices_hint(option, own)}")
    network = entry.build(**keywords, **options)
    return use_cosine_output(network, scale=output_scale) if output == "cosine" else network
