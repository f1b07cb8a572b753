"""The parts of a training loop: the loss of a batch, that of an epoch, the outputs for samples."""

import math

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cosen.costs import LOSSES, LossName
from cosen.errors import InputError
from cosen.functional.reduction import reduce_losses
from cosen.networks.output import Network, NetworkOutput

EVALUATED_AT_ONCE = 1024


def batch_loss(
    name: LossName, logits: Tensor, target: Tensor, costs: Tensor, weight: Tensor
) -> Tensor:
    """The mean over a batch, by class weight, of the cost-sensitive loss."""
    if name == "cross_entropy":
        # what cost_sensitive_cross_entropy gives, without its checks, which take longer than it
        margins = costs.index_select(0, target).log()  # (B, C)
        return cross_entropy(logits + margins, target, weight=weight)
    losses = LOSSES[name].function(logits, target, costs, reduction="none")
    return reduce_losses(losses, weight[target], "mean")


def epoch_loss(losses: list[Tensor]) -> float:
    """The mean over the batches, which are of equal size."""
    mean = float(torch.stack(losses).mean())
    if not math.isfinite(mean):
        raise InputError("the training of CosenClassifier has diverged: lower lr")
    return mean


@torch.no_grad()
def evaluate(network: Network, inputs: Tensor) -> NetworkOutput:
    """Both outputs for all samples; the network is left in the mode it was in."""
    was_training = network.training
    network.eval()
    parts = [network(part) for part in torch.split(inputs, EVALUATED_AT_ONCE)]
    network.train(was_training)
    return NetworkOutput(*(torch.cat(outputs) for outputs in zip(*parts, strict=True)))
