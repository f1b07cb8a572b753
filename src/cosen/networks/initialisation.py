"""Random weights for networks of many rectified layers."""

from torch import nn

OUTPUT_STD = 0.01


def initialise(network: nn.Module, *, output: nn.Linear) -> None:
    r"""He et al.'s normal weights: variance :math:`2 / \text{fan-in}` keeps activations in scale.

    Torch's own default has a sixth of that variance, and eighteen such layers in a row give almost
    the same logits for every image. The output layer's weights are small (a deviation of 0.01, as
    VGG's), so that training starts from nearly equal scores; biases are zero.
    """
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            if layer is output:
                nn.init.normal_(layer.weight, std=OUTPUT_STD)
            else:
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
