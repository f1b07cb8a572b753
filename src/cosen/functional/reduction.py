"""Batches and reductions: the steps of every loss before and after its own formula.

A loss works on logits ``(N, C)``. :func:`prepare_batch` brings other shapes to this one, and
:func:`batch_loss` brings the losses back to the shape of the target. If the loss is finite, the
logits are not searched for NaN.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from cosen.functional.checks import (
    check_choice,
    check_logit_values,
    check_logits,
    check_same_device,
    check_target,
    check_target_values,
    check_weight,
    is_traced,
    is_transforming,
    values_are_readable,
)

Reduction = Literal["mean", "sum", "none"]

REDUCTIONS = get_args(Reduction)

LARGE = 2**16
"""Logits in a batch from which computing takes more time than calling functions."""

MODERATE = 100.0
"""Logits to which margins are added without a loss of digits."""

FEW = 4
"""Classes per sample, on average, up to which a target of probabilities is computed class by class.
Mixed images have two."""


class Batch(NamedTuple):
    """Inputs of a loss with checked shapes, one row per sample or pixel."""

    logits: Tensor  # (N, C), float32 or float64
    target: Tensor  # (N,) class indices, long, or (N, C) probabilities
    shape: torch.Size  # of the target without the class dimension, N elements
    reduction: Reduction
    ignore_index: int
    given: Tensor  # the logits as they were given
    given_target: Tensor
    is_traced: bool  # whether torch.compile or a transform runs the code
    is_plain: bool  # whether any target that is not a class, also an ignored one, raises an error

    def check_values(self) -> bool:
        """Check the values that can be read; return whether it is known that all samples count."""
        all_count = check_target_values(
            self.given_target, self.given, ignore_index=self.ignore_index
        )
        if not all_count:
            check_logit_values(self.given)  # an ignored sample would hide them
        return all_count


def prepare_batch(
    logits: Tensor, target: Tensor, *, reduction: Reduction, ignore_index: int
) -> Batch:
    """Check types and shapes of the inputs that all losses share, and flatten them."""
    traced = is_traced()
    if (  # the usual case, with the fewest calls
        isinstance(logits, Tensor)
        and isinstance(target, Tensor)
        and logits.dtype is torch.float32
        and target.dtype is torch.int64
        and logits.ndim == 2
        and logits.shape[1]
        and target.shape == logits.shape[:1]
        and target.device == logits.device
        and reduction in REDUCTIONS
    ):
        shape, flat, flat_target = target.shape, logits, target
    else:
        check_choice(reduction, REDUCTIONS, name="reduction")
        check_logits(logits)
        check_target(target, logits)
        shape = logits.shape[:1] + logits.shape[2:] if logits.ndim > 1 else torch.Size()
        if target.is_floating_point():
            flat_target = classes_last(target)
        else:
            flat_target = target.long() if target.ndim == 1 else target.long().flatten()
        flat = full_precision(classes_last(logits))
    samples, classes = flat.shape
    has_values = flat.is_cpu and not traced and samples > 0
    is_plain = has_values and not (0 <= ignore_index < classes or flat_target.is_floating_point())
    return Batch(
        flat, flat_target, shape, reduction, ignore_index, logits, target, traced, is_plain
    )


def is_moderate(outputs: Tensor) -> bool:
    """Return whether no output is large or NaN."""
    low, high = torch.aminmax(outputs.detach())
    return low.item() > -MODERATE and high.item() < MODERATE


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


LossOfClass = Callable[[Tensor, Tensor], Tensor]
"""Maps logits ``(K, C)`` and class indices ``(K,)`` to losses ``(K,)``."""


class Fused(NamedTuple):
    """A loss that was computed together with its gradient."""

    loss: Tensor  # reduced
    gradient: Tensor  # of the reduced loss, (K, C); a new matrix


def fused_loss(
    batch: Batch, compute: Callable[[Tensor, Tensor, float], Fused | None], plain: LossOfClass
) -> Tensor | None:
    """Compute the loss of a plain batch together with its gradient: fewer passes over the logits.

    Args:
        batch: The result of :func:`prepare_batch`.
        compute: Computes both from logits, classes and the share of each sample in the loss; None
            if digits would be lost or the loss is not finite.
        plain: The same loss, for second derivatives.

    Returns:
        None if ``compute`` returns it, a target is not a class, or no gradient is needed.
    """
    outputs, classes = batch.logits, batch.target
    if not (outputs.requires_grad and torch.is_grad_enabled()):
        return None
    share = 1 / len(classes) if batch.reduction == "mean" else 1.0
    try:
        found = compute(outputs.detach(), classes, share)
    except (IndexError, RuntimeError):
        return None
    if found is None:
        return None
    loss: Tensor = _FusedLoss.apply(outputs, classes, found, plain, batch.reduction)  # type: ignore[no-untyped-call]
    return loss.reshape(batch.shape) if loss.ndim else loss


class _FusedLoss(torch.autograd.Function):
    """A reduced loss with a stored gradient.

    The first backward pass hands out this gradient: new memory would take longer than the
    computation. Later passes and second derivatives use the plain loss.
    """

    @staticmethod
    def forward(
        ctx: Any,
        outputs: Tensor,
        classes: Tensor,
        found: Fused,
        plain: LossOfClass,
        reduction: Reduction,
    ) -> Tensor:
        ctx.stored, ctx.plain, ctx.reduction = found.gradient, plain, reduction
        ctx.save_for_backward(outputs, classes)
        return found.loss

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        result, ctx.stored = ctx.stored, None
        is_differentiable = torch.is_grad_enabled()
        if result is None or is_differentiable:
            outputs, classes = ctx.saved_tensors
            with torch.enable_grad():
                loss = reduce_plain(ctx.plain(outputs, classes), ctx.reduction)
            gradient = gradient.reshape(loss.shape)
            (result,) = torch.autograd.grad(loss, outputs, gradient, create_graph=is_differentiable)
        elif ctx.reduction == "none":
            result.mul_(gradient.reshape(-1, 1))
        elif gradient.item() != 1:
            result.mul_(gradient)
        return result, None, None, None, None


def is_finite(loss: Tensor) -> bool:
    return bool(loss.isfinite().all()) if loss.ndim else math.isfinite(loss.item())


def reduce_plain(losses: Tensor, reduction: Reduction) -> Tensor:
    if reduction == "mean":
        return losses.mean()
    return losses.sum() if reduction == "sum" else losses


def batch_loss(
    batch: Batch,
    plain: LossOfClass,
    *,
    losses_of_all: Callable[[Tensor], Tensor | None] | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """Compute the loss of a batch from the loss of one true class.

    Args:
        batch: The result of :func:`prepare_batch`.
        plain: The loss of one true class.
        losses_of_all: Maps logits ``(N, C)`` to the losses of every true class ``(N, C)``, if that
            is faster than one class at a time, or to None if it would lose digits. It may branch on
            values, so it is not used under ``torch.compile``.
        weight: Weight of each class, shape ``(C,)``; None is 1.
    """
    if weight is None and batch.is_plain:
        try:
            return _loss_of_all_samples(batch, plain)
        except (IndexError, RuntimeError):
            pass  # some targets are ignored or wrong; another error is raised again below
    logits, target, all_count = batch.logits, batch.target, batch.check_values()
    if weight is not None:
        check_same_device(weight, logits, name="weight", other="logits")
        check_weight(weight, num_classes=logits.shape[1], values=values_are_readable(weight))
        weight = weight.to(logits.dtype)
    if target.is_floating_point():
        shares = target.to(logits.dtype)
        if weight is not None:
            shares = shares * weight
        losses, weights = _expected_losses(plain, losses_of_all, logits, shares)
    else:
        if weight is None and all_count:
            return _loss_of_all_samples(batch, plain)
        if all_count:
            check_logit_values(batch.given)  # a weight of 0 would hide them
        counted = target != batch.ignore_index
        classes = torch.where(counted, target, 0)
        losses = plain(logits, classes)
        weights = counted.to(logits.dtype) * (1 if weight is None else weight[classes])
    reduced = reduce_losses(losses, weights, batch.reduction)
    return reduced.reshape(batch.shape) if batch.reduction == "none" else reduced


def _loss_of_all_samples(batch: Batch, plain: LossOfClass) -> Tensor:
    """Return the reduced loss of a batch in which all samples count.

    A target that is not a class raises an IndexError or a RuntimeError.
    """
    loss = reduce_plain(plain(batch.logits, batch.target), batch.reduction)
    if not is_finite(loss):
        check_logit_values(batch.given)  # a masked class may have an infinite loss
    return loss.reshape(batch.shape) if loss.ndim else loss


def _expected_losses(
    loss_of_class: LossOfClass,
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
    if is_traced():
        losses_of_all = None
    if losses_of_all is not None and len(sample) > FEW * len(shares):
        losses = losses_of_all(logits)
        if losses is not None:  # classes without a share may have an infinite loss
            return (shares * losses.masked_fill(shares == 0, 0)).sum(1) / divisors, weights
    of_pairs = shares[sample, classes] * loss_of_class(logits[sample], classes)
    return logits.new_zeros(len(logits)).index_add(0, sample, of_pairs) / divisors, weights


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
