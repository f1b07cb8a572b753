"""The Edinburgh Dermofit Image Library, ten classes of skin lesions."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cosen.data.images import SUFFIXES
from cosen.data.labelled import LabelledImages
from cosen.data.named.places import find_folder, missing_files
from cosen.data.named.record import NamedDataset
from cosen.data.stores import ImageFiles

CLASS_FOLDERS = {
    "AK": ("ak",),
    "BCC": ("bcc",),
    "DF": ("df",),
    "IEC": ("iec",),
    "MEL": ("mel", "mal"),
    "ML": ("ml",),
    "PYO": ("pyo",),
    "SCC": ("scc",),
    "SK": ("sk",),
    "VASC": ("vasc",),
}
"""The folders of each class, in any mixture of cases."""

CLASSES = {"10": tuple(CLASS_FOLDERS), "5": ("AK", "BCC", "ML", "SCC", "SK")}
"""The classes of the paper's second and first experiment."""

WHERE = (
    "Buy a licence from Edinburgh Innovations "
    "(https://licensing.edinburgh-innovations.ed.ac.uk/product/dermofit-image-library), unpack "
    "the ten archives and put the folders AK, BCC, DF, IEC, MEL, ML, PYO, SCC, SK and VASC into "
    "dil/ below the data root."
)


def load(root: Path, variant: str | None = None) -> LabelledImages:
    """1,300 images of lesions, with no official split.

    Relies on the layout of the archives: a folder for each class (in capitals or not), in it a
    folder for each lesion, in that ``X.png`` and its outline ``Xmask.png``, which is no image to
    be classified. Images that lie in the class folder itself are taken too. A lesion is a group.

    Args:
        root: The data root.
        variant: ``"10"`` for all classes, ``"5"`` for AK, BCC, ML, SCC and SK.
    """
    variant = variant or "10"
    base = find_folder("dil", root, ("dil", "DIL", "dermofit", "Dermofit"), (), where=WHERE)
    by_name = {path.name.lower(): path for path in sorted(base.iterdir()) if path.is_dir()}
    files: list[Path] = []
    labels: list[int] = []
    lesions: list[str] = []
    missing = []
    for label, class_name in enumerate(CLASSES[variant]):
        names = CLASS_FOLDERS[class_name]
        folder = next((by_name[name] for name in names if name in by_name), None)
        images = sorted(_images(folder)) if folder else []
        if folder is None or not images:
            missing.append(f"{class_name}/<lesion>/<lesion>.png")
            continue
        for image in images:
            files.append(image)
            labels.append(label)
            lesion = image if image.parent == folder else image.parent
            lesions.append(f"{class_name}/{lesion.relative_to(folder).as_posix()}")
    if missing:
        raise missing_files(f"dil:{variant}", missing, base, where=WHERE)
    return LabelledImages(
        images=ImageFiles(base, files),
        rows=np.arange(len(files)),
        labels=np.array(labels, dtype=np.int64),
        class_names=CLASSES[variant],
        source=f"dil:{variant}",
        groups=np.array(lesions),
    )


def _images(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            is_mask = path.stem.lower().endswith("mask")
            if path.suffix.lower() in SUFFIXES and not is_mask and not name.startswith("."):
                yield path


DIL = NamedDataset(
    name="dil",
    title="Dermofit Image Library (University of Edinburgh)",
    load=load,
    where=WHERE,
    licence="by licence from Edinburgh Innovations, not to be passed on",
    variants=tuple(CLASSES),
)
