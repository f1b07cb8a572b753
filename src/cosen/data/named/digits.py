"""The digits of scikit-learn, MNIST and Fashion-MNIST."""

import gzip
import importlib.util
import zlib
from pathlib import Path

import numpy as np

from cosen.data.labelled import LabelledImages
from cosen.data.named.dataset import NamedDataset, find_file, find_folder
from cosen.data.stores import ImageArray
from cosen.errors import DataError

PARTS = {"train": "train", "test": "t10k"}
"""First part of the file names of each split."""

SUFFIXES = (".gz", "")

PLACES = {
    "mnist": ("mnist", "MNIST/raw"),
    # the last is the folder of the Debian package dataset-fashion-mnist
    "fashion-mnist": ("fashion-mnist", "FashionMNIST/raw", "/usr/share/datasets/fashion-mnist"),
}

# fmt: off
FASHION_CLASSES = (
    "T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
    "Ankle boot",
)
# fmt: on


def _load_digits(_root: Path, _variant: str | None = None) -> LabelledImages:
    """1,797 grey images of 8×8 pixels, about 180 per digit, without an official split."""
    # Read the file of scikit-learn: importing scikit-learn takes a second.
    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
    table = np.loadtxt(path, delimiter=",", dtype=np.int64)  # 64 pixels of 0..16, and the class
    images = (table[:, :-1] * (255 / 16)).round().astype(np.uint8).reshape(-1, 8, 8)
    return LabelledImages(
        images=ImageArray(images),
        rows=np.arange(len(images)),
        labels=table[:, -1],
        class_names=tuple("0123456789"),
        source="digits",
    )


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes, gzipped or plain.

    An IDX file begins with two zero bytes, the type of its values (8 for unsigned bytes) and the
    number of dimensions; each dimension follows as a big-endian 32-bit number, then the values.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is truncated or not a gzip file: fetch it again") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise DataError(f"{path} is not an IDX file of bytes: fetch it again")
    start = 4 + 4 * content[3]
    if len(content) < start:
        raise DataError(f"{path} is truncated: fetch it again")
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], dtype=">u4"))
    values = np.frombuffer(content, dtype=np.uint8, offset=start)
    if values.size != np.prod(shape, dtype=np.int64):
        raise DataError(f"{path} is truncated: fetch it again")
    return values.reshape(shape)


def _idx_dataset(name: str, class_names: tuple[str, ...], where: str) -> NamedDataset:
    """Return a dataset of four IDX files."""

    def load(root: Path, _variant: str | None = None) -> LabelledImages:
        kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
        needed = [f"{part}-{kind}" for part in PARTS.values() for kind in kinds]
        folder = find_folder(name, root, PLACES[name], needed, suffixes=SUFFIXES)
        images, labels = [], []
        for part in PARTS.values():
            images.append(_read(folder, f"{part}-{kinds[0]}", dimensions=3))
            labels.append(_read(folder, f"{part}-{kinds[1]}", dimensions=1))
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

    return NamedDataset(name, load, where)


def _read(folder: Path, name: str, *, dimensions: int) -> np.ndarray:
    path = find_file(folder, name, SUFFIXES)
    assert path is not None  # find_folder found it
    values = read_idx(path)
    if values.ndim != dimensions:
        raise DataError(f"{path} must have {dimensions} dimensions, but has {values.ndim}")
    return values


DIGITS = NamedDataset("digits", _load_digits, "It comes with scikit-learn, so no file is needed.")
MNIST = _idx_dataset(
    "mnist",
    tuple("0123456789"),
    "Run 'cosen fetch mnist', or get the four -ubyte.gz files from "
    "https://ossci-datasets.s3.amazonaws.com/mnist/ and put them in mnist/ below the data root.",
)
FASHION_MNIST = _idx_dataset(
    "fashion-mnist",
    FASHION_CLASSES,
    "Run 'cosen fetch fashion-mnist', or get the four -ubyte.gz files from "
    "https://github.com/zalandoresearch/fashion-mnist and put them in fashion-mnist/ below the "
    "data root; Debian has them as dataset-fashion-mnist.",
)
