"""A network cut off below its output layer."""

from torch import Tensor, nn


class PenultimateFeatures(nn.Module):
    """The features that a network's output layer sees.

    Args:
        network: Gives :class:`~cosen.networks.output.NetworkOutput`.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network(images).features
        return features
