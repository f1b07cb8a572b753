"""Cross-entropy weighted by class."""

from dataclasses import dataclass

import torch
from torch import nn

from cosen.errors import InputError
from cosen.methods.method import NetworkMethod, Setting
from cosen.methods.weighting import MeanOverSamples, with_mean_one


@dataclass(frozen=True)
class ClassWeights(NetworkMethod):
    """Every class has the same weight in the loss.

    Attributes:
        power: Weights are inverse to the class counts to this power; a half is gentler.
    """

    name = "class-weights"
    description = "cross-entropy, classes weighted inversely to their frequency"

    power: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.power <= 2:
            raise InputError(f"power must lie in [0, 2], but is {self.power}")

    def make_loss(self, setting: Setting) -> nn.Module:
        counts = torch.from_numpy(setting.class_counts)
        weights = with_mean_one(counts.float() ** -self.power, counts)
        return MeanOverSamples(nn.CrossEntropyLoss(weight=weights, reduction="sum"))
