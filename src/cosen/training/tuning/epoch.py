"""An epoch of training that leaves nothing behind: :mod:`cosen.training.loop` without its run."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from cosen.data.batches import Batch
from cosen.errors import InputError, RunError
from cosen.training.config import TrainConfig
from cosen.training.schedule import learning_rate


class Diverged(RunError):
    """Training whose loss has become infinite."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"training diverged: {reason}; use a lower learning rate (--set lr=0.01)")


def train_epoch(
    config: TrainConfig,
    network: nn.Module,
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Batch],
    epoch: int,
) -> None:
    """Train on each batch once, at the learning rate of this epoch of ``config.epochs``."""
    network.train()
    total = len(batches)  # type: ignore[arg-type]
    for number, batch in enumerate(batches):
        try:
            value = loss(network(batch.inputs).logits, batch.target)
        except InputError as error:
            raise Diverged(str(error)) from error
        optimizer.zero_grad()
        value.backward()
        if config.clip:
            nn.utils.clip_grad_norm_(network.parameters(), config.clip)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, (epoch + number / total) / config.epochs)
        optimizer.step()
    if not bool(value.isfinite()):
        raise Diverged("the loss is not a number any more")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Weights drawn in here come from the seed; the global generator goes on as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
