"""Other losses for imbalanced classes, to compare learned costs with.

Shapes are as in :mod:`cosen.functional.losses`. ``class_counts`` and ``class_frequencies`` may be
counts or fractions if only their ratios matter; the docstring says where they must be counts.
"""

import math

import torch
from torch import Tensor

from cosen.errors import InputError
from cosen.functional.checks import (
    check_class_vector,
    check_finite,
    check_fraction,
    check_logit_values,
    check_misclassification_costs,
    check_not_negative,
    check_positive,
    check_same_device,
    values_are_readable,
)
from cosen.functional.margins import NO_MARGINS, Margins, margin_cross_entropy
from cosen.functional.reduction import Reduction, batch_loss, prepare_batch


def balanced_softmax(
    logits: Tensor,
    target: Tensor,
    class_frequencies: Tensor,
    *,
    tau: float = 1.0,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    r"""Cross-entropy of logits shifted by the log of the class frequencies.

    .. math:: \ell = -\log \frac{h_p^\tau e^{o_p}}{\sum_k h_k^\tau e^{o_k}}

    Balanced softmax (Ren et al. 2020) at :math:`\tau = 1`, the logit-adjusted loss (Menon et al.
    2021) in general. It equals costs with :math:`h^\tau` in every row.

    Args:
        logits: Network outputs, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes, shape ``(B,)`` or ``(B, d1, ...)``, or probabilities in the shape of
            the logits.
        class_frequencies: Counts or fractions, shape ``(C,)``; only their ratios matter.
        tau: Strength of the class frequencies; 0 is plain cross-entropy.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of the target spread evenly over the outputs.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> logits = torch.tensor([[1.0, 0.0]])
        >>> balanced_softmax(logits, torch.tensor([1]), torch.tensor([90, 10]))
        tensor(3.2373)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    frequencies = _class_vector(class_frequencies, batch.logits, "class_frequencies")
    check_finite(tau, name="tau")
    margins = balanced_softmax_margins(frequencies, tau=tau)
    return margin_cross_entropy(batch, margins, label_smoothing=label_smoothing)


def balanced_softmax_margins(class_frequencies: Tensor, *, tau: float) -> Margins:
    """Return the margins of :func:`balanced_softmax`."""
    return Margins.of_row(tau * (class_frequencies / class_frequencies.sum()).log())


def ldam_loss(
    logits: Tensor,
    target: Tensor,
    class_counts: Tensor,
    *,
    max_margin: float = 0.5,
    scale: float = 30.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    ignore_index: int = -100,
) -> Tensor:
    r"""Label-distribution-aware margin loss (Cao et al. 2019).

    .. math:: \ell = -\log \frac{e^{s (o_p - m_p)}}{e^{s (o_p - m_p)} + \sum_{k \ne p} e^{s o_k}},
       \quad m_p = m \, (\min_k n_k / n_p)^{1/4}

    For logits that are cosines, as from a normalised last layer; ``scale`` widens their range.

    Args:
        logits: Cosines of features and class weights, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes, shape ``(B,)`` or ``(B, d1, ...)``, or probabilities in the shape of
            the logits.
        class_counts: :math:`n`, shape ``(C,)``; only ratios matter.
        max_margin: :math:`m`, the margin of the rarest class.
        scale: :math:`s`.
        weight: Factor for each class (deferred re-weighting), shape ``(C,)``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> logits = torch.tensor([[0.5, 0.4]])
        >>> ldam_loss(logits, torch.tensor([0]), torch.tensor([1, 16]), scale=1.0)
        tensor(0.9130)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    counts = _class_vector(class_counts, batch.logits, "class_counts")
    check_finite(max_margin, name="max_margin")
    check_positive(scale, name="scale")
    margins = ldam_margins(counts, max_margin=max_margin, scale=scale)
    return margin_cross_entropy(batch, margins, weight=weight, scale=scale)


def ldam_margins(class_counts: Tensor, *, max_margin: float, scale: float) -> Margins:
    """Return the margins of :func:`ldam_loss`, for scaled logits."""
    class_margins = max_margin * (class_counts.min() / class_counts) ** 0.25
    return Margins.of_row(torch.zeros_like(class_margins), -scale * class_margins)


def focal_loss(
    logits: Tensor,
    target: Tensor,
    *,
    gamma: float = 2.0,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    ignore_index: int = -100,
) -> Tensor:
    r"""Focal loss (Lin et al. 2017) on the softmax.

    .. math:: \ell = -(1 - y_p)^\gamma \log y_p

    Args:
        logits: Network outputs, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes, shape ``(B,)`` or ``(B, d1, ...)``, or probabilities in the shape of
            the logits.
        gamma: Reduction of the loss of well-classified samples; 0 is plain cross-entropy.
        weight: Factor for each class (class-balanced focal loss), shape ``(C,)``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> focal_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), gamma=1.0)
        tensor(0.3466)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    check_not_negative(gamma, name="gamma")

    def focal(log_scores: Tensor) -> Tensor:
        # 1 - y must stay above zero, where the slope of the power is infinite for gamma < 1
        missing = (-log_scores.expm1()).clamp(min=torch.finfo(log_scores.dtype).tiny)
        return -(missing**gamma) * log_scores

    def plain(outputs: Tensor, classes: Tensor) -> Tensor:
        return focal(outputs.log_softmax(1).gather(1, classes[:, None]).squeeze(1))

    def losses_of_all(outputs: Tensor) -> Tensor:
        # a masked class has -inf and must have the gradient 0, but 0 * inf is NaN
        return focal(outputs.log_softmax(1).clamp(min=torch.finfo(outputs.dtype).min))

    return batch_loss(batch, plain, losses_of_all=losses_of_all, weight=weight)


def class_balanced_weights(class_counts: Tensor, *, beta: float = 0.9999) -> Tensor:
    r"""Weights inverse to the effective number of samples (Cui et al. 2019), with mean 1.

    .. math:: w_p \propto (1 - \beta) / (1 - \beta^{n_p})

    Args:
        class_counts: :math:`n`, shape ``(C,)``; counts, not fractions.
        beta: 0 gives equal weights; near 1 they are inverse to the counts.

    Example:
        >>> class_balanced_weights(torch.tensor([1, 3]), beta=0.5)
        tensor([1.2727, 0.7273])
    """
    check_class_vector(class_counts, name="class_counts")
    _check_not_fractions(class_counts)
    check_fraction(beta, name="beta")
    return _effective_number_weights(class_counts.float(), beta)


def _check_not_fractions(counts: Tensor) -> None:
    if bool((counts < 1).any()):
        raise InputError(
            "class_counts must be counts of samples, at least 1, but one is "
            f"{float(counts.min()):g}"
        )


def _effective_number_weights(counts: Tensor, beta: float) -> Tensor:
    if beta == 0:
        return torch.ones_like(counts)
    weights = 1 / -torch.expm1(counts * math.log(beta))  # beta^n may be close to 1
    return weights / weights.mean()


def class_balanced_cross_entropy(
    logits: Tensor,
    target: Tensor,
    class_counts: Tensor,
    *,
    beta: float = 0.9999,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    r"""Cross-entropy weighted by :func:`class_balanced_weights`.

    .. math:: \ell = -w_p \log \frac{e^{o_p}}{\sum_k e^{o_k}}

    Args:
        logits: Network outputs, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes, shape ``(B,)`` or ``(B, d1, ...)``, or probabilities in the shape of
            the logits.
        class_counts: Training samples per class, shape ``(C,)``; counts, not fractions.
        beta: 0 gives equal weights; near 1 they are inverse to the counts.
        reduction: ``"mean"`` (by weight), ``"sum"`` or ``"none"``.
        label_smoothing: Share of the target spread evenly over the outputs.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> logits, target = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> class_balanced_cross_entropy(logits, target, torch.tensor([3, 1]), beta=0.5)
        tensor(0.9496)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    counts = _class_vector(class_counts, batch.logits, "class_counts")
    if values_are_readable(counts):
        _check_not_fractions(counts)
    check_fraction(beta, name="beta")
    return margin_cross_entropy(
        batch,
        NO_MARGINS,
        weight=_effective_number_weights(counts, beta),
        label_smoothing=label_smoothing,
    )


def smooth_one_sided_regression(
    logits: Tensor,
    target: Tensor,
    misclassification_costs: Tensor,
    *,
    reduction: Reduction = "mean",
    ignore_index: int = -100,
) -> Tensor:
    r"""Smooth one-sided regression of the costs of each decision (SOSR, Chung et al. 2016).

    .. math:: \ell = \sum_n \log(1 + e^{z_n (r_n - \xi'_{p,n})}), \quad r_n = -o_n,
       \quad z_n = 1 \text{ if } n = p \text{ else } -1

    The estimated cost :math:`r_n` may be below the true cost only for the right decision, and above
    it only for a wrong one. Outputs are negated costs: the largest logit is the cheapest decision.

    Args:
        logits: Negated cost estimates, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes, shape ``(B,)`` or ``(B, d1, ...)``, or probabilities in the shape of
            the logits.
        misclassification_costs: :math:`\xi'`, shape ``(C, C)``, zero diagonal, not negative.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> costs = torch.tensor([[0.0, 1.0], [4.0, 0.0]])
        >>> smooth_one_sided_regression(torch.tensor([[0.0, -1.0]]), torch.tensor([0]), costs)
        tensor(1.3863)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    costs = misclassification_costs
    check_same_device(costs, logits, name="misclassification_costs", other="logits")
    check_misclassification_costs(
        costs, num_classes=batch.logits.shape[1], values=values_are_readable(costs)
    )
    costs = costs.to(batch.logits.dtype)
    check_logit_values(batch.given)  # an infinite logit may have a finite loss

    def regression(outputs: Tensor, classes: Tensor) -> Tensor:
        sides = -torch.ones_like(outputs).scatter(1, classes[:, None], -1.0)
        return torch.nn.functional.softplus(sides * (-outputs - costs[classes])).sum(1)

    return batch_loss(batch, regression)


def _class_vector(values: Tensor, logits: Tensor, name: str) -> Tensor:
    check_same_device(values, logits, name=name, other="logits")
    check_class_vector(
        values, num_classes=logits.shape[1], name=name, values=values_are_readable(values)
    )
    return values.to(logits.dtype)
