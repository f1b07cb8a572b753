"""What every network gives in one pass, and what a network is."""

from dataclasses import dataclass
from typing import NamedTuple, Self

from torch import Tensor, nn

from cosen import functional as F


class NetworkOutput(NamedTuple):
    """Both results of one forward pass.

    Attributes:
        logits: Network outputs :math:`o`, before any softmax, shape ``(B, C)``.
        features: Penultimate features :math:`f`, which the output layer sees, shape ``(B, D)``.
    """

    logits: Tensor
    features: Tensor


@dataclass(frozen=True, eq=False)
class Outputs:
    """What a network gives for a part of the data, in its order.

    Attributes:
        logits: Shape ``(n, C)``.
        features: Penultimate, shape ``(n, D)``.
        target: Shape ``(n,)``.
    """

    logits: Tensor
    features: Tensor
    target: Tensor

    def confusion(self) -> Tensor:
        """Counts, row = true class, shape ``(C, C)``."""
        classes = self.logits.shape[1]
        return F.confusion_matrix(self.target, self.logits.argmax(1), num_classes=classes)


class Network(nn.Module):
    """A network that returns :class:`NetworkOutput`; its output layer is ``output``.

    In training mode, features are what the output layer sees there too, dropout included:
    ``network.output(features)`` are the logits in either mode.

    Attributes:
        frozen_modules: Names of modules that stay in evaluation mode whatever :meth:`train` is
            told, so that frozen batch normalisation keeps its statistics and frozen dropout does
            nothing; :func:`cosen.networks.freezing.freeze` sets it. A copy keeps it.
    """

    frozen_modules: frozenset[str] = frozenset()

    @property
    def output_layer(self) -> nn.Module | None:
        """The layer from features to logits; None where it is not known."""
        return self._modules.get("output")

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        for name in self.frozen_modules:
            self.get_submodule(name).eval()
        return self
