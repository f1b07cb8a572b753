"""The layers of a network in the order in which they run, with shapes and parameter counts."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torchinfo
from torch import nn
from torch.nn.modules.conv import _ConvNd


@dataclass(frozen=True)
class LayerRow:
    """One layer."""

    name: str  # in network.named_modules()
    kind: str  # its class
    output_shape: tuple[int, ...] | None  # for one image; None if it did not run
    parameters: int  # its own; 0 if it runs a second time
    is_weight_layer: bool  # a convolution or fully connected, as papers count layers


@dataclass(frozen=True)
class TableTotals:
    """Totals of a table of layers."""

    weight_layers: int
    parameters: int


def layer_table(network: nn.Module, image_shape: Sequence[int]) -> list[LayerRow]:
    """List the layers that run for an image of this shape.

    Runs the network on one image of zeros. Build the network in ``with torch.device("meta")`` if
    you do not need its weights: this computes shapes only and takes no memory.

    Args:
        network: Any module.
        image_shape: ``(channels, height, width)``, or ``(features,)``.

    Example:
        >>> from cosen.networks.small import Head
        >>> for row in layer_table(Head(64, 10, width=32), (64,)):
        ...     print(row.name, row.kind, row.output_shape, row.parameters)
        hidden.0 Linear (32,) 2080
        hidden.1 ReLU (32,) 0
        hidden.2 Dropout (32,) 0
        output Linear (10,) 330
    """
    weight = next(network.parameters())
    try:
        with weight.device:  # also for tensors that the network creates
            image = torch.zeros(1, *image_shape, dtype=weight.dtype)
            layers = torchinfo.summary(network, input_data=image, mode="eval", verbose=0)
    except RuntimeError as error:
        raise error.__cause__ or error from None  # torchinfo hides the error of the network
    finally:
        torchinfo.torchinfo.clear_cached_forward_pass()  # it would keep the network in memory
    names = {module: name for name, module in network.named_modules()}
    rows = [
        _row(layer.module, names[layer.module], tuple(layer.output_size[1:]), layer.is_recursive)
        for layer in layers.summary_list
        if layer.is_leaf_layer or _own_parameters(layer.module)
    ]
    ran = {row.name for row in rows}
    rows += [
        _row(module, name, None, False)
        for module, name in names.items()
        if name not in ran and _own_parameters(module)
    ]
    return rows


def table_totals(rows: Sequence[LayerRow]) -> TableTotals:
    """Count the weight layers (each once) and the parameters."""
    return TableTotals(
        weight_layers=len({row.name for row in rows if row.is_weight_layer}),
        parameters=sum(row.parameters for row in rows),
    )


def _row(module: nn.Module, name: str, shape: tuple[int, ...] | None, again: bool) -> LayerRow:
    return LayerRow(
        name=name,
        kind=type(module).__name__,
        output_shape=shape,
        parameters=0 if again else _own_parameters(module),
        is_weight_layer=isinstance(module, nn.Linear | _ConvNd),
    )


def _own_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters(recurse=False))
