"""Any module of the user's as a network that gives logits and features in one pass."""

from typing import Any

from torch import Tensor, nn

from cosen.errors import InputError, choices_hint
from cosen.networks.cosine import CosineOutput
from cosen.networks.output import Network, NetworkOutput

OUTPUTS = (nn.Linear, CosineOutput)
"""Layers that an output layer is looked for among."""


class WrappedNetwork(Network):
    """A module and the name of its output layer; made by :func:`as_network`.

    Attributes:
        module: The module itself, not a copy.
        output_name: The layer whose input the features are; None where there is no candidate.
        was_named: Whether the user named it. A layer that was guessed must give the logits.
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
        seen: list[Tensor] = []

        def see(
            _: nn.Module, args: tuple[Any, ...], keywords: dict[str, Any], given: Tensor
        ) -> None:
            seen[:] = [args[0] if args else next(iter(keywords.values())), given]

        # The hook lasts for this pass only: copies of the network then share nothing.
        layer = self.output_layer
        hook = None if layer is None else layer.register_forward_hook(see, with_kwargs=True)
        try:
            result = self.module(images)
        finally:
            if hook is not None:
                hook.remove()
        return self._output(result, seen)

    def _output(self, result: object, seen: list[Tensor]) -> NetworkOutput:
        kind = type(self.module).__name__
        if isinstance(result, NetworkOutput) or _is_pair(result):
            logits, features = result  # type: ignore[misc]
        elif not isinstance(result, Tensor):
            raise InputError(
                f"{kind} returned {type(result).__name__}: return logits, or a tuple of logits and "
                "features"
            )
        elif self.output_name is None:
            raise InputError(
                f"{kind} has no linear layer whose input could be the features: name its output "
                "layer, as_network(module, output=...), or return a tuple of logits and features"
            )
        elif not seen:
            raise InputError(
                f"the layer {self.output_name!r} of {kind} did not run, so that it cannot be the "
                "output layer: name the one that is, as_network(module, output=...), or return a "
                "tuple of logits and features"
            )
        else:
            logits, features = result, seen[0]
            self._check_guess(seen[1], logits)
        if logits.dim() != 2:
            raise InputError(
                f"logits must have the shape (batch, classes), but {kind} returned "
                f"{tuple(logits.shape)}"
            )
        return NetworkOutput(logits, features.flatten(1))

    def _check_guess(self, given: object, logits: Tensor) -> None:
        """An output layer that was guessed, and not named, must give as many as there are."""
        if self.was_named or not isinstance(given, Tensor) or logits.dim() != 2:
            return
        if given.shape[-1] != logits.shape[1]:
            raise InputError(
                f"the last linear layer of {type(self.module).__name__}, {self.output_name!r}, "
                f"gives {given.shape[-1]} numbers, but there are {logits.shape[1]} logits: name "
                "the output layer, this or another, as_network(module, output=...), or return a "
                "tuple of logits and features"
            )


def _is_pair(result: object) -> bool:
    """Whether it is a plain tuple of two tensors; others (logits and auxiliary ones) are not."""
    return type(result) is tuple and len(result) == 2 and all(isinstance(r, Tensor) for r in result)


def as_network(module: nn.Module, *, output: str | None = None) -> Network:
    """A network of any module that returns logits.

    The features are what goes into its output layer, flattened: the last ``nn.Linear`` or
    :class:`~cosen.networks.CosineOutput` in the module's own order, unless another is named. A
    module that returns :class:`NetworkOutput` or a ``(logits, features)`` tuple is taken at its
    word.

    The wrapper shares the module's weights; in the wrapper's ``state_dict`` their names begin with
    ``module.``. Save ``module.state_dict()`` for the module's own.

    Args:
        module: Any module; one of :class:`Network` is returned as it is.
        output: The name of the output layer, as in ``module.named_modules()``.

    Example:
        >>> import torch
        >>> own = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        >>> logits, features = as_network(own)(torch.zeros(2, 4))
        >>> logits.shape, features.shape
        (torch.Size([2, 3]), torch.Size([2, 8]))
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"as_network takes a torch module, but was given {type(module).__name__}")
    names = {name: layer for name, layer in module.named_modules() if name}
    if output is not None:
        if output not in names:
            raise InputError(
                f"{type(module).__name__} has no layer {output!r}{choices_hint(output, names)}"
            )
        return WrappedNetwork(module, output, was_named=True)
    if isinstance(module, Network):
        return module
    if isinstance(module, OUTPUTS):
        return WrappedNetwork(module, "")
    outputs = [name for name, layer in names.items() if isinstance(layer, OUTPUTS)]
    return WrappedNetwork(module, outputs[-1] if outputs else None)
