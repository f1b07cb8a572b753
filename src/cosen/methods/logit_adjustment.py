"""Post-hoc logit adjustment (Menon et al. 2021)."""

from dataclasses import dataclass

import torch
from torch import nn

from cosen.methods.method import AdjustingMethod, Setting


@dataclass(frozen=True)
class LogitAdjustment(AdjustingMethod):
    """Takes the log of the class frequencies off the baseline's biases.

    Attributes:
        tau: The strength; 1 turns estimated posteriors into those of equally frequent classes.
    """

    name = "logit-adjustment"
    description = "the baseline, its logits corrected for the class frequencies afterwards"

    tau: float = 1.0

    @torch.no_grad()
    def adjust(self, output: nn.Linear, setting: Setting) -> None:
        counts = torch.from_numpy(setting.class_counts).float()
        output.bias.sub_(self.tau * (counts / counts.sum()).log())
