"""Keeping the first layers of a network as they are."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from cosen.errors import InputError, choices_hint
from cosen.networks.output import Network


def freeze(network: nn.Module, up_to: str) -> list[str]:
    """Freeze all parameters up to and including those of a layer.

    The order is that of ``network.named_parameters()``. Frozen parameters get no gradients.
    Frozen modules, and those without parameters that stand among or below them, stay in
    evaluation mode even after ``network.train()``: batch normalisation keeps its statistics and
    dropout does nothing. Both hold for a deep copy, and after loading a state dict; freezing again
    adds to what is frozen.

    Args:
        network: One of :mod:`cosen.networks`, or of :func:`cosen.networks.as_network`.
        up_to: A layer, such as ``"features"`` or ``"classifier.3"``.

    Returns:
        The names of the parameters that are frozen by this, in order.
    """
    if not isinstance(network, Network):
        raise InputError(
            f"{type(network).__name__} is not a network of cosen: freeze as_network(module)"
        )
    parameters = dict(network.named_parameters())
    below = [name for name in parameters if _is_within(name, up_to)]
    if not below:
        hint = choices_hint(up_to, _layers(network))
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
    network.frozen_modules |= _frozen_modules(network, up_to, frozen)
    network.train(network.training)
    return frozen


def freeze_but_output(network: Network) -> None:
    """Freeze everything below the output layer."""
    output = network.output_layer
    if output is None:
        raise InputError("the network's output layer is not known: name it with as_network")
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
    """Whether training changes the output layer alone, so that features can come from a cache.

    Then the features of an image are the same in every epoch: no parameter before the output layer
    is trained, and no batch normalisation or dropout before it is in training mode. Two things are
    for the caller to know: that images are not augmented, and that the network's own ``forward``
    does not look at ``self.training``.
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


def _layers(network: nn.Module) -> list[str]:
    """Layers with parameters, down to two levels: enough to find one's way."""
    return [
        name
        for name, module in network.named_modules()
        if name and name.count(".") < 2 and next(module.parameters(), None) is not None
    ]


def _frozen_modules(network: nn.Module, up_to: str, frozen: list[str]) -> frozenset[str]:
    """Modules up to the last frozen one, or below the layer, in which nothing is trained."""
    owner = frozen[-1].rpartition(".")[0]
    modules = dict(network.named_modules())
    names = list(modules)
    last = names.index(owner)
    return frozenset(
        name
        for place, name in enumerate(names)
        if name
        and (place <= last or _is_within(name, up_to))
        and not any(parameter.requires_grad for parameter in modules[name].parameters())
    )
