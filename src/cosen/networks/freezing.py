"""Freeze the first layers of a network, or all but the output layer."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from cosen.errors import InputError, choices_hint
from cosen.networks.network import Network


def freeze(network: nn.Module, up_to: str) -> list[str]:
    """Freeze all parameters up to and including those of a layer.

    The order is that of ``network.named_parameters()``. Frozen modules, and modules without
    parameters before or inside the layer, stay in evaluation mode even after ``network.train()``:
    batch normalisation keeps its statistics and dropout does nothing. This also holds for a deep
    copy and after loading a state dict. Freezing again adds to the frozen layers.

    Args:
        network: A network from :mod:`cosen.networks`, or from :func:`cosen.networks.as_network`.
        up_to: A layer, such as ``"features"`` or ``"classifier.3"``.

    Returns:
        The names of the frozen parameters, in order.
    """
    if not isinstance(network, Network):
        raise InputError(
            f"{type(network).__name__} is not a cosen network: freeze as_network(module)"
        )
    parameters = dict(network.named_parameters())
    below = [name for name in parameters if _is_within(name, up_to)]
    if not below:
        layers = [  # with parameters, down to two levels
            name
            for name, module in network.named_modules()
            if name and name.count(".") < 2 and next(module.parameters(), None) is not None
        ]
        hint = choices_hint(up_to, layers)
        raise InputError(f"the network has no layer {up_to!r} with parameters{hint}")
    names = list(parameters)
    frozen = names[: names.index(below[-1]) + 1]
    kept = [name for name in names[len(frozen) :] if parameters[name].requires_grad]
    if not kept:
        raise InputError(
            f"freezing up to {up_to!r} leaves nothing to train: freeze up to an earlier layer"
        )
    for name in frozen:
        parameters[name].requires_grad_(False)
        parameters[name].grad = None
    modules = dict(network.named_modules())
    last = list(modules).index(frozen[-1].rpartition(".")[0])
    network.frozen_modules |= {
        name
        for place, (name, module) in enumerate(modules.items())
        if name
        and (place <= last or _is_within(name, up_to))
        and not any(parameter.requires_grad for parameter in module.parameters())
    }
    network.train(network.training)
    return frozen


def freeze_but_output(network: Network) -> None:
    """Freeze everything below the output layer."""
    output = network.output_layer
    if output is None:
        raise InputError("the output layer of the network is unknown: name it with as_network")
    own = {id(parameter) for parameter in output.parameters()}
    of_output = set(output.modules())
    for parameter in network.parameters():
        parameter.requires_grad_(id(parameter) in own)
    network.frozen_modules |= {
        name
        for name, module in network.named_modules()
        if name and of_output.isdisjoint(module.modules())
    }
    network.train(network.training)


def frozen_but_output(network: nn.Module) -> bool:
    """Whether only the output layer is trained: features can then be cached.

    Then an image has the same features in every epoch: no parameter before the output layer is
    trained, and no batch normalisation or dropout before it is in training mode. The caller must
    know that images are not augmented, and that ``forward`` does not depend on ``self.training``.
    """
    if not isinstance(network, Network) or network.output_layer is None:
        return False
    output = set(network.output_layer.modules())
    of_output = {id(parameter) for parameter in network.output_layer.parameters()}
    trained = [id(p) for p in network.parameters() if p.requires_grad]
    if not trained or not of_output.issuperset(trained):
        return False
    return not any(
        isinstance(module, _BatchNorm | _DropoutNd)
        for name, module in network.named_modules()
        if module not in output and name not in network.frozen_modules
    )


def _is_within(name: str, layer: str) -> bool:
    return name == layer or name.startswith(f"{layer}.")
