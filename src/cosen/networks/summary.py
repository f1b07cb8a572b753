"""The layers of a network, in the order in which they run."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd


@dataclass(frozen=True)
class LayerRow:
    """One layer.

    Attributes:
        name: As in ``network.named_modules()``.
        kind: Its class.
        output_shape: Shape of what it gives for one image; None if it did not run.
        parameters: How many are its own; 0 where it runs a second time.
        is_weight_layer: Whether it is a convolution or fully connected, as papers count layers.
    """

    name: str
    kind: str
    output_shape: tuple[int, ...] | None
    parameters: int
    is_weight_layer: bool


@dataclass(frozen=True)
class TableTotals:
    """What a table of layers adds up to."""

    weight_layers: int
    parameters: int


def layer_table(network: nn.Module, image_shape: Sequence[int]) -> list[LayerRow]:
    """The layers that run for an image of this shape, with output shapes and parameters.

    Nothing is computed: the pass runs on torch's meta device, whose tensors are shapes without
    values, and the network is left as it was. Build the network in ``with torch.device("meta")``
    if it is wanted for nothing else; then it takes no memory either.

    Args:
        network: Any module.
        image_shape: ``(channels, height, width)``, or ``(features,)``.

    Example:
        >>> from cosen.networks.head import Head
        >>> for row in layer_table(Head(64, 10, width=32), (64,)):
        ...     print(row.name, row.kind, row.output_shape, row.parameters)
        hidden.0 Linear (32,) 2080
        hidden.1 ReLU (32,) 0
        hidden.2 Dropout (32,) 0
        output Linear (10,) 330
    """
    names = {
        module: name
        for name, module in network.named_modules()
        if not any(True for _ in module.children()) or _own_parameters(module)
    }
    rows: list[LayerRow] = []
    counted: set[nn.Module] = set()

    def note(module: nn.Module, _: object, output: object) -> None:
        rows.append(_row(module, names[module], _shape(output), counted))

    hooks = [module.register_forward_hook(note) for module in names]
    modes = [(module, module.training) for module in network.modules()]
    try:
        network.eval()  # one image is too few for the statistics of batch normalisation
        _run_on_meta(network, image_shape)
    finally:
        for hook in hooks:
            hook.remove()
        for module, mode in modes:
            module.training = mode
    rows += [
        _row(module, name, None, counted)
        for module, name in names.items()
        if module not in counted and _own_parameters(module)
    ]
    return rows


def table_totals(rows: Sequence[LayerRow]) -> TableTotals:
    """The number of weight layers (each once) and of parameters."""
    return TableTotals(
        weight_layers=len({row.name for row in rows if row.is_weight_layer}),
        parameters=sum(row.parameters for row in rows),
    )


def _run_on_meta(network: nn.Module, image_shape: Sequence[int]) -> None:
    weights = {
        name: torch.empty_like(tensor, device="meta")
        for name, tensor in chain(network.named_parameters(), network.named_buffers())
    }
    dtype = next((w.dtype for w in weights.values() if w.is_floating_point()), torch.float32)
    with torch.device("meta"), torch.no_grad():
        image = torch.empty(1, *image_shape, dtype=dtype)
        torch.func.functional_call(network, weights, (image,))


def _row(
    module: nn.Module, name: str, shape: tuple[int, ...] | None, counted: set[nn.Module]
) -> LayerRow:
    again = module in counted
    counted.add(module)
    return LayerRow(
        name=name,
        kind=type(module).__name__,
        output_shape=shape,
        parameters=0 if again else _own_parameters(module),
        is_weight_layer=isinstance(module, nn.Linear | _ConvNd),
    )


def _own_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters(recurse=False))


def _shape(output: Any) -> tuple[int, ...] | None:
    while isinstance(output, tuple | list) and output:
        output = output[0]
    return tuple(output.shape[1:]) if isinstance(output, Tensor) else None
