"""Caltech-101, one folder a class, the background among them."""

from pathlib import Path

import numpy as np

from cosen.data.labelled import LabelledImages
from cosen.data.named.places import find_folder, missing_files
from cosen.data.named.record import NamedDataset
from cosen.data.stores import ImageFiles

FOLDER = "101_ObjectCategories"

WHERE = (
    "Run 'cosen fetch caltech101', or get caltech-101.zip from "
    "https://data.caltech.edu/records/mzrjq-6wc02, unpack it and the 101_ObjectCategories.tar.gz "
    "in it, and put the folder 101_ObjectCategories below the data root."
)


def load(root: Path, _variant: str | None = None) -> LabelledImages:
    """9,144 colour and grey images in 102 classes of 31 to 800, with no official split."""
    place = find_folder(
        "caltech101", root, ("", "caltech101", "caltech-101"), [FOLDER], where=WHERE
    )
    folder = place / FOLDER
    # only JPEGs: the official archive has a stray file "tmp" among the background images
    found = [
        (path.name, file)
        for path in sorted(folder.iterdir())
        if path.is_dir()
        for file in sorted(path.glob("*.jpg"))
    ]
    class_names = tuple(sorted({name for name, _ in found}))
    if len(class_names) < 2:
        raise missing_files("caltech101", ["class folders with *.jpg"], folder, where=WHERE)
    number = {name: label for label, name in enumerate(class_names)}
    return LabelledImages(
        images=ImageFiles(folder, [file for _, file in found]),
        rows=np.arange(len(found)),
        labels=np.array([number[name] for name, _ in found], dtype=np.int64),
        class_names=class_names,
        source="caltech101",
    )


CALTECH101 = NamedDataset(
    name="caltech101",
    title="Caltech-101 with its background class (Fei-Fei, Fergus and Perona, 2004)",
    load=load,
    where=WHERE,
    licence="CC BY 4.0",
)
