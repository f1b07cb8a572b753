"""Training, validation and test: official splits, fractions, counts a class, folds.

Every split is stratified by class. Where images have groups (a lesion, a patient, the photograph
that patches were cut from), a group is never torn apart.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from cosen.data.draws import draw_order
from cosen.data.imbalance import Imbalance, make_imbalanced
from cosen.data.labelled import LabelledImages
from cosen.errors import DataError, InputError

VALIDATION_SHARE = 0.05
"""The paper's share of the training data that is held out for validation."""


@dataclass(frozen=True)
class OfficialSplit:
    """As the source has it: its training and test parts, and its validation part if any.

    Attributes:
        test: Where the source has no test part, the share of its training part that is tested on
            instead; 0 refuses such a source.
    """

    test: float = 0.0


@dataclass(frozen=True)
class FractionSplit:
    """This share of each class for training, the rest for testing."""

    train: float


@dataclass(frozen=True)
class CountSplit:
    """So many images of each class for training, and at most so many others for testing."""

    train: int
    test: int | None = None


@dataclass(frozen=True)
class FoldSplit:
    """One of several equal folds for testing, the others for training.

    Attributes:
        folds: How many there are.
        fold: Which of them, from 0; None takes them in turn by the seed: seeds 0, 1 and 2 test on
            each of three folds of one division, seeds 3, 4 and 5 on those of the next.
    """

    folds: int
    fold: int | None = 0


Split = OfficialSplit | FractionSplit | CountSplit | FoldSplit


@dataclass(frozen=True)
class Splits:
    """A dataset taken apart. Training sees ``train`` and ``val``; only evaluation sees ``test``."""

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
    """Take a dataset apart, make its training set imbalanced if asked, and hold out validation.

    The test set stays whole. The validation set is taken from the training set after it was made
    imbalanced, as in the paper, unless the source has one of its own.

    Args:
        data: All images.
        how: The kind of split.
        seed: Decides which images go where; the same on every machine.
        imbalance: What to leave of the training set's classes.
        validation: The share of the training set to hold out.
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
                f"class {name!r} of {data.source} has no training image in this split; "
                "keep more of it, or leave the class out with --exclude"
            )
    return Splits(train, val, test)


def split_off_test(
    data: LabelledImages, how: Split, *, seed: int
) -> tuple[LabelledImages, LabelledImages]:
    """The training pool and the test set."""
    match how:
        case OfficialSplit(share):
            return _official(data, share, seed=seed)
        case FractionSplit(share):
            if not 0 < share < 1:
                raise InputError(f"the training share must lie between 0 and 1, but is {share}")
            wanted = data.class_counts - np.round(share * data.class_counts).astype(int)
            # a class of two or more has an image on each side
            wanted = np.clip(wanted, np.minimum(1, data.class_counts - 1), data.class_counts - 1)
            chosen = _choose(data, wanted, seed=seed, purpose="test")
            return data.take(~chosen), data.take(chosen)
        case CountSplit(train_count, test_count):
            return _counted(data, train_count, test_count, seed=seed)
        case FoldSplit(folds, fold):
            if folds < 2 or not 0 <= (fold or 0) < folds:
                raise InputError(
                    f"folds must be at least 2 and fold in 0..folds-1, but they are {folds}, {fold}"
                )
            if fold is None:
                seed, fold = divmod(seed, folds)  # the division is that of folds seeds together
            chosen = fold_of_each(data, folds=folds, seed=seed) == fold
            return data.take(~chosen), data.take(chosen)


def split_off_validation(
    train: LabelledImages, *, share: float = VALIDATION_SHARE, seed: int
) -> tuple[LabelledImages, LabelledImages]:
    """Hold out a share of each class, at least two images where a class has four or more.

    A class of three gives one, a smaller one none. With groups, a class that stands in one group
    only gives none either, and a share is met as closely as whole groups allow.
    """
    if not 0 <= share < 1:
        raise InputError(f"the validation share must lie in [0, 1), but is {share}")
    counts = train.class_counts
    wanted = np.round(share * counts).astype(int)
    if share > 0:
        wanted = np.where(counts >= 4, np.maximum(wanted, 2), (counts == 3).astype(int))
    chosen = _choose(train, wanted, seed=seed, purpose="validation")
    return train.take(~chosen), train.take(chosen)


def fold_of_each(data: LabelledImages, *, folds: int, seed: int) -> np.ndarray:
    """The fold of each image, shape ``(n,)``: equal shares of each class, groups kept whole."""
    fold = np.empty(len(data), dtype=np.int64)
    loads = np.zeros((folds, data.num_classes))  # share of each class already in each fold
    shares = 1 / np.maximum(data.class_counts, 1)
    for members in _units(data, seed=seed, purpose="folds"):
        classes = data.labels[members]
        # the fold that has least of these classes, and of equal ones the smallest
        fullness = loads[:, classes].sum(1)
        smallest = fullness.min()
        least = np.flatnonzero(fullness - smallest <= 1e-8 + 1e-5 * smallest)  # but for rounding
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
        raise DataError(
            f"{data.source} has no official {lacking} part: ask for a fraction or for folds"
        )
    return train, test


def _counted(
    data: LabelledImages, train_count: int, test_count: int | None, *, seed: int
) -> tuple[LabelledImages, LabelledImages]:
    if train_count < 1 or (test_count is not None and test_count < 1):
        raise InputError(f"counts must be at least 1, but are {train_count} and {test_count}")
    small = [
        f"{name} ({count})"
        for name, count in zip(data.class_names, data.class_counts, strict=True)
        if count <= train_count
    ]
    if small:
        raise DataError(
            f"{data.source}: {train_count} training images a class leave none for testing in "
            f"{', '.join(small)}; ask for fewer"
        )
    wanted = np.full(data.num_classes, train_count)
    chosen = _choose(data, wanted, seed=seed, purpose="train")
    train, rest = data.take(chosen), data.take(~chosen)
    if test_count is not None:
        tested = np.minimum(rest.class_counts, test_count)
        rest = rest.take(_choose(rest, tested, seed=seed, purpose="test"))
    return train, rest


def _choose(data: LabelledImages, wanted: np.ndarray, *, seed: int, purpose: str) -> np.ndarray:
    """A mask of so many images of each class, or as near to it as whole groups allow.

    Classes are served from the rarest on, so that a rare class gets its images before its groups
    are taken for another. A group is taken where that comes nearer to what is wanted, all its
    classes considered in proportion to their size, and never the last group of a class.
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

    # plain lists: a group has few classes, and most of the time would go into calling NumPy
    lacking: list[int] = missing.tolist()
    counts = [sorted(Counter(data.labels[members].tolist()).items()) for members in units]
    units_of_class: list[list[int]] = [[] for _ in range(data.num_classes)]
    for number, count in enumerate(counts):
        for label, _ in count:
            units_of_class[label].append(number)
    groups_left = [len(numbers) for numbers in units_of_class]
    weights: list[float] = (1 / np.maximum(data.class_counts, 1)).tolist()
    taken = [False] * len(units)
    for served in np.argsort(data.class_counts, kind="stable").tolist():
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
    """What is never torn apart, in random order: single images, or the images of a group."""
    if data.groups is None:
        return [np.array([i]) for i in draw_order(data.names, seed=seed, purpose=purpose)]
    groups, group_of_each = np.unique(data.groups, return_inverse=True)
    by_group = np.argsort(group_of_each, kind="stable")
    ends = np.bincount(group_of_each).cumsum()
    members = np.split(by_group, ends[:-1])
    order = draw_order([str(group) for group in groups], seed=seed, purpose=purpose)
    return [members[number] for number in order]
