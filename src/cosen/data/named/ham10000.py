"""HAM10000, dermatoscopic images of skin lesions: the open stand-in for the licensed DIL."""

import csv
from pathlib import Path

import numpy as np

from cosen.data.images import SUFFIXES
from cosen.data.labelled import LabelledImages
from cosen.data.named.places import find_file, find_folder, missing_files
from cosen.data.named.record import NamedDataset
from cosen.data.stores import ImageFiles
from cosen.errors import DataError

METADATA = "HAM10000_metadata"
METADATA_SUFFIXES = (".csv", "")  # the official file has no suffix, copies do
COLUMNS = ("lesion_id", "image_id", "dx")
IMAGE_FOLDERS = ("images", "HAM10000_images_part_1", "HAM10000_images_part_2")

WHERE = (
    "Get HAM10000_metadata and the two archives of images from "
    "https://doi.org/10.7910/DVN/DBW86T, and put HAM10000_metadata.csv and the images (in images/, "
    "or HAM10000_images_part_1/ and HAM10000_images_part_2/) into ham10000/ below the data root."
)


def load(root: Path, _variant: str | None = None) -> LabelledImages:
    """10,015 images of 7,470 lesions in seven classes, with no official split.

    A lesion is a group: its images differ in angle or enlargement only.
    """
    places = ("ham10000", "HAM10000")
    folder = find_folder(
        "ham10000", root, places, [METADATA], where=WHERE, suffixes=METADATA_SUFFIXES
    )
    table = find_file(folder, METADATA, METADATA_SUFFIXES)
    assert table is not None  # find_folder saw it
    rows = _read(table)
    path_of = {
        path.stem: path
        for name in IMAGE_FOLDERS
        if (folder / name).is_dir()
        for path in (folder / name).iterdir()
        if path.suffix.lower() in SUFFIXES
    }
    missing = [f"{row['image_id']}.jpg" for row in rows if row["image_id"] not in path_of]
    if missing:
        raise missing_files("ham10000", missing, folder / "images", where=WHERE)
    class_names = tuple(sorted({row["dx"] for row in rows}))
    number = {name: label for label, name in enumerate(class_names)}
    return LabelledImages(
        images=ImageFiles(folder, [path_of[row["image_id"]] for row in rows]),
        rows=np.arange(len(rows)),
        labels=np.array([number[row["dx"]] for row in rows], dtype=np.int64),
        class_names=class_names,
        source="ham10000",
        groups=np.array([row["lesion_id"] for row in rows]),
    )


def _read(table: Path) -> list[dict[str, str]]:
    with table.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    absent = [column for column in COLUMNS if not rows or rows[0].get(column) is None]
    if absent:
        raise DataError(f"{table} has no column {', '.join(absent)}: get it again. {WHERE}")
    return rows


HAM10000 = NamedDataset(
    name="ham10000",
    title="HAM10000 skin lesions (Tschandl, Rosendahl and Kittler, 2018)",
    load=load,
    where=WHERE,
    licence="CC BY-NC-SA 4.0",
)
