"""Small copies of all named datasets in their documented layouts, with the expected contents."""

import gzip
import pickle
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

RED = (200, 30, 40)


def picture(path: Path, size: tuple[int, int] = (12, 10), colour: tuple[int, ...] = RED) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def idx_bytes(values: np.ndarray) -> bytes:
    header = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    return header + values.astype(np.uint8).tobytes()


def idx_files() -> dict[str, bytes]:
    """Six training and four test images of 28×28; each pixel has the number of the class."""
    files = {}
    for part, labels in (("train", [0, 1, 2, 7, 8, 9]), ("t10k", [9, 0, 0, 5])):
        images = np.repeat(np.array(labels) * 20, 28 * 28).reshape(-1, 28, 28)
        files[f"{part}-images-idx3-ubyte"] = idx_bytes(images)
        files[f"{part}-labels-idx1-ubyte"] = idx_bytes(np.array(labels))
    return files


def idx_gz(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, content in idx_files().items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))


def idx_plain(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name, content in idx_files().items():
        (folder / name).write_bytes(content)


def cifar_pixels(count: int) -> np.ndarray:
    """Rows of red, green and blue planes, of the values 10, 20 and 30."""
    return np.repeat(np.array([[10, 20, 30]], dtype=np.uint8), 1024, axis=1).repeat(count, axis=0)


def cifar10(root: Path) -> None:
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    names = [b"airplane", b"automobile", b"bird", b"cat", b"deer"]
    names += [b"dog", b"frog", b"horse", b"ship", b"truck"]
    (folder / "batches.meta").write_bytes(pickle.dumps({b"label_names": names}, protocol=2))
    for number in range(1, 6):
        batch = {b"data": cifar_pixels(2), b"labels": [number, 9], b"batch_label": b"a batch"}
        (folder / f"data_batch_{number}").write_bytes(pickle.dumps(batch, protocol=2))
    batch = {b"data": cifar_pixels(3), b"labels": [0, 1, 2]}
    (folder / "test_batch").write_bytes(pickle.dumps(batch, protocol=2))


def cifar100(root: Path) -> None:
    folder = root / "cifar-100-python"
    folder.mkdir(parents=True)
    names = [b"class %02d" % number for number in range(100)]
    (folder / "meta").write_bytes(pickle.dumps({b"fine_label_names": names}, protocol=2))
    for part, labels in (("train", [99, 0, 0, 42]), ("test", [7, 99])):
        batch = {
            b"data": cifar_pixels(len(labels)),
            b"fine_labels": labels,
            b"coarse_labels": [1] * len(labels),
            b"filenames": [b"x.png"] * len(labels),
        }
        (folder / part).write_bytes(pickle.dumps(batch, protocol=2))


def caltech101(root: Path) -> None:
    for name, count in (("accordion", 2), ("BACKGROUND_Google", 3), ("wild_cat", 1)):
        for number in range(1, count + 1):
            picture(root / "101_ObjectCategories" / name / f"image_{number:04d}.jpg")
    (root / "101_ObjectCategories/BACKGROUND_Google/tmp").write_bytes(b"stray")


def mit67(root: Path) -> None:
    images = ["airport_inside/a 1.jpg", "airport_inside/b.jpg", "bakery/c.jpg", "bakery/é.jpg"]
    for image in images:
        picture(root / "mit67/Images" / image)
    (root / "mit67/TrainImages.txt").write_text("airport_inside/a 1.jpg\r\nbakery/c.jpg\r\n")
    (root / "mit67/TestImages.txt").write_text("bakery/é.jpg\n\n", encoding="utf-8")


def dil(root: Path) -> None:
    for name in ("AK", "BCC", "DF", "IEC", "MEL", "ML", "PYO", "SCC", "SK", "VASC"):
        for number in (1, 2):
            lesion = f"{name[0]}{number}"
            picture(root / "dil" / name / lesion / f"{lesion}.png")
            picture(root / "dil" / name / lesion / f"{lesion}mask.png", colour=(255, 255, 255))
    picture(root / "dil/AK/loose.png")
    picture(root / "dil/AK/loosemask.png")
    (root / "dil/lesionlist.txt").write_text("1 A1 ak\n")
    (root / "dil/AK/A1/.DS_Store").write_bytes(b"")


def mlc(root: Path) -> None:
    points = {
        "2008": ["671; 217; Sand", "0; 0; CCA", "299; 399; Porit", "10; 10; Off"],
        "2009": ["5; 5; SAND", "6; 300; turf", "7; 7; Soft", "8; 8; Off"],
    }
    for year, lines in points.items():
        for number in (1, 2):
            image = root / "mlc" / year / f"mcr_lter{number}_fringingreef_{year}0415.jpg"
            picture(image, size=(400, 300))
            text = "# Row; Col; Label\n" + "\r\n".join(lines) + "\n"
            image.with_name(f"{image.name}.txt").write_text(text)


def ham10000(root: Path) -> None:
    lines = ["lesion_id,image_id,dx,dx_type,age,sex,localization"]
    for lesion, image, dx in (("L1", "I1", "nv"), ("L1", "I2", "nv"), ("L2", "I3", "mel")):
        picture(root / f"ham10000/images/{image}.jpg")
        lines.append(f"HAM_{lesion},{image},{dx},histo,,male,back")
    (root / "ham10000/HAM10000_metadata.csv").write_text("\n".join(lines))


def rsmas(root: Path) -> None:
    for part, count in (("train", 2), ("test", 1)):
        for name in ("ACER", "TUNI"):
            for number in range(count):
                picture(root / f"rsmas/{part}/{name}/{number}.jpg", size=(256, 256))


@dataclass(frozen=True)
class Layout:
    """A small copy of a dataset.

    Attributes:
        name: The name to load it by.
        make: Writes it below a root; ``None`` if no file is needed.
        counts: Images of each class that is not empty.
        classes: Number of classes.
        size: (width, height) and mode of the first image.
        parts: Images in each part, if there are parts.
        groups: Number of groups, if there are groups.
        missing: A file or folder to remove, and the name that the error must contain.
    """

    name: str
    make: Callable[[Path], None] | None
    counts: dict[str, int]
    classes: int
    size: tuple[tuple[int, int], str]
    parts: dict[str, int] | None = None
    groups: int | None = None
    missing: tuple[str, str] = field(default=("", ""))


DIGIT_COUNTS = {"0": 3, "1": 1, "2": 1, "5": 1, "7": 1, "8": 1, "9": 2}
FASHION_COUNTS = {
    "T-shirt/top": 3,
    "Trouser": 1,
    "Pullover": 1,
    "Sandal": 1,
    "Sneaker": 1,
    "Bag": 1,
    "Ankle boot": 2,
}
DIL_COUNTS = dict.fromkeys(("BCC", "DF", "IEC", "MEL", "ML", "PYO", "SCC", "SK", "VASC"), 2)

LAYOUTS = [
    Layout(
        "digits",
        None,
        dict(zip("0123456789", (178, 182, 177, 183, 181, 182, 181, 179, 174, 180), strict=True)),
        10,
        ((8, 8), "L"),
    ),
    Layout(
        "mnist",
        lambda root: idx_gz(root / "mnist"),
        DIGIT_COUNTS,
        10,
        ((28, 28), "L"),
        {"train": 6, "test": 4},
        missing=("mnist/t10k-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte"),
    ),
    Layout(
        "fashion-mnist",
        lambda root: idx_plain(root / "FashionMNIST/raw"),
        FASHION_COUNTS,
        10,
        ((28, 28), "L"),
        {"train": 6, "test": 4},
        missing=("FashionMNIST/raw/train-images-idx3-ubyte", "train-images-idx3-ubyte"),
    ),
    Layout(
        "cifar10",
        cifar10,
        {
            **dict.fromkeys(("airplane", "cat", "deer", "dog"), 1),
            **dict.fromkeys(("automobile", "bird"), 2),
            "truck": 5,
        },
        10,
        ((32, 32), "RGB"),
        {"train": 10, "test": 3},
        missing=("cifar-10-batches-py/data_batch_3", "data_batch_3"),
    ),
    Layout(
        "cifar100",
        cifar100,
        {"class 00": 2, "class 07": 1, "class 42": 1, "class 99": 2},
        100,
        ((32, 32), "RGB"),
        {"train": 4, "test": 2},
        missing=("cifar-100-python/meta", "meta"),
    ),
    Layout(
        "caltech101",
        caltech101,
        {"BACKGROUND_Google": 3, "accordion": 2, "wild_cat": 1},
        3,
        ((12, 10), "RGB"),
        missing=("101_ObjectCategories", "101_ObjectCategories"),
    ),
    Layout(
        "mit67",
        mit67,
        {"airport_inside": 2, "bakery": 2},
        2,
        ((12, 10), "RGB"),
        {"train": 2, "test": 1, "": 1},
        missing=("mit67/TestImages.txt", "TestImages.txt"),
    ),
    Layout(
        "dil",
        dil,
        {"AK": 3, **DIL_COUNTS},
        10,
        ((12, 10), "RGB"),
        groups=21,
        missing=("dil/VASC", "VASC"),
    ),
    Layout(
        "dil:5",
        dil,
        {"AK": 3, "BCC": 2, "ML": 2, "SCC": 2, "SK": 2},
        5,
        ((12, 10), "RGB"),
        groups=11,
        missing=("dil/BCC/B2", ""),  # fewer lesions raise no error
    ),
    Layout(
        "mlc",
        mlc,
        {"CCA": 2, "Turf": 2, "Sand": 4, "Porit": 2},
        9,
        ((224, 224), "RGB"),
        {"train": 6, "test": 4},
        groups=4,
        missing=("mlc/2009", "2009"),
    ),
    Layout(
        "mlc:2008",
        mlc,
        {"CCA": 2, "Sand": 2, "Porit": 2},
        9,
        ((224, 224), "RGB"),
        groups=2,
        missing=("mlc/2008", "2008"),
    ),
    Layout(
        "ham10000",
        ham10000,
        {"mel": 1, "nv": 2},
        2,
        ((12, 10), "RGB"),
        groups=2,
        missing=("ham10000/images/I3.jpg", "I3.jpg"),
    ),
    Layout(
        "rsmas",
        rsmas,
        {"ACER": 3, "TUNI": 3},
        2,
        ((256, 256), "RGB"),
        {"train": 4, "test": 2},
        missing=("rsmas", "rsmas"),
    ),
]


def python2_batch(pixels: np.ndarray, labels: list[int]) -> bytes:
    """A CIFAR-100 batch as Python 2 wrote it: byte strings, and NumPy's module of that time."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    raw = pixels.tobytes()
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + number(0) + number(1) + b"tR"
    dtype += b"(" + number(3) + text(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + number(0) + b"t"
    array += text(b"b") + b"tR(" + number(1) + b"(" + b"".join(map(number, pixels.shape)) + b"t"
    array += dtype + b"\x89" + b"T" + struct.pack("<i", len(raw)) + raw + b"tb"
    items = text(b"data") + array
    items += text(b"fine_labels") + b"(" + b"".join(map(number, labels)) + b"l"
    return b"\x80\x02}(" + items + b"u."
