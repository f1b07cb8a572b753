"""Balanced softmax (Ren et al. 2020), the logit-adjusted loss (Menon et al. 2021)."""

from dataclasses import dataclass

import torch
from torch import nn

from cosen.losses import BalancedSoftmaxLoss
from cosen.methods.method import NetworkMethod, Setting


@dataclass(frozen=True)
class BalancedSoftmax(NetworkMethod):
    """The softmax of training counts the class frequencies in; at inference they are left out.

    Attributes:
        tau: The strength; 1 is balanced softmax.
    """

    name = "balanced-softmax"
    description = "balanced softmax, the logit-adjusted loss"

    tau: float = 1.0

    def make_loss(self, setting: Setting) -> nn.Module:
        return BalancedSoftmaxLoss(torch.from_numpy(setting.class_counts), tau=self.tau)
