"""What a dataset is like, and what to mend before training on it."""

import hashlib
import math
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cosen.data.decoding import Progress, in_threads
from cosen.data.images import is_animated
from cosen.data.labelled import LabelledImages
from cosen.data.stores import ImageFiles, printable
from cosen.errors import BrokenImageError

SMALL_FOR_VALIDATION = 4
"""A class with fewer training images cannot spare the two that validation wants."""


@dataclass(frozen=True)
class Twins:
    """Images with the same pixels.

    Attributes:
        names: The images.
        classes: The class of each.
        parts: The split of each, ``""`` where the source has none.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    parts: tuple[str, ...]

    @property
    def cross_splits(self) -> bool:
        return len(set(self.parts)) > 1

    @property
    def conflict(self) -> bool:
        return len(set(self.classes)) > 1


@dataclass(frozen=True)
class Inspection:
    """What was found in a dataset.

    Attributes:
        source: What was inspected.
        class_names: The classes.
        counts: For each split the images of each class; the split is ``"all"`` where there is none.
        imbalance_ratio: The largest class over the smallest, in training.
        effective_classes: How many equally large classes would be as diverse: the exponential of
            the entropy of the training distribution.
        groups: How many groups there are, or None.
        sizes: The commonest (width, height) with their counts, and how many sizes there are.
        size_range: Smallest and largest side in pixels.
        twins: Images with the same pixels as another, in groups.
        too_small: Classes with fewer than four training images.
        broken: Files that do not decode, and why.
        animated: Files with several frames, of which the first is used.
        suggestions: What to do, most important first.
    """

    source: str
    class_names: tuple[str, ...]
    counts: dict[str, list[int]]
    imbalance_ratio: float
    effective_classes: float
    groups: int | None
    sizes: tuple[tuple[tuple[int, int], int], ...]
    num_sizes: int
    size_range: tuple[int, int]
    twins: tuple[Twins, ...]
    too_small: tuple[str, ...]
    broken: dict[str, str]
    animated: tuple[str, ...]
    suggestions: tuple[str, ...]

    @property
    def leaks(self) -> tuple[Twins, ...]:
        """Twins that stand in more than one split."""
        return tuple(twins for twins in self.twins if twins.cross_splits)

    @property
    def conflicts(self) -> tuple[Twins, ...]:
        """Twins that stand in more than one class."""
        return tuple(twins for twins in self.twins if twins.conflict)

    def as_json(self) -> dict[str, Any]:
        """The same as plain values, for ``--json``."""
        plain = asdict(self)
        for name in ("leaks", "conflicts"):
            plain[name] = [asdict(twins) for twins in getattr(self, name)]
        return plain


def inspect_data(data: LabelledImages, *, progress: Progress | None = None) -> Inspection:
    """Look at every image once: does it decode, how large is it, does it stand elsewhere too?

    Args:
        data: The data.
        progress: Told how far it is.
    """
    looks = list(in_threads(lambda row: _look(data, row), data.rows.tolist(), progress))
    sizes = Counter(look.size for look in looks if look.size is not None)
    sides = [side for size in sizes for side in size]
    parts = data.parts if data.parts is not None else np.full(len(data), "")
    train = data.take(parts == "train") if data.parts is not None else data
    counts = {
        str(part) or "all": data.take(parts == part).class_counts.tolist()
        for part in sorted(set(parts.tolist()), key=["", "train", "val", "test"].index)
    }
    present = train.class_counts[train.class_counts > 0]
    shares = present / max(1, present.sum())
    findings = {
        "twins": _find_twins(data, parts, looks),
        "too_small": tuple(
            name
            for name, count in zip(data.class_names, train.class_counts, strict=True)
            if count < SMALL_FOR_VALIDATION
        ),
        "broken": {
            printable(data.names[position]): look.problem
            for position, look in enumerate(looks)
            if look.problem is not None
        },
        "animated": tuple(
            printable(data.names[position]) for position, look in enumerate(looks) if look.animated
        ),
        "imbalance_ratio": float(present.max() / present.min()) if len(present) else 1.0,
    }
    return Inspection(
        source=data.source,
        class_names=data.class_names,
        counts=counts,
        effective_classes=math.exp(-float((shares * np.log(shares)).sum())),
        groups=None if data.groups is None else len(set(data.groups.tolist())),
        sizes=tuple(sizes.most_common(3)),
        num_sizes=len(sizes),
        size_range=(min(sides, default=0), max(sides, default=0)),
        suggestions=tuple(_suggestions(data, **findings)),  # type: ignore[arg-type]
        **findings,  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class _Look:
    """What a look at one image showed."""

    size: tuple[int, int] | None = None
    pixels: bytes | None = None  # their digest
    animated: bool = False
    problem: str | None = None


def _look(data: LabelledImages, row: int) -> _Look:
    try:
        image = data.images.open(row).convert("RGB")
    except BrokenImageError as error:
        return _Look(problem=str(error))
    digest = hashlib.blake2b(repr(image.size).encode(), digest_size=16)
    digest.update(image.tobytes())
    files = data.images
    animated = isinstance(files, ImageFiles) and is_animated(files.paths[row])
    return _Look(image.size, digest.digest(), animated)


def _find_twins(data: LabelledImages, parts: np.ndarray, looks: list[_Look]) -> tuple[Twins, ...]:
    same = defaultdict(list)
    for position, look in enumerate(looks):
        if look.pixels is not None:
            same[look.pixels].append(position)
    return tuple(
        Twins(
            names=tuple(printable(data.names[position]) for position in positions),
            classes=tuple(data.class_names[data.labels[position]] for position in positions),
            parts=tuple(str(parts[position]) for position in positions),
        )
        for positions in same.values()
        if len(positions) > 1
    )


def _suggestions(
    data: LabelledImages,
    *,
    twins: tuple[Twins, ...],
    too_small: tuple[str, ...],
    broken: dict[str, str],
    animated: tuple[str, ...],
    imbalance_ratio: float,
) -> list[str]:
    """Sentences for what needs mending, then for how to go on."""
    said = []
    if broken:
        said.append(f"Files that do not decode: {len(broken)}; mend them, or use --skip-broken.")
    conflicts = sum(t.conflict for t in twins)
    if conflicts:
        said.append(f"Images in more than one class: {conflicts}; decide which is right.")
    leaks = sum(t.cross_splits for t in twins)
    if leaks:
        said.append(f"Images in more than one split: {leaks}; take them out of one.")
    elif twins and data.groups is None:
        copies = sum(len(t.names) - 1 for t in twins)
        said.append(f"Copies of other images: {copies}; a random split may put them apart.")
    if too_small:
        said.append(
            f"Classes with fewer than {SMALL_FOR_VALIDATION} training images, too few to validate "
            f"on: {len(too_small)} ({', '.join(too_small[:5])}{', ...' if too_small[5:] else ''}); "
            "add images, or leave them out with --exclude."
        )
    if animated:
        said.append(f"Files with several frames: {len(animated)}; only the first is used.")
    if data.parts is None and data.groups is None and isinstance(data.images, ImageFiles):
        said.append(
            "If several images show the same subject, list them in a CSV with a column 'group', "
            "so that no subject stands on both sides of a split."
        )
    if imbalance_ratio >= 3:
        said.append(
            f"The largest class has {imbalance_ratio:.0f} times the images of the smallest: look "
            "at the recall of each class, not only at accuracy, and train with costs."
        )
    return said
