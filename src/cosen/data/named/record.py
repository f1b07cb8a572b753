"""What is known of a dataset by its name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cosen.data.labelled import LabelledImages


@dataclass(frozen=True)
class NamedDataset:
    """A dataset that can be asked for by name.

    Attributes:
        name: What it is asked for by.
        title: Its full name and who made it.
        load: Reads it below a data root, in a variant or (``None``) in the usual one.
        where: Where to get the files and where to put them.
        licence: What may be done with it.
        variants: What may stand after a colon, the usual one first.
    """

    name: str
    title: str
    load: Callable[[Path, str | None], LabelledImages]
    where: str
    licence: str
    variants: tuple[str, ...] = ()
