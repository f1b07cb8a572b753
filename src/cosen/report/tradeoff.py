"""Logits of test images, which the page shifts towards rare or common classes.

With a shift ``s`` the decision is ``argmax(logits - s * log_frequencies)``: 0 does not change the
model, a positive shift favours rare classes.
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

MAX_SHIFT = 2.0
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
    counts = np.maximum(run.data.class_counts.train.numpy(), 1)
    images = f"all {len(target)} test images."
    if len(rows) < len(target):
        images = (
            f"a sample of {len(rows)} of the {len(target)} test images, with the same share of "
            "each class. Results can differ slightly from those above."
        )
    return {
        "samples": len(rows),
        "target": pack(target[rows]),
        "logits": pack(packable(run.logits.double().numpy()[rows])),
        "log_frequencies": np.log(counts / counts.sum()).tolist(),
        "marks": shares_marks(run.record.calibration),
        "note": f"{data.chosen.name}, seed {data.seeds[0]}: {images}",
    }


def shares_marks(calibration: Calibration) -> list[dict[str, Any]]:
    """The shifts closest to decisions for the class shares of training, and for equal shares.

    The posterior under the training shares h is softmax(o / T + b), and b is close to a multiple of
    log h. Equal shares subtract log h from it.

    Example:
        >>> import torch
        >>> counts = torch.tensor([90, 10])
        >>> balanced = Calibration(1.0, (counts / 100).double().log(), counts)
        >>> [(mark["name"], round(mark["shift"], 2)) for mark in shares_marks(balanced)]
        [('training shares', -1.0), ('equal shares', 0.0)]
    """
    log_shares = calibration.training_shares.log()
    centred = log_shares - log_shares.mean()
    size = float(centred.square().sum())
    if size < 1e-6:  # all classes are equally frequent
        return []
    trained = -calibration.temperature * float(calibration.offsets @ centred) / size
    shifts = {"training shares": trained, "equal shares": trained + calibration.temperature}
    return [
        {"name": name, "shift": shift} for name, shift in shifts.items() if abs(shift) <= MAX_SHIFT
    ]


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
