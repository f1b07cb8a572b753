"""Inspect a dataset: summarise it and list problems to fix before training."""

import csv
import hashlib
import io
import math
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np

from cosen.data.decoding import Progress, in_threads, opened_image
from cosen.data.labelled import LabelledImages
from cosen.data.near_duplicates import Appearance, appearance, near_duplicate_groups
from cosen.data.stores import ImageFiles, printable
from cosen.errors import BrokenImageError, InputError

SMALL_FOR_VALIDATION = 4
"""Smallest class that can give two images for validation."""

MOST_SHOWN = 20


@dataclass(frozen=True)
class Duplicates:
    """Images with the same pixels, or near-duplicates.

    Attributes:
        names: The images.
        classes: The class of each image.
        parts: The split of each image, ``""`` if it is in none.
    """

    names: tuple[str, ...]
    classes: tuple[str, ...]
    parts: tuple[str, ...]

    @property
    def cross_splits(self) -> bool:
        return len({*self.parts} - {""}) > 1

    @property
    def conflict(self) -> bool:
        return len(set(self.classes)) > 1


@dataclass(frozen=True)
class LabelProblem:
    """An image whose label is probably wrong.

    Attributes:
        image: Its name.
        label: Its class.
        suggested: The most probable class.
        probability: Of the suggested class.
        label_probability: Of its own class.
    """

    image: str
    label: str
    suggested: str
    probability: float
    label_probability: float


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
        near_duplicates: Groups of images that look the same, but have different pixels.
        too_small: Classes with fewer than four training images.
        broken: Files that cannot be decoded, with the reasons.
        animated: Files with several frames; only the first is used.
        suggestions: Recommended actions, most important first.
        label_problems: Images whose label the predictions of a run contradict, the most suspicious
            first; None without a run.
        held_out: Number of images with such predictions; None without a run.
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
    near_duplicates: tuple[Duplicates, ...]
    too_small: tuple[str, ...]
    broken: dict[str, str]
    animated: tuple[str, ...]
    suggestions: tuple[str, ...]
    label_problems: tuple[LabelProblem, ...] | None = None
    held_out: int | None = None

    @property
    def leaks(self) -> tuple[Duplicates, ...]:
        """Duplicates in more than one split."""
        return tuple(group for group in self.duplicates if group.cross_splits)

    @property
    def near_leaks(self) -> tuple[Duplicates, ...]:
        """Near-duplicates in more than one split."""
        return tuple(group for group in self.near_duplicates if group.cross_splits)

    @property
    def conflicts(self) -> tuple[Duplicates, ...]:
        """Duplicates in more than one class."""
        return tuple(group for group in self.duplicates if group.conflict)

    @property
    def near_conflicts(self) -> tuple[Duplicates, ...]:
        """Near-duplicates in more than one class."""
        return tuple(group for group in self.near_duplicates if group.conflict)

    @property
    def _other_near_duplicates(self) -> tuple[Duplicates, ...]:
        across = (*self.near_leaks, *self.near_conflicts)
        return tuple(group for group in self.near_duplicates if group not in across)

    @property
    def _has_splits(self) -> bool:
        return self.counts.keys() != {"all"}

    def as_json(self) -> dict[str, Any]:
        """Convert to plain values, for ``--json``."""
        plain = asdict(self)
        for name in ("leaks", "conflicts", "near_leaks", "near_conflicts"):
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
            f"duplicates    {self._summary_of('duplicates', self.duplicates)}",
        ]
        if self.near_duplicates:
            near = self._summary_of("near-duplicates", self.near_duplicates)
            lines.append(f"              {near}")
        if self.groups is not None:
            lines.append(f"groups        {self.groups}, each kept in one split")
        for title, sign, found in (
            ("Duplicates across splits", "=", self.leaks),
            ("Duplicates across classes", "=", self.conflicts),
            ("Near-duplicates across splits", "~", self.near_leaks),
            ("Near-duplicates across classes", "~", self.near_conflicts),
            ("Other near-duplicates", "~", self._other_near_duplicates),
        ):
            if found:
                lines.append(f"{title}:")
            lines += ["  " + f" {sign} ".join(group.names) for group in found[:MOST_SHOWN]]
            if len(found) > MOST_SHOWN:
                lines.append(f"  and {len(found) - MOST_SHOWN} more (--json lists all)")
        if self.label_problems is not None:
            lines += self._label_table(self.label_problems)
        if self.broken:
            lines.append("Broken files:")
            lines += [f"  {name}: {reason}" for name, reason in self.broken.items()]
        return "\n".join(lines + [f"- {suggestion}" for suggestion in self.suggestions])

    def _label_table(self, problems: tuple[LabelProblem, ...]) -> list[str]:
        lines = [f"Labels to check: {len(problems)} of {self.held_out} images with predictions"]
        if not problems:
            return lines
        rows = [
            [one.image, one.label, one.suggested, f"{100 * one.probability:.0f} %"]
            for one in problems[:MOST_SHOWN]
        ]
        table = _aligned([["image", "label", "suggested", "probability"], *rows])
        lines += [f"  {line}" for line in table]
        if len(problems) > MOST_SHOWN:
            lines.append(f"  and {len(problems) - MOST_SHOWN} more")
        return lines

    def _count_table(self) -> list[str]:
        all_ = "no split" if self._has_splits else "images"
        table = [["class", *(all_ if part == "all" else part for part in self.counts)]]
        for label, name in enumerate(self.class_names):
            table.append([name, *(str(counts[label]) for counts in self.counts.values())])
        return _aligned(table, right=len(self.counts))

    def _size_summary(self) -> str:
        if self.num_sizes == 1:
            (width, height), _ = self.sizes[0]
            return f"all {width} x {height}"
        low, high = self.size_range
        shown = ", ".join(f"{width} x {height} ({n})" for (width, height), n in self.sizes)
        return f"{self.num_sizes} sizes, sides {low} to {high}; most common {shown}"

    def _summary_of(self, name: str, groups: tuple[Duplicates, ...]) -> str:
        if not groups:
            return "none"
        leaks = sum(group.cross_splits for group in groups)
        conflicts = sum(group.conflict for group in groups)
        across_splits = f"{leaks or 'none'} across splits, " * self._has_splits
        return (
            f"{len(groups)} group{'s' * (len(groups) > 1)} of {name}, {across_splits}"
            f"{conflicts or 'none'} across classes"
        )


def _aligned(table: list[list[str]], *, right: int = 1) -> list[str]:
    """Return lines of a table; the last columns are aligned to the right."""
    from rich.cells import cell_len  # some characters are two cells wide

    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    left = len(widths) - right
    return [
        "  ".join(
            cell + space if place < left else space + cell
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            for space in [" " * (width - cell_len(cell))]
        )
        for row in table
    ]


def inspect_data(data: LabelledImages, *, progress: Progress | None = None) -> Inspection:
    """Decode every image once; count classes and sizes, find broken files and duplicates.

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
    same, similar = _same_images(looks)
    duplicates = tuple(_duplicates(data, parts, positions) for positions in same)
    near_duplicates = tuple(_duplicates(data, parts, positions) for positions in similar)
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
        near_duplicates=near_duplicates,
        too_small=too_small,
        broken=broken,
        animated=animated,
        suggestions=tuple(
            _suggestions(
                data, duplicates, near_duplicates, too_small, broken, animated, imbalance_ratio
            )
        ),
    )


def grouped_csv(data: LabelledImages, inspection: Inspection) -> str:
    """Return a CSV of all images in which duplicates and near-duplicates have the same group.

    Groups of the data stay together. Splits are left out: they may separate the new groups.
    """
    if not isinstance(data.images, ImageFiles):
        raise InputError(f"groups are for image files, but {data.source} has none")
    parent: dict[object, object] = {}

    def root(member: object) -> object:
        while (above := parent.get(member, member)) != member:
            member = above
        return member

    names = [printable(name) for name in data.names]
    for group in (*inspection.duplicates, *inspection.near_duplicates):
        for name in group.names[1:]:
            parent[root(name)] = root(group.names[0])
    if data.groups is not None:
        for name, own in zip(names, data.groups.tolist(), strict=True):
            parent[root(name)] = root(("group", own))
    numbers: dict[object, int] = {}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", "label", "group"])
    for name, row, label in zip(names, data.rows, data.labels, strict=True):
        path = data.images.paths[row].absolute()
        number = numbers.setdefault(root(name), len(numbers))
        writer.writerow([path, data.class_names[label], number])
    return text.getvalue()


@dataclass(frozen=True)
class _Look:
    """Properties of one image."""

    size: tuple[int, int] | None = None
    pixels: bytes | None = None  # their digest
    appearance: Appearance | None = None
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
    return _Look(image.size, digest.digest(), appearance(image), animated)


def _same_images(looks: list[_Look]) -> tuple[list[list[int]], list[list[int]]]:
    """Return the positions of images with the same pixels, and of those that look the same."""
    by_pixels = defaultdict(list)
    for position, look in enumerate(looks):
        if look.pixels is not None:
            by_pixels[look.pixels].append(position)
    contents = [positions for positions in by_pixels.values() if looks[positions[0]].appearance]
    seen = [looks[positions[0]].appearance for positions in contents]
    similar = near_duplicate_groups([one for one in seen if one is not None])
    return (
        [positions for positions in by_pixels.values() if len(positions) > 1],
        [sorted(chain(*(contents[number] for number in group))) for group in similar],
    )


def _duplicates(data: LabelledImages, parts: np.ndarray, positions: list[int]) -> Duplicates:
    return Duplicates(
        names=tuple(printable(data.names[position]) for position in positions),
        classes=tuple(data.class_names[data.labels[position]] for position in positions),
        parts=tuple(str(parts[position]) for position in positions),
    )


def _suggestions(
    data: LabelledImages,
    duplicates: tuple[Duplicates, ...],
    near_duplicates: tuple[Duplicates, ...],
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
    near_conflicts = sum(group.conflict for group in near_duplicates)
    if near_conflicts:
        suggested.append(f"Near-duplicates in more than one class: {near_conflicts}; check them.")
    near_leaks = sum(group.cross_splits for group in near_duplicates)
    if near_leaks:
        suggested.append(
            f"Near-duplicates in more than one split: {near_leaks}; remove them from one split, or "
            "train on the CSV that --groups FILE.csv writes: it keeps them together."
        )
    elif near_duplicates and data.parts is None and data.groups is None:
        suggested.append(
            f"Groups of near-duplicates: {len(near_duplicates)}; a random split may separate them. "
            "--groups FILE.csv writes a CSV to train on, which keeps them together."
        )
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
