"""Losses as modules: each a thin wrapper around its function in :mod:`cosen.functional`.

What a loss knows of the classes (costs, counts, weights) is a buffer: it moves with ``.to()``
and stands in the ``state_dict``. Targets are class indices ``(B,)`` or probabilities ``(B, C)``.
"""

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from cosen import functional as F
from cosen.functional.checks import (
    check_class_vector,
    check_costs,
    check_misclassification_costs,
)
from cosen.functional.costs import RelativeTo

Numbers = Tensor | Sequence[float] | Sequence[Sequence[float]]


def _floats(values: Numbers) -> Tensor:
    return torch.as_tensor(values).clone().to(torch.get_default_dtype())


class _CostSensitiveLoss(nn.Module):
    """A loss with a cost matrix ξ, shape ``(C, C)``, in (0, 1]; all ones is cost-insensitive."""

    costs: Tensor

    def __init__(
        self,
        costs: Numbers,
        *,
        reduction: F.Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        matrix = _floats(costs)
        check_costs(matrix)
        self.register_buffer("costs", matrix)
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index

    @classmethod
    def from_class_counts(
        cls, class_counts: Numbers, *, relative_to: RelativeTo = "total", **options: Any
    ) -> Self:
        """The loss with the fixed costs H of these training counts, shape ``(C,)``."""
        counts = torch.as_tensor(class_counts)
        frequencies = F.class_frequencies(counts, relative_to=relative_to)
        return cls(F.frequency_matrix(frequencies), **options)

    def extra_repr(self) -> str:
        return f"classes={len(self.costs)}, reduction={self.reduction!r}"


class CostSensitiveCrossEntropy(_CostSensitiveLoss):
    """:func:`~cosen.functional.cost_sensitive_cross_entropy` with its costs as a buffer.

    Example:
        >>> criterion = CostSensitiveCrossEntropy.from_class_counts([900, 100])
        >>> criterion(torch.zeros(2, 2), torch.tensor([0, 1]))
        tensor(1.4979)
    """

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cost_sensitive_cross_entropy(
            logits,
            target,
            self.costs,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            ignore_index=self.ignore_index,
        )


class CostSensitiveHinge(_CostSensitiveLoss):
    """:func:`~cosen.functional.cost_sensitive_hinge` with its costs as a buffer."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cost_sensitive_hinge(
            logits,
            target,
            self.costs,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            ignore_index=self.ignore_index,
        )


class CostSensitiveMSE(_CostSensitiveLoss):
    """:func:`~cosen.functional.cost_sensitive_mse` with its costs as a buffer."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.cost_sensitive_mse(
            logits,
            target,
            self.costs,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            ignore_index=self.ignore_index,
        )


class BalancedSoftmax(nn.Module):
    """:func:`~cosen.functional.balanced_softmax`; with ``tau`` the logit-adjusted loss."""

    class_counts: Tensor

    def __init__(
        self,
        class_counts: Numbers,
        *,
        tau: float = 1.0,
        reduction: F.Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        self.register_buffer("class_counts", _class_vector(class_counts, "class_counts"))
        self.tau = tau
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.balanced_softmax(
            logits,
            target,
            self.class_counts,
            tau=self.tau,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            ignore_index=self.ignore_index,
        )


class LDAMLoss(nn.Module):
    """:func:`~cosen.functional.ldam_loss`; assign ``weight`` to begin deferred re-weighting."""

    class_counts: Tensor
    weight: Tensor | None

    def __init__(
        self,
        class_counts: Numbers,
        *,
        max_margin: float = 0.5,
        scale: float = 30.0,
        weight: Numbers | None = None,
        reduction: F.Reduction = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        self.register_buffer("class_counts", _class_vector(class_counts, "class_counts"))
        self.register_buffer("weight", _class_vector(weight, "weight"))
        self.max_margin = max_margin
        self.scale = scale
        self.reduction = reduction
        self.ignore_index = ignore_index

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.ldam_loss(
            logits,
            target,
            self.class_counts,
            max_margin=self.max_margin,
            scale=self.scale,
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
        )


class FocalLoss(nn.Module):
    """:func:`~cosen.functional.focal_loss`, with a weight for each class if given."""

    weight: Tensor | None

    def __init__(
        self,
        *,
        gamma: float = 2.0,
        weight: Numbers | None = None,
        reduction: F.Reduction = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", _class_vector(weight, "weight"))
        self.gamma = gamma
        self.reduction = reduction
        self.ignore_index = ignore_index

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.focal_loss(
            logits,
            target,
            gamma=self.gamma,
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
        )


class ClassBalancedCrossEntropy(nn.Module):
    """:func:`~cosen.functional.class_balanced_cross_entropy`."""

    class_counts: Tensor

    def __init__(
        self,
        class_counts: Numbers,
        *,
        beta: float = 0.9999,
        reduction: F.Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        self.register_buffer("class_counts", _class_vector(class_counts, "class_counts"))
        self.beta = beta
        self.reduction = reduction
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.class_balanced_cross_entropy(
            logits,
            target,
            self.class_counts,
            beta=self.beta,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            ignore_index=self.ignore_index,
        )


class SmoothOneSidedRegression(nn.Module):
    """:func:`~cosen.functional.smooth_one_sided_regression` with the costs ξ′ as a buffer."""

    misclassification_costs: Tensor

    def __init__(
        self,
        misclassification_costs: Numbers,
        *,
        reduction: F.Reduction = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__()
        matrix = _floats(misclassification_costs)
        check_misclassification_costs(matrix)
        self.register_buffer("misclassification_costs", matrix)
        self.reduction = reduction
        self.ignore_index = ignore_index

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.smooth_one_sided_regression(
            logits,
            target,
            self.misclassification_costs,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
        )


def _class_vector(values: Numbers | None, name: str) -> Tensor | None:
    if values is None:
        return None
    vector = _floats(values)
    check_class_vector(vector, num_classes=None, name=name)
    return vector
