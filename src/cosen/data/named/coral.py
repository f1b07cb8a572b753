"""Corals: Moorea Labelled Corals (MLC), and the smaller RSMAS."""

import logging
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from cosen.data.decoding import SUFFIXES
from cosen.data.labelled import LabelledImages
from cosen.data.named.dataset import NamedDataset, find_folder, missing_files
from cosen.data.sources import from_folder
from cosen.data.stores import ImageFiles, ImagePatches
from cosen.errors import DataError

logger = logging.getLogger("cosen")

CLASSES = ("CCA", "Turf", "Macro", "Sand", "Acrop", "Pavon", "Monti", "Pocill", "Porit")
"""Four classes of other material, then five of corals."""

PATCH_SIZE = 224
"""Side of a patch in pixels (the paper, Sec. V on MLC)."""

YEARS = {"2008-2009": {"2008": "train", "2009": "test"}, "2008": {"2008": ""}}
"""The split of each year, for each variant; a single year has no official split."""


def _load_mlc(root: Path, variant: str | None = None) -> LabelledImages:
    """Patches of 224×224 pixels around about 200 points per image; about 690 images per year.

    Layout: a folder for each year (directly or in the folder of its archive), with an
    ``<image>.jpg.txt`` next to each ``<image>.jpg``. Comments begin with ``#``; each other line is
    ``row; column; label``. Labels differ in case between years. Points with labels other than the
    nine are ignored. The patches of an image are a group.

    Args:
        root: The data root.
        variant: ``"2008-2009"`` to train on 2008 and test on 2009, ``"2008"`` for this year
            without a split.
    """
    variant = variant or "2008-2009"
    base = next((root / name for name in ("mlc", "MLC") if (root / name).is_dir()), root / "mlc")
    label_of = {name.lower(): label for label, name in enumerate(CLASSES)}
    folders = {year: _year_folder(base, year) for year in YEARS[variant]}
    missing = [f"{year}/*.jpg" for year, folder in folders.items() if folder is None]
    if missing:
        raise missing_files(f"mlc:{variant}", missing, base)

    images: list[Path] = []
    file_numbers: list[int] = []
    points: list[tuple[int, int]] = []
    labels: list[int] = []
    groups: list[str] = []
    parts: list[str] = []
    ignored: Counter[str] = Counter()
    for year, folder in folders.items():
        assert folder is not None  # else it would be missing
        for image in _annotated_images(folder, variant):
            for row, column, name in _read_points(_annotation(image)):
                if name.lower() not in label_of:
                    ignored[name] += 1
                    continue
                file_numbers.append(len(images))
                points.append((row, column))
                labels.append(label_of[name.lower()])
                groups.append(f"{year}/{image.name}")
                parts.append(YEARS[variant][year])
            images.append(image)
    if ignored:
        counts = ", ".join(f"{name} {count}" for name, count in ignored.most_common())
        message = "mlc:%s: %d points ignored, not of the nine classes: %s"
        logger.info(message, variant, ignored.total(), counts)
    return LabelledImages(
        images=ImagePatches(
            ImageFiles(base, images),
            np.array(file_numbers, dtype=np.int64),
            np.array(points, dtype=np.int64).reshape(-1, 2),
            size=PATCH_SIZE,
        ),
        rows=np.arange(len(labels)),
        labels=np.array(labels, dtype=np.int64),
        class_names=CLASSES,
        source=f"mlc:{variant}",
        groups=np.array(groups),
        parts=np.array(parts) if any(YEARS[variant].values()) else None,
    )


def _year_folder(base: Path, year: str) -> Path | None:
    """``<base>/2008``, or this folder in the unpacked archive of the year."""
    candidates = [base / year, *sorted(base.glob(f"*{year}*/{year}"))]
    return next((folder for folder in candidates if folder.is_dir()), None)


def _annotation(image: Path) -> Path:
    return image.with_name(f"{image.name}.txt")


def _annotated_images(folder: Path, variant: str) -> list[Path]:
    images = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    annotated = [image for image in images if _annotation(image).is_file()]
    if not annotated:
        raise missing_files(f"mlc:{variant}", ["*.jpg with *.jpg.txt"], folder)
    if len(annotated) < len(images):
        message = "mlc:%s: %d of %d images in %s have no annotation and are ignored"
        logger.warning(message, variant, len(images) - len(annotated), len(images), folder)
    return annotated


def _read_points(file: Path) -> list[tuple[int, int, str]]:
    """Read an annotation file: row, column and label of each point."""
    found = []
    for number, line in enumerate(file.read_text(encoding="latin1").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        cells = [cell.strip() for cell in line.split(";")]
        try:
            row, column, name = cells
            found.append((int(row), int(column), name))
        except ValueError:
            raise DataError(
                f"{file}, line {number}: {line.strip()!r} is not 'row; column; label'"
            ) from None
    return found


MLC = NamedDataset(
    "mlc",
    _load_mlc,
    "Get the zip of each year from the Environmental Data Initiative, package knb-lter-mcr.5006 "
    "(https://doi.org/10.6073/pasta/88dde0e68ab5232a470389f4bedd1892), unpack them and put the "
    "folders 2008 and 2009 in mlc/ below the data root.",
    variants=tuple(YEARS),
)


def _load_rsmas(root: Path, _variant: str | None = None) -> LabelledImages:
    """766 images of 256×256 pixels in 14 classes, split if there are train/ and test/."""
    folder = find_folder("rsmas", root, ("rsmas", "RSMAS"))
    return replace(from_folder(folder), source="rsmas")


RSMAS = NamedDataset(
    "rsmas",
    _load_rsmas,
    "Get the folder RSMAS of Shihavuddin's coral reef collection from "
    "https://data.mendeley.com/datasets/86y667257h/2, and put its class folders, or train/ and "
    "test/ with class folders in them, in rsmas/ below the data root.",
)
