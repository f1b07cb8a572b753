"""The optimizer, and its learning rate over a run."""

import math
from collections.abc import Iterable

from torch import nn
from torch.optim import SGD, AdamW, Optimizer

from cosen.training.config import TrainConfig


def make_optimizer(config: TrainConfig, parameters: Iterable[nn.Parameter]) -> Optimizer:
    """SGD with momentum, or AdamW, over the parameters that are not frozen."""
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    if config.optimizer == "adamw":
        return AdamW(trained, lr=config.lr, weight_decay=config.weight_decay)
    return SGD(
        trained,
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.momentum > 0,
    )


def learning_rate(config: TrainConfig, progress: float) -> float:
    """The learning rate at a share of the run between 0 and 1.

    Example:
        >>> [round(learning_rate(TrainConfig(lr=1.0), p), 2) for p in (0, 0.5, 1)]
        [1.0, 0.5, 0.0]
    """
    if config.schedule == "cosine":
        return config.lr * (1 + math.cos(math.pi * progress)) / 2
    if config.schedule == "step":
        return config.lr * 0.1 ** ((progress >= 0.5) + (progress >= 0.75))
    return config.lr
