"""MNIST and Fashion-MNIST, read from their four IDX files."""

import gzip
import zlib
from functools import partial
from pathlib import Path

import numpy as np

from cosen.data.labelled import LabelledImages
from cosen.data.named.places import find_file, find_folder
from cosen.data.named.record import NamedDataset
from cosen.data.stores import ImageArray
from cosen.errors import DataError

PARTS = {"train": "train", "test": "t10k"}
"""How the names of the files begin in each part."""

SUFFIXES = (".gz", "")

DEBIAN_FOLDER = "/usr/share/datasets/fashion-mnist"
"""Where Debian's package dataset-fashion-mnist puts its files."""

FASHION_CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


def read_idx(path: Path) -> np.ndarray:
    """The unsigned bytes of an IDX file, gzipped or plain, in the shape that its header gives.

    An IDX file begins with two zero bytes, the type of its values (8 for unsigned bytes) and the
    number of dimensions; each dimension follows as a big-endian 32-bit number, then the values.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is cut off or not a gzip file: fetch it again") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise DataError(f"{path} is not an IDX file of bytes: fetch it again")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{path} is cut off: fetch it again")
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], dtype=">u4"))
    values = np.frombuffer(content, dtype=np.uint8, offset=start)
    if values.size != np.prod(shape, dtype=np.int64):
        raise DataError(f"{path} is cut off: fetch it again")
    return values.reshape(shape)


def _load(
    name: str, class_names: tuple[str, ...], where: str, root: Path, _variant: str | None = None
) -> LabelledImages:
    needed = [
        f"{part}-{kind}"
        for part in PARTS.values()
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ]
    folder = find_folder(name, root, _places(name), needed, where=where, suffixes=SUFFIXES)
    images, labels = [], []
    for part in PARTS.values():
        images.append(_read(folder, f"{part}-images-idx3-ubyte", dimensions=3))
        labels.append(_read(folder, f"{part}-labels-idx1-ubyte", dimensions=1))
        if len(images[-1]) != len(labels[-1]):
            raise DataError(
                f"{folder}: {len(images[-1])} {part} images, but {len(labels[-1])} labels: "
                "fetch the files again"
            )
    return LabelledImages(
        images=ImageArray(np.concatenate(images)),
        rows=np.arange(sum(map(len, labels))),
        labels=np.concatenate(labels).astype(np.int64),
        class_names=class_names,
        source=name,
        parts=np.repeat(list(PARTS), [len(part) for part in labels]),
    )


def _places(name: str) -> tuple[str, ...]:
    if name == "mnist":
        return ("mnist", "MNIST/raw")
    return ("fashion-mnist", "FashionMNIST/raw", DEBIAN_FOLDER)


def _read(folder: Path, name: str, *, dimensions: int) -> np.ndarray:
    path = find_file(folder, name, SUFFIXES)
    assert path is not None  # find_folder saw it
    values = read_idx(path)
    if values.ndim != dimensions:
        raise DataError(f"{path} must have {dimensions} dimensions, but has {values.ndim}")
    return values


MNIST_WHERE = (
    "Run 'cosen fetch mnist', or get the four -ubyte.gz files from "
    "https://ossci-datasets.s3.amazonaws.com/mnist/ and put them into mnist/ below the data root."
)
FASHION_WHERE = (
    "Run 'cosen fetch fashion-mnist', or get the four -ubyte.gz files from "
    "https://github.com/zalandoresearch/fashion-mnist and put them into fashion-mnist/ below the "
    "data root; Debian has them as dataset-fashion-mnist."
)

MNIST = NamedDataset(
    name="mnist",
    title="MNIST handwritten digits (LeCun, Cortes and Burges)",
    load=partial(_load, "mnist", tuple("0123456789"), MNIST_WHERE),
    where=MNIST_WHERE,
    licence="CC BY-SA 3.0",
)
FASHION_MNIST = NamedDataset(
    name="fashion-mnist",
    title="Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017)",
    load=partial(_load, "fashion-mnist", FASHION_CLASSES, FASHION_WHERE),
    where=FASHION_WHERE,
    licence="MIT",
)
