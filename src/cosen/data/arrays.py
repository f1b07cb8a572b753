"""Data that a program already holds: arrays, and datasets of PyTorch's."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cosen.data.labelled import LabelledImages
from cosen.data.stores import DatasetImages, ImageArray, as_bytes
from cosen.errors import DataError


def from_arrays(
    images: Any,
    labels: Any,
    *,
    class_names: Sequence[str] | None = None,
    groups: Any = None,
    source: str = "arrays",
) -> LabelledImages:
    """Images and labels in memory.

    Args:
        images: uint8, or floats in [0, 1]; ``(N, H, W)``, ``(N, H, W, C)`` or ``(N, C, H, W)``
            with one or three channels.
        labels: Class numbers, shape ``(N,)``.
        class_names: The names of the classes; the numbers if not given.
        groups: For each image what must not be torn apart, shape ``(N,)``.
        source: What to call the data in messages.
    """
    pixels = np.asarray(images)
    if pixels.ndim == 4 and pixels.shape[3] not in (1, 3) and pixels.shape[1] in (1, 3):
        pixels = pixels.transpose(0, 2, 3, 1)
    numbers = _as_labels(labels, source)
    if len(numbers) != len(pixels):
        raise DataError(f"{source}: {len(pixels)} images, but {len(numbers)} labels")
    return LabelledImages(
        images=ImageArray(as_bytes(pixels)),
        rows=np.arange(len(numbers)),
        labels=numbers,
        class_names=_names(numbers, class_names),
        source=source,
        groups=None if groups is None else np.asarray(groups),
    )


def from_dataset(
    dataset: Any, *, class_names: Sequence[str] | None = None, source: str = "dataset"
) -> LabelledImages:
    """A map-style ``torch.utils.data.Dataset`` of (image, label) pairs.

    Args:
        dataset: The dataset; ``Subset`` and ``ConcatDataset`` are looked into.
        class_names: The names of the classes; its ``classes``, or else the numbers.
        source: What to call the data in messages.
    """
    labels = labels_of(dataset)
    names = class_names if class_names is not None else _classes_of(dataset)
    return LabelledImages(
        images=DatasetImages(dataset),
        rows=np.arange(len(labels)),
        labels=labels,
        class_names=_names(labels, names),
        source=source,
    )


def labels_of(dataset: Any) -> np.ndarray:
    """The label of each item of a dataset, without decoding an image where labels are at hand.

    They are at hand as ``targets``, ``labels`` or ``y``, as the second of (path, label) pairs in
    ``samples``, as the last tensor of a ``TensorDataset``, and in what a ``Subset`` or a
    ``ConcatDataset`` is made of. Otherwise every item is read.
    """
    if isinstance(dataset, LabelledImages):
        return dataset.labels
    if hasattr(dataset, "datasets"):  # ConcatDataset
        return np.concatenate([labels_of(part) for part in dataset.datasets])
    if hasattr(dataset, "dataset") and hasattr(dataset, "indices"):  # Subset
        return labels_of(dataset.dataset)[np.asarray(dataset.indices, dtype=np.int64)]
    for name in ("targets", "labels", "y"):
        if getattr(dataset, name, None) is not None:
            return _as_labels(getattr(dataset, name), f"the dataset's {name}")
    if hasattr(dataset, "samples"):
        return _as_labels([label for _, label in dataset.samples], "the dataset's samples")
    if hasattr(dataset, "tensors"):
        return _as_labels(dataset.tensors[-1], "the dataset's last tensor")
    return _as_labels([int(dataset[index][1]) for index in range(len(dataset))], "the dataset")


def class_counts(dataset: Any, *, num_classes: int | None = None) -> np.ndarray:
    """How many items of each class a dataset has, shape ``(C,)``; see :func:`labels_of`.

    Example:
        >>> import torch
        >>> from torch.utils.data import Subset, TensorDataset
        >>> whole = TensorDataset(torch.zeros(6, 2), torch.tensor([0, 0, 1, 2, 2, 2]))
        >>> class_counts(Subset(whole, [0, 1, 5]), num_classes=3)
        array([2, 0, 1])
    """
    return np.bincount(labels_of(dataset), minlength=num_classes or 0)


def _as_labels(labels: Any, source: str) -> np.ndarray:
    numbers = np.asarray(labels.detach().cpu() if hasattr(labels, "detach") else labels)
    if numbers.ndim != 1 or not (
        np.issubdtype(numbers.dtype, np.integer) or (numbers == numbers.astype(np.int64)).all()
    ):
        raise DataError(
            f"labels of {source} must be class numbers of the shape (N,), "
            f"but are {numbers.dtype} of {numbers.shape}"
        )
    if len(numbers) and numbers.min() < 0:
        raise DataError(f"labels of {source} must not be negative, but {numbers.min()} is there")
    return numbers.astype(np.int64)


def _classes_of(dataset: Any) -> Sequence[str] | None:
    if hasattr(dataset, "datasets") and len(dataset.datasets):
        return _classes_of(dataset.datasets[0])
    if hasattr(dataset, "dataset"):
        return _classes_of(dataset.dataset)
    classes = getattr(dataset, "classes", None)
    return [str(name) for name in classes] if classes is not None else None


def _names(labels: np.ndarray, class_names: Sequence[str] | None) -> tuple[str, ...]:
    if class_names is not None:
        return tuple(class_names)
    return tuple(str(label) for label in range(int(labels.max(initial=-1)) + 1))
