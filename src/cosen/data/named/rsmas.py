"""RSMAS, close-up patches of corals: the open stand-in for MLC."""

from dataclasses import replace
from pathlib import Path

from cosen.data.folder import from_folder
from cosen.data.labelled import LabelledImages
from cosen.data.named.places import find_folder
from cosen.data.named.record import NamedDataset

WHERE = (
    "Get the folder RSMAS of Shihavuddin's coral reef collection from "
    "https://data.mendeley.com/datasets/86y667257h/2, and put its class folders, or train/ and "
    "test/ with class folders in them, into rsmas/ below the data root."
)


def load(root: Path, _variant: str | None = None) -> LabelledImages:
    """766 images of 256×256 pixels in 14 classes, split where they lie in train/ and test/."""
    folder = find_folder("rsmas", root, ("rsmas", "RSMAS"), (), where=WHERE)
    return replace(from_folder(folder), source="rsmas")


RSMAS = NamedDataset(
    name="rsmas",
    title="RSMAS coral textures (Shihavuddin, Gracias et al., 2013)",
    load=load,
    where=WHERE,
    licence="none stated",
)
