"""Smooth one-sided regression (Chung et al. 2016) with costs drawn as by Abe et al. (2004)."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from cosen import functional as F
from cosen.functional.checks import check_positive
from cosen.losses import SmoothOneSidedRegressionLoss
from cosen.methods.cost_table import read_misclassification_costs
from cosen.methods.method import NetworkMethod, Setting


@dataclass(frozen=True)
class SOSR(NetworkMethod):
    """The network regresses the cost of each decision; the cheapest is taken.

    Attributes:
        most: The cost of a decision between equally frequent classes is drawn from [0, most].
            Chung et al. have 10; the loss grows with it, and so do the steps at a learning rate.
        costs: A CSV of misclassification costs in place of drawn ones; where validation measures
            an expert's costs, those are taken.
    """

    name = "sosr"
    description = "smooth one-sided regression of drawn misclassification costs"

    most: float = 1.0
    costs: str = ""

    def __post_init__(self) -> None:
        check_positive(self.most, name="most")

    def check(self, setting: Setting) -> None:
        super().check(setting)
        self._costs(setting)

    def make_loss(self, setting: Setting) -> nn.Module:
        return SmoothOneSidedRegressionLoss(self._costs(setting))

    def _costs(self, setting: Setting) -> Tensor:
        if self.costs:
            path = Path(self.costs).expanduser()
            return read_misclassification_costs(path, setting.class_names)
        if isinstance(setting.objective, Tensor):
            return setting.objective
        return F.random_misclassification_costs(
            torch.from_numpy(setting.class_counts),
            most=self.most,
            generator=torch.Generator().manual_seed(setting.seed),
        )
