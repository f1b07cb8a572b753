"""Compare your own method with the baseline.

Runs both on scikit-learn's digits, with 10 % of the odd digits in the training set, and prints the
leaderboard and the choice.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from torch import nn

import cosen
from cosen.methods import NetworkMethod, Setting


@dataclass(frozen=True)
class LateBalance(NetworkMethod):
    """Plain cross-entropy first, balanced softmax after a quarter of the epochs."""

    name = "late-balance"
    description = "balanced softmax, after some epochs of plain training"

    defer: float = 0.25

    def make_loss(self, setting: Setting) -> nn.Module:
        return cosen.BalancedSoftmaxLoss(setting.class_counts, tau=0.0)

    def begin_epoch(self, loss: nn.Module, setting: Setting, progress: float) -> None:
        loss.tau = 1.0 if progress >= self.defer else 0.0


with tempfile.TemporaryDirectory() as folder:
    study = cosen.compare(
        "digits",
        methods=["baseline", LateBalance()],
        seeds=1,
        imbalance="odd:0.1",
        epochs=8,
        out=Path(folder) / "study",
    )
    print(study.leaderboard.markdown())
    print(study.choice.sentence)
