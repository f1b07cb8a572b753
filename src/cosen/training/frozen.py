"""Training the output layer alone: the features below it are computed once, not every epoch."""

from dataclasses import replace

from lightning_fabric import Fabric
from torch import Tensor, nn

from cosen.data.features import embed
from cosen.networks.freezing import frozen_but_output
from cosen.networks.output import Network, NetworkOutput
from cosen.networks.penultimate import PenultimateFeatures
from cosen.training.config import TrainConfig
from cosen.training.task import Task


class OutputOnly(nn.Module):
    """A network from its penultimate features on; ``whole`` is all of it."""

    def __init__(self, whole: Network) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, features: Tensor) -> NetworkOutput:
        assert self.whole.output_layer is not None  # frozen_but_output has seen it
        return NetworkOutput(self.whole.output_layer(features), features)


def use_cached_features(
    network: nn.Module, task: Task, config: TrainConfig, fabric: Fabric
) -> tuple[nn.Module, Task]:
    """The network and task to train with: as they are, unless the output layer alone changes."""
    if task.features is not None or config.augment or not frozen_but_output(network):
        return network, task
    assert isinstance(network, Network)
    features = embed(
        PenultimateFeatures(network),
        task.decoded,
        normalise=task.facts.normalise,
        batch_size=config.batch_size,
        device=fabric.device,
        precision=config.precision,
    )
    return OutputOnly(network), replace(task, features=features)


def whole_network(network: nn.Module) -> nn.Module:
    """The network from images on."""
    return network.whole if isinstance(network, OutputOnly) else network
