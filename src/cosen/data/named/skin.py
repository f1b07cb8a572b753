"""Skin lesions: the licensed Dermofit Image Library (DIL) and the open HAM10000."""

import csv
from pathlib import Path

import numpy as np

from cosen.data.decoding import SUFFIXES
from cosen.data.labelled import LabelledImages
from cosen.data.named.dataset import (
    MissingFilesError,
    NamedDataset,
    find_file,
    find_folder,
    missing_files,
)
from cosen.data.stores import ImageFiles

DIL_CLASSES = {
    "10": ("AK", "BCC", "DF", "IEC", "MEL", "ML", "PYO", "SCC", "SK", "VASC"),
    "5": ("AK", "BCC", "ML", "SCC", "SK"),
}
"""The classes of the paper's second and first experiment."""


def _load_dil(root: Path, variant: str | None = None) -> LabelledImages:
    """1,300 images of lesions, without an official split.

    Layout: a folder for each class (upper or lower case), in it a folder for each lesion with
    ``X.png`` and its mask ``Xmask.png``, which is ignored. Images directly in a class folder are
    used, too. The images of a lesion are a group.

    Args:
        root: The data root.
        variant: ``"10"`` for all classes, ``"5"`` for AK, BCC, ML, SCC and SK.
    """
    variant = variant or "10"
    base = find_folder("dil", root, ("dil", "DIL", "dermofit", "Dermofit"))
    by_name = {path.name.lower(): path for path in sorted(base.iterdir()) if path.is_dir()}
    files: list[Path] = []
    labels: list[int] = []
    lesions: list[str] = []
    missing = []
    for label, class_name in enumerate(DIL_CLASSES[variant]):
        folder = by_name.get(class_name.lower())
        if folder is None and class_name == "MEL":
            folder = by_name.get("mal")  # its name in some copies
        images = sorted(filter(_is_dil_image, folder.rglob("*"))) if folder else []
        if folder is None or not images:
            missing.append(f"{class_name}/<lesion>/<lesion>.png")
            continue
        for image in images:
            files.append(image)
            labels.append(label)
            lesion = image if image.parent == folder else image.parent
            lesions.append(f"{class_name}/{lesion.relative_to(folder).as_posix()}")
    if missing:
        raise missing_files(f"dil:{variant}", missing, base)
    return LabelledImages(
        images=ImageFiles(base, files),
        rows=np.arange(len(files)),
        labels=np.array(labels, dtype=np.int64),
        class_names=DIL_CLASSES[variant],
        source=f"dil:{variant}",
        groups=np.array(lesions),
    )


def _is_dil_image(path: Path) -> bool:
    skipped = path.stem.lower().endswith("mask") or path.name.startswith(".")
    return path.suffix.lower() in SUFFIXES and not skipped and path.is_file()


DIL = NamedDataset(
    "dil",
    _load_dil,
    "Buy a licence from Edinburgh Innovations "
    "(https://licensing.edinburgh-innovations.ed.ac.uk/product/dermofit-image-library), unpack "
    "the ten archives and put the folders AK, BCC, DF, IEC, MEL, ML, PYO, SCC, SK and VASC in "
    "dil/ below the data root.",
    variants=tuple(DIL_CLASSES),
)

METADATA = "HAM10000_metadata"
METADATA_SUFFIXES = (".csv", "")  # the official file has no suffix, copies do
COLUMNS = ("lesion_id", "image_id", "dx")
IMAGE_FOLDERS = ("images", "HAM10000_images_part_1", "HAM10000_images_part_2")


def _load_ham10000(root: Path, _variant: str | None = None) -> LabelledImages:
    """10,015 images of 7,470 lesions in seven classes, without an official split.

    The images of a lesion are a group: they differ in angle or magnification only.
    """
    places = ("ham10000", "HAM10000")
    folder = find_folder("ham10000", root, places, [METADATA], suffixes=METADATA_SUFFIXES)
    table = find_file(folder, METADATA, METADATA_SUFFIXES)
    assert table is not None  # find_folder found it
    with table.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    absent = [column for column in COLUMNS if not rows or rows[0].get(column) is None]
    if absent:
        raise MissingFilesError(f"{table} has no column {', '.join(absent)}: get it again")
    path_of = {
        path.stem: path
        for name in IMAGE_FOLDERS
        if (folder / name).is_dir()
        for path in (folder / name).iterdir()
        if path.suffix.lower() in SUFFIXES
    }
    missing = [f"{row['image_id']}.jpg" for row in rows if row["image_id"] not in path_of]
    if missing:
        raise missing_files("ham10000", missing, folder / "images")
    return LabelledImages.from_names(
        ImageFiles(folder, [path_of[row["image_id"]] for row in rows]),
        [row["dx"] for row in rows],
        source="ham10000",
        groups=np.array([row["lesion_id"] for row in rows]),
    )


HAM10000 = NamedDataset(
    "ham10000",
    _load_ham10000,
    "Get HAM10000_metadata and the two archives of images from "
    "https://doi.org/10.7910/DVN/DBW86T, and put HAM10000_metadata.csv and the images (in images/, "
    "or HAM10000_images_part_1/ and HAM10000_images_part_2/) in ham10000/ below the data root.",
)
