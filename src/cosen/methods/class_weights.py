"""Cross-entropy weighted by class."""

from dataclasses import dataclass

import torch
from torch import nn

from cosen.methods.method import NetworkMethod, Setting


@dataclass(frozen=True)
class ClassWeights(NetworkMethod):
    """Every class has the same weight in the loss.

    Attributes:
        power: Weights are inverse to the class counts to this power; a half is gentler.
    """

    name = "class-weights"
    description = "cross-entropy, classes weighted inversely to their frequency"

    power: float = 1.0

    def make_loss(self, setting: Setting) -> nn.Module:
        weights = torch.from_numpy(setting.class_counts).float() ** -self.power
        return nn.CrossEntropyLoss(weight=weights / weights.mean())
