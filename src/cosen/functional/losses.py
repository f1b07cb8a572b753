"""The paper's three cost-sensitive losses (Sec. III-C), on class indices or probabilities.

Row = true class, column = output. All losses sum over the outputs and then reduce over the
samples. Half-precision logits are worked out in float32, under autocast as well.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from cosen.errors import InputError
from cosen.functional.checks import (
    check_class_vector,
    check_costs,
    check_fraction,
    check_logits,
    check_same_device,
    check_target,
)
from cosen.functional.reduction import (
    Reduction,
    expected_losses,
    full_precision,
    known_targets,
    reduce_losses,
)


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
            stays that of the true class.
        ignore_index: Class index of samples to leave out.

    Example:
        >>> logits, target = torch.tensor([[2.0, 1.0]]), torch.tensor([0])
        >>> pairwise_margin_cross_entropy(logits, target, torch.tensor([[-1.0, 0], [0, 0]]))
        tensor(0.6931)
    """
    logits, margins, weight = _prepare(
        logits, target, margins, "margins", weight, label_smoothing, ignore_index
    )
    if not target.is_floating_point():
        classes, counted = known_targets(target, ignore_index)
        losses = F.cross_entropy(
            logits + margins[classes], classes, label_smoothing=label_smoothing, reduction="none"
        )
        weights = counted.to(logits.dtype)
        if weight is not None:
            weights = weights * weight[classes]
        return reduce_losses(losses, weights, reduction)

    with torch.autocast(logits.device.type, enabled=False):
        log_normalisers = _log_normalisers(logits, margins)  # (B, C): one for each true class
        hits = log_normalisers - (logits + margins.diagonal())
        losses = hits
        if label_smoothing > 0:
            spread = log_normalisers - logits.mean(1, keepdim=True) - margins.mean(1)
            losses = (1 - label_smoothing) * hits + label_smoothing * spread
        shares = target.to(logits.dtype) if weight is None else target.to(logits.dtype) * weight
        weights = shares.sum(1)
        mixed = torch.where(shares == 0, 0, shares * losses).sum(1)
        return reduce_losses(mixed / torch.where(weights == 0, 1, weights), weights, reduction)


def _log_normalisers(logits: Tensor, margins: Tensor) -> Tensor:
    """``logsumexp_k(logits[b, k] + margins[p, k])`` for all b and p, by one matrix product."""
    top = logits.amax(1, keepdim=True).clamp(min=torch.finfo(logits.dtype).min)  # (B, 1)
    widest = margins.amax(1)  # (C,)
    products = (logits - top).exp() @ (margins - widest[:, None]).exp().T  # (B, C)
    return products.log() + top + widest


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
    check_logits(logits)
    check_costs(costs, num_classes=logits.shape[1])
    check_same_device(costs, logits, name="costs")
    return pairwise_margin_cross_entropy(
        logits,
        target,
        full_precision(costs).log(),
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
    logits, costs = _prepare_costs(logits, target, costs, label_smoothing, ignore_index)

    def hinge(outputs: Tensor, classes: Tensor) -> Tensor:
        signs = 2 * _smooth_one_hot(classes, outputs, label_smoothing) - 1
        return (1 - signs * (outputs * costs[classes])).clamp(min=0).sum(1)

    losses, weights = expected_losses(hinge, logits, target, None, ignore_index=ignore_index)
    return reduce_losses(losses, weights, reduction)


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
    logits, costs = _prepare_costs(logits, target, costs, label_smoothing, ignore_index)

    def squared_error(outputs: Tensor, classes: Tensor) -> Tensor:
        wanted = _smooth_one_hot(classes, outputs, label_smoothing)
        return (wanted - (outputs * costs[classes]).sigmoid()).square().sum(1) / 2

    losses, weights = expected_losses(
        squared_error, logits, target, None, ignore_index=ignore_index
    )
    return reduce_losses(losses, weights, reduction)


def _smooth_one_hot(classes: Tensor, outputs: Tensor, label_smoothing: float) -> Tensor:
    one_hot = F.one_hot(classes, outputs.shape[1]).to(outputs.dtype)
    return (1 - label_smoothing) * one_hot + label_smoothing / outputs.shape[1]


def _prepare_costs(
    logits: Tensor, target: Tensor, costs: Tensor, label_smoothing: float, ignore_index: int
) -> tuple[Tensor, Tensor]:
    check_logits(logits)
    check_costs(costs, num_classes=logits.shape[1])
    logits, costs, _ = _prepare(logits, target, costs, "costs", None, label_smoothing, ignore_index)
    return logits, costs


def _prepare(
    logits: Tensor,
    target: Tensor,
    matrix: Tensor,
    name: str,
    weight: Tensor | None,
    label_smoothing: float,
    ignore_index: int,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Check what all three losses take, and bring it to one dtype."""
    check_logits(logits)
    check_target(target, logits, ignore_index=ignore_index)
    check_fraction(label_smoothing, name="label_smoothing")
    classes = logits.shape[1]
    if matrix.shape != (classes, classes):
        raise InputError(
            f"{name} must have the shape ({classes}, {classes}), but has {tuple(matrix.shape)}"
        )
    check_same_device(matrix, logits, name=name)
    logits = full_precision(logits)
    if weight is not None:
        check_class_vector(weight, num_classes=classes, name="weight")
        check_same_device(weight, logits, name="weight")
        weight = weight.to(logits.dtype)
    return logits, matrix.to(logits.dtype), weight
