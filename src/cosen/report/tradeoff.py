"""Scores of test images, from which the page decides anew between rare and common classes.

A shift ``s`` decides for ``argmax(logits - s * log_frequencies)``: at 0 as the model does, above
it for rare classes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosen.report.packing import STEPS, pack, packed_size
from cosen.report.run_data import Shown

MOST_SAMPLES = 10_000

ROOM = 1_500_000
"""Characters that the scores may take in the page."""

FARTHEST = 100.0
"""How far below the largest logit of an image others are told apart."""


def tradeoff(shown: Shown) -> dict[str, Any] | None:
    """The scores of the chosen method's first seed; None where too few fit for so many classes."""
    run = shown.first
    target, classes = run.target.numpy(), len(run.class_names)
    most = most_samples(classes)
    if most < classes:
        return None
    rows = sampled_rows(target, most)
    counts = np.maximum(run.train_counts, 1)
    many = len(shown.seeds) > 1
    note = f"{shown.chosen.name}{f', seed {shown.seeds[0]}' * many}: "
    if len(rows) == len(target):
        note += f"all {len(target)} test images."
    else:
        note += (
            f"{len(rows)} of {len(target)} test images, the same share of each class at even "
            "distances, so figures may differ a little from those above."
        )
    return {
        "seed": shown.seeds[0],
        "samples": len(rows),
        "target": pack(target[rows]),
        "logits": pack(packable(run.logits.double().numpy()[rows])),
        "log_frequencies": np.log(counts / counts.sum()).tolist(),
        "note": note,
    }


def most_samples(classes: int) -> int:
    """How many samples of so many logits, and a target, fit into the page."""
    return min(MOST_SAMPLES, ROOM // packed_size(3 * (classes + 1)) * 3)


def sampled_rows(target: NDArray[np.int64], most: int) -> NDArray[np.intp]:
    """At most so many rows, the same share of each class at even distances; all if they fit.

    Of each class there is at least one.

    Example:
        >>> sampled_rows(np.array([0, 0, 0, 0, 0, 0, 1, 1]), 6)
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
    # the k-th of n is kept where k * wanted / n passes a whole number
    return np.flatnonzero((within * wanted) // size != ((within - 1) * wanted) // size)


def packable(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logits that decide as they did even when they are rounded to 16 bits.

    The largest of each row, which becomes 0, keeps a distance of one step from the others.
    """
    top = logits.argmax(1, keepdims=True)
    below = np.maximum(logits - np.take_along_axis(logits, top, 1), -FARTHEST)
    step = -below.min(initial=0.0) / (STEPS - 1)
    apart: NDArray[np.float64] = np.minimum(below, -step)
    np.put_along_axis(apart, top, 0.0, 1)
    return apart
