"""From one loss a sample to what the caller asked for."""

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from cosen.errors import InputError

Reduction = Literal["mean", "sum", "none"]


def full_precision(tensor: Tensor) -> Tensor:
    """``tensor`` in float32 if it came in half precision, else as it is."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def reduce_losses(losses: Tensor, weights: Tensor, reduction: Reduction) -> Tensor:
    """Weigh the losses of a batch and reduce them.

    The mean is that of ``torch.nn.functional.cross_entropy``: the weighted sum over the sum of
    the weights. Where every weight is zero (a batch of ignored samples) it is 0, not NaN.

    Args:
        losses: One loss a sample, shape ``(B,)``.
        weights: One weight a sample, shape ``(B,)``; zero for an ignored sample.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """
    if reduction not in get_args(Reduction):
        raise InputError(
            f"reduction must be one of {', '.join(get_args(Reduction))}, but is {reduction!r}"
        )
    weighted = torch.where(weights == 0, 0, weights * losses)  # an ignored loss may be infinite
    if reduction == "none":
        return weighted
    if reduction == "sum":
        return weighted.sum()
    total = weights.sum()
    return weighted.sum() / torch.where(total == 0, 1, total)


def known_targets(target: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Class indices that can be used for indexing, and which samples count.

    Returns:
        The indices with ignored samples set to class 0, and the mask of those not ignored.
    """
    counted = target != ignore_index
    return torch.where(counted, target, 0).long(), counted


def expected_losses(
    loss_of_class: Callable[[Tensor, Tensor], Tensor],
    logits: Tensor,
    target: Tensor,
    class_weights: Tensor | None,
    *,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    r"""Losses and weights of a batch whose target is class indices or class probabilities.

    A sample that is class :math:`p` with probability :math:`d_p` has the loss
    :math:`\sum_p d_p \ell(p, o)`, which for mixup is the mix of the two losses. Only the classes
    with a probability above zero are worked out.

    Args:
        loss_of_class: Maps logits ``(K, C)`` and class indices ``(K,)`` to losses ``(K,)``.
        logits: Network outputs, shape ``(B, C)``.
        target: Class indices ``(B,)`` or probabilities ``(B, C)``.
        class_weights: A weight for each class, shape ``(C,)``, or None for 1.
        ignore_index: The index that marks a sample to leave out.

    Returns:
        The losses ``(B,)`` averaged over a sample's classes and the weights ``(B,)``.
    """
    if not target.is_floating_point():
        classes, counted = known_targets(target, ignore_index)
        weights = counted.to(logits.dtype)
        if class_weights is not None:
            weights = weights * class_weights[classes]
        return loss_of_class(logits, classes), weights
    sample, classes = target.nonzero(as_tuple=True)
    shares = target.to(logits.dtype)[sample, classes]  # (pairs,)
    if class_weights is not None:
        shares = shares * class_weights[classes]
    zeros = logits.new_zeros(len(logits))
    weights = zeros.index_add(0, sample, shares)
    losses = zeros.index_add(0, sample, shares * loss_of_class(logits[sample], classes))
    return losses / torch.where(weights == 0, 1, weights), weights
