"""From the loss of one true class to the loss of a batch."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch
from torch import Tensor

from cosen.errors import InputError
from cosen.functional.checks import (
    check_logits,
    check_same_device,
    check_target,
    check_weight,
    values_are_readable,
)

Reduction = Literal["mean", "sum", "none"]

FEW = 4
"""Classes with a share in a sample, on average, up to which they are worked out one by one: mixed
images have two."""


def check_reduction(reduction: str) -> None:
    """``reduction`` is a known name."""
    if reduction not in get_args(Reduction):
        raise InputError(
            f"reduction must be one of {', '.join(get_args(Reduction))}, but is {reduction!r}"
        )


def full_precision(tensor: Tensor) -> Tensor:
    """``tensor`` in float32 if it came in half precision, else as it is."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Where products of matrices keep their precision."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()
    return torch.autocast(device.type, enabled=False)


def prepare_batch(logits: Tensor, target: Tensor, *, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Check what every loss takes; logits in full precision, class indices as ``long``."""
    check_logits(logits)
    check_target(target, logits, ignore_index=ignore_index)
    return full_precision(logits), target if target.is_floating_point() else target.long()


def batch_loss(
    loss_of_class: Callable[[Tensor, Tensor], Tensor],
    logits: Tensor,
    target: Tensor,
    *,
    losses_of_all: Callable[[Tensor], Tensor | None] | None = None,
    weight: Tensor | None = None,
    reduction: Reduction,
    ignore_index: int,
) -> Tensor:
    """The loss of a batch from the loss of one true class.

    Args:
        loss_of_class: Maps logits ``(K, C)`` and class indices ``(K,)`` to losses ``(K,)``.
        losses_of_all: Maps logits ``(B, C)`` to the losses of every true class ``(B, C)``, where
            there is a shorter way than one by one, or to None where that way would lose digits. It
            chooses by values, which ``torch.compile`` cannot trace: there it is not taken.
        logits: Network outputs, shape ``(B, C)``, from :func:`prepare_batch`.
        target: Class indices ``(B,)`` or probabilities ``(B, C)``, from :func:`prepare_batch`.
        weight: A weight for each class, shape ``(C,)``, or None for 1.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        ignore_index: The index that marks a sample to leave out.
    """
    check_reduction(reduction)
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
        counted = target != ignore_index
        classes = torch.where(counted, target, 0)
        losses = loss_of_class(logits, classes)
        weights = counted.to(logits.dtype) * (1 if weight is None else weight[classes])
    return reduce_losses(losses, weights, reduction)


def _expected_losses(
    loss_of_class: Callable[[Tensor, Tensor], Tensor],
    losses_of_all: Callable[[Tensor], Tensor | None] | None,
    logits: Tensor,
    shares: Tensor,
) -> tuple[Tensor, Tensor]:
    r"""Mean losses ``(B,)`` and weights ``(B,)`` of samples with class probabilities.

    A sample that is class :math:`p` with probability :math:`d_p` has the loss
    :math:`\sum_p d_p \ell(p, o)`, which for mixup is the mix of the two losses. Where few classes
    have a share above zero, or there is no shorter way, each of these is worked out: with two
    classes a sample that takes ``2 * B * C`` numbers, with dense targets ``B * C * C``.
    """
    weights = shares.sum(1)
    divisors = torch.where(weights == 0, 1, weights)
    sample, classes = shares.nonzero(as_tuple=True)
    if torch.compiler.is_compiling():
        losses_of_all = None
    if losses_of_all is not None and len(sample) > FEW * len(shares):
        losses = losses_of_all(logits)
        if losses is not None:  # of a class without a share they may be infinite
            return (shares * losses.masked_fill(shares == 0, 0)).sum(1) / divisors, weights
    of_pairs = shares[sample, classes] * loss_of_class(logits[sample], classes)
    return logits.new_zeros(len(logits)).index_add(0, sample, of_pairs) / divisors, weights


def reduce_losses(losses: Tensor, weights: Tensor, reduction: Reduction) -> Tensor:
    """Weigh the losses of a batch and reduce them.

    A class weight belongs to the true class and multiplies its whole loss, the smoothed part as
    well. The mean is the weighted sum over the sum of the weights, where a target of probabilities
    weighs its classes' weights by their shares; if every weight is zero (a batch of ignored
    samples) it is 0, not NaN. For class indices without label smoothing this is
    ``torch.nn.functional.cross_entropy(weight=)``. That differs in two ways: when it smooths, the
    spread part of each output has that output's weight, and for probabilities its mean divides by
    the number of samples.

    Args:
        losses: One loss a sample, shape ``(B,)``.
        weights: One weight a sample, shape ``(B,)``; zero for an ignored sample.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
    """
    weighted = torch.where(weights == 0, 0, weights * losses)  # an ignored loss may be infinite
    if reduction == "none":
        return weighted
    if reduction == "sum":
        return weighted.sum()
    total = weights.sum()
    return weighted.sum() / torch.where(total == 0, 1, total)
