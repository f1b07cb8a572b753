"""The paper's three cost-sensitive losses (Sec. III-C), on class indices or probabilities.

Row = true class, column = output. All losses sum over the outputs and then reduce over the
samples. Half-precision logits are worked out in float32, under autocast as well.

A target of probabilities works out each class with a share above zero, ``B * C * C`` numbers at
worst: smooth labels with ``label_smoothing=`` rather than beforehand. The cross-entropy needs no
more than a product of matrices, in the precision that torch is set to, where samples have a share
of many classes and margins in a row lie less than 40 apart.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from cosen.functional.checks import (
    check_costs,
    check_fraction,
    check_margins,
    check_same_device,
    values_are_readable,
)
from cosen.functional.reduction import (
    Reduction,
    batch_loss,
    full_precision,
    prepare_batch,
    without_autocast,
)

WIDE = 40.0
"""How far margins in a row may lie apart for their exponentials to be added in float32, and for
the second derivatives, which divide by the square of the sum."""


def pairwise_margin_cross_entropy(
    logits: Tensor,
    target: Tensor,
    margins: Tensor,
    *,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    r"""Cross-entropy of logits shifted by a margin for each pair of true class and output.

    .. math:: \ell(p, o) = -\log \frac{e^{o_p + \Delta_{p,p}}}{\sum_k e^{o_k + \Delta_{p,k}}}

    The core of many losses: :math:`\Delta = \log \xi` is the paper's cost-sensitive
    cross-entropy, :math:`\Delta_{p,n} = \tau \log h_n` balanced softmax, a negative diagonal a
    margin as in LDAM. Adding a constant to a row changes nothing.

    Args:
        logits: Network outputs :math:`o`, shape ``(B, C)``.
        target: True classes, indices ``(B,)`` or probabilities ``(B, C)``. With probabilities
            the loss is the mean of the classes' losses, each with its own row of margins.
        margins: :math:`\Delta`, shape ``(C, C)``.
        weight: A factor for the loss of each true class, shape ``(C,)``.
        reduction: ``"mean"`` (by weight), ``"sum"`` or ``"none"``.
        label_smoothing: Share of the target spread evenly over the outputs; the row of margins
            stays that of the true class. An output masked by a logit of -inf then has an infinite
            loss, as in ``torch.nn.functional.cross_entropy``.
        ignore_index: Class index of samples to leave out.

    Example:
        >>> logits, target = torch.tensor([[2.0, 1.0]]), torch.tensor([0])
        >>> pairwise_margin_cross_entropy(logits, target, torch.tensor([[-1.0, 0], [0, 0]]))
        tensor(0.6931)
    """
    logits, target = prepare_batch(logits, target, ignore_index=ignore_index)
    check_same_device(margins, logits, name="margins", other="logits")
    check_margins(margins, num_classes=logits.shape[1])
    return margin_cross_entropy(
        logits,
        target,
        margins.__getitem__,
        weight=weight,
        reduction=reduction,
        label_smoothing=label_smoothing,
        ignore_index=ignore_index,
    )


def margin_cross_entropy(
    logits: Tensor,
    target: Tensor,
    rows_of_margins: Callable[[Tensor], Tensor],
    *,
    weight: Tensor | None = None,
    reduction: Reduction,
    label_smoothing: float = 0.0,
    ignore_index: int,
) -> Tensor:
    """:func:`pairwise_margin_cross_entropy` of a prepared batch and margins known to be good.

    The margins come as a function from classes ``(K,)`` to their rows ``(K, C)``, so that with
    many classes no more than these rows is worked out.
    """
    check_fraction(label_smoothing, name="label_smoothing")
    # cross-entropy does not see the shift, but margins added to large logits would lose digits
    shifted = logits - logits.detach().amax(1, keepdim=True)

    def loss_of_class(outputs: Tensor, classes: Tensor) -> Tensor:
        margins = rows_of_margins(classes).to(outputs.dtype)
        return torch.nn.functional.cross_entropy(
            outputs + margins, classes, label_smoothing=label_smoothing, reduction="none"
        )

    def losses_of_all(outputs: Tensor) -> Tensor | None:
        classes = torch.arange(outputs.shape[1], device=outputs.device)
        margins = rows_of_margins(classes).to(outputs.dtype)
        lowered = margins - margins.amax(1, keepdim=True)  # the loss does not see it
        if not bool(lowered.amin() > -WIDE):
            return None
        with without_autocast(outputs.device):
            log_sums = (outputs.exp() @ lowered.exp().T).log()
        won = outputs + lowered.diagonal()
        if label_smoothing:
            mean = outputs.mean(1, keepdim=True) + lowered.mean(1)
            won = (1 - label_smoothing) * won + label_smoothing * mean
        return log_sums - won

    return batch_loss(
        loss_of_class,
        shifted,
        target,
        losses_of_all=losses_of_all,
        weight=weight,
        reduction=reduction,
        ignore_index=ignore_index,
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
    ratios within a row of costs matter, and all-ones costs give plain cross-entropy.

    Args:
        logits: Network outputs :math:`o`, shape ``(B, C)``.
        target: True classes :math:`p`, shape ``(B,)``, or probabilities, shape ``(B, C)``.
        costs: Cost matrix :math:`\xi`, shape ``(C, C)``, in (0, 1].
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of the target spread evenly over the outputs.
        ignore_index: Class index of samples to leave out.

    Example:
        >>> costs = torch.tensor([[0.5, 1, 1], [1, 1, 1], [1, 1, 1]])
        >>> cost_sensitive_cross_entropy(torch.tensor([[2.0, 1, 0]]), torch.tensor([0]), costs)
        tensor(0.6964)
    """
    logits, target = prepare_batch(logits, target, ignore_index=ignore_index)
    costs = _checked_costs(costs, logits)
    return margin_cross_entropy(
        logits,
        target,
        lambda classes: costs[classes].log(),
        reduction=reduction,
        label_smoothing=label_smoothing,
        ignore_index=ignore_index,
    )


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

    The paper's Eq. has a leading minus that contradicts its own gradient; it is left out here.

    Args:
        logits: Network outputs :math:`o`, shape ``(B, C)``.
        target: True classes :math:`p`, shape ``(B,)``, or probabilities, shape ``(B, C)``.
        costs: Cost matrix :math:`\xi`, shape ``(C, C)``, in (0, 1].
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of :math:`d` spread evenly over the outputs.
        ignore_index: Class index of samples to leave out.

    Example:
        >>> costs = torch.tensor([[0.5, 1], [1, 1]])
        >>> cost_sensitive_hinge(torch.tensor([[1.0, -0.5]]), torch.tensor([0]), costs)
        tensor(1.)
    """
    logits, target = prepare_batch(logits, target, ignore_index=ignore_index)
    costs = _checked_costs(costs, logits).to(logits.dtype)
    check_fraction(label_smoothing, name="label_smoothing")

    def hinge(outputs: Tensor, classes: Tensor) -> Tensor:
        signs = 2 * _smooth_one_hot(classes, outputs, label_smoothing) - 1
        return (1 - signs * (outputs * costs[classes])).clamp(min=0).sum(1)

    return batch_loss(hinge, logits, target, reduction=reduction, ignore_index=ignore_index)


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
        logits: Network outputs :math:`o`, shape ``(B, C)``.
        target: True classes :math:`p`, shape ``(B,)``, or probabilities, shape ``(B, C)``.
        costs: Cost matrix :math:`\xi`, shape ``(C, C)``, in (0, 1].
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of :math:`d` spread evenly over the outputs.
        ignore_index: Class index of samples to leave out.

    Example:
        >>> costs = torch.ones(2, 2)
        >>> cost_sensitive_mse(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), costs)
        tensor(0.2500)
    """
    logits, target = prepare_batch(logits, target, ignore_index=ignore_index)
    costs = _checked_costs(costs, logits).to(logits.dtype)
    check_fraction(label_smoothing, name="label_smoothing")

    def squared_error(outputs: Tensor, classes: Tensor) -> Tensor:
        wanted = _smooth_one_hot(classes, outputs, label_smoothing)
        return (wanted - (outputs * costs[classes]).sigmoid()).square().sum(1) / 2

    return batch_loss(squared_error, logits, target, reduction=reduction, ignore_index=ignore_index)


def _smooth_one_hot(classes: Tensor, outputs: Tensor, label_smoothing: float) -> Tensor:
    one_hot = torch.nn.functional.one_hot(classes, outputs.shape[1]).to(outputs.dtype)
    return (1 - label_smoothing) * one_hot + label_smoothing / outputs.shape[1]


def _checked_costs(costs: Tensor, logits: Tensor) -> Tensor:
    check_same_device(costs, logits, name="costs", other="logits")
    check_costs(costs, num_classes=logits.shape[1], values=values_are_readable(costs))
    return full_precision(costs)
