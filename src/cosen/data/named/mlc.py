"""Moorea Labelled Corals: patches around the annotated points of reef photographs."""

import logging
from collections import Counter
from pathlib import Path

import numpy as np

from cosen.data.images import SUFFIXES
from cosen.data.labelled import LabelledImages
from cosen.data.named.places import missing_files
from cosen.data.named.record import NamedDataset
from cosen.data.stores import ImageFiles, ImagePatches
from cosen.errors import DataError

logger = logging.getLogger("cosen")

NON_CORALS = ("CCA", "Turf", "Macro", "Sand")
CORALS = ("Acrop", "Pavon", "Monti", "Pocill", "Porit")
CLASSES = NON_CORALS + CORALS

PATCH_SIZE = 224
"""The side of a patch in pixels (the paper, Sec. V on MLC)."""

YEARS = {"2008-2009": {"2008": "train", "2009": "test"}, "2008": {"2008": ""}}
"""For each variant the part that each of its years is; one year alone is left to be split."""

WHERE = (
    "Get the zip of each year from the Environmental Data Initiative, package knb-lter-mcr.5006 "
    "(https://doi.org/10.6073/pasta/88dde0e68ab5232a470389f4bedd1892), unpack them and put the "
    "folders 2008 and 2009 into mlc/ below the data root."
)


def load(root: Path, variant: str | None = None) -> LabelledImages:
    """Patches of 224×224 pixels around about 200 points in each of some 690 images a year.

    Relies on a folder for each year (in the folder of its archive or not), with an
    ``<image>.jpg.txt`` beside each ``<image>.jpg``. After a comment that begins with ``#``, each
    of its lines is ``row; column; label``. Labels differ in their capitals from year to year.
    Points of other labels than the nine are left out. An image is a group.

    Args:
        root: The data root.
        variant: ``"2008-2009"`` to train on 2008 and test on 2009, ``"2008"`` for that year
            without a split.
    """
    variant = variant or "2008-2009"
    base = next((root / name for name in ("mlc", "MLC") if (root / name).is_dir()), root / "mlc")
    label_of = {name.lower(): label for label, name in enumerate(CLASSES)}
    folders = {year: _year_folder(base, year) for year in YEARS[variant]}
    missing = [f"{year}/*.jpg" for year, folder in folders.items() if folder is None]
    if missing:
        raise missing_files(f"mlc:{variant}", missing, base, where=WHERE)

    images: list[Path] = []
    file_numbers: list[int] = []
    points: list[tuple[int, int]] = []
    labels: list[int] = []
    groups: list[str] = []
    parts: list[str] = []
    left_out: Counter[str] = Counter()
    for year, folder in folders.items():
        assert folder is not None  # or it would be missing
        for image in _annotated_images(folder, variant):
            for row, column, name in read_points(_annotation(image)):
                if name.lower() not in label_of:
                    left_out[name] += 1
                    continue
                file_numbers.append(len(images))
                points.append((row, column))
                labels.append(label_of[name.lower()])
                groups.append(f"{year}/{image.name}")
                parts.append(YEARS[variant][year])
            images.append(image)
    if left_out:
        counts = ", ".join(f"{name} {count}" for name, count in left_out.most_common())
        logger.info(
            "mlc:%s: %d points left out, not of the nine classes: %s",
            variant,
            left_out.total(),
            counts,
        )
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
    """``<base>/2008``, or that within the folder that the year's archive unpacks to."""
    candidates = [base / year, *sorted(base.glob(f"*{year}*/{year}"))]
    return next((folder for folder in candidates if folder.is_dir()), None)


def _annotation(image: Path) -> Path:
    return image.with_name(f"{image.name}.txt")


def _annotated_images(folder: Path, variant: str) -> list[Path]:
    images = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
    annotated = [image for image in images if _annotation(image).is_file()]
    if not annotated:
        raise missing_files(f"mlc:{variant}", ["*.jpg with *.jpg.txt"], folder, where=WHERE)
    if len(annotated) < len(images):
        logger.warning(
            "mlc:%s: %d of %d images in %s have no annotation and are left out",
            variant,
            len(images) - len(annotated),
            len(images),
            folder,
        )
    return annotated


def read_points(file: Path) -> list[tuple[int, int, str]]:
    """The points of an annotation file: row, column and label."""
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
    name="mlc",
    title="Moorea Labelled Corals (Beijbom et al., 2012)",
    load=load,
    where=WHERE,
    licence="CC BY 4.0",
    variants=tuple(YEARS),
)
