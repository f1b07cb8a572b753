"""The type of named datasets, and the search for their files below the data root."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosen.data.labelled import LabelledImages
from cosen.errors import DataError


@dataclass(frozen=True)
class NamedDataset:
    """A dataset that can be opened by name.

    Attributes:
        name: Its name.
        load: Reads it below a data root, in a variant or (``None``) in the default variant.
        where: Where to get the files and where to put them.
        variants: Names that may follow after a colon, the default first.
    """

    name: str
    load: Callable[[Path, str | None], LabelledImages]
    where: str
    variants: tuple[str, ...] = ()


class MissingFilesError(DataError):
    """Missing files of a named dataset; :func:`load_named` adds where to get them."""


def find_file(folder: Path, name: str, suffixes: Sequence[str] = ("",)) -> Path | None:
    """Find a file or folder of this name with one of the suffixes."""
    candidates = (folder / f"{name}{suffix}" for suffix in suffixes)
    return next((path for path in candidates if path.exists()), None)


def find_folder(
    dataset: str,
    root: Path,
    places: Sequence[str],
    needed: Sequence[str] = (),
    *,
    suffixes: Sequence[str] = ("",),
) -> Path:
    """Find the first folder with all files of a dataset.

    Args:
        dataset: Its name, for the message.
        root: The data root.
        places: Folders to try in order, relative to the root or absolute.
        needed: Names that the folder must contain.
        suffixes: Suffixes that the needed names may have.
    """
    folders = [root / place for place in places]
    for folder in folders:
        if folder.is_dir() and all(find_file(folder, name, suffixes) for name in needed):
            return folder
    if not needed:
        raise missing_files(dataset, [" or ".join(places)], root)
    nearest = next((folder for folder in folders if folder.is_dir()), folders[0])
    missing = [name for name in needed if not find_file(nearest, name, suffixes)]
    raise missing_files(dataset, missing, nearest, folders)


def missing_files(
    dataset: str, missing: Sequence[str], folder: Path, searched: Sequence[Path] = ()
) -> MissingFilesError:
    """Return the error for missing files of a dataset."""
    shown = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if missing[10:] else "")
    others = ", ".join(str(place) for place in searched if place != folder)
    also = f" (also searched: {others})" if others else ""
    return MissingFilesError(f"{dataset}: {shown} not found in {folder}{also}")
