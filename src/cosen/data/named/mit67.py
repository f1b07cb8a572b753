"""MIT-67, indoor scenes with the official lists of 80 training and 20 test images a class."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from cosen.data.folder import from_folder
from cosen.data.labelled import LabelledImages
from cosen.data.named.places import find_folder, missing_files
from cosen.data.named.record import NamedDataset

LISTS = {"train": "TrainImages.txt", "test": "TestImages.txt"}

WHERE = (
    "Get indoorCVPR_09.tar, TrainImages.txt and TestImages.txt from "
    "https://web.mit.edu/torralba/www/indoor.html, and put the folder Images and the two lists "
    "into mit67/ below the data root."
)


def load(root: Path, _variant: str | None = None) -> LabelledImages:
    """15,620 images in 67 classes; those in neither list belong to no part.

    Relies on the layout ``Images/<class>/<image>`` with two lists of ``<class>/<image>``, one a
    line, beside ``Images``.
    """
    folder = find_folder(
        "mit67", root, ("mit67", "indoorCVPR_09"), ["Images", *LISTS.values()], where=WHERE
    )
    scenes = from_folder(folder / "Images")
    part_of = {name: part for part, file in LISTS.items() for name in _listed(folder / file)}
    missing = sorted(part_of.keys() - set(scenes.names))
    if missing:
        raise missing_files("mit67", missing, folder / "Images", where=WHERE)
    parts = np.array([part_of.get(name, "") for name in scenes.names])
    return replace(scenes, parts=parts, source="mit67")


def _listed(file: Path) -> list[str]:
    # names of files may be in any encoding: undecodable bytes stay what the file system has
    lines = file.read_text(encoding="utf-8-sig", errors="surrogateescape").splitlines()
    return [line.strip().replace("\\", "/") for line in lines if line.strip()]


MIT67 = NamedDataset(
    name="mit67",
    title="MIT-67 indoor scenes (Quattoni and Torralba, 2009)",
    load=load,
    where=WHERE,
    licence="research purposes only",
)
