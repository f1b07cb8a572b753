"""Split a dataset into training, validation and test sets.

All splits are stratified by class. Images of one group (a lesion, a patient, the photograph of
several patches) stay in one split.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from cosen.data.imbalance import Imbalance, make_imbalanced
from cosen.data.labelled import LabelledImages, draw_order
from cosen.errors import DataError, InputError

VALIDATION_SHARE = 0.05
"""Share of the training set that is held out for validation, as in the paper."""


@dataclass(frozen=True)
class OfficialSplit:
    """The official training, test and (if any) validation split of the source.

    Attributes:
        test: Share of the training split to test on if there is no official test split; 0 raises an
            error for such a source.
    """

    test: float = 0.0


@dataclass(frozen=True)
class FractionSplit:
    """This share of each class is for training, the rest for testing."""

    train: float


@dataclass(frozen=True)
class CountSplit:
    """This number of images per class for training, and at most this number for testing."""

    train: int
    test: int | None = None


@dataclass(frozen=True)
class FoldSplit:
    """One of several equal folds for testing, the others for training.

    Attributes:
        folds: Number of folds.
        fold: The test fold, from 0. None chooses it by the seed: with three folds, seeds 0, 1 and 2
            test on each fold of one division, seeds 3, 4 and 5 on each fold of the next.
    """

    folds: int
    fold: int | None = 0


Split = OfficialSplit | FractionSplit | CountSplit | FoldSplit


@dataclass(frozen=True)
class Splits:
    """A split dataset. Training uses ``train`` and ``val``; only evaluation uses ``test``."""

    train: LabelledImages
    val: LabelledImages
    test: LabelledImages


def split_images(
    data: LabelledImages,
    how: Split,
    *,
    seed: int,
    imbalance: Imbalance | None = None,
    validation: float = VALIDATION_SHARE,
) -> Splits:
    """Split a dataset, optionally make its training set imbalanced, and hold out validation data.

    The test set is never made imbalanced. The validation set is taken from the imbalanced training
    set, as in the paper, unless the source has an official one.

    Args:
        data: All images.
        how: The kind of split.
        seed: Seed of the random choices; they are the same on every machine.
        imbalance: How to reduce the classes of the training set.
        validation: Share of the training set to hold out.
    """
    train, test = split_off_test(data, how, seed=seed)
    val = data.part("val") if isinstance(how, OfficialSplit) else data.take(np.zeros(0, np.int64))
    if imbalance is not None:
        train = make_imbalanced(train, imbalance, seed=seed)
    if not len(val):
        train, val = split_off_validation(train, share=validation, seed=seed)
    for label, name in enumerate(train.class_names):
        if not train.class_counts[label]:
            raise DataError(
                f"class {name!r} of {data.source} has no training image in this split: "
                "keep more of its images, or use --exclude"
            )
    return Splits(train, val, test)


def split_off_test(
    data: LabelledImages, how: Split, *, seed: int
) -> tuple[LabelledImages, LabelledImages]:
    """Split into the training pool (training and validation) and the test set."""
    match how:
        case OfficialSplit(share):
            return _official(data, share, seed=seed)
        case FractionSplit(share):
            if not 0 < share < 1:
                raise InputError(f"the training share must be between 0 and 1, but is {share}")
            counts = data.class_counts.numpy()
            wanted = counts - np.round(share * counts).astype(int)
            # classes of two or more images have an image in both splits
            wanted = np.clip(wanted, np.minimum(1, counts - 1), counts - 1)
            chosen = _choose(data, wanted, seed=seed, purpose="test")
            return data.take(~chosen), data.take(chosen)
        case CountSplit(train_count, test_count):
            return _counted(data, train_count, test_count, seed=seed)
        case FoldSplit(folds, fold):
            if folds < 2:
                raise InputError(f"there must be at least 2 folds, but the split has {folds}")
            if not 0 <= (fold or 0) < folds:
                raise InputError(
                    f"fold {(fold or 0) + 1} of {folds} does not exist: use 1 to {folds}"
                )
            if fold is None:
                seed, fold = divmod(seed, folds)  # seeds 0..folds-1 share one division
            chosen = fold_of_each(data, folds=folds, seed=seed) == fold
            return data.take(~chosen), data.take(chosen)


def split_off_validation(
    train: LabelledImages, *, share: float = VALIDATION_SHARE, seed: int
) -> tuple[LabelledImages, LabelledImages]:
    """Hold out :func:`validation_counts` images of each class.

    With groups, the counts are only approximate, and a class with a single group gives none.
    """
    if not 0 <= share < 1:
        raise InputError(f"the validation share must be in [0, 1), but is {share}")
    wanted = validation_counts(train.class_counts.numpy(), share)
    chosen = _choose(train, wanted, seed=seed, purpose="validation")
    return train.take(~chosen), train.take(chosen)


def validation_counts(class_counts: np.ndarray, share: float) -> np.ndarray:
    """Return how many samples of each class to hold out for validation, shape ``(C,)``.

    It is a share of the class, but at least two samples of a class with four or more. A class with
    three gives one, a smaller class none.

    Example:
        >>> validation_counts(np.array([100, 4, 3, 2]), 0.1)
        array([10,  2,  1,  0])
    """
    if share == 0:
        return np.zeros_like(class_counts)
    held_out = np.maximum(np.round(share * class_counts).astype(int), 2)
    return np.select([class_counts >= 4, class_counts == 3], [held_out, 1], 0)


def fold_of_each(data: LabelledImages, *, folds: int, seed: int) -> np.ndarray:
    """The fold of each image, shape ``(n,)``: equal shares of each class, groups kept together."""
    fold = np.empty(len(data), dtype=np.int64)
    loads = np.zeros((folds, data.num_classes))  # share of each class in each fold so far
    shares = 1 / np.maximum(data.class_counts.numpy(), 1)
    for members in _units(data, seed=seed, purpose="folds"):
        classes = data.labels[members]
        # the fold with the fewest images of these classes; the smallest such fold
        fullness = loads[:, classes].sum(1)
        smallest = fullness.min()
        least = np.flatnonzero(fullness - smallest <= 1e-8 + 1e-5 * smallest)  # up to rounding
        target = least[loads[least].sum(1).argmin()]
        fold[members] = target
        np.add.at(loads[target], classes, shares[classes])
    return fold


def _official(
    data: LabelledImages, share: float, *, seed: int
) -> tuple[LabelledImages, LabelledImages]:
    train, test = data.part("train"), data.part("test")
    if len(train) and not len(test) and share > 0:
        return split_off_test(train, FractionSplit(1 - share), seed=seed)
    if not len(train) or not len(test):
        lacking = "training" if not len(train) else "test"
        raise DataError(f"{data.source} has no official {lacking} split: use a fraction or folds")
    return train, test


def _counted(
    data: LabelledImages, train_count: int, test_count: int | None, *, seed: int
) -> tuple[LabelledImages, LabelledImages]:
    if train_count < 1 or (test_count is not None and test_count < 1):
        raise InputError(f"counts must be at least 1, but are {train_count} and {test_count}")
    small = [
        f"{name} ({count})"
        for name, count in zip(data.class_names, data.class_counts.tolist(), strict=True)
        if count <= train_count
    ]
    if small:
        raise DataError(
            f"{data.source}: with {train_count} training images per class, none are left for "
            f"testing in {', '.join(small)}; use fewer"
        )
    wanted = np.full(data.num_classes, train_count)
    chosen = _choose(data, wanted, seed=seed, purpose="train")
    train, rest = data.take(chosen), data.take(~chosen)
    if test_count is not None:
        tested = np.minimum(rest.class_counts.numpy(), test_count)
        rest = rest.take(_choose(rest, tested, seed=seed, purpose="test"))
    return train, rest


def _choose(data: LabelledImages, wanted: np.ndarray, *, seed: int, purpose: str) -> np.ndarray:
    """Choose this many images of each class, as closely as whole groups allow; return a mask.

    Rare classes come first: otherwise other classes would use up their groups. A group is
    chosen if this reduces the difference to the wanted counts, summed over its classes and relative
    to their sizes. The last group of a class is never chosen.
    """
    chosen = np.zeros(len(data), dtype=bool)
    missing = wanted.astype(np.int64).copy()
    units = _units(data, seed=seed, purpose=purpose)
    if data.groups is None:
        for members in units:
            label = data.labels[members[0]]
            if missing[label] > 0:
                chosen[members] = True
                missing[label] -= 1
        return chosen

    # plain lists: groups have few classes, and NumPy calls would take most of the time
    lacking: list[int] = missing.tolist()
    counts = [sorted(Counter(data.labels[members].tolist()).items()) for members in units]
    units_of_class: list[list[int]] = [[] for _ in range(data.num_classes)]
    for number, count in enumerate(counts):
        for label, _ in count:
            units_of_class[label].append(number)
    groups_left = [len(numbers) for numbers in units_of_class]
    weights: list[float] = (1 / np.maximum(data.class_counts.numpy(), 1)).tolist()
    taken = [False] * len(units)
    for served in np.argsort(data.class_counts.numpy(), kind="stable").tolist():
        for number in units_of_class[served]:
            if lacking[served] <= 0:
                break
            if taken[number] or any(groups_left[label] <= 1 for label, _ in counts[number]):
                continue
            gain = 0.0
            for label, images in counts[number]:
                gain += (abs(lacking[label]) - abs(lacking[label] - images)) * weights[label]
            if gain <= 0:
                continue
            taken[number] = True
            chosen[units[number]] = True
            for label, images in counts[number]:
                lacking[label] -= images
                groups_left[label] -= 1
    return chosen


def _units(data: LabelledImages, *, seed: int, purpose: str) -> list[np.ndarray]:
    """Units that stay together, in random order: single images, or the images of each group."""
    if data.groups is None:
        return [np.array([i]) for i in draw_order(data.names, seed=seed, purpose=purpose)]
    groups, group_of_each = np.unique(data.groups, return_inverse=True)
    by_group = np.argsort(group_of_each, kind="stable")
    ends = np.bincount(group_of_each).cumsum()
    members = np.split(by_group, ends[:-1])
    order = draw_order([str(group) for group in groups], seed=seed, purpose=purpose)
    return [members[number] for number in order]
