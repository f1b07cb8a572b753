"""LDAM with deferred re-weighting (Cao et al. 2019)."""

from dataclasses import dataclass

import torch
from torch import nn

from cosen import functional as F
from cosen.errors import InputError
from cosen.functional.checks import check_fraction, check_not_negative
from cosen.losses import LDAMLoss
from cosen.methods.method import NetworkMethod, Setting
from cosen.methods.weighting import MeanOverSamples, with_mean_one
from cosen.networks.cosine import SCALE


@dataclass(frozen=True)
class LDAMDRW(NetworkMethod):
    """Wider margins for rare classes; near the end their loss is weighted too.

    Attributes:
        max_margin: The margin of the rarest class, in cosines.
        beta: Of the class-balanced weights.
        defer: The share of the epochs that go by before they count.
    """

    name = "ldam-drw"
    description = "label-distribution-aware margins, deferred re-weighting"

    max_margin: float = 0.5
    beta: float = 0.9999
    defer: float = 0.8

    def __post_init__(self) -> None:
        check_not_negative(self.max_margin, name="max_margin")
        check_fraction(self.beta, name="beta")
        if not 0 <= self.defer <= 1:
            raise InputError(f"defer must lie in [0, 1], but is {self.defer}")

    def cosine_scale(self, setting: Setting) -> float:
        return SCALE

    def make_loss(self, setting: Setting) -> nn.Module:
        # the output layer scales its cosines itself
        return MeanOverSamples(
            LDAMLoss(
                torch.from_numpy(setting.class_counts),
                max_margin=SCALE * self.max_margin,
                scale=1.0,
                reduction="sum",
            )
        )

    def begin_epoch(self, loss: nn.Module, setting: Setting, progress: float) -> None:
        assert isinstance(loss, MeanOverSamples)
        assert isinstance(loss.loss, LDAMLoss)
        if progress >= self.defer:
            counts = torch.from_numpy(setting.class_counts)
            weights = F.class_balanced_weights(counts, beta=self.beta)
            loss.loss.weight.copy_(with_mean_one(weights, counts))
