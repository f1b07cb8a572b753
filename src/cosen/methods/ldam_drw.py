"""LDAM with deferred re-weighting (Cao et al. 2019)."""

from dataclasses import dataclass

import torch
from torch import nn

from cosen import functional as F
from cosen.errors import InputError
from cosen.losses import LDAMLoss
from cosen.methods.method import NetworkMethod, Setting
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
    output = "cosine"

    max_margin: float = 0.5
    beta: float = 0.9999
    defer: float = 0.8

    def __post_init__(self) -> None:
        if not 0 <= self.defer <= 1:
            raise InputError(f"defer of method {self.name} must lie in [0, 1], not {self.defer}")

    def make_loss(self, setting: Setting) -> nn.Module:
        # the output layer scales its cosines itself
        return LDAMLoss(
            torch.from_numpy(setting.class_counts), max_margin=SCALE * self.max_margin, scale=1.0
        )

    def begin_epoch(self, loss: nn.Module, setting: Setting, progress: float) -> None:
        assert isinstance(loss, LDAMLoss)
        if progress >= self.defer:
            counts = torch.from_numpy(setting.class_counts)
            loss.weight.copy_(F.class_balanced_weights(counts, beta=self.beta))
