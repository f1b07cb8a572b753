"""The training pool and its folds; there is no test set here."""

import logging
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from cosen.data.labelled import LabelledImages
from cosen.data.splits import fold_of_each, split_off_validation
from cosen.errors import DataError

_log = logging.getLogger("cosen")

Part = TypeVar("Part")

NEVER = -1
"""In place of the fold of an image that none holds out."""


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
    """Hold out each part of the pool once; classes in equal shares, groups whole.

    A class with fewer images than folds is held out in some of them only. One that would be held
    out all at once, as a class of one image, is trained on in every fold, and held out in none.
    """
    number = fold_of_each(pool, folds=folds, seed=seed)
    number[_needed_in_training(pool, number)] = NEVER
    divided = []
    for fold in range(folds):
        rest, held_out = pool.take(number != fold), pool.take(number == fold)
        train, val = split_off_validation(rest, share=validation, seed=seed)
        if not len(held_out):
            raise DataError(
                f"{pool.source} has too few images for {folds} folds, of which one would hold out "
                "nothing: add some, or ask for fewer folds"
            )
        if not len(val):
            raise DataError(
                f"{pool.source}: nothing is left to validate on in a fold; ask for more folds, or "
                "set validation above 0"
            )
        for name in np.array(pool.class_names)[train.class_counts == 0]:
            raise DataError(
                f"class {str(name)!r} of {pool.source} has nothing to train on in a fold: add "
                f"images, lower validation, or leave it out with --exclude {name}"
            )
        divided.append(Fold(train, val, held_out))
    return divided


def _needed_in_training(pool: LabelledImages, number: np.ndarray) -> np.ndarray:
    """A mask of the images of classes that stand in one fold only, and of their groups."""
    names = []
    needed = np.zeros(len(pool), dtype=bool)
    for label, name in enumerate(pool.class_names):
        mine = pool.labels == label
        if len(np.unique(number[mine])) == 1:
            names.append(name)
            needed |= mine if pool.groups is None else np.isin(pool.groups, pool.groups[mine])
    if names:
        _log.warning(
            "too few images to hold any out: %s; no error counts what becomes of these classes",
            ", ".join(names),
        )
    return needed
