"""Class-to-class separability, S (Sec. III-D)."""

import math

import torch
from torch import Tensor

from cosen.errors import InputError
from cosen.functional.checks import check_class_indices, check_same_device
from cosen.functional.reduction import full_precision, without_autocast

_CLOSE = 1e-2
"""If a squared distance is below this share of the squared norms, the matrix product is too
inexact to find the nearest neighbour, and the search in that class is repeated around its mean."""

ITERATIONS = 3
"""Of the search for principal components. They need not be exact."""


def class_separability(
    features: Tensor,
    target: Tensor,
    *,
    num_classes: int,
    block_size: int = 1024,
    ceiling: float = 100.0,
) -> Tensor:
    r"""Class-to-class separability from nearest neighbours.

    .. math:: S(p, q) = \frac{1}{N_p} \sum_{i \in p}
       \frac{\mathrm{dist}(f_i, \text{nearest other in } p)}
            {\mathrm{dist}(f_i, \text{nearest in } q)}

    S is small if p is far from q, 1 if they are mixed, and 1 on the diagonal. Distances are
    Euclidean, and exact up to rounding. They are computed in blocks of rows. Extra memory: one copy
    of the features (a second one in float32 for half precision), about
    ``block_size * (samples + 4 * dimensions)`` numbers, and one copy of a class at a time if
    classes are tight clusters.

    If the paper's ratio is undefined:

    - Two distances of zero give 1.
    - A sample with a duplicate in class q gives ``ceiling``. No ratio exceeds it, so one duplicate
      does not dominate its class.
    - A class with one sample has no neighbour of its own: its row is the average of other rows.
    - A class without samples also has no column: each entry is the average of its row.

    Args:
        features: f, shape ``(samples, dimensions)``.
        target: Classes, shape ``(samples,)``, in 0..num_classes-1.
        num_classes: Number of classes C.
        block_size: Rows computed at once.
        ceiling: Largest ratio of a sample.

    Returns:
        S, shape ``(C, C)``, float32, or float64 if the features are float64.

    Example:
        >>> features = torch.tensor([[0.0], [1.0], [5.0], [7.0]])
        >>> class_separability(features, torch.tensor([0, 0, 1, 1]), num_classes=2)
        tensor([[1.0000, 0.2250],
                [0.4167, 1.0000]])
    """
    _check(features, target, num_classes, block_size, ceiling)
    order = target.long().argsort(stable=True)
    classes = target.long()[order]
    sizes = torch.bincount(classes, minlength=num_classes)
    ends = sizes.cumsum(0).tolist()
    points = full_precision(features.detach()[order])  # a copy, which is changed in place below
    _scale_and_centre(points)

    totals = points.new_zeros(num_classes, num_classes)
    with without_autocast(points.device):
        squared_norms = _squared_norms(points)
        for start in range(0, len(points), block_size):
            rows = slice(start, start + block_size)
            nearest = _nearest_by_class(points, squared_norms, rows, ends)  # (rows, C)
            own = nearest.gather(1, classes[rows, None])  # (rows, 1)
            ratios = (own / nearest).clamp(max=ceiling)
            ratios = torch.where((own == 0) & (nearest == 0), 1, ratios)
            totals.index_add_(0, classes[rows], ratios)
    return _fill_gaps(totals / sizes[:, None].clamp(min=1), sizes)


def _scale_and_centre(points: Tensor) -> None:
    """Scale the points to about 1 and centre them, in place; ratios of distances do not change.

    Squares then do not overflow or underflow, and smaller norms lose fewer digits. The scale is a
    power of two, so it is exact.
    """
    if points.numel():
        largest = max(abs(float(bound)) for bound in points.aminmax())
        points /= 2.0 ** (math.frexp(largest)[1] - 1)
        points -= points.mean(0)


def _squared_norms(points: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(points, dim=1)  # does not copy the points
    return norms.square()


def _nearest_by_class(
    points: Tensor, squared_norms: Tensor, rows: slice, ends: list[int]
) -> Tensor:
    """Distance from each row to its nearest other point in each class; inf if there is none.

    The points are sorted by class; ``ends`` are the ends of the classes.
    """
    block = points[rows]
    norms = squared_norms[rows, None]
    # ‖a - b‖² = ‖a‖² + ‖b‖² - 2ab; the row's own norm does not change which b is nearest
    scores = torch.addmm(squared_norms[None, :], block, points.T, alpha=-2)  # (rows, samples)
    itself = torch.arange(len(block), device=points.device)
    scores[itself, itself + rows.start] = torch.inf
    nearest = block.new_full((len(block), len(ends)), torch.inf)
    index = torch.zeros(nearest.shape, dtype=torch.long, device=points.device)
    members = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    for label, own in enumerate(members):
        if own.stop > own.start:
            nearest[:, label], index[:, label] = scores[:, own].min(1)
            index[:, label] += own.start
    nearest = (nearest + norms).clamp(min=0)

    close = nearest < _CLOSE * (norms + squared_norms[index])  # (rows, C)
    for label in close.any(0).nonzero().flatten().tolist():
        row = close[:, label].nonzero().squeeze(1)
        nearest[row, label] = _nearest_in_class(points, row + rows.start, members[label])
    return nearest.sqrt()


def _nearest_in_class(points: Tensor, row: Tensor, members: slice) -> Tensor:
    """Exact squared distances from some points to their nearest other point in a class."""
    centre = points[members].mean(0)  # the search around it loses fewer digits
    others = points[members] - centre
    scores = torch.addmm(_squared_norms(others)[None, :], points[row] - centre, others.T, alpha=-2)
    inside = ((row >= members.start) & (row < members.stop)).nonzero().squeeze(1)
    scores[inside, row[inside] - members.start] = torch.inf
    winner = scores.argmin(1) + members.start
    return _squared_norms(points[row] - points[winner])


def _fill_gaps(separability: Tensor, sizes: Tensor) -> Tensor:
    """Fill rows of classes without neighbours and columns of empty classes with averages."""
    has_row, has_column = sizes >= 2, sizes >= 1
    off_diagonal = ~torch.eye(len(sizes), dtype=torch.bool, device=sizes.device)
    known = has_row[:, None] & has_column[None, :] & off_diagonal

    def average(dim: int | None) -> Tensor:
        counts = known.sum() if dim is None else known.sum(dim)
        sums = torch.where(known, separability, 0)
        return (sums.sum() if dim is None else sums.sum(dim)) / counts

    overall = average(None).nan_to_num(1.0)  # no two classes to compare
    by_column = torch.where(known.any(0), average(0), overall)
    by_row = torch.where(known.any(1), average(1), overall)
    filled = torch.where(has_column[None, :], separability, by_row[:, None])
    filled = torch.where(has_row[:, None], filled, by_column[None, :])
    return filled.fill_diagonal_(1.0)


def _check(
    features: Tensor, target: Tensor, num_classes: int, block_size: int, ceiling: float
) -> None:
    if features.ndim != 2 or not features.is_floating_point():
        raise InputError(
            "features must be floating point of the shape (samples, dimensions), "
            f"but are {features.dtype} of {tuple(features.shape)}"
        )
    if block_size < 1 or not ceiling >= 1:
        raise InputError(
            f"block_size and ceiling must be at least 1, but are {block_size} and {ceiling}"
        )
    check_same_device(target, features, name="target", other="features")
    check_class_indices(target, samples=len(features), num_classes=num_classes, name="target")
    if features.numel() and not all(bound.isfinite() for bound in features.aminmax()):
        sample = int((~features.isfinite()).any(1).nonzero()[0])
        raise InputError(f"features must be finite, but sample {sample} has NaN or infinity")


def within_class_spread(
    features: Tensor, target: Tensor, *, size: int = 64, generator: torch.Generator | None = None
) -> Tensor:
    r"""Directions in which samples differ most from the mean of their class.

    .. math:: A A^\top \approx \Sigma = \frac1N \sum_i \tfrac{n_{c_i}}{n_{c_i} - 1}
       (f_i - \mu_{c_i}) (f_i - \mu_{c_i})^\top

    The columns of A span about the largest principal components of :math:`\Sigma`, found by
    subspace iteration. Classes with one sample are left out.

    Args:
        features: f, shape ``(N, D)``.
        target: Classes, shape ``(N,)``.
        size: Number of directions, at most D.
        generator: Source of randomness for the first directions.

    Returns:
        A, shape ``(D, size)``, on the device of the features.

    Example:
        >>> features = torch.tensor([[0.0, 1.0], [0.0, 3.0], [5.0, 1.0], [5.0, 3.0]])
        >>> spread = within_class_spread(features, torch.tensor([0, 0, 1, 1]), size=1)
        >>> (spread @ spread.T).round(decimals=3).abs()
        tensor([[0., 0.],
                [0., 2.]])
    """
    features = full_precision(features.detach())
    classes, target, counts = torch.unique(target, return_inverse=True, return_counts=True)
    sums = features.new_zeros(len(classes), features.shape[1]).index_add_(0, target, features)
    factors = (counts / (counts - 1).clamp(min=1)).sqrt()[target].to(features.dtype)
    rest = (features - (sums / counts[:, None])[target]) * factors[:, None]  # (N, D)
    used = max(1, int((counts[target] > 1).sum()))
    width = features.shape[1]
    directions = torch.randn(width, min(size, width), generator=generator).to(features)
    with without_autocast(features.device):
        for _ in range(ITERATIONS):
            directions = torch.linalg.qr(rest.T @ (rest @ directions)).Q
        strengths, turns = torch.linalg.eigh((rest @ directions).T @ (rest @ directions) / used)
        found: Tensor = directions @ (turns * strengths.clamp(min=0).sqrt())
    return found


def spread_margins(weight: Tensor, spread: Tensor, target: Tensor) -> Tensor:
    r"""Half the variance of the difference between an output and that of the true class.

    .. math:: \tfrac12 (w_n - w_p)^\top \Sigma (w_n - w_p) = \tfrac12 \| A^\top (w_n - w_p) \|^2

    Added to the logits, it gives a bound on the expected cross-entropy of features that vary around
    their class as :math:`\Sigma` says (Wang et al. 2019, implicit semantic data augmentation).
    Outputs that such variation confuses with the true class need a wider margin.

    Args:
        weight: Weights w of the outputs, shape ``(C, D)``.
        spread: A, the result of :func:`within_class_spread`, shape ``(D, size)``.
        target: True classes ``(B,)``, or probabilities ``(B, C)``.

    Returns:
        Shape ``(B, C)``. Gradients flow to the weights.

    Example:
        >>> weight, spread = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.eye(2)
        >>> spread_margins(weight, spread, torch.tensor([0, 1]))
        tensor([[0.0000, 2.5000],
                [2.5000, 0.0000]])
    """
    with without_autocast(weight.device):
        reach = full_precision(weight) @ spread  # (C, size)
        own = target.to(reach.dtype) @ reach if target.is_floating_point() else reach[target]
        sizes = reach.square().sum(1) / 2
        own_sizes = target.to(reach.dtype) @ sizes if target.is_floating_point() else sizes[target]
        return torch.addmm(sizes, own, reach.T, alpha=-1) + own_sizes[:, None]
