"""Logits of test images, from which the page decides for other class shares.

The page moves from the training shares h to equal shares: with a place t in [0, 1] the shares are
proportional to h^(1 - t), and the decision is argmax(o / T + b - t log h), as with ``--prior``.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosen.report.packing import STEPS, pack, packed_size
from cosen.report.run_data import ReportData
from cosen.training.calibration import Calibration

MAX_SAMPLES = 10_000

MAX_CHARACTERS = 1_500_000
"""Largest size of the logits and targets in the page."""

RANGE = (-0.5, 1.5)
"""The ends of the slider."""

MAX_DISTANCE = 100.0
"""Largest distance from the largest logit of an image; smaller logits are clipped."""


def tradeoff(data: ReportData) -> dict[str, Any] | None:
    """The logits of the chosen method's first seed; None if there are too many classes."""
    run = data.first
    target, classes = run.target.numpy(), len(run.data.class_names)
    most = max_samples(classes)
    if most < classes:
        return None
    rows = sample_rows(target, most)
    calibration = run.record.calibration
    images = f"all {len(target)} test images."
    if len(rows) < len(target):
        images = (
            f"a sample of {len(rows)} of the {len(target)} test images, with the same share of "
            "each class. Results can differ slightly from those above."
        )
    return {
        "samples": len(rows),
        "target": pack(target[rows]),
        "logits": pack(packable(calibration.logits(run.logits).numpy()[rows])),
        "offsets": calibration.offsets.tolist(),
        "log_shares": calibration.training_shares.log().tolist(),
        "trained": trained_place(calibration),
        "note": f"{data.chosen.name}, seed {data.seeds[0]}: {images}",
    }


def trained_place(calibration: Calibration) -> float:
    """The place whose decisions are closest to those of the model as it was trained.

    Example:
        >>> import torch
        >>> counts = torch.tensor([90, 10])
        >>> round(trained_place(Calibration(1.0, (counts / 100).double().log(), counts)), 3)
        1.0
    """
    log_shares = calibration.training_shares.log()
    centred = log_shares - log_shares.mean()
    size = float(centred.square().sum())
    if size < 1e-6:  # all classes are equally frequent
        return 0.0
    low, high = RANGE
    return min(high, max(low, float(calibration.offsets @ centred) / size))


def max_samples(classes: int) -> int:
    """The number of samples that fit into the page, each with its logits and its target."""
    return min(MAX_SAMPLES, MAX_CHARACTERS // packed_size(3 * (classes + 1)) * 3)


def sample_rows(target: NDArray[np.int64], most: int) -> NDArray[np.intp]:
    """Evenly spaced rows, the same share of each class and at least one; all rows if they fit.

    Example:
        >>> sample_rows(np.array([0, 0, 0, 0, 0, 0, 1, 1]), 6)
        array([0, 2, 4, 6])
    """
    if len(target) <= most:
        return np.arange(len(target))
    present, place, counts = np.unique(target, return_inverse=True, return_counts=True)
    share = (most - len(present)) / len(target)  # rounding up adds less than one of each class
    order = np.argsort(place, kind="stable")
    starts = np.cumsum(counts) - counts
    within = np.empty(len(target), dtype=np.intp)
    within[order] = np.arange(len(target)) - starts[place[order]]
    wanted = np.maximum(1, np.ceil(counts * share)).astype(np.intp)[place]
    size = counts[place]
    # the k-th of n is kept if k * wanted / n passes an integer
    return np.flatnonzero((within * wanted) // size != ((within - 1) * wanted) // size)


def packable(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shift logits to keep their argmax after rounding to 16 bits.

    The largest of each row becomes 0 and stays at least one step above the others.
    """
    top = logits.argmax(1, keepdims=True)
    below = np.maximum(logits - np.take_along_axis(logits, top, 1), -MAX_DISTANCE)
    step = -below.min(initial=0.0) / (STEPS - 1)
    apart: NDArray[np.float64] = np.minimum(below, -step)
    np.put_along_axis(apart, top, 0.0, 1)
    return apart
