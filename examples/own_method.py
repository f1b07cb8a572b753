"""A method of one's own beside the baseline, on equal terms.

Compares them on scikit-learn's digits, of which 10 % of the odd ones are kept, and prints the
leaderboard and the choice. Everything is left in a study folder.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from cosen import BalancedSoftmaxLoss
from cosen.comparing.compare import compare
from cosen.methods import NetworkMethod, Setting
from cosen.training.config import TrainConfig


@dataclass(frozen=True)
class LateBalance(NetworkMethod):
    """Plain cross-entropy first, balanced softmax once a quarter of the epochs is over."""

    name = "late-balance"
    description = "balanced softmax, deferred until features have formed"

    defer: float = 0.25

    def make_loss(self, setting: Setting) -> nn.Module:
        return BalancedSoftmaxLoss(torch.from_numpy(setting.class_counts), tau=0.0)

    def begin_epoch(self, loss: nn.Module, setting: Setting, progress: float) -> None:
        loss.tau = 1.0 if progress >= self.defer else 0.0


def main() -> None:
    config = TrainConfig(
        data="digits", imbalance="odd:0.1", objective="balanced", validation=0.2, epochs=8
    )
    with tempfile.TemporaryDirectory() as folder:
        comparison = compare(
            config, Path(folder) / "study", methods=["baseline", LateBalance()], seeds=1
        )
        print(comparison.leaderboard.markdown())
        print(comparison.choice.sentence)


if __name__ == "__main__":  # runs are processes, which import this file
    main()
