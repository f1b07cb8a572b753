"""How well each class is separated from each other class, S (Sec. III-D)."""

import torch
from torch import Tensor

from cosen.errors import InputError
from cosen.functional.checks import values_are_readable
from cosen.functional.reduction import full_precision

_CLOSE = 1e-2
"""Squared distances below this share of the squared norms are worked out again by difference:
there the matrix product has lost digits."""


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

    Small where p lies apart from q, 1 where they are mixed, and 1 on the diagonal. Distances are
    Euclidean and exact up to rounding. They are computed in blocks of rows: memory above the
    input is one copy of the features and ``block_size * (samples + features)`` numbers.

    Where the paper's ratio is not defined: two distances of zero give 1 (neither is nearer); a
    sample that stands in class q as well gives ``ceiling``, which no ratio exceeds, so that one
    duplicate does not decide for its class. A class with fewer than two samples has no
    neighbour of its own: its row is the average of the other rows. A class with none also has no
    column: each row's average stands there.

    Args:
        features: f, shape ``(samples, dimensions)``.
        target: Classes, shape ``(samples,)``, in 0..num_classes-1.
        num_classes: The number of classes C.
        block_size: Rows worked on at once.
        ceiling: The largest ratio of a single sample.

    Returns:
        S, shape ``(C, C)``, float32 or float64 as the features.

    Example:
        >>> features = torch.tensor([[0.0], [1.0], [5.0], [7.0]])
        >>> class_separability(features, torch.tensor([0, 0, 1, 1]), num_classes=2)
        tensor([[1.0000, 0.2250],
                [0.4167, 1.0000]])
    """
    _check(features, target, num_classes, block_size, ceiling)
    order = target.argsort(stable=True)
    classes = target[order].long()
    sizes = torch.bincount(classes, minlength=num_classes)
    ends = sizes.cumsum(0).tolist()
    points = full_precision(features.detach())[order]
    points = points - points.mean(0)  # smaller norms, fewer digits lost to cancellation

    totals = points.new_zeros(num_classes, num_classes)
    with torch.autocast(points.device.type, enabled=False):
        squared_norms = points.square().sum(1)
        for start in range(0, len(points), block_size):
            rows = slice(start, start + block_size)
            nearest = _nearest_by_class(points, squared_norms, rows, ends)  # (rows, C)
            own = nearest.gather(1, classes[rows, None])  # (rows, 1)
            ratios = (own / nearest).clamp(max=ceiling)
            ratios = torch.where((own == 0) & (nearest == 0), 1, ratios)
            totals.index_add_(0, classes[rows], ratios)
    return _fill_gaps(totals / sizes[:, None].clamp(min=1), sizes)


def _nearest_by_class(
    points: Tensor, squared_norms: Tensor, rows: slice, ends: list[int]
) -> Tensor:
    """Distance from each of the rows to its nearest other point in each class; inf for none.

    Args:
        points: Sorted by class, shape ``(samples, dimensions)``.
        squared_norms: Of the points, shape ``(samples,)``.
        rows: Which points to start from.
        ends: Where each class ends in the sorted points.
    """
    block = points[rows]
    norms = squared_norms[rows, None]
    # ‖a - b‖² = ‖a‖² + ‖b‖² - 2ab; the row's own norm does not change which b is nearest
    scores = torch.addmm(squared_norms[None, :], block, points.T, alpha=-2)  # (rows, samples)
    itself = torch.arange(len(block), device=points.device)
    scores[itself, itself + rows.start] = torch.inf
    nearest = block.new_full((len(block), len(ends)), torch.inf)
    index = torch.zeros(nearest.shape, dtype=torch.long, device=points.device)
    for label, (start, end) in enumerate(zip([0, *ends], ends, strict=False)):
        if end > start:
            nearest[:, label], index[:, label] = scores[:, start:end].min(1)
            index[:, label] += start
    nearest = (nearest + norms).clamp(min=0)

    close = (nearest < _CLOSE * (norms + squared_norms[index])).nonzero()  # (pairs, 2)
    for start in range(0, len(close), len(block)):
        row, column = close[start : start + len(block)].unbind(1)
        difference = block[row] - points[index[row, column]]
        nearest[row, column] = difference.square().sum(1)
    return nearest.sqrt()


def _fill_gaps(separability: Tensor, sizes: Tensor) -> Tensor:
    """Averages for the rows of classes with no neighbour and the columns of empty classes."""
    has_row, has_column = sizes >= 2, sizes >= 1
    off_diagonal = ~torch.eye(len(sizes), dtype=torch.bool, device=sizes.device)
    known = has_row[:, None] & has_column[None, :] & off_diagonal

    def average(dim: int | None) -> Tensor:
        counts = known.sum() if dim is None else known.sum(dim)
        sums = torch.where(known, separability, 0)
        return (sums.sum() if dim is None else sums.sum(dim)) / counts

    overall = average(None).nan_to_num(1.0)  # no two classes to compare: as good as mixed
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
    if target.shape != (len(features),) or target.is_floating_point():
        raise InputError(
            f"target must be {len(features)} class indices, one a row of features, "
            f"but is {target.dtype} of {tuple(target.shape)}"
        )
    if target.device != features.device:
        raise InputError(f"target is on {target.device}, but features are on {features.device}")
    if num_classes < 1 or block_size < 1 or not ceiling >= 1:
        raise InputError(
            "num_classes and block_size must be at least 1 and ceiling at least 1, but they are "
            f"{num_classes}, {block_size} and {ceiling}"
        )
    if not values_are_readable(features) or not len(features):
        return
    if int(target.min()) < 0 or int(target.max()) >= num_classes:
        raise InputError(
            f"target must lie in 0..{num_classes - 1}, "
            f"but runs from {int(target.min())} to {int(target.max())}"
        )
    if not bool(features.isfinite().all()):
        sample = int((~features.isfinite()).any(1).nonzero()[0])
        raise InputError(f"features must be finite, but sample {sample} has NaN or infinity")
