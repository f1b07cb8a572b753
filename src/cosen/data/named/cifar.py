"""CIFAR-10 and CIFAR-100, read from their Python batches without trusting them.

The batches are pickles, and a pickle may name any function to be called. The few names that an
array of bytes needs are allowed here; any other is refused before it is looked up.
"""

import logging
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cosen.data.labelled import LabelledImages
from cosen.data.named.places import find_folder
from cosen.data.named.record import NamedDataset
from cosen.data.stores import ImageArray
from cosen.errors import DataError

logger = logging.getLogger("cosen")

OFFICIAL_TRAINING_IMAGES = 50_000


def _as_bytes(text: str, encoding: str) -> bytes:
    """Stands for ``_codecs.encode``, which Python 3 writes for bytes, as Latin-1 text."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"text in {encoding!r}")
    return text.encode("latin1")


def _byte_type(code: str | bytes, *_: object) -> np.dtype[np.uint8]:
    """Stands for ``numpy.dtype``, and knows one type only."""
    if code not in ("u1", b"u1"):
        raise pickle.UnpicklingError(f"an array of {code!r}")
    return np.dtype(np.uint8, copy=True)  # a copy, since the pickle sets the state of what it gets


def _empty_array(*_: object) -> np.ndarray:
    """Stands for NumPy's ``_reconstruct``, which makes an array that the pickle then fills."""
    return np.empty(0, dtype=np.uint8)


ALLOWED_GLOBALS: Mapping[tuple[str, str], object] = {
    ("numpy", "dtype"): _byte_type,
    ("numpy", "ndarray"): "an argument of _reconstruct, never called",
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,  # before NumPy 2
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("_codecs", "encode"): _as_bytes,
}
"""All that an array of bytes needs, each in a version that can do nothing else."""


class _BatchUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        try:
            return ALLOWED_GLOBALS[module, name]
        except KeyError:
            raise DataError(
                f"it names {module}.{name}, which no CIFAR batch needs, and was not read: "
                "fetch the dataset again, from a source that you trust"
            ) from None


def read_batch(path: Path) -> dict[str, Any]:
    """The entries of a batch, by their names as text."""
    try:
        with path.open("rb") as file:
            batch = _BatchUnpickler(file, encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # a broken pickle may fail in any way
        raise DataError(f"{path} is not a CIFAR batch ({error}): fetch it again") from error
    if not isinstance(batch, dict):
        raise DataError(f"{path} is not a CIFAR batch: fetch it again")
    return {_text(key): value for key, value in batch.items()}


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


@dataclass(frozen=True)
class _Layout:
    """What the files of one of the two datasets are called, and what is in them."""

    name: str
    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    labels: str
    label_names: str


LAYOUT_10 = _Layout(
    name="cifar10",
    folder="cifar-10-batches-py",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    labels="labels",
    label_names="label_names",
)
LAYOUT_100 = _Layout(
    name="cifar100",
    folder="cifar-100-python",
    train=("train",),
    test="test",
    meta="meta",
    labels="fine_labels",
    label_names="fine_label_names",
)


def _load(layout: _Layout, where: str, root: Path, _variant: str | None = None) -> LabelledImages:
    folder = find_folder(
        layout.name,
        root,
        (layout.folder, f"{layout.name}/{layout.folder}"),
        (*layout.train, layout.test, layout.meta),
        where=where,
    )
    batches = [_images_and_labels(folder / file, layout) for file in (*layout.train, layout.test)]
    labels = np.concatenate([numbers for _, numbers in batches])
    tested = len(batches[-1][1])
    trained = len(labels) - tested
    if trained < OFFICIAL_TRAINING_IMAGES:
        logger.warning(
            "%s: %s holds %d of the official %d training images",
            layout.name,
            folder,
            trained,
            OFFICIAL_TRAINING_IMAGES,
        )
    return LabelledImages(
        images=ImageArray(np.concatenate([images for images, _ in batches])),
        rows=np.arange(len(labels)),
        labels=labels,
        class_names=_class_names(folder / layout.meta, layout),
        source=layout.name,
        parts=np.repeat(["train", "test"], [trained, tested]),
    )


def _images_and_labels(path: Path, layout: _Layout) -> tuple[np.ndarray, np.ndarray]:
    batch = read_batch(path)
    pixels, labels = batch.get("data"), batch.get(layout.labels)
    if not (
        isinstance(pixels, np.ndarray)
        and pixels.dtype == np.uint8
        and pixels.ndim == 2
        and pixels.shape[1] == 3 * 32 * 32
        and isinstance(labels, list)
        and len(labels) == len(pixels)
        and all(type(label) is int for label in labels)
    ):
        raise DataError(
            f"{path} has no 'data' of 32×32 images with as many {layout.labels!r}: fetch it again"
        )
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # (N, 32, 32, 3)
    return images, np.array(labels, dtype=np.int64)


def _class_names(path: Path, layout: _Layout) -> tuple[str, ...]:
    names = read_batch(path).get(layout.label_names)
    if not isinstance(names, list):
        raise DataError(f"{path} has no {layout.label_names!r}: fetch it again")
    return tuple(_text(name) for name in names)


def _where(layout: _Layout, archive: str) -> str:
    return (
        f"Run 'cosen fetch {layout.name}', or get {archive} from "
        f"https://www.cs.toronto.edu/~kriz/cifar.html and unpack it, so that {layout.folder}/ "
        "lies below the data root."
    )


CIFAR10_WHERE = _where(LAYOUT_10, "cifar-10-python.tar.gz")
CIFAR100_WHERE = _where(LAYOUT_100, "cifar-100-python.tar.gz")

CIFAR10 = NamedDataset(
    name="cifar10",
    title="CIFAR-10 (Krizhevsky, 2009)",
    load=partial(_load, LAYOUT_10, CIFAR10_WHERE),
    where=CIFAR10_WHERE,
    licence="none stated; cite Krizhevsky 2009",
)
CIFAR100 = NamedDataset(
    name="cifar100",
    title="CIFAR-100, the 100 fine classes (Krizhevsky, 2009)",
    load=partial(_load, LAYOUT_100, CIFAR100_WHERE),
    where=CIFAR100_WHERE,
    licence="none stated; cite Krizhevsky 2009",
)
