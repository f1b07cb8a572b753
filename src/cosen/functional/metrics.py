"""How good a classifier is, overall and class by class.

Most metrics are read off a confusion matrix of counts (row = true class, column = output). A
class with no sample has an undefined recall, NaN, and is left out of averages over classes.
``paper_g_mean`` and ``paper_f_measure`` are as the paper has them (Sec. IV-A), one-vs-all and
weighted by class frequency; ``g_mean`` and ``macro_f1`` are the standard multi-class ones.
"""

import torch
from torch import Tensor

from cosen.errors import InputError
from cosen.functional.checks import check_class_indices, check_same_device

_ROUNDING = 1e-4
"""How far a probability may be above 1: an average of several models' can be, by rounding."""


def confusion_matrix(target: Tensor, predicted: Tensor, *, num_classes: int) -> Tensor:
    """How often each class (row) was given as each output (column), as counts ``(C, C)``.

    Example:
        >>> confusion_matrix(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), num_classes=2)
        tensor([[1, 1],
                [0, 1]])
    """
    check_same_device(predicted, target, name="predicted", other="target")
    samples = len(target) if target.ndim else 1
    check_class_indices(target, samples=samples, num_classes=num_classes, name="target")
    check_class_indices(predicted, samples=samples, num_classes=num_classes, name="predicted")
    cells = target.long() * num_classes + predicted.long()
    return torch.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)


def confusion_rates(confusion: Tensor) -> Tensor:
    """The rows of a confusion matrix as shares of their class, R; zeros for an empty class.

    Example:
        >>> confusion_rates(torch.tensor([[1, 3], [0, 0]]))
        tensor([[0.2500, 0.7500],
                [0.0000, 0.0000]])
    """
    counts = _counts(confusion)
    return _share(counts, counts.sum(1, keepdim=True))


def overall_accuracy(confusion: Tensor) -> Tensor:
    """The share of samples classified correctly.

    Example:
        >>> overall_accuracy(torch.tensor([[8, 2], [1, 1]]))
        tensor(0.7500)
    """
    counts = _counts(confusion)
    return counts.diagonal().sum() / counts.sum()


def class_recall(confusion: Tensor) -> Tensor:
    """The share of each class that was found, shape ``(C,)``; NaN for an empty class.

    Example:
        >>> class_recall(torch.tensor([[8, 2], [1, 1]]))
        tensor([0.8000, 0.5000])
    """
    counts = _counts(confusion)
    return counts.diagonal() / counts.sum(1)


def mean_recall(confusion: Tensor) -> Tensor:
    """The mean of the class recalls (balanced accuracy).

    Example:
        >>> mean_recall(torch.tensor([[8, 2], [1, 1]]))
        tensor(0.6500)
    """
    return class_recall(confusion).nanmean()


def class_precision(confusion: Tensor) -> Tensor:
    """The share of each output that was right, shape ``(C,)``; 0 for an output never given.

    Example:
        >>> class_precision(torch.tensor([[8, 2], [0, 0]]))
        tensor([1., 0.])
    """
    counts = _counts(confusion)
    return _share(counts.diagonal(), counts.sum(0))


def g_mean(confusion: Tensor) -> Tensor:
    """The geometric mean of the class recalls; 0 as soon as a class is never found.

    Example:
        >>> g_mean(torch.tensor([[8, 2], [1, 1]]))
        tensor(0.6325)
    """
    recalls = class_recall(confusion)
    return recalls[~recalls.isnan()].log().mean().exp()


def macro_f1(confusion: Tensor) -> Tensor:
    """The mean over classes of F1 = 2PR / (P + R), of classes with a sample or an output.

    Example:
        >>> macro_f1(torch.tensor([[8, 2], [1, 1]]))
        tensor(0.6211)
    """
    counts = _counts(confusion)
    return (2 * counts.diagonal() / (counts.sum(0) + counts.sum(1))).nanmean()


def paper_g_mean(confusion: Tensor) -> Tensor:
    r"""The paper's G-mean: :math:`\sum_p h_p \sqrt{\mathrm{TPR}_p \mathrm{TNR}_p}`, one-vs-all.

    Example:
        >>> paper_g_mean(torch.tensor([[8, 2], [1, 1]]))
        tensor(0.6325)
    """
    counts = _counts(confusion)
    hits, actual, given = counts.diagonal(), counts.sum(1), counts.sum(0)
    others = counts.sum() - actual
    true_negative_rate = _share(others - (given - hits), others)
    true_positive_rate = _share(hits, actual)
    return _weighted((true_positive_rate * true_negative_rate).sqrt(), actual)


def paper_f_measure(confusion: Tensor) -> Tensor:
    r"""The paper's F-measure: :math:`\sum_p h_p \, P_p R_p / (P_p + R_p)`, one-vs-all.

    Half of the usual F1, at most 0.5: the paper's table fits only without the factor 2.

    Example:
        >>> paper_f_measure(torch.tensor([[8, 2], [1, 1]]))
        tensor(0.3842)
    """
    counts = _counts(confusion)
    actual, given = counts.sum(1), counts.sum(0)
    return _weighted(_share(counts.diagonal(), actual + given), actual)


def _weighted(scores: Tensor, actual: Tensor) -> Tensor:
    return (scores * actual).sum() / actual.sum()


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """``part / whole``, and 0 where there is nothing at all."""
    return part / torch.where(whole == 0, 1, whole)


def _counts(confusion: Tensor) -> Tensor:
    if confusion.ndim != 2 or confusion.shape[0] != confusion.shape[1] or not len(confusion):
        raise InputError(
            f"confusion must have the shape (classes, classes), but has {tuple(confusion.shape)}"
        )
    if not bool((confusion >= 0).all()):
        raise InputError("confusion must hold counts, but has negative entries or NaN")
    return confusion.to(torch.float32) if not confusion.is_floating_point() else confusion


def one_vs_rest_auc(scores: Tensor, target: Tensor) -> Tensor:
    """The area under each class's ROC curve, shape ``(C,)``; NaN where it is undefined.

    A class's area is the chance that one of its samples scores higher for it than a sample of
    another class does, ties counting half. Undefined for a class with no sample or all of them.

    Args:
        scores: A score for each class, shape ``(B, C)``; only the order within a column matters.
        target: True classes, shape ``(B,)``.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4]])
        >>> one_vs_rest_auc(scores, torch.tensor([0, 0, 1]))
        tensor([0.5000, 0.5000])
    """
    columns, positives = _by_class(scores, target)
    ordered = columns.sort(dim=1).values
    below = torch.searchsorted(ordered, columns, right=False)
    up_to = torch.searchsorted(ordered, columns, right=True)
    twice_rank = below + up_to + 1  # (C, B), ranks from 1; ties share their mean rank
    hits = positives.sum(1)
    misses = len(target) - hits
    twice_rank_sum = torch.where(positives, twice_rank, 0).sum(1)
    return (twice_rank_sum - hits * (hits + 1)) / (2 * hits * misses)


def one_vs_rest_average_precision(scores: Tensor, target: Tensor) -> Tensor:
    """Each class's average precision, shape ``(C,)``; NaN for a class with no sample.

    The mean, over the samples of a class, of the precision at the threshold that just takes the
    sample in.

    Args:
        scores: A score for each class, shape ``(B, C)``; only the order within a column matters.
        target: True classes, shape ``(B,)``.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4]])
        >>> one_vs_rest_average_precision(scores, torch.tensor([0, 0, 1]))
        tensor([0.8333, 0.5000])
    """
    columns, positives = _by_class(scores, target)
    ordered, order = columns.sort(dim=1)
    below = torch.searchsorted(ordered, columns, right=False)  # (C, B)
    hits_before = positives.gather(1, order).cumsum(1) - positives.gather(1, order).long()
    hits = positives.sum(1, keepdim=True)
    precision = (hits - hits_before.gather(1, below)) / (len(target) - below)
    return torch.where(positives, precision, 0).sum(1) / hits.squeeze(1)


def _by_class(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Scores and membership as ``(C, B)``."""
    _check_scores(scores, target, name="scores")
    classes = torch.arange(scores.shape[1], device=scores.device)
    return scores.detach().T.contiguous(), target.long()[None, :] == classes[:, None]


def expected_calibration_error(probabilities: Tensor, target: Tensor, *, bins: int = 15) -> Tensor:
    """How far confidence is from accuracy, averaged over bins of confidence of equal width.

    Args:
        probabilities: Of each class, shape ``(B, C)``.
        target: True classes, shape ``(B,)``.
        bins: The number of bins between 0 and 1.

    Example:
        >>> probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1]])
        >>> expected_calibration_error(probabilities, torch.tensor([0, 1]))
        tensor(0.4000)
    """
    _check_scores(probabilities, target, name="probabilities")
    if not bool(((probabilities >= 0) & (probabilities <= 1 + _ROUNDING)).all()):
        raise InputError(
            "probabilities must lie in [0, 1], but run from "
            f"{float(probabilities.min()):g} to {float(probabilities.max()):g}; "
            "of logits take the softmax first"
        )
    if bins < 1:
        raise InputError(f"bins must be at least 1, but is {bins}")
    confidence, predicted = probabilities.float().max(1)
    bin_of_sample = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    gaps = (predicted == target.long()).float() - confidence  # (B,)
    return gaps.new_zeros(bins).index_add(0, bin_of_sample, gaps).abs().sum() / len(target)


def _check_scores(scores: Tensor, target: Tensor, *, name: str) -> None:
    if scores.ndim != 2 or not scores.is_floating_point():
        raise InputError(
            f"{name} must be floating point of the shape (samples, classes), "
            f"but are {scores.dtype} of {tuple(scores.shape)}"
        )
    check_same_device(target, scores, name="target", other=name)
    samples, classes = scores.shape
    check_class_indices(target, samples=samples, num_classes=classes, name="target")
    if bool(scores.isnan().any()):
        raise InputError(f"{name} must not contain NaN")
