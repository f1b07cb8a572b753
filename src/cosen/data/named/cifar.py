"""CIFAR-10 and CIFAR-100, read safely from their pickled batches.

A pickle can call any function. Only the few names that an array of bytes needs are allowed here;
any other name raises an error and is not imported.
"""

import logging
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cosen.data.labelled import LabelledImages
from cosen.data.named.dataset import NamedDataset, find_folder
from cosen.data.stores import ImageArray
from cosen.errors import DataError

logger = logging.getLogger("cosen")

OFFICIAL_TRAINING_IMAGES = 50_000


def _as_bytes(text: str, encoding: str) -> bytes:
    """Replaces ``_codecs.encode``: Python 3 pickles bytes as Latin-1 text for protocol 2."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"text in {encoding!r}")
    return text.encode("latin1")


def _byte_type(code: str | bytes, *_: object) -> np.dtype[np.uint8]:
    """Replaces ``numpy.dtype``, for uint8 only."""
    if code not in ("u1", b"u1"):
        raise pickle.UnpicklingError(f"an array of {code!r}")
    return np.dtype(np.uint8, copy=True)  # a copy: the pickle sets its state


def _empty_array(*_: object) -> np.ndarray:
    """Replaces NumPy's ``_reconstruct``; the pickle then fills the array."""
    return np.empty(0, dtype=np.uint8)


ALLOWED_GLOBALS: Mapping[tuple[str, str], object] = {
    ("numpy", "dtype"): _byte_type,
    ("numpy", "ndarray"): "an argument of _reconstruct, never called",
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,  # before NumPy 2
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("_codecs", "encode"): _as_bytes,
}
"""The names that an array of bytes needs, with safe replacements."""


class _BatchUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        try:
            return ALLOWED_GLOBALS[module, name]
        except KeyError:
            raise DataError(
                f"it names {module}.{name}, which no CIFAR batch needs, and was not loaded: "
                "fetch the dataset again from a source that you trust"
            ) from None


def read_batch(path: Path) -> dict[str, Any]:
    """Read a batch as a dictionary with text keys."""
    try:
        with path.open("rb") as file:
            batch = _BatchUnpickler(file, encoding="bytes").load()
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Exception as error:  # a broken pickle can raise any error
        raise DataError(f"{path} is not a CIFAR batch ({error}): fetch it again") from error
    if not isinstance(batch, dict):
        raise DataError(f"{path} is not a CIFAR batch: fetch it again")
    return {_text(key): value for key, value in batch.items()}


def _text(value: Any) -> str:
    return value.decode("latin1") if isinstance(value, bytes) else str(value)


def _cifar(
    name: str, folder: str, *, train: tuple[str, ...], test: str, meta: str, kind: str
) -> NamedDataset:
    """Return one of the two datasets, given its file names and the prefix of its keys."""
    where = (
        f"Run 'cosen fetch {name}', or get the Python version from "
        f"https://www.cs.toronto.edu/~kriz/cifar.html and unpack it: {folder}/ must be below "
        "the data root."
    )

    def load(root: Path, _variant: str | None = None) -> LabelledImages:
        places = (folder, f"{name}/{folder}")
        found = find_folder(name, root, places, (*train, test, meta))
        batches = [_images_and_labels(found / file, f"{kind}labels") for file in (*train, test)]
        labels = np.concatenate([numbers for _, numbers in batches])
        tested = len(batches[-1][1])
        trained = len(labels) - tested
        if trained < OFFICIAL_TRAINING_IMAGES:
            message = "%s: %s holds %d of the official %d training images"
            logger.warning(message, name, found, trained, OFFICIAL_TRAINING_IMAGES)
        class_names = read_batch(found / meta).get(f"{kind}label_names")
        if not isinstance(class_names, list):
            raise DataError(f"{found / meta} has no '{kind}label_names': fetch it again")
        return LabelledImages(
            images=ImageArray(np.concatenate([images for images, _ in batches])),
            rows=np.arange(len(labels)),
            labels=labels,
            class_names=tuple(map(_text, class_names)),
            source=name,
            parts=np.repeat(["train", "test"], [trained, tested]),
        )

    return NamedDataset(name, load, where)


def _images_and_labels(path: Path, key: str) -> tuple[np.ndarray, np.ndarray]:
    batch = read_batch(path)
    pixels, labels = batch.get("data"), batch.get(key)
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
            f"{path} has no 'data' of 32×32 images with as many {key!r}: fetch it again"
        )
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # (N, 32, 32, 3)
    return images, np.array(labels, dtype=np.int64)


CIFAR10 = _cifar(
    "cifar10",
    "cifar-10-batches-py",
    train=tuple(f"data_batch_{number}" for number in range(1, 6)),
    test="test_batch",
    meta="batches.meta",
    kind="",
)
CIFAR100 = _cifar(
    "cifar100",
    "cifar-100-python",
    train=("train",),
    test="test",
    meta="meta",
    kind="fine_",
)
