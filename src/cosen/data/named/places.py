"""Looking for a dataset's files below the data root, and saying which are missing."""

from collections.abc import Sequence
from pathlib import Path

from cosen.errors import DataError


def find_file(folder: Path, name: str, suffixes: Sequence[str] = ("",)) -> Path | None:
    """The file or folder of this name with the first of the suffixes that is there."""
    candidates = (folder / f"{name}{suffix}" for suffix in suffixes)
    return next((path for path in candidates if path.exists()), None)


def find_folder(
    dataset: str,
    root: Path,
    places: Sequence[str],
    needed: Sequence[str],
    *,
    where: str,
    suffixes: Sequence[str] = ("",),
) -> Path:
    """The first place that has all that a dataset needs.

    Args:
        dataset: Its name, for the message.
        root: The data root.
        places: Folders below the root, or absolute, in the order to look.
        needed: What must be in the folder; nothing, if the folder itself will do.
        where: Where to get the files and where to put them, for the message.
        suffixes: What the needed names may end with.
    """
    folders = [root / place for place in places]
    for folder in folders:
        if folder.is_dir() and all(find_file(folder, name, suffixes) for name in needed):
            return folder
    if not needed:
        raise missing_files(dataset, [" or ".join(places)], root, where=where)
    nearest = next((folder for folder in folders if folder.is_dir()), folders[0])
    missing = [name for name in needed if not find_file(nearest, name, suffixes)]
    raise missing_files(dataset, missing, nearest, folders, where=where)


def missing_files(
    dataset: str,
    missing: Sequence[str],
    folder: Path,
    looked_in: Sequence[Path] = (),
    *,
    where: str,
) -> DataError:
    """The error for files that are not where they should be."""
    shown = ", ".join(missing[:10]) + (f" and {len(missing) - 10} more" if missing[10:] else "")
    others = ", ".join(str(place) for place in looked_in if place != folder)
    also = f" (nor all of it in {others})" if others else ""
    return DataError(f"{dataset}: {shown} not found in {folder}{also}. {where}")
