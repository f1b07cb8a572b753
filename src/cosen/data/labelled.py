"""Images with their classes: what every source becomes and every split is a part of."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from cosen.data.stores import ImageStore
from cosen.errors import DataError, choices_hint

Part = Literal["train", "val", "test"]


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Some images of a store, each with a class, and what else is known of them.

    Attributes:
        images: The store. Parts of one dataset share it, and so what is cached of it.
        rows: Which images of the store, shape ``(n,)``.
        labels: Their classes, shape ``(n,)``, in 0..len(class_names)-1.
        class_names: The names of the classes.
        source: What the user asked for, for messages.
        groups: For each image what must not be torn apart (a lesion, a patient), shape ``(n,)``.
        parts: For each image the split it was given in (``"train"``, ``"val"``, ``"test"``, or
            ``""`` for none), shape ``(n,)``, where the source has official splits.
    """

    images: ImageStore
    rows: np.ndarray
    labels: np.ndarray
    class_names: tuple[str, ...]
    source: str
    groups: np.ndarray | None = None
    parts: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name in ("labels", "groups", "parts"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.rows):
                raise DataError(f"{self.source}: {len(self.rows)} images, but {len(values)} {name}")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < self.num_classes:
            raise DataError(
                f"{self.source}: labels run from {self.labels.min()} to {self.labels.max()}, "
                f"but there are {self.num_classes} class names"
            )

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @cached_property
    def class_counts(self) -> np.ndarray:
        """The number of images of each class, shape ``(C,)``."""
        return np.bincount(self.labels, minlength=self.num_classes)

    @cached_property
    def names(self) -> list[str]:
        """The name of each image in its store."""
        return [self.images.name(int(row)) for row in self.rows]

    def take(self, chosen: np.ndarray) -> "LabelledImages":
        """The images at these positions (or where a mask is true), in that order."""
        return replace(
            self,
            rows=self.rows[chosen],
            labels=self.labels[chosen],
            groups=None if self.groups is None else self.groups[chosen],
            parts=None if self.parts is None else self.parts[chosen],
        )

    def part(self, name: Part) -> "LabelledImages":
        """The images that the source itself put into a split; none where it has no splits."""
        if self.parts is None:
            return self.take(np.zeros(len(self), dtype=bool))
        return self.take(self.parts == name)

    def only_classes(self, names: list[str]) -> "LabelledImages":
        """The images of these classes, numbered in this order."""
        unknown = [name for name in names if name not in self.class_names]
        if unknown:
            raise DataError(unknown_class(unknown[0], self.class_names, self.source))
        new_label = np.full(self.num_classes, -1)
        new_label[[self.class_names.index(name) for name in names]] = np.arange(len(names))
        kept = self.take(new_label[self.labels] >= 0)
        return replace(kept, labels=new_label[kept.labels], class_names=tuple(names))

    def without_classes(self, names: list[str]) -> "LabelledImages":
        """The images of all other classes."""
        check_excluded(names, self.class_names, self.source)
        return self.only_classes([name for name in self.class_names if name not in names])


def check_excluded(names: Iterable[str], class_names: Collection[str], source: str) -> None:
    """Refuse to leave out a class that is not there: most likely it is misspelt."""
    for name in names:
        if name not in class_names:
            raise DataError(unknown_class(name, tuple(sorted(class_names)), source))


def unknown_class(name: str, class_names: tuple[str, ...], source: str) -> str:
    """The sentence for a class that is not there, with the nearest that is."""
    return f"{source} has no class {name!r}{choices_hint(name, class_names)}"
