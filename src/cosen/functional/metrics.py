"""Metrics of a classifier, overall and per class.

Most metrics take a confusion matrix of counts (row = true class, column = output). The recall of a
class without samples is NaN, and averages over classes skip it. ``paper_g_mean`` and
``paper_f_measure`` follow the paper (Sec. IV-A): one-vs-all, weighted by class frequency.
``g_mean`` and ``macro_f1`` are the standard multi-class metrics.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from cosen.errors import InputError
from cosen.functional.checks import check_class_indices, check_same_device

MANY_SHOT, FEW_SHOT = 100, 20
"""A class with more training samples than the first has many, with fewer than the second few."""

MANY_CLASSES = 1000
"""Classes above which confusion matrices are sparse."""

CHUNK = 2**22
"""Scores that are sorted at a time, to bound memory."""

_ROUNDING = 1e-4
"""Tolerance for probabilities above 1, which averages over models can have by rounding."""


def confusion_matrix(
    target: Tensor, predicted: Tensor, *, num_classes: int, sparse: bool = False
) -> Tensor:
    """Count how often each class (row) got each output (column), shape ``(C, C)``.

    Args:
        target: True classes, shape ``(B,)``.
        predicted: Predicted classes, shape ``(B,)``.
        num_classes: C.
        sparse: Return a sparse tensor (COO), for many classes. All metrics accept it.

    Example:
        >>> confusion_matrix(torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), num_classes=2)
        tensor([[1, 1],
                [0, 1]])
    """
    check_same_device(predicted, target, name="predicted", other="target")
    samples = len(target) if target.ndim else 1
    check_class_indices(target, samples=samples, num_classes=num_classes, name="target")
    check_class_indices(predicted, samples=samples, num_classes=num_classes, name="predicted")
    if sparse:
        ones = torch.ones_like(target, dtype=torch.long)
        cells = torch.stack([target.long(), predicted.long()])
        return torch.sparse_coo_tensor(
            cells, ones, (num_classes, num_classes), check_invariants=False
        ).coalesce()
    cells = target.long() * num_classes + predicted.long()
    return torch.bincount(cells, minlength=num_classes**2).reshape(num_classes, num_classes)


def confusion_rates(confusion: Tensor) -> Tensor:
    r"""Row rates of a confusion matrix, :math:`R_{p,n} = N_{p,n} / \sum_k N_{p,k}`.

    The rows of empty classes are zero.

    Example:
        >>> confusion_rates(torch.tensor([[1, 3], [0, 0]]))
        tensor([[0.2500, 0.7500],
                [0.0000, 0.0000]])
    """
    counts, actual = _counts(confusion), confusion_sums(confusion).actual
    if counts.is_sparse:
        rows = counts.indices()[0]
        rates = _share(counts.values(), actual[rows])
        return torch.sparse_coo_tensor(
            counts.indices(), rates, counts.shape, check_invariants=False, is_coalesced=True
        )
    return _share(counts, actual[:, None])


class ConfusionSums(NamedTuple):
    """What most metrics need of a confusion matrix, each of shape ``(C,)``."""

    right: Tensor  # samples of each class that are predicted correctly
    actual: Tensor  # samples of each class
    given: Tensor  # predictions of each class


def confusion_sums(confusion: Tensor) -> ConfusionSums:
    """Return the diagonal and the sums of the rows and columns of a confusion matrix.

    Example:
        >>> confusion_sums(torch.tensor([[8, 2], [1, 1]]))
        ConfusionSums(right=tensor([8., 1.]), actual=tensor([10.,  2.]), given=tensor([9., 3.]))
    """
    counts = _counts(confusion)
    if not counts.is_sparse:
        return ConfusionSums(counts.diagonal(), counts.sum(1), counts.sum(0))
    (rows, columns), values = counts.indices(), counts.values()
    sums = (
        values.new_zeros(len(counts)).index_add(0, *part)
        for part in (
            (rows, torch.where(rows == columns, values, 0)),
            (rows, values),
            (columns, values),
        )
    )
    return ConfusionSums(*sums)


def shot_groups(class_counts: Tensor) -> dict[str, Tensor]:
    """Masks of the classes with many, medium and few training samples, each of shape ``(C,)``.

    The limits are those of the long-tail literature (Liu et al. 2019): above 100, 20 to 100, and
    below 20.

    Example:
        >>> {name: mask.tolist() for name, mask in shot_groups(torch.tensor([101, 20, 19])).items()}
        {'many': [True, False, False], 'medium': [False, True, False], 'few': [False, False, True]}
    """
    many, few = class_counts > MANY_SHOT, class_counts < FEW_SHOT
    return {"many": many, "medium": ~(many | few), "few": few}


def overall_accuracy(confusion: Tensor) -> Tensor:
    r"""Share of samples classified correctly, :math:`\sum_p N_{p,p} / \sum_{p,n} N_{p,n}`.

    Example:
        >>> overall_accuracy(torch.tensor([[8, 2], [1, 1]]))
        tensor(0.7500)
    """
    right, actual, _ = confusion_sums(confusion)
    return right.sum() / actual.sum()


def class_recall(confusion: Tensor) -> Tensor:
    r"""Recall of each class, :math:`N_{p,p} / \sum_n N_{p,n}`, shape ``(C,)``; NaN if empty.

    Example:
        >>> class_recall(torch.tensor([[8, 2], [1, 1]]))
        tensor([0.8000, 0.5000])
    """
    right, actual, _ = confusion_sums(confusion)
    return right / actual


def mean_recall(confusion: Tensor) -> Tensor:
    """Mean of the class recalls (balanced accuracy).

    Example:
        >>> mean_recall(torch.tensor([[8, 2], [1, 1]]))
        tensor(0.6500)
    """
    return class_recall(confusion).nanmean()


def class_precision(confusion: Tensor) -> Tensor:
    r"""Precision of each class, :math:`N_{p,p} / \sum_n N_{n,p}`, shape ``(C,)``.

    A class that is never predicted has 0.

    Example:
        >>> class_precision(torch.tensor([[8, 2], [0, 0]]))
        tensor([1., 0.])
    """
    right, _, given = confusion_sums(confusion)
    return _share(right, given)


def g_mean(confusion: Tensor) -> Tensor:
    """Geometric mean of the class recalls; 0 if a class is never found.

    Example:
        >>> g_mean(torch.tensor([[8, 2], [1, 1]]))
        tensor(0.6325)
    """
    recalls = class_recall(confusion)
    return recalls[~recalls.isnan()].log().mean().exp()


def macro_f1(confusion: Tensor) -> Tensor:
    """Mean of F1 = 2PR / (P + R) over classes with a sample or a prediction.

    Example:
        >>> macro_f1(torch.tensor([[8, 2], [1, 1]]))
        tensor(0.6211)
    """
    right, actual, given = confusion_sums(confusion)
    return (2 * right / (given + actual)).nanmean()


def paper_g_mean(confusion: Tensor) -> Tensor:
    r"""G-mean of the paper: :math:`\sum_p h_p \sqrt{\mathrm{TPR}_p \mathrm{TNR}_p}`, one-vs-all.

    Example:
        >>> paper_g_mean(torch.tensor([[8, 2], [1, 1]]))
        tensor(0.6325)
    """
    right, actual, given = confusion_sums(confusion)
    others = actual.sum() - actual
    true_negative_rate = _share(others - (given - right), others)
    return _weighted((_share(right, actual) * true_negative_rate).sqrt(), actual)


def paper_f_measure(confusion: Tensor) -> Tensor:
    r"""F-measure of the paper: :math:`\sum_p h_p \, P_p R_p / (P_p + R_p)`, one-vs-all.

    Half of the usual F1, so at most 0.5: the paper's table fits only without the factor 2.

    Example:
        >>> paper_f_measure(torch.tensor([[8, 2], [1, 1]]))
        tensor(0.3842)
    """
    right, actual, given = confusion_sums(confusion)
    return _weighted(_share(right, actual + given), actual)


def _weighted(scores: Tensor, actual: Tensor) -> Tensor:
    return (scores * actual).sum() / actual.sum()


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """Return ``part / whole``, and 0 for 0 / 0."""
    return part / torch.where(whole == 0, 1, whole)


def _counts(confusion: Tensor) -> Tensor:
    if confusion.ndim != 2 or confusion.shape[0] != confusion.shape[1] or not len(confusion):
        raise InputError(
            f"confusion must have the shape (classes, classes), but has {tuple(confusion.shape)}"
        )
    confusion = confusion.coalesce() if confusion.is_sparse else confusion
    values = confusion.values() if confusion.is_sparse else confusion
    if not bool((values >= 0).all()):
        raise InputError("confusion must hold counts, but has negative entries or NaN")
    return confusion.to(torch.float32) if not confusion.is_floating_point() else confusion


def one_vs_rest_auc(scores: Tensor, target: Tensor) -> Tensor:
    """Area under the ROC curve of each class, shape ``(C,)``.

    The area is the probability that a sample of the class gets a higher score for it than a sample
    of another class; ties count half. It is NaN for a class with no samples or with all samples.

    Args:
        scores: Score of each class, shape ``(B, C)``; only the order within a column matters.
        target: True classes, shape ``(B,)``.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4]])
        >>> one_vs_rest_auc(scores, torch.tensor([0, 0, 1]))
        tensor([0.5000, 0.5000])
    """
    return _by_class(scores, target, _auc)


def _auc(columns: Tensor, positives: Tensor) -> Tensor:
    ordered = columns.sort(dim=1).values
    below = torch.searchsorted(ordered, columns, right=False)
    up_to = torch.searchsorted(ordered, columns, right=True)
    twice_rank = below + up_to + 1  # (C, B), ranks from 1; ties share their mean rank
    hits = positives.sum(1)
    misses = positives.shape[1] - hits
    twice_rank_sum = torch.where(positives, twice_rank, 0).sum(1)
    return (twice_rank_sum - hits * (hits + 1)) / (2 * hits * misses)


def one_vs_rest_average_precision(scores: Tensor, target: Tensor) -> Tensor:
    """Average precision of each class, shape ``(C,)``; NaN for a class without samples.

    The mean, over the samples of the class, of the precision at the threshold of the sample's
    score.

    Args:
        scores: Score of each class, shape ``(B, C)``; only the order within a column matters.
        target: True classes, shape ``(B,)``.

    Example:
        >>> scores = torch.tensor([[0.9, 0.1], [0.4, 0.6], [0.6, 0.4]])
        >>> one_vs_rest_average_precision(scores, torch.tensor([0, 0, 1]))
        tensor([0.8333, 0.5000])
    """
    return _by_class(scores, target, _average_precision)


def _average_precision(columns: Tensor, positives: Tensor) -> Tensor:
    ordered, order = columns.sort(dim=1)
    below = torch.searchsorted(ordered, columns, right=False)  # (C, B)
    hits_before = positives.gather(1, order).cumsum(1) - positives.gather(1, order).long()
    hits = positives.sum(1, keepdim=True)
    precision = (hits - hits_before.gather(1, below)) / (positives.shape[1] - below)
    return torch.where(positives, precision, 0).sum(1) / hits.squeeze(1)


def _by_class(scores: Tensor, target: Tensor, metric: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Compute a metric of each class from its scores and members ``(K, B)``, some at a time."""
    _check_scores(scores, target, name="scores")
    target, scores = target.long(), scores.detach()
    found, number = [], max(1, CHUNK // max(1, len(target)))
    for start in range(0, scores.shape[1], number):
        columns = scores[:, start : start + number].T.contiguous()
        classes = torch.arange(start, start + len(columns), device=scores.device)
        found.append(metric(columns, target[None, :] == classes[:, None]))
    return torch.cat(found)


class CalibrationBins(NamedTuple):
    """Samples in bins of confidence of equal width, each of shape ``(bins,)``."""

    counts: Tensor
    confidence: Tensor  # mean; NaN for an empty bin
    accuracy: Tensor  # share that is correct; NaN for an empty bin


def calibration_bins(probabilities: Tensor, target: Tensor, *, bins: int = 15) -> CalibrationBins:
    """Compare confidence with accuracy, in bins of confidence of equal width.

    Args:
        probabilities: Of each class, shape ``(B, C)``.
        target: True classes, shape ``(B,)``.
        bins: The number of bins between 0 and 1; each includes its upper end.

    Example:
        >>> probabilities = torch.tensor([[0.75, 0.25], [0.75, 0.25]])
        >>> calibration_bins(probabilities, torch.tensor([0, 1]), bins=2)
        CalibrationBins(counts=tensor([0, 2]), confidence=tensor([   nan, 0.7500]), ...)
    """
    confidence, correct, bin_of_sample = _binned(probabilities, target, bins)
    counts = torch.bincount(bin_of_sample, minlength=bins)
    sums = [
        values.new_zeros(bins).index_add(0, bin_of_sample, values)
        for values in (confidence, correct)
    ]
    return CalibrationBins(counts, sums[0] / counts, sums[1] / counts)


def expected_calibration_error(probabilities: Tensor, target: Tensor, *, bins: int = 15) -> Tensor:
    r"""Distance of confidence and accuracy, averaged over confidence bins of equal width.

    .. math:: \sum_b \frac{|b|}{B} \, |\mathrm{accuracy}_b - \mathrm{confidence}_b|

    Args:
        probabilities: Probability of each class, shape ``(B, C)``.
        target: True classes, shape ``(B,)``.
        bins: Number of bins between 0 and 1.

    Example:
        >>> probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1]])
        >>> expected_calibration_error(probabilities, torch.tensor([0, 1]))
        tensor(0.4000)
    """
    confidence, correct, bin_of_sample = _binned(probabilities, target, bins)
    gaps = confidence.new_zeros(bins).index_add(0, bin_of_sample, correct - confidence)
    return gaps.abs().sum() / len(target)


def _binned(probabilities: Tensor, target: Tensor, bins: int) -> tuple[Tensor, Tensor, Tensor]:
    """Confidence, correctness (0 or 1) and bin of each sample, each of shape ``(B,)``."""
    _check_scores(probabilities, target, name="probabilities")
    if not bool(((probabilities >= 0) & (probabilities <= 1 + _ROUNDING)).all()):
        raise InputError(
            "probabilities must lie in [0, 1], but run from "
            f"{float(probabilities.min()):g} to {float(probabilities.max()):g}; "
            "apply softmax to logits first"
        )
    if bins < 1:
        raise InputError(f"bins must be at least 1, but is {bins}")
    confidence, predicted = probabilities.float().max(1)
    bin_of_sample = (confidence * bins).ceil().long().sub(1).clamp(0, bins - 1)
    return confidence, (predicted == target.long()).float(), bin_of_sample


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
