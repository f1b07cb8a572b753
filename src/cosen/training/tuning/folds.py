"""The training pool and its folds; there is no test set here."""

from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from cosen.data.labelled import LabelledImages
from cosen.data.splits import fold_of_each, split_off_validation
from cosen.errors import DataError

Part = TypeVar("Part")


@dataclass(frozen=True)
class Fold(Generic[Part]):
    """A part of the training pool held out, and the rest as a run would have it."""

    train: Part
    val: Part
    held_out: Part


def training_pool(train: LabelledImages, val: LabelledImages) -> LabelledImages:
    """All images that a run may train or validate on."""

    def joined(name: str) -> Any:
        first, second = getattr(train, name), getattr(val, name)
        return None if first is None else np.concatenate([first, second])

    names = ("rows", "labels", "groups", "parts")
    return replace(train, **{name: joined(name) for name in names})


def divide(
    pool: LabelledImages, *, folds: int, validation: float, seed: int
) -> list[Fold[LabelledImages]]:
    """Hold out each part of the pool once; classes in equal shares, groups whole."""
    _refuse_small_classes(pool, folds)
    number = fold_of_each(pool, folds=folds, seed=seed)
    divided = []
    for fold in range(folds):
        rest = pool.take(number != fold)
        train, val = split_off_validation(rest, share=validation, seed=seed)
        if not len(val):
            raise DataError(
                f"{pool.source}: nothing is left to validate on in a fold; ask for more folds, or "
                "set validation above 0"
            )
        for name in np.array(pool.class_names)[train.class_counts == 0]:
            raise DataError(
                f"class {str(name)!r} of {pool.source} has nothing to train on in a fold of "
                f"{folds}: ask for more, or leave it out with --exclude {name}"
            )
        divided.append(Fold(train, val, pool.take(number == fold)))
    return divided


def _refuse_small_classes(pool: LabelledImages, folds: int) -> None:
    unit = "images" if pool.groups is None else "groups of images"
    for label, name in enumerate(pool.class_names):
        mine = pool.labels == label
        count = int(mine.sum()) if pool.groups is None else len(np.unique(pool.groups[mine]))
        if count < folds:
            raise DataError(
                f"class {name!r} of {pool.source} has {count} {unit} to train on, too few for "
                f"{folds} folds: ask for fewer, or leave it out with --exclude {name}"
            )
