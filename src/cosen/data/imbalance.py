"""Make a training set imbalanced by removing images of some classes.

Notation: ``odd:0.1`` or ``even:0.25`` (as in the paper; a share, or a count such as ``odd:50``),
``step:10`` (the second half of the classes has a tenth of the largest class), ``longtail:100``
(exponential; the last class has a hundredth of the largest), or a value for each class:
``melanoma=0.1,nevus=200``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cosen.data.labelled import LabelledImages, draw_order, unknown_class
from cosen.errors import DataError, InputError


@dataclass(frozen=True)
class KeepOf:
    """Keep a share (a float up to 1) or a count (an integer) of the odd or even classes.

    Classes are numbered from 0: of ten digits, 1, 3, 5, 7, 9 are odd.
    """

    which: Literal["odd", "even"]
    amount: float | int

    def counts(self, data: LabelledImages) -> np.ndarray:
        counts = data.class_counts.numpy().copy()
        reduced = np.arange(len(counts)) % 2 == (self.which == "odd")
        counts[reduced] = [_kept(self.amount, count) for count in counts[reduced]]
        return counts


@dataclass(frozen=True)
class Step:
    """The second half of the classes has the count of the largest class divided by the ratio."""

    ratio: float

    def counts(self, data: LabelledImages) -> np.ndarray:
        counts = data.class_counts.numpy().copy()
        later = np.arange(len(counts)) >= len(counts) - len(counts) // 2
        counts[later] = np.minimum(counts[later], max(1, round(counts.max() / self.ratio)))
        return counts


@dataclass(frozen=True)
class LongTail:
    """Exponentially falling counts, from the largest class to its count divided by the ratio."""

    ratio: float

    def counts(self, data: LabelledImages) -> np.ndarray:
        counts = data.class_counts.numpy()
        falling = np.arange(len(counts)) / max(1, len(counts) - 1)
        profile = np.floor(counts.max() * self.ratio**-falling).astype(np.int64)
        kept: np.ndarray = np.minimum(counts, np.maximum(profile, 1))
        return kept


@dataclass(frozen=True)
class KeepEach:
    """Keep a share (a float up to 1) or a count (an integer) of each named class."""

    amounts: tuple[tuple[str, float | int], ...]

    def counts(self, data: LabelledImages) -> np.ndarray:
        counts = data.class_counts.numpy().copy()
        for name, amount in self.amounts:
            if name not in data.class_names:
                raise DataError(unknown_class(name, data.class_names, data.source))
            label = data.class_names.index(name)
            counts[label] = _kept(amount, counts[label])
        return counts


Imbalance = KeepOf | Step | LongTail | KeepEach


def parse_imbalance(text: str | Mapping[str, float | int]) -> Imbalance:
    """Parse the notation at the top of this module, or a mapping from class to amount.

    Example:
        >>> parse_imbalance("odd:0.1")
        KeepOf(which='odd', amount=0.1)
        >>> parse_imbalance("longtail:100")
        LongTail(ratio=100.0)
        >>> parse_imbalance("melanoma=0.1,nevus=200")
        KeepEach(amounts=(('melanoma', 0.1), ('nevus', 200)))
    """
    if isinstance(text, Mapping):
        checked = {name: _amount(str(amount), str(text)) for name, amount in text.items()}
        return KeepEach(tuple(checked.items()))
    if "=" in text:
        pairs = [pair.rpartition("=") for pair in text.split(",")]
        return KeepEach(tuple((name.strip(), _amount(value, text)) for name, _, value in pairs))
    kind, _, value = text.partition(":")
    match kind:
        case "odd" | "even":
            return KeepOf("odd" if kind == "odd" else "even", _amount(value, text))
        case "step":
            return Step(_ratio(value, text))
        case "longtail":
            return LongTail(_ratio(value, text))
    raise InputError(
        f"imbalance {text!r} is unknown: write odd:0.1, even:0.25, step:10, longtail:100, "
        "or class=share,class=count"
    )


def make_imbalanced(data: LabelledImages, imbalance: Imbalance, *, seed: int) -> LabelledImages:
    """Remove images to get this imbalance; the others keep their order."""
    left = imbalance.counts(data)
    order = draw_order(data.names, seed=seed, purpose="imbalance")
    labels = data.labels[order]
    by_class = np.argsort(labels, kind="stable")  # classes together, random within each
    starts = np.concatenate([[0], np.bincount(labels, minlength=data.num_classes).cumsum()[:-1]])
    rank_in_class = np.arange(len(data)) - starts[labels[by_class]]
    kept = order[by_class[rank_in_class < left[labels[by_class]]]]
    return data.take(np.sort(kept))


def _kept(amount: float | int, count: int) -> int:
    """Number of images to keep of ``count``, at least one."""
    if isinstance(amount, int):
        return min(amount, int(count))
    return min(max(1, round(amount * count)), int(count))


def _amount(value: str, text: str) -> float | int:
    try:
        amount: float | int = int(value) if value.strip().isdigit() else float(value)
    except ValueError:
        amount = -1
    if amount <= 0 or (isinstance(amount, float) and not amount <= 1):
        raise InputError(
            f"imbalance {text!r}: {value!r} is neither a share such as 0.1 nor a count such as 50"
        )
    return amount


def _ratio(value: str, text: str) -> float:
    try:
        ratio = float(value)
    except ValueError:
        ratio = 0.0
    if not 1 <= ratio < float("inf"):
        raise InputError(
            f"imbalance {text!r}: the ratio of the largest to the smallest class must be at least "
            "1, such as 10 or 100"
        )
    return ratio
