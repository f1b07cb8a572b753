"""The paper's three cost-sensitive losses (Sec. III-C).

Row = true class, column = output. Logits are ``(B, C)``, ``(B, C, d1, ...)`` or ``(C,)`` as in
``torch.nn.functional.cross_entropy``. All losses sum over the outputs and then reduce over the
samples. Half-precision logits are converted to float32, also under autocast.

Costs are margins in the cross-entropy (:mod:`cosen.functional.margins`). In the hinge loss and the
squared error they multiply the outputs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from cosen.functional.checks import (
    check_costs,
    check_fraction,
    check_logit_values,
    check_same_device,
    values_are_readable,
)
from cosen.functional.margins import Margins, margin_cross_entropy
from cosen.functional.reduction import (
    LARGE,
    Batch,
    Fused,
    Reduction,
    batch_loss,
    full_precision,
    fused_loss,
    is_finite,
    prepare_batch,
)


def cost_sensitive_cross_entropy(
    logits: Tensor,
    target: Tensor,
    costs: Tensor,
    *,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    r"""Cross-entropy of the cost-weighted softmax (Sec. III-C, loss c).

    .. math:: y_n = \xi_{p,n} e^{o_n} / \sum_k \xi_{p,k} e^{o_k}, \quad \ell = -\log y_p

    A lower diagonal cost raises its class's loss: the class must win by a wider margin. Only the
    ratios within a row of costs matter. Costs of 1 give plain cross-entropy.

    Args:
        logits: Network outputs :math:`o`, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes :math:`p`, shape ``(B,)`` or ``(B, d1, ...)``, or probabilities in the
            shape of the logits.
        costs: Cost matrix :math:`\xi`, shape ``(C, C)``, in (0, 1].
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of the target spread evenly over the outputs.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> costs = torch.tensor([[0.5, 1, 1], [1, 1, 1], [1, 1, 1]])
        >>> cost_sensitive_cross_entropy(torch.tensor([[2.0, 1, 0]]), torch.tensor([0]), costs)
        tensor(0.6964)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    margins = Margins(costs=_checked_costs(costs, batch.logits))
    return margin_cross_entropy(batch, margins, label_smoothing=label_smoothing)


def cost_sensitive_hinge(
    logits: Tensor,
    target: Tensor,
    costs: Tensor,
    *,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    r"""One-against-all hinge loss of the cost-weighted outputs (Sec. III-C, loss b).

    .. math:: \ell = \sum_n \max(0, 1 - (2 d_n - 1) y_n), \quad y_n = o_n \xi_{p,n}

    The paper's equation has a leading minus that contradicts its own gradient; it is omitted.

    Args:
        logits: Network outputs :math:`o`, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes :math:`p`, shape ``(B,)`` or ``(B, d1, ...)``, or probabilities in the
            shape of the logits.
        costs: Cost matrix :math:`\xi`, shape ``(C, C)``, in (0, 1].
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of :math:`d` spread evenly over the outputs.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> costs = torch.tensor([[0.5, 1], [1, 1]])
        >>> cost_sensitive_hinge(torch.tensor([[1.0, -0.5]]), torch.tensor([0]), costs)
        tensor(1.)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    costs = _checked_costs(costs, batch.logits)
    factors = Factors(costs, *hinge_signs(label_smoothing, len(costs)))
    return hinge(batch, factors, label_smoothing=label_smoothing)


def cost_sensitive_mse(
    logits: Tensor,
    target: Tensor,
    costs: Tensor,
    *,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    r"""Squared error of the cost-weighted logistic outputs (Sec. III-C, loss a).

    .. math:: \ell = \tfrac12 \sum_n (d_n - y_n)^2, \quad y_n = 1 / (1 + e^{-o_n \xi_{p,n}})

    Args:
        logits: Network outputs :math:`o`, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes :math:`p`, shape ``(B,)`` or ``(B, d1, ...)``, or probabilities in the
            shape of the logits.
        costs: Cost matrix :math:`\xi`, shape ``(C, C)``, in (0, 1].
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of :math:`d` spread evenly over the outputs.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> costs = torch.ones(2, 2)
        >>> cost_sensitive_mse(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), costs)
        tensor(0.2500)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    costs = _checked_costs(costs, batch.logits)
    factors = Factors(costs, *SQUARED_ERROR_SIGNS)
    return squared_error(batch, factors, label_smoothing=label_smoothing)


@dataclass(frozen=True, eq=False)
class Factors:
    """What the outputs are multiplied by: the costs times the sign of their class.

    Attributes:
        costs: ξ, shape ``(C, C)``; the factors themselves if there are no signs.
        wrong: Sign of the outputs of wrong classes.
        true: Sign of the output of the true class.
    """

    costs: Tensor
    wrong: float | None = None
    true: float | None = None

    def of_all_classes(self) -> Self:
        """Return factors that are computed once for all batches."""
        return type(self)(self.of_classes(torch.arange(len(self.costs), device=self.costs.device)))

    def of_classes(self, classes: Tensor) -> Tensor:
        """Return the factors of true classes ``(K,)``, shape ``(K, C)``, as a new matrix."""
        rows = self.costs.index_select(0, classes)
        if self.wrong is None or self.true is None:
            return rows
        index = classes.unsqueeze(1)
        return (self.wrong * rows).scatter(1, index, self.true * rows.gather(1, index))


def hinge_signs(label_smoothing: float, classes: int) -> tuple[float, float]:
    """Return 1 - 2 d of wrong and true classes."""
    check_fraction(label_smoothing, name="label_smoothing")
    share = label_smoothing / classes
    return 1 - 2 * share, 2 * (label_smoothing - share) - 1


def hinge(batch: Batch, factors: Factors, *, label_smoothing: float = 0.0) -> Tensor:  # noqa: ARG001
    """:func:`cost_sensitive_hinge` of a prepared batch and its factors."""

    def terms(outputs: Tensor, rows: Tensor) -> Tensor:
        return torch.addcmul(rows.new_ones(()), outputs, rows).relu_()

    def with_gradient(outputs: Tensor, rows: Tensor, share: float) -> Fused:
        found = terms(outputs, rows)
        torch.ops.aten.threshold_backward.grad_input(rows, found, 0, grad_input=rows)
        loss = found.sum(1) if batch.reduction == "none" else found.sum().mul_(share)
        return Fused(loss, rows if share == 1 else rows.mul_(share))

    return _loss_of_weighted_outputs(batch, factors, terms, with_gradient=with_gradient)


SQUARED_ERROR_SIGNS = (1.0, -1.0)
"""Signs of wrong and true classes: with y = logistic(x), 1 - y = logistic(-x)."""


def squared_error(batch: Batch, factors: Factors, *, label_smoothing: float = 0.0) -> Tensor:
    """:func:`cost_sensitive_mse` of a prepared batch and its factors."""
    check_fraction(label_smoothing, name="label_smoothing")
    share = label_smoothing / batch.logits.shape[1]

    def terms(outputs: Tensor, rows: Tensor) -> Tensor:
        errors = (outputs * rows).sigmoid()  # |d - y| without smoothing
        if label_smoothing:
            is_wrong = rows > 0  # costs are positive
            errors = errors - share - (label_smoothing - 2 * share) * (~is_wrong).to(errors.dtype)
        return errors.square()

    def with_gradient(outputs: Tensor, rows: Tensor, share: float) -> Fused:
        errors = torch.mul(outputs, rows).sigmoid_()
        torch.ops.aten.sigmoid_backward.grad_input(rows, errors, grad_input=rows)
        if batch.reduction == "none":
            loss = torch.linalg.vecdot(errors, errors).mul_(0.5 * share)
        else:
            loss = errors.view(-1).dot(errors.view(-1)).mul_(0.5 * share)
        return Fused(loss, torch.addcmul(rows.new_zeros(()), rows, errors, value=share, out=rows))

    fused = None if label_smoothing else with_gradient
    return _loss_of_weighted_outputs(batch, factors, terms, share=0.5, with_gradient=fused)


def _loss_of_weighted_outputs(
    batch: Batch,
    factors: Factors,
    terms: Callable[[Tensor, Tensor], Tensor],
    *,
    share: float = 1.0,
    with_gradient: Callable[[Tensor, Tensor, float], Fused] | None = None,
) -> Tensor:
    """Compute a loss of the outputs times factors.

    Args:
        batch: The samples.
        factors: Factors of the outputs.
        terms: Maps outputs and their factors ``(K, C)`` to the summands of the loss.
        share: Factor for the summands.
        with_gradient: Computes the loss together with its gradient, which is faster for large
            batches. It may write to the factors.
    """

    def rows_of(classes: Tensor) -> Tensor:
        rows = factors.of_classes(classes)
        return rows if rows.dtype is batch.logits.dtype else rows.to(batch.logits.dtype)

    def plain(outputs: Tensor, classes: Tensor) -> Tensor:
        check_logit_values(batch.given)  # an infinite logit may have a finite loss
        return share * terms(outputs, rows_of(classes)).sum(1)

    def fused(outputs: Tensor, classes: Tensor, weight: float) -> Fused | None:
        if with_gradient is None or not _has_finite_sum(outputs):
            return None
        found = with_gradient(outputs, rows_of(classes), weight)
        return found if is_finite(found.loss) else None

    if batch.is_plain:
        is_small = batch.logits.numel() < LARGE
        quick = None
        if not (is_small or with_gradient is None or factors.costs.requires_grad):
            quick = fused_loss(batch, fused, plain)
        elif batch.reduction != "none" and _has_finite_sum(batch.logits):
            try:
                total = terms(batch.logits, rows_of(batch.target)).sum()
                quick = total * (share / len(batch.target) if batch.reduction == "mean" else share)
            except (IndexError, RuntimeError):
                pass  # a target is ignored or wrong
        if quick is not None:
            return quick
    return batch_loss(batch, plain)


def _has_finite_sum(outputs: Tensor) -> bool:
    """Return whether no output is infinite or NaN; the reverse need not hold."""
    return math.isfinite(outputs.detach().sum().item())


def _checked_costs(costs: Tensor, logits: Tensor) -> Tensor:
    check_same_device(costs, logits, name="costs", other="logits")
    check_costs(costs, num_classes=logits.shape[1], values=values_are_readable(costs))
    return full_precision(costs)
