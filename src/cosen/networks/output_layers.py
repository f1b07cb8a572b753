"""Output layers: wrap any module whose output layer can be found, or use scaled cosines."""

from typing import Any

import torch
from torch import Tensor, nn

from cosen.errors import InputError, choices_hint
from cosen.networks.network import Network, NetworkOutput

SCALE = 30.0
"""Factor of the cosines: without it a softmax of cosines cannot be confident (Cao et al. 2019)."""


class CosineOutput(nn.Module):
    """Output layer whose logits are scaled cosines between features and class weights.

    Args:
        in_features: Width of the features.
        num_classes: Number of logits.
        scale: Factor of the cosines.
    """

    def __init__(self, in_features: int, num_classes: int, *, scale: float = SCALE) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_classes, in_features))
        self.scale = scale
        nn.init.kaiming_uniform_(self.weight, a=1)

    def forward(self, features: Tensor) -> Tensor:
        weight = nn.functional.normalize(self.weight, dim=1)
        return self.scale * nn.functional.linear(nn.functional.normalize(features, dim=1), weight)

    def scaled_weight(self) -> Tensor:
        """Return the weights that features of length 1 are multiplied by."""
        return self.scale * nn.functional.normalize(self.weight, dim=1)


def use_cosine_output(network: Network, *, scale: float = SCALE) -> Network:
    """Replace a network's linear output layer by :class:`CosineOutput`."""
    layer = network.output_layer
    if not isinstance(layer, nn.Linear):
        raise InputError(
            f"{type(network).__name__} has no linear output layer to replace by cosines"
        )
    name = next(name for name, module in network.named_modules() if module is layer)
    if not name or name == "module":
        raise InputError("cannot replace the output layer of a network that is one linear layer")
    network.set_submodule(name, CosineOutput(layer.in_features, layer.out_features, scale=scale))
    return network


OUTPUT_LAYERS = (nn.Linear, CosineOutput)
"""Types of layers that :func:`as_network` recognises as output layers."""


class WrappedNetwork(Network):
    """A module with the name of its output layer; created by :func:`as_network`.

    The input of this layer is used as features. If the user did not name it (``was_named``), its
    outputs must be the logits.
    """

    def __init__(
        self, module: nn.Module, output_name: str | None, *, was_named: bool = False
    ) -> None:
        super().__init__()
        self.module = module
        self.output_name = output_name
        self.was_named = was_named
        self.train(module.training)

    @property
    def output_layer(self) -> nn.Module | None:
        return None if self.output_name is None else self.module.get_submodule(self.output_name)

    def forward(self, images: Tensor) -> NetworkOutput:
        seen: list[Tensor] = []  # input and output of the output layer

        def record(
            _: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any], output: Tensor
        ) -> None:
            seen[:] = [args[0] if args else next(iter(keywords.values())), output]

        layer = self.output_layer
        if layer is None:
            return self._output(self.module(images), seen)
        # The hook is removed after this pass, so copies of the network share nothing.
        with layer.register_forward_hook(record, with_kwargs=True):
            return self._output(self.module(images), seen)

    def _output(self, result: object, seen: list[Tensor]) -> NetworkOutput:
        kind = type(self.module).__name__
        advice = (
            "name the output layer, as_network(module, output=...), or return a tuple of logits "
            "and features"
        )
        is_pair = type(result) is tuple and [isinstance(r, Tensor) for r in result] == [True, True]
        if isinstance(result, NetworkOutput) or is_pair:
            logits, features = result  # type: ignore[misc]
        elif not isinstance(result, Tensor):
            raise InputError(
                f"{kind} returned {type(result).__name__}: return logits, or a tuple of logits and "
                "features"
            )
        elif self.output_name is None:
            raise InputError(f"{kind} has no linear layer to take features from: {advice}")
        elif not seen:
            raise InputError(f"the layer {self.output_name!r} of {kind} did not run: {advice}")
        else:
            logits, features = result, seen[0]
            if not self.was_named and isinstance(seen[1], Tensor) and logits.dim() == 2:
                outputs = seen[1].shape[-1]
                if outputs != logits.shape[1]:
                    raise InputError(
                        f"the last linear layer of {kind}, {self.output_name!r}, has {outputs} "
                        f"outputs, but there are {logits.shape[1]} logits: {advice}"
                    )
        if logits.dim() != 2:
            raise InputError(
                f"logits must have the shape (batch, classes), but {kind} returned "
                f"{tuple(logits.shape)}"
            )
        return NetworkOutput(logits, features.flatten(1))


def as_network(module: nn.Module, *, output: str | None = None) -> Network:
    """Turn any module that returns logits into a network.

    The features are the flattened input of the output layer: the last ``nn.Linear`` or
    :class:`~cosen.networks.CosineOutput` in module order, unless you name another. A module that
    returns :class:`NetworkOutput` or a ``(logits, features)`` tuple is used without this search.

    The wrapper shares the module's weights; in its ``state_dict`` their names begin with
    ``module.``. To save the module alone, use ``module.state_dict()``.

    Args:
        module: Any module; a :class:`Network` is returned unchanged.
        output: Name of the output layer, as in ``module.named_modules()``.

    Example:
        >>> import torch
        >>> own = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> logits, features = as_network(own)(torch.zeros(2, 4))
        >>> logits.shape, features.shape
        (torch.Size([2, 3]), torch.Size([2, 8]))
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"as_network needs a torch module, but got {type(module).__name__}")
    names = {name: layer for name, layer in module.named_modules() if name}
    if output is not None:
        if output not in names:
            raise InputError(
                f"{type(module).__name__} has no layer {output!r}{choices_hint(output, names)}"
            )
        return WrappedNetwork(module, output, was_named=True)
    if isinstance(module, Network):
        return module
    if isinstance(module, OUTPUT_LAYERS):
        return WrappedNetwork(module, "")
    found = [name for name, layer in names.items() if isinstance(layer, OUTPUT_LAYERS)]
    return WrappedNetwork(module, found[-1] if found else None)
