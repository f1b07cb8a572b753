"""The paper's three cost-sensitive losses (Sec. III-C) and the margin cross-entropy behind them.

Row = true class, column = output. Logits are ``(B, C)``, ``(B, C, d1, ...)`` or ``(C,)`` as in
``torch.nn.functional.cross_entropy``. All losses sum over the outputs and then reduce over the
samples. Half-precision logits are converted to float32, also under autocast.

Targets of probabilities need up to ``B * C * C`` numbers: use ``label_smoothing=`` instead of
smoothed targets. If samples have many classes and the margins in a row differ by less than 40, the
cross-entropies need only one matrix product.
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
    Batch,
    Reduction,
    batch_loss,
    full_precision,
    prepare_batch,
    without_autocast,
)

WIDE = 40.0
"""Largest difference of margins in a row for which float32 can add their exponentials. The second
derivatives, which divide by the square of the sum, set the limit."""


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
    cross-entropy, :math:`\Delta_{p,n} = \tau \log h_n` is balanced softmax, a negative diagonal is
    a margin as in LDAM. Adding a constant to a row changes nothing.

    Args:
        logits: Network outputs :math:`o`, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes, indices ``(B,)`` or ``(B, d1, ...)``, or probabilities in the shape
            of the logits. With probabilities the loss is the expected loss, each class with its
            own row of margins.
        margins: :math:`\Delta`, shape ``(C, C)``.
        weight: Factor for the loss of each true class, shape ``(C,)``.
        reduction: ``"mean"`` (by weight), ``"sum"`` or ``"none"``.
        label_smoothing: Share of the target spread evenly over the outputs. The margins are still
            those of the true class. An output masked with a logit of -inf has an infinite loss, as
            in ``torch.nn.functional.cross_entropy``.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> logits, target = torch.tensor([[2.0, 1.0]]), torch.tensor([0])
        >>> pairwise_margin_cross_entropy(logits, target, torch.tensor([[-1.0, 0], [0, 0]]))
        tensor(0.6931)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    check_same_device(margins, logits, name="margins", other="logits")
    check_margins(margins, num_classes=batch.logits.shape[1])
    return margin_cross_entropy(
        batch, margins.__getitem__, weight=weight, label_smoothing=label_smoothing
    )


def margin_cross_entropy(
    batch: Batch,
    rows_of_margins: Callable[[Tensor], Tensor],
    *,
    weight: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> Tensor:
    """:func:`pairwise_margin_cross_entropy` of a prepared batch and checked margins.

    ``rows_of_margins`` maps classes ``(K,)`` to their rows ``(K, C)``, so only the rows that are
    needed are computed.
    """
    check_fraction(label_smoothing, name="label_smoothing")
    # cross-entropy ignores the shift, but margins added to large logits would lose digits
    shifted = batch.logits - batch.logits.detach().amax(1, keepdim=True)

    def loss_of_class(outputs: Tensor, classes: Tensor) -> Tensor:
        margins = rows_of_margins(classes).to(outputs.dtype)
        return torch.nn.functional.cross_entropy(
            outputs + margins, classes, label_smoothing=label_smoothing, reduction="none"
        )

    def losses_of_all(outputs: Tensor) -> Tensor | None:
        classes = torch.arange(outputs.shape[1], device=outputs.device)
        margins = rows_of_margins(classes).to(outputs.dtype)
        lowered = margins - margins.amax(1, keepdim=True)  # does not change the loss
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
        batch._replace(logits=shifted), loss_of_class, losses_of_all=losses_of_all, weight=weight
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
    costs = _checked_costs(costs, batch.logits)
    return margin_cross_entropy(
        batch, lambda classes: costs[classes].log(), label_smoothing=label_smoothing
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

    def hinge(wanted: Tensor, weighted: Tensor) -> Tensor:
        return (1 - (2 * wanted - 1) * weighted).clamp(min=0).sum(1)

    return _loss_of_weighted_outputs(batch, costs, label_smoothing, hinge)


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

    def squared_error(wanted: Tensor, weighted: Tensor) -> Tensor:
        return (wanted - weighted.sigmoid()).square().sum(1) / 2

    return _loss_of_weighted_outputs(batch, costs, label_smoothing, squared_error)


def _loss_of_weighted_outputs(
    batch: Batch, costs: Tensor, label_smoothing: float, loss: Callable[[Tensor, Tensor], Tensor]
) -> Tensor:
    """Compute a loss of the smoothed one-hot target d and the outputs times their costs."""
    costs = _checked_costs(costs, batch.logits).to(batch.logits.dtype)
    check_fraction(label_smoothing, name="label_smoothing")

    def loss_of_class(outputs: Tensor, classes: Tensor) -> Tensor:
        numbers = torch.arange(outputs.shape[1], device=classes.device)
        one_hot = (classes[:, None] == numbers).to(outputs.dtype)  # F.one_hot fails under vmap
        wanted = (1 - label_smoothing) * one_hot + label_smoothing / outputs.shape[1]
        return loss(wanted, outputs * costs[classes])

    return batch_loss(batch, loss_of_class)


def _checked_costs(costs: Tensor, logits: Tensor) -> Tensor:
    check_same_device(costs, logits, name="costs", other="logits")
    check_costs(costs, num_classes=logits.shape[1], values=values_are_readable(costs))
    return full_precision(costs)
