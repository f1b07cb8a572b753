"""The base class of all networks, the results of a forward pass, and input checks."""

from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple, Self

from torch import Tensor, nn

from cosen import functional as F
from cosen.errors import InputError

OUTPUT_STD = 0.01
"""Standard deviation of the initial weights of the output layer, as in VGG."""


class NetworkOutput(NamedTuple):
    """Result of one forward pass."""

    logits: Tensor  # network outputs o, before any softmax, shape (B, C)
    features: Tensor  # penultimate features f, the input of the output layer, shape (B, D)


@dataclass(frozen=True, eq=False)
class Outputs:
    """Network outputs for a whole split, in its order."""

    logits: Tensor  # (n, C)
    features: Tensor  # penultimate, (n, D)
    target: Tensor  # true classes, (n,)

    def confusion(self) -> Tensor:
        """Confusion counts, row = true class, shape ``(C, C)``; sparse with many classes."""
        classes = self.logits.shape[1]
        return F.confusion_matrix(
            self.target,
            self.logits.argmax(1),
            num_classes=classes,
            sparse=classes > F.MANY_CLASSES,
        )


class Network(nn.Module):
    """A network that returns :class:`NetworkOutput`; its output layer is ``output``.

    ``network.output(features)`` equals the logits in evaluation and in training mode: in training
    mode the features include dropout.

    Attributes:
        frozen_modules: Names of modules that stay in evaluation mode after :meth:`train`, so that
            frozen batch normalisation keeps its statistics and frozen dropout does nothing. Set by
            :func:`cosen.networks.freezing.freeze`; copies keep it.
    """

    frozen_modules: frozenset[str] = frozenset()

    @property
    def output_layer(self) -> nn.Module | None:
        """The layer that maps features to logits; None if it is unknown."""
        return self._modules.get("output")

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for name in self.frozen_modules:
            self.get_submodule(name).eval()
        return self


class PenultimateFeatures(nn.Module):
    """A network without its output layer: maps images to penultimate features."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network(images).features
        return features


def initialise(network: nn.Module, *, output: nn.Linear) -> None:
    r"""Set normal weights (He et al.) of variance :math:`2 / \text{fan-in}`; biases are zero.

    PyTorch's default has a sixth of this variance: after 18 such layers, all images have almost the
    same logits. The output layer gets small weights: training starts from similar scores.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            if layer is output:
                nn.init.normal_(layer.weight, std=OUTPUT_STD)
            else:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def check_images(images: Tensor, *, channels: int, least_size: int = 1) -> None:
    """Raise an error unless images are ``(B, channels, H, W)`` with ``H, W >= least_size``."""
    if images.dim() != 4 or images.shape[1] != channels:
        raise InputError(
            f"the network needs images of shape (batch, {channels}, height, width), "
            f"but got {tuple(images.shape)}"
        )
    if min(images.shape[2:]) < least_size:
        raise InputError(
            f"the network needs images of at least {least_size} x {least_size} pixels, but got "
            f"{images.shape[2]} x {images.shape[3]}: enlarge them first"
        )


def check_counts(**counts: int) -> None:
    """Raise an error unless all counts are positive integers."""
    for name, count in counts.items():
        if not isinstance(count, Integral):  # includes NumPy integers
            raise InputError(f"{name} must be a whole number, but is {count!r}")
        if count < 1:
            raise InputError(f"{name} must be at least 1, but is {count}")
