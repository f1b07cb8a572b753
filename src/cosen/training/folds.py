"""Cross-validation on the images that a run may train or validate on, never on test images."""

import logging
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np

from cosen.data.labelled import LabelledImages
from cosen.data.splits import fold_of_each, split_off_validation
from cosen.errors import DataError

_log = logging.getLogger("cosen")

Part = TypeVar("Part")


@dataclass(frozen=True, eq=False)
class Fold(Generic[Part]):
    """Held-out samples, and the rest, split as in a run."""

    train: Part
    val: Part
    held_out: Part


def training_pool(train: LabelledImages, val: LabelledImages) -> LabelledImages:
    """Join the images that a run may train or validate on."""

    def joined(name: str) -> Any:
        first, second = getattr(train, name), getattr(val, name)
        return None if first is None else np.concatenate([first, second])

    names = ("rows", "labels", "groups", "parts")
    return replace(train, **{name: joined(name) for name in names})


def divide(
    pool: LabelledImages, *, folds: int, validation: float, seed: int
) -> list[Fold[LabelledImages]]:
    """Hold out each part of the pool once, stratified by class; groups stay together.

    A class with fewer images than folds is held out in some folds only. A class that would be held
    out completely, such as a class of one image, is never held out.
    """
    number = fold_of_each(pool, folds=folds, seed=seed)
    needed = np.zeros(len(pool), dtype=bool)  # classes in one fold only, with their groups
    names = []
    for label, name in enumerate(pool.class_names):
        mine = pool.labels == label
        if len(np.unique(number[mine])) == 1:
            names.append(name)
            needed |= mine if pool.groups is None else np.isin(pool.groups, pool.groups[mine])
    if names:
        _log.warning(
            "too few images to hold any out: %s; the errors do not include these classes",
            ", ".join(names),
        )
    number[needed] = -1
    divided = []
    for fold in range(folds):
        rest, held_out = pool.take(number != fold), pool.take(number == fold)
        train, val = split_off_validation(rest, share=validation, seed=seed)
        if not len(held_out):
            raise DataError(
                f"{pool.source} has too few images for {folds} folds: one would be empty; "
                "add images, or use fewer folds"
            )
        if not len(val):
            raise DataError(
                f"{pool.source}: a fold has no validation images; use more folds, or set "
                "validation above 0"
            )
        for name in np.array(pool.class_names)[train.class_counts.numpy() == 0]:
            raise DataError(
                f"class {str(name)!r} of {pool.source} has no training images in a fold: add "
                f"images, lower validation, or remove the class with --exclude {name}"
            )
        divided.append(Fold(train, val, held_out))
    return divided
