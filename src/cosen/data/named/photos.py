"""Photographs of objects and scenes: Caltech-101 and MIT-67."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from cosen.data.labelled import LabelledImages
from cosen.data.named.dataset import NamedDataset, find_folder, missing_files
from cosen.data.sources import from_folder
from cosen.data.stores import ImageFiles

CALTECH_FOLDER = "101_ObjectCategories"


def _load_caltech101(root: Path, _variant: str | None = None) -> LabelledImages:
    """9,144 colour and grey images in 102 classes of 31 to 800, without an official split."""
    places = ("", "caltech101", "caltech-101")
    folder = find_folder("caltech101", root, places, [CALTECH_FOLDER])
    folder /= CALTECH_FOLDER
    # only *.jpg: the official archive contains a stray file "tmp"
    files = [
        file
        for path in sorted(folder.iterdir())
        if path.is_dir()
        for file in sorted(path.glob("*.jpg"))
    ]
    data = LabelledImages.from_names(
        ImageFiles(folder, files), [file.parent.name for file in files], source="caltech101"
    )
    if data.num_classes < 2:
        raise missing_files("caltech101", ["class folders with *.jpg"], folder)
    return data


CALTECH101 = NamedDataset(
    "caltech101",
    _load_caltech101,
    "Run 'cosen fetch caltech101', or get caltech-101.zip from "
    "https://data.caltech.edu/records/mzrjq-6wc02, unpack it and the 101_ObjectCategories.tar.gz "
    "in it, and put the folder 101_ObjectCategories below the data root.",
)

MIT67_LISTS = {"train": "TrainImages.txt", "test": "TestImages.txt"}


def _load_mit67(root: Path, _variant: str | None = None) -> LabelledImages:
    """15,620 images in 67 classes; the lists have 80 training and 20 test images per class.

    Layout: ``Images/<class>/<image>``, and next to ``Images`` two lists with a line
    ``<class>/<image>`` for each image. Images in neither list belong to no split.
    """
    needed = ["Images", *MIT67_LISTS.values()]
    folder = find_folder("mit67", root, ("mit67", "indoorCVPR_09"), needed)
    scenes = from_folder(folder / "Images")
    part_of = {name: part for part, file in MIT67_LISTS.items() for name in _listed(folder / file)}
    missing = sorted(part_of.keys() - set(scenes.names))
    if missing:
        raise missing_files("mit67", missing, folder / "Images")
    parts = np.array([part_of.get(name, "") for name in scenes.names])
    return replace(scenes, parts=parts, source="mit67")


def _listed(file: Path) -> list[str]:
    # surrogateescape: file names may be any bytes
    lines = file.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines()
    return [line.strip().replace("\\", "/") for line in lines if line.strip()]


MIT67 = NamedDataset(
    "mit67",
    _load_mit67,
    "Get indoorCVPR_09.tar, TrainImages.txt and TestImages.txt from "
    "https://web.mit.edu/torralba/www/indoor.html, and put the folder Images and the two lists "
    "in mit67/ below the data root.",
)
