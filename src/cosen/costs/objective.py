"""What validation measures, and how wrong a network is by it."""

from typing import Literal

import torch
from torch import Tensor

from cosen import functional as F
from cosen.errors import InputError
from cosen.functional.checks import check_misclassification_costs
from cosen.losses import Numbers, as_numbers

Objective = Literal["overall", "balanced"] | Tensor
"""What the validation error measures; a tensor is an expert's misclassification costs ξ′."""

_CHOICES = "objective must be 'overall', 'balanced' or a matrix of costs"


def checked_objective(objective: Objective | Numbers, *, num_classes: int) -> Objective:
    """The objective, a matrix as a tensor; what cannot be one is refused."""
    if isinstance(objective, str):
        if objective not in ("overall", "balanced"):
            raise InputError(f"{_CHOICES}, but is {objective!r}")
        return objective
    if objective is None:
        raise InputError(f"{_CHOICES}, but is None")
    matrix = as_numbers(objective, name="objective").float()
    check_misclassification_costs(matrix, num_classes=num_classes, name="objective")
    if not bool(matrix.any()):
        raise InputError("the costs in objective are all zero: then every decision is as good")
    return matrix


def validation_error(confusion: Tensor, objective: Objective = "overall") -> float:
    """E_val of a confusion matrix of counts, between 0 (perfect) and 1.

    Args:
        confusion: Counts, row = true class, shape ``(C, C)``.
        objective: ``"overall"`` is the share of samples that are wrong, ``"balanced"`` the mean
            over classes of that share, a matrix ξ′ the mean cost over the largest cost.

    Example:
        >>> validation_error(torch.tensor([[9, 1], [1, 1]]), "balanced")
        0.3...
    """
    if isinstance(objective, Tensor):
        costs = objective.to(confusion.device, torch.float64)
        return float((confusion * costs).sum() / confusion.sum() / costs.max())
    if objective == "overall":
        return 1 - float(F.overall_accuracy(confusion.double()))
    if objective == "balanced":
        return 1 - float(F.mean_recall(confusion.double()))
    raise InputError(f"{_CHOICES}, but is {objective!r}")


def validation_noise(confusion: Tensor, objective: Objective = "overall") -> float:
    """The standard error of :func:`validation_error`: what it varies by from sample to sample.

    Args:
        confusion: Counts, row = true class, shape ``(C, C)``.
        objective: As in :func:`validation_error`.

    Example:
        >>> round(validation_noise(torch.tensor([[9, 1], [1, 1]]), "balanced"), 2)
        0.18
    """
    counts = confusion.double()
    totals = counts.sum(1)
    if isinstance(objective, str) and objective == "balanced":
        present = totals > 0
        right, samples = counts.diagonal()[present], totals[present]
        recall = (right + 0.5) / (samples + 1)  # one sample of a class is not a certainty
        variances = recall * (1 - recall) / samples
        return float(variances.sum().sqrt() / present.sum())
    if isinstance(objective, Tensor):
        costs = objective.to(counts.device, torch.float64) / objective.max()
        mean = (counts * costs).sum() / totals.sum()
        variance = (counts * (costs - mean).square()).sum() / totals.sum()
    else:
        right_share = counts.diagonal().sum() / totals.sum()
        variance = right_share * (1 - right_share)
    return float((variance / totals.sum()).sqrt())


def validation_rates(counts: Tensor) -> Tensor:
    """R of a confusion matrix of counts, shape ``(C, C)``.

    A class with no validation sample has the others' mean recall and mean error rate.
    """
    rates = F.confusion_rates(counts)
    absent = counts.sum(1) == 0
    if not bool(absent.any()) or bool(absent.all()):
        return rates
    classes = len(counts)
    recall = rates.diagonal()[~absent].mean()
    row = ((1 - recall) / max(1, classes - 1)).expand(classes, classes)
    row = torch.where(torch.eye(classes, dtype=torch.bool, device=counts.device), recall, row)
    return torch.where(absent[:, None], row, rates)


def class_importance(class_counts: Tensor, objective: Objective = "balanced") -> Tensor:
    """How much an error on a sample of each class weighs in the objective, shape ``(C,)``.

    Args:
        class_counts: Samples of each class, shape ``(C,)``.
        objective: As in :func:`validation_error`. Of an expert's matrix it is the mean cost of a
            class's errors.

    Example:
        >>> class_importance(torch.tensor([90, 10]))
        tensor([ 1.1111, 10.0000])
    """
    counts = class_counts.to(torch.float32)
    if isinstance(objective, Tensor):
        costs = objective.to(counts.device, torch.float32)
        mean = (costs.sum(1) - costs.diagonal()) / max(1, len(costs) - 1)
        return mean.clamp(min=1e-3 * float(costs.max()))  # of a class whose errors cost nothing
    return counts.sum() / counts if objective == "balanced" else torch.ones_like(counts)
