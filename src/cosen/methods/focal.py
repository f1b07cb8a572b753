"""The focal loss (Lin et al. 2017)."""

from dataclasses import dataclass

from torch import nn

from cosen.functional.checks import check_not_negative
from cosen.losses import FocalLoss
from cosen.methods.method import NetworkMethod, Setting


@dataclass(frozen=True)
class Focal(NetworkMethod):
    """Plays down samples that are classified well.

    Attributes:
        gamma: How far.
    """

    name = "focal"
    description = "focal loss: well-classified samples count less"

    gamma: float = 2.0

    def __post_init__(self) -> None:
        check_not_negative(self.gamma, name="gamma")

    def make_loss(self, setting: Setting) -> nn.Module:
        return FocalLoss(gamma=self.gamma)
