"""The losses that learned costs are compared with, on the same core as the paper's.

``class_counts`` and ``class_frequencies`` may be counts or fractions wherever only their ratios
matter; the docstring says where they must be counts.
"""

import math

import torch
from torch import Tensor

from cosen.errors import InputError
from cosen.functional.checks import (
    check_class_vector,
    check_finite,
    check_fraction,
    check_misclassification_costs,
    check_not_negative,
    check_positive,
    check_same_device,
    values_are_readable,
)
from cosen.functional.losses import margin_cross_entropy
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
    2021) in general: costs whose rows are all :math:`h^\tau`.

    Args:
        logits: Network outputs, shape ``(B, C)``.
        target: True classes, shape ``(B,)``, or probabilities, shape ``(B, C)``.
        class_frequencies: Counts or fractions, shape ``(C,)``; only their ratios matter.
        tau: Strength; 0 is plain cross-entropy.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of the target spread evenly over the outputs.
        ignore_index: Class index of samples to leave out.

    Example:
        >>> logits = torch.tensor([[1.0, 0.0]])
        >>> balanced_softmax(logits, torch.tensor([1]), torch.tensor([90, 10]))
        tensor(3.2373)
    """
    logits, target = prepare_batch(logits, target, ignore_index=ignore_index)
    frequencies = _class_vector(class_frequencies, logits, "class_frequencies")
    check_finite(tau, name="tau")
    margins = (tau * (frequencies / frequencies.sum()).log()).expand(len(frequencies), -1)
    return margin_cross_entropy(
        logits,
        target,
        margins.__getitem__,
        reduction=reduction,
        label_smoothing=label_smoothing,
        ignore_index=ignore_index,
    )


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

    Meant for logits that are cosines (a normalised last layer), hence the scale.

    Args:
        logits: Cosines of features and class weights, shape ``(B, C)``.
        target: True classes, shape ``(B,)``, or probabilities, shape ``(B, C)``.
        class_counts: :math:`n`, shape ``(C,)``; only ratios matter.
        max_margin: :math:`m`, the margin of the rarest class.
        scale: :math:`s`.
        weight: A factor for each class (deferred re-weighting), shape ``(C,)``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        ignore_index: Class index of samples to leave out.

    Example:
        >>> logits = torch.tensor([[0.5, 0.4]])
        >>> ldam_loss(logits, torch.tensor([0]), torch.tensor([1, 16]), scale=1.0)
        tensor(0.9130)
    """
    logits, target = prepare_batch(logits, target, ignore_index=ignore_index)
    counts = _class_vector(class_counts, logits, "class_counts")
    check_finite(max_margin, name="max_margin")
    check_positive(scale, name="scale")
    class_margins = max_margin * (counts.min() / counts) ** 0.25
    return margin_cross_entropy(
        scale * logits,
        target,
        torch.diag(-scale * class_margins).__getitem__,
        weight=weight,
        reduction=reduction,
        ignore_index=ignore_index,
    )


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
        logits: Network outputs, shape ``(B, C)``.
        target: True classes, shape ``(B,)``, or probabilities, shape ``(B, C)``.
        gamma: How far well-classified samples are played down; 0 is plain cross-entropy.
        weight: A factor for each class (class-balanced focal loss), shape ``(C,)``.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        ignore_index: Class index of samples to leave out.

    Example:
        >>> focal_loss(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), gamma=1.0)
        tensor(0.3466)
    """
    logits, target = prepare_batch(logits, target, ignore_index=ignore_index)
    check_not_negative(gamma, name="gamma")

    def focal(log_scores: Tensor) -> Tensor:
        # 1 - y is kept above zero: the power's slope is infinite there for gamma < 1
        missing = (-log_scores.expm1()).clamp(min=torch.finfo(log_scores.dtype).tiny)
        return -(missing**gamma) * log_scores

    def of_class(outputs: Tensor, classes: Tensor) -> Tensor:
        return focal(outputs.log_softmax(1).gather(1, classes[:, None]).squeeze(1))

    return batch_loss(
        of_class,
        logits,
        target,
        losses_of_all=lambda outputs: focal(_finite(outputs.log_softmax(1))),
        weight=weight,
        reduction=reduction,
        ignore_index=ignore_index,
    )


def _finite(log_scores: Tensor) -> Tensor:
    """A masked class's -inf as the lowest number: its gradient is to be 0, and 0 * inf is NaN."""
    return log_scores.clamp(min=torch.finfo(log_scores.dtype).min)


def class_balanced_weights(class_counts: Tensor, *, beta: float = 0.9999) -> Tensor:
    r"""Weights inverse to the effective number of samples (Cui et al. 2019), with mean 1.

    .. math:: w_p \propto (1 - \beta) / (1 - \beta^{n_p})

    Args:
        class_counts: :math:`n`, shape ``(C,)``; counts, not fractions.
        beta: 0 gives equal weights; towards 1 they become inverse to the counts.

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
    weights = 1 / -torch.expm1(counts * math.log(beta))  # expm1: beta^n may be close to 1
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
    """Cross-entropy weighted by :func:`class_balanced_weights`.

    Args:
        logits: Network outputs, shape ``(B, C)``.
        target: True classes, shape ``(B,)``, or probabilities, shape ``(B, C)``.
        class_counts: Samples of each class, shape ``(C,)``; counts, not fractions.
        beta: 0 gives equal weights; towards 1 they become inverse to the counts.
        reduction: ``"mean"`` (by weight), ``"sum"`` or ``"none"``.
        label_smoothing: Share of the target spread evenly over the outputs.
        ignore_index: Class index of samples to leave out.

    Example:
        >>> logits, target = torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1])
        >>> class_balanced_cross_entropy(logits, target, torch.tensor([3, 1]), beta=0.5)
        tensor(0.9496)
    """
    logits, target = prepare_batch(logits, target, ignore_index=ignore_index)
    counts = _class_vector(class_counts, logits, "class_counts")
    if values_are_readable(counts):
        _check_not_fractions(counts)
    check_fraction(beta, name="beta")
    return margin_cross_entropy(
        logits,
        target,
        logits.new_zeros(len(counts), len(counts)).__getitem__,
        weight=_effective_number_weights(counts, beta),
        reduction=reduction,
        label_smoothing=label_smoothing,
        ignore_index=ignore_index,
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

    The estimated cost :math:`r_n` may be below the true one only for the right decision, and above
    it only for a wrong one. Outputs are negated costs, so that the largest logit is the cheapest
    decision, as everywhere else.

    Args:
        logits: Negated cost estimates, shape ``(B, C)``.
        target: True classes, shape ``(B,)``, or probabilities, shape ``(B, C)``.
        misclassification_costs: :math:`\xi'`, shape ``(C, C)``, zero diagonal, not negative.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        ignore_index: Class index of samples to leave out.

    Example:
        >>> costs = torch.tensor([[0.0, 1.0], [4.0, 0.0]])
        >>> smooth_one_sided_regression(torch.tensor([[0.0, -1.0]]), torch.tensor([0]), costs)
        tensor(1.3863)
    """
    logits, target = prepare_batch(logits, target, ignore_index=ignore_index)
    check_same_device(
        misclassification_costs, logits, name="misclassification_costs", other="logits"
    )
    check_misclassification_costs(
        misclassification_costs,
        num_classes=logits.shape[1],
        values=values_are_readable(misclassification_costs),
    )
    costs = misclassification_costs.to(logits.dtype)

    def regression(outputs: Tensor, classes: Tensor) -> Tensor:
        sides = -torch.ones_like(outputs).scatter(1, classes[:, None], -1.0)
        return torch.nn.functional.softplus(sides * (-outputs - costs[classes])).sum(1)

    return batch_loss(regression, logits, target, reduction=reduction, ignore_index=ignore_index)


def _class_vector(values: Tensor, logits: Tensor, name: str) -> Tensor:
    check_same_device(values, logits, name=name, other="logits")
    check_class_vector(
        values, num_classes=logits.shape[1], name=name, values=values_are_readable(values)
    )
    return values.to(logits.dtype)
