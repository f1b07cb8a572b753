"""Networks: build one by name, or wrap any PyTorch module."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from cosen.errors import InputError, choices_hint
from cosen.networks.network import Network, NetworkOutput
from cosen.networks.output_layers import SCALE, CosineOutput, as_network, use_cosine_output
from cosen.networks.pretrained import (
    EMBEDDED,
    build_timm,
    is_timm_name,
    pretrained_input,
    unknown_network,
)
from cosen.networks.small import Head, LinearHead, ResNet32, SmallCNN
from cosen.networks.vgg import PaperNetwork

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
    """A network that can be built by name."""

    build: Callable[..., Any]  # from num_classes, channels or in_features, and its own options
    description: str  # what it is and when to use it, in one line
    image_size: int | None  # default height and width of images; None if it takes features
    channels: tuple[int, ...]  # supported numbers of image channels; empty if it takes features
    is_pretrained: bool = False  # whether it comes with pretrained weights


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
    "linear": NetworkEntry(
        LinearHead,
        "an output layer on features, such as those of a frozen network",
        image_size=None,
        channels=(),
    ),
}


def find_network(name: str) -> NetworkEntry:
    """Find a network in :data:`NETWORKS` or in timm."""
    if name in NETWORKS:
        return NETWORKS[name]
    if not is_timm_name(name):
        taking_images = [known for known, entry in NETWORKS.items() if entry.channels]
        raise unknown_network(name, [EMBEDDED, *taking_images])
    return NetworkEntry(
        partial(build_timm, name),
        "a network of timm",
        image_size=pretrained_input(name).size[0],
        channels=(3,),
        is_pretrained=True,
    )


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
    """Build a network by name, with random weights from torch's global generator.

    Args:
        name: One of :data:`NETWORKS`, or a network of timm such as ``resnet50``.
        num_classes: Number of logits.
        channels: Channels of the images; ``head`` ignores it.
        in_features: Width of the features, for ``head`` only.
        output: ``"cosine"`` for an output layer of scaled cosines.
        output_scale: Factor of the cosines.
        options: Options of the network, such as ``reading`` for ``paper`` or ``width`` for
            ``head``.

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
            raise InputError(f"{name} takes features: set in_features to their width")
        keywords["in_features"] = in_features
    else:
        if in_features is not None:
            raise InputError(f"{name} takes images, not features: remove in_features")
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
