"""The class-balanced loss (Cui et al. 2019)."""

from dataclasses import dataclass

import torch
from torch import nn

from cosen import functional as F
from cosen.functional.checks import check_fraction
from cosen.methods.method import NetworkMethod, Setting
from cosen.methods.weighting import MeanOverSamples, with_mean_one


@dataclass(frozen=True)
class ClassBalanced(NetworkMethod):
    """Weights inverse to the effective number of samples.

    Attributes:
        beta: Towards 1 the weights become inverse to the counts; 0.99 is gentle.
    """

    name = "class-balanced"
    description = "cross-entropy, weighted by the effective number of samples"

    beta: float = 0.999

    def __post_init__(self) -> None:
        check_fraction(self.beta, name="beta")

    def make_loss(self, setting: Setting) -> nn.Module:
        counts = torch.from_numpy(setting.class_counts)
        weights = with_mean_one(F.class_balanced_weights(counts, beta=self.beta), counts)
        return MeanOverSamples(nn.CrossEntropyLoss(weight=weights, reduction="sum"))
