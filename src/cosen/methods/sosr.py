"""Smooth one-sided regression (Chung et al. 2016) with costs drawn as by Abe et al. (2004)."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from cosen import functional as F
from cosen.losses import SmoothOneSidedRegression
from cosen.methods.cost_table import read_misclassification_costs
from cosen.methods.method import NetworkMethod, Setting


@dataclass(frozen=True)
class SOSR(NetworkMethod):
    """The network regresses the cost of each decision; the cheapest is taken.

    Attributes:
        most: The cost of a decision between equally frequent classes is drawn from [0, most].
            Chung et al. have 10, which is too steep for the learning rates that suit the others.
        costs: A CSV of misclassification costs in place of drawn ones.
    """

    name = "sosr"
    description = "smooth one-sided regression of drawn misclassification costs"

    most: float = 1.0
    costs: str = ""

    def make_loss(self, setting: Setting) -> nn.Module:
        if self.costs:
            path = Path(self.costs).expanduser()
            costs = read_misclassification_costs(path, setting.class_names)
        else:
            costs = F.random_misclassification_costs(
                torch.from_numpy(setting.class_counts),
                most=self.most,
                generator=torch.Generator().manual_seed(setting.seed),
            )
        return SmoothOneSidedRegression(costs)
