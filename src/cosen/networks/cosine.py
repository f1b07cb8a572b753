"""An output layer of cosines, as margins between classes ask for."""

import torch
from torch import Tensor, nn

from cosen.errors import InputError
from cosen.networks.output import Network

SCALE = 30.0
"""What cosines are multiplied by, so that a softmax of them can be certain (Cao et al. 2019)."""


class CosineOutput(nn.Module):
    """Logits are the cosines of features and class weights, times a scale.

    Args:
        in_features: Width of the features.
        num_classes: How many logits.
        scale: The factor.
    """

    def __init__(self, in_features: int, num_classes: int, *, scale: float = SCALE) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_classes, in_features))
        self.scale = scale
        nn.init.kaiming_uniform_(self.weight, a=1)

    def forward(self, features: Tensor) -> Tensor:
        weight = nn.functional.normalize(self.weight, dim=1)
        return self.scale * nn.functional.linear(nn.functional.normalize(features, dim=1), weight)


def use_cosine_output(network: Network, *, scale: float = SCALE) -> Network:
    """Put an output layer of cosines, times a scale, in the place of a network's linear one."""
    layer = network.output_layer
    if not isinstance(layer, nn.Linear):
        raise InputError(
            f"{type(network).__name__} has no linear output layer that could be replaced by one of "
            "cosines"
        )
    name = next(name for name, module in network.named_modules() if module is layer)
    if not name or name == "module":
        raise InputError("a network that is a single linear layer cannot be given another")
    network.set_submodule(name, CosineOutput(layer.in_features, layer.out_features, scale=scale))
    return network
