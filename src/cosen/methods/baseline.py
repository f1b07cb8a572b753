"""Plain cross-entropy: what everything else is compared with."""

from dataclasses import dataclass

from torch import nn

from cosen.functional.checks import check_fraction
from cosen.methods.method import NetworkMethod, Setting


@dataclass(frozen=True)
class Baseline(NetworkMethod):
    """Cross-entropy on the images as they are.

    Attributes:
        label_smoothing: The share of the target spread evenly over the classes.
    """

    name = "baseline"
    description = "plain cross-entropy"

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_fraction(self.label_smoothing, name="label_smoothing")

    def make_loss(self, setting: Setting) -> nn.Module:
        return nn.CrossEntropyLoss(label_smoothing=self.label_smoothing)
