"""Inspect a dataset: summarise it and list problems to fix before training."""

import hashlib
import math
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from cosen.data.decoding import Progress, in_threads, opened_image
from cosen.data.labelled import LabelledImages
from cosen.data.stores import ImageFiles, printable
from cosen.errors import BrokenImageError

SMALL_FOR_VALIDATION = 4
"""Smallest class that can give two images for validation."""

MOST_SHOWN = 20


@dataclass(frozen=True)
class Duplicates:
    """Images with the same pixels.

    Attributes:
        names: The images.
        classes: The class of each image.
        parts: The split of each image, ``""`` if the source has no splits.
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
    """Summary of a dataset; ``print(inspection)`` shows it.

    Attributes:
        source: Name of the dataset.
        class_names: The classes.
        counts: Images per class for each split; the only split is ``"all"`` if there are none.
        imbalance_ratio: Largest class over smallest class in the training set.
        effective_classes: Number of equally large classes with the same entropy as the training
            set: the exponential of the entropy of its class distribution.
        groups: Number of groups, or None.
        sizes: The three most common (width, height), with counts.
        num_sizes: Number of different sizes.
        size_range: Smallest and largest side in pixels.
        duplicates: Groups of images with the same pixels.
        too_small: Classes with fewer than four training images.
        broken: Files that cannot be decoded, with the reasons.
        animated: Files with several frames; only the first is used.
        suggestions: Recommended actions, most important first.
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
    duplicates: tuple[Duplicates, ...]
    too_small: tuple[str, ...]
    broken: dict[str, str]
    animated: tuple[str, ...]
    suggestions: tuple[str, ...]

    @property
    def leaks(self) -> tuple[Duplicates, ...]:
        """Duplicates in more than one split."""
        return tuple(group for group in self.duplicates if group.cross_splits)

    @property
    def conflicts(self) -> tuple[Duplicates, ...]:
        """Duplicates in more than one class."""
        return tuple(group for group in self.duplicates if group.conflict)

    @property
    def _has_splits(self) -> bool:
        return self.counts.keys() != {"all"}

    def as_json(self) -> dict[str, Any]:
        """Convert to plain values, for ``--json``."""
        plain = asdict(self)
        for name in ("leaks", "conflicts"):
            plain[name] = [asdict(group) for group in getattr(self, name)]
        return plain

    def __str__(self) -> str:
        total = sum(sum(counts) for counts in self.counts.values())
        files = f"files, {len(self.broken)} of them broken" if self.broken else "images"
        lines = [
            f"{self.source}: {total} {files}, {len(self.class_names)} classes",
            *self._count_table(),
            f"imbalance     largest class {self.imbalance_ratio:.1f} times the smallest; "
            f"as diverse as {self.effective_classes:.1f} equal classes",
            f"image sizes   {self._size_summary()}",
            f"duplicates    {self._duplicate_summary()}",
        ]
        if self.groups is not None:
            lines.append(f"groups        {self.groups}, each kept in one split")
        for title, found in (("splits", self.leaks), ("classes", self.conflicts)):
            if found:
                lines.append(f"Duplicates across {title}:")
            lines += ["  " + " = ".join(group.names) for group in found[:MOST_SHOWN]]
            if len(found) > MOST_SHOWN:
                lines.append(f"  and {len(found) - MOST_SHOWN} more (--json lists all)")
        if self.broken:
            lines.append("Broken files:")
            lines += [f"  {name}: {reason}" for name, reason in self.broken.items()]
        return "\n".join(lines + [f"- {suggestion}" for suggestion in self.suggestions])

    def _count_table(self) -> list[str]:
        from rich.cells import cell_len  # some characters are two cells wide

        all_ = "no split" if self._has_splits else "images"
        table = [["class", *(all_ if part == "all" else part for part in self.counts)]]
        for label, name in enumerate(self.class_names):
            table.append([name, *(str(counts[label]) for counts in self.counts.values())])
        first, *widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
        return [
            "  ".join([name + " " * (first - cell_len(name)), *map(str.rjust, counts, widths)])
            for name, *counts in table
        ]

    def _size_summary(self) -> str:
        if self.num_sizes == 1:
            (width, height), _ = self.sizes[0]
            return f"all {width} x {height}"
        low, high = self.size_range
        shown = ", ".join(f"{width} x {height} ({n})" for (width, height), n in self.sizes)
        return f"{self.num_sizes} sizes, sides {low} to {high}; most common {shown}"

    def _duplicate_summary(self) -> str:
        if not self.duplicates:
            return "none"
        number = len(self.duplicates)
        across_splits = f"{len(self.leaks) or 'none'} across splits, " * self._has_splits
        return (
            f"{number} group{'s' * (number > 1)} of duplicates, {across_splits}"
            f"{len(self.conflicts) or 'none'} across classes"
        )


def inspect_data(data: LabelledImages, *, progress: Progress | None = None) -> Inspection:
    """Decode every image once; count classes and sizes, and find broken files and duplicates.

    Args:
        data: The dataset.
        progress: Callback for progress.

    Example:
        >>> from cosen.data.sources import from_arrays
        >>> print(inspect_data(from_arrays(np.zeros((3, 8, 8), np.uint8), [0, 1, 1])))
        arrays: 3 images, 2 classes
        ...
        duplicates    1 group of duplicates, 1 across classes
        ...
    """
    looks = list(in_threads(lambda row: _look(data, row), data.rows.tolist(), progress))
    sizes = Counter(look.size for look in looks if look.size is not None)
    sides = [side for size in sizes for side in size]
    parts = data.parts if data.parts is not None else np.full(len(data), "")
    counts = {
        str(part) or "all": np.bincount(data.labels[parts == part], minlength=data.num_classes)
        for part in sorted(set(parts.tolist()), key=["", "train", "val", "test"].index)
    }
    trained = counts.get("train" if data.parts is not None else "all", np.zeros(data.num_classes))
    present = trained[trained > 0]
    shares = present / max(1, present.sum())
    duplicates = _find_duplicates(data, parts, looks)
    too_small = tuple(
        name
        for name, count in zip(data.class_names, trained, strict=True)
        if count < SMALL_FOR_VALIDATION
    )
    broken = {
        printable(name): look.problem
        for name, look in zip(data.names, looks, strict=True)
        if look.problem is not None
    }
    animated = tuple(
        printable(name) for name, look in zip(data.names, looks, strict=True) if look.animated
    )
    imbalance_ratio = float(present.max() / present.min()) if len(present) else 1.0
    return Inspection(
        source=data.source,
        class_names=data.class_names,
        counts={part: numbers.tolist() for part, numbers in counts.items()},
        imbalance_ratio=imbalance_ratio,
        effective_classes=math.exp(-float((shares * np.log(shares)).sum())),
        groups=None if data.groups is None else len(set(data.groups.tolist())),
        sizes=tuple(sizes.most_common(3)),
        num_sizes=len(sizes),
        size_range=(min(sides, default=0), max(sides, default=0)),
        duplicates=duplicates,
        too_small=too_small,
        broken=broken,
        animated=animated,
        suggestions=tuple(
            _suggestions(data, duplicates, too_small, broken, animated, imbalance_ratio)
        ),
    )


@dataclass(frozen=True)
class _Look:
    """Properties of one image."""

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
    animated = False
    if isinstance(data.images, ImageFiles):
        # a damaged later frame does not matter: only the first is used
        with suppress(BrokenImageError), opened_image(data.images.paths[row]) as file:
            animated = bool(getattr(file, "is_animated", False))
    return _Look(image.size, digest.digest(), animated)


def _find_duplicates(
    data: LabelledImages, parts: np.ndarray, looks: list[_Look]
) -> tuple[Duplicates, ...]:
    same = defaultdict(list)
    for position, look in enumerate(looks):
        if look.pixels is not None:
            same[look.pixels].append(position)
    return tuple(
        Duplicates(
            names=tuple(printable(data.names[position]) for position in positions),
            classes=tuple(data.class_names[data.labels[position]] for position in positions),
            parts=tuple(str(parts[position]) for position in positions),
        )
        for positions in same.values()
        if len(positions) > 1
    )


def _suggestions(
    data: LabelledImages,
    duplicates: tuple[Duplicates, ...],
    too_small: tuple[str, ...],
    broken: dict[str, str],
    animated: tuple[str, ...],
    imbalance_ratio: float,
) -> list[str]:
    """Problems to fix, then advice."""
    suggested = []
    if broken:
        suggested.append(f"Broken files: {len(broken)}; fix them, or use --skip-broken.")
    conflicts = sum(group.conflict for group in duplicates)
    if conflicts:
        suggested.append(f"Images in more than one class: {conflicts}; correct the labels.")
    leaks = sum(group.cross_splits for group in duplicates)
    if leaks:
        suggested.append(f"Images in more than one split: {leaks}; remove them from one split.")
    elif duplicates and data.groups is None:
        copies = sum(len(group.names) - 1 for group in duplicates)
        suggested.append(f"Copies of other images: {copies}; a random split may separate them.")
    if too_small:
        suggested.append(
            f"Classes with fewer than {SMALL_FOR_VALIDATION} training images, too few to validate "
            f"on: {len(too_small)} ({', '.join(too_small[:5])}{', ...' if too_small[5:] else ''}); "
            "add images, or use --exclude."
        )
    if animated:
        suggested.append(f"Files with several frames: {len(animated)}; only the first is used.")
    if data.parts is None and data.groups is None and isinstance(data.images, ImageFiles):
        suggested.append(
            "If several images show the same subject, list them in a CSV with a column 'group', "
            "so that a subject is never in two splits."
        )
    if imbalance_ratio >= 3:
        suggested.append(
            f"The largest class has {imbalance_ratio:.0f} times the images of the smallest: look "
            "at the recall of each class, not only at accuracy, and train with costs."
        )
    return suggested
