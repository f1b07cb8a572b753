"""The class-balanced loss (Cui et al. 2019)."""

from dataclasses import dataclass

import torch
from torch import nn

from cosen.losses import ClassBalancedCrossEntropy
from cosen.methods.method import NetworkMethod, Setting


@dataclass(frozen=True)
class ClassBalanced(NetworkMethod):
    """Weights inverse to the effective number of samples.

    Attributes:
        beta: Towards 1 the weights become inverse to the counts; 0.99 is gentle.
    """

    name = "class-balanced"
    description = "cross-entropy, weighted by the effective number of samples"

    beta: float = 0.999

    def make_loss(self, setting: Setting) -> nn.Module:
        return ClassBalancedCrossEntropy(torch.from_numpy(setting.class_counts), beta=self.beta)
