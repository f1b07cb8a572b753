"""Batches and reductions: the steps of every loss before and after its own formula.

A loss works on logits ``(N, C)``. :func:`prepare_batch` brings other shapes to this one, and
:func:`batch_loss` brings the losses back to the shape of the target.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from cosen.functional.checks import (
    check_choice,
    check_logits,
    check_same_device,
    check_target,
    check_weight,
    is_transforming,
    values_are_readable,
)

Reduction = Literal["mean", "sum", "none"]

FEW = 4
"""Classes per sample, on average, up to which a target of probabilities is computed class by class.
Mixed images have two."""


class Batch(NamedTuple):
    """Checked inputs of a loss, one row per sample or pixel."""

    logits: Tensor  # (N, C), float32 or float64
    target: Tensor  # (N,) class indices, long, or (N, C) probabilities
    shape: torch.Size  # of the target without the class dimension, N elements
    reduction: Reduction
    ignore_index: int


def prepare_batch(
    logits: Tensor, target: Tensor, *, reduction: Reduction, ignore_index: int
) -> Batch:
    """Check the inputs that all losses share, and flatten them."""
    check_choice(reduction, get_args(Reduction), name="reduction")
    check_logits(logits)
    check_target(target, logits, ignore_index=ignore_index)
    shape = logits.shape[:1] + logits.shape[2:] if logits.ndim > 1 else torch.Size()
    if target.is_floating_point():
        target = classes_last(target)
    else:
        target = target.long() if target.ndim == 1 else target.long().flatten()
    return Batch(full_precision(classes_last(logits)), target, shape, reduction, ignore_index)


def classes_last(tensor: Tensor) -> Tensor:
    """Reshape ``(B, C, d1, ...)`` or ``(C,)`` to ``(N, C)``."""
    if tensor.ndim == 2:
        return tensor
    return tensor.movedim(1, -1).flatten(0, -2) if tensor.ndim > 2 else tensor[None]


def full_precision(tensor: Tensor) -> Tensor:
    """Convert half precision to float32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Keep the precision of matrix products."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def batch_loss(
    batch: Batch,
    loss_of_class: Callable[[Tensor, Tensor], Tensor],
    *,
    losses_of_all: Callable[[Tensor], Tensor | None] | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Compute the loss of a batch from the loss of one true class.

    Args:
        batch: The result of :func:`prepare_batch`.
        loss_of_class: Maps logits ``(K, C)`` and class indices ``(K,)`` to losses ``(K,)``.
        losses_of_all: Maps logits ``(N, C)`` to the losses of every true class ``(N, C)``, if that
            is faster than one class at a time, or to None if it would lose digits. It may branch on
            values, so it is not used under ``torch.compile``.
        weight: Weight of each class, shape ``(C,)``; None is 1.
    """
    logits, target = batch.logits, batch.target
    if weight is not None:
        check_same_device(weight, logits, name="weight", other="logits")
        check_weight(weight, num_classes=logits.shape[1], values=values_are_readable(weight))
        weight = weight.to(logits.dtype)
    if target.is_floating_point():
        shares = target.to(logits.dtype)
        if weight is not None:
            shares = shares * weight
        losses, weights = _expected_losses(loss_of_class, losses_of_all, logits, shares)
    else:
        counted = target != batch.ignore_index
        if weight is None and values_are_readable(target) and len(target) and bool(counted.all()):
            return _reduce_unweighted(loss_of_class(logits, target.long()), batch)  # half the time
        classes = torch.where(counted, target, 0)
        losses = loss_of_class(logits, classes)
        weights = counted.to(logits.dtype) * (1 if weight is None else weight[classes])
    reduced = reduce_losses(losses, weights, batch.reduction)
    return reduced.reshape(batch.shape) if batch.reduction == "none" else reduced


def _expected_losses(
    loss_of_class: Callable[[Tensor, Tensor], Tensor],
    losses_of_all: Callable[[Tensor], Tensor | None] | None,
    logits: Tensor,
    shares: Tensor,
) -> tuple[Tensor, Tensor]:
    r"""Compute mean losses ``(N,)`` and weights ``(N,)`` of samples with class probabilities.

    A sample that is class :math:`p` with probability :math:`d_p` has the loss
    :math:`\sum_p d_p \ell(p, o)`. For mixup this is the mix of the two losses. Computing it class
    by class takes ``2 * N * C`` numbers for two classes per sample, ``N * C * C`` for all classes.
    """
    weights = shares.sum(1)
    divisors = torch.where(weights == 0, 1, weights)
    if is_transforming():  # nonzero() depends on values: take all pairs
        sample = torch.arange(len(shares), device=shares.device).repeat_interleave(shares.shape[1])
        classes = torch.arange(shares.shape[1], device=shares.device).repeat(len(shares))
    else:
        sample, classes = shares.nonzero(as_tuple=True)
    if torch.compiler.is_compiling() or is_transforming():
        losses_of_all = None
    if losses_of_all is not None and len(sample) > FEW * len(shares):
        losses = losses_of_all(logits)
        if losses is not None:  # classes without a share may have an infinite loss
            return (shares * losses.masked_fill(shares == 0, 0)).sum(1) / divisors, weights
    of_pairs = shares[sample, classes] * loss_of_class(logits[sample], classes)
    return logits.new_zeros(len(logits)).index_add(0, sample, of_pairs) / divisors, weights


def _reduce_unweighted(losses: Tensor, batch: Batch) -> Tensor:
    """Reduce losses of equal weight."""
    if batch.reduction == "none":
        return losses.reshape(batch.shape)
    return losses.mean() if batch.reduction == "mean" else losses.sum()


def reduce_losses(losses: Tensor, weights: Tensor, reduction: Reduction) -> Tensor:
    r"""Weight the losses of a batch and reduce them.

    .. math:: \text{mean} = \sum_i w_i \ell_i / \sum_i w_i

    The weight of a sample is the weight of its true class; for probabilities it is the sum of the
    class weights times the probabilities. The mean is 0, not NaN, if all weights are zero.
    This is ``torch.nn.functional.cross_entropy(weight=)`` for class indices without label
    smoothing. docs/paper.md lists the differences in other cases.
    """
    weighted = torch.where(weights == 0, 0, weights * losses)  # an ignored loss may be infinite
    if reduction == "none":
        return weighted
    if reduction == "sum":
        return weighted.sum()
    total = weights.sum()
    return weighted.sum() / torch.where(total == 0, 1, total)
