"""Images with their classes: the type of all datasets and splits."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from cosen.data.stores import ImageStore
from cosen.errors import DataError, choices_hint

if TYPE_CHECKING:
    from torch import Tensor

Part = Literal["train", "val", "test"]


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Images of a store with their classes.

    Attributes:
        images: The store. Splits of a dataset share it and its image cache.
        rows: Numbers of the images in the store, shape ``(n,)``.
        labels: Their classes, shape ``(n,)``, in 0..len(class_names)-1.
        class_names: The names of the classes.
        source: Name of the dataset, for messages.
        groups: The group of each image (a lesion, a patient), shape ``(n,)``. Splits keep groups
            together.
        parts: The official split of each image (``"train"``, ``"val"``, ``"test"``, or ``""`` for
            none), shape ``(n,)``; None if the source has no splits.
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
                f"{self.source}: labels are {self.labels.min()} to {self.labels.max()}, "
                f"but there are {self.num_classes} class names"
            )

    @classmethod
    def from_names(
        cls,
        images: ImageStore,
        classes: Sequence[str],
        *,
        source: str,
        groups: np.ndarray | None = None,
        parts: np.ndarray | None = None,
    ) -> "LabelledImages":
        """Use all images of a store, given the class name of each; classes are sorted by name."""
        class_names = tuple(sorted(set(classes)))
        number = {name: label for label, name in enumerate(class_names)}
        labels = np.array([number[name] for name in classes], dtype=np.int64)
        return cls(images, np.arange(len(labels)), labels, class_names, source, groups, parts)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @cached_property
    def class_counts(self) -> "Tensor":
        """Number of images per class, int64, shape ``(C,)``."""
        import torch  # slow to import, and reading data does not need it

        return torch.from_numpy(np.bincount(self.labels, minlength=self.num_classes))

    @cached_property
    def names(self) -> list[str]:
        """The name of each image in its store."""
        return [self.images.name(int(row)) for row in self.rows]

    def take(self, chosen: np.ndarray) -> "LabelledImages":
        """Select images by position or by mask, in this order."""
        return replace(
            self,
            rows=self.rows[chosen],
            labels=self.labels[chosen],
            groups=None if self.groups is None else self.groups[chosen],
            parts=None if self.parts is None else self.parts[chosen],
        )

    def part(self, name: Part) -> "LabelledImages":
        """Select an official split; it is empty if the source has no splits."""
        if self.parts is None:
            return self.take(np.zeros(len(self), dtype=bool))
        return self.take(self.parts == name)

    def without_classes(self, names: Collection[str]) -> "LabelledImages":
        """Remove the images of these classes and number the other classes again."""
        check_excluded(names, self.class_names, self.source)
        kept = [name not in names for name in self.class_names]
        new_label = np.cumsum(kept) - 1
        left = self.take(np.array(kept, dtype=bool)[self.labels])
        class_names = tuple(name for name in self.class_names if name not in names)
        return replace(left, labels=new_label[left.labels], class_names=class_names)


def check_excluded(names: Iterable[str], class_names: Collection[str], source: str) -> None:
    """Raise an error if a class to remove does not exist."""
    for name in names:
        if name not in class_names:
            raise DataError(unknown_class(name, tuple(sorted(class_names)), source))


def unknown_class(name: str, class_names: tuple[str, ...], source: str) -> str:
    """Error message for an unknown class."""
    return f"{source} has no class {name!r}{choices_hint(name, class_names)}"


def draw_order(names: Iterable[str], *, seed: int, purpose: str) -> np.ndarray:
    """Draw a random order that is the same on every machine and with every library version.

    Names are sorted by a hash of seed, purpose and name. Other names do not affect the hash.

    Args:
        names: Unique names.
        seed: The same seed gives the same order.
        purpose: Name of the purpose; orders for different purposes are independent.

    Returns:
        Positions of the names, shape ``(n,)``.

    Example:
        >>> draw_order(["a", "b", "c", "d"], seed=0, purpose="test").tolist()
        [3, 1, 2, 0]
    """
    texts = (f"{seed}\0{purpose}\0{name}" for name in names)
    keys = [
        # surrogateescape: file names may be any bytes
        hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()
        for text in texts
    ]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
