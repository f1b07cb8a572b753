"""From what a user types, a name or a path, to data."""

from pathlib import Path

from cosen.data.csv_table import from_table
from cosen.data.folder import from_folder
from cosen.data.labelled import LabelledImages
from cosen.data.named import NAMED, load_named
from cosen.errors import DataError


def open_data(
    data: str | Path, *, root: Path | None = None, exclude: tuple[str, ...] = ()
) -> LabelledImages:
    """A dataset by name, a folder of class folders, or a CSV.

    A name wins over a folder of the same name; write ``./digits`` for the folder.

    Args:
        data: The name (with a variant after a colon, as in ``dil:5``), or a path.
        root: Where named datasets are; ``COSEN_DATA`` or ``~/.cache/cosen/data`` if not given.
        exclude: Classes to leave out.
    """
    if isinstance(data, str) and data.partition(":")[0] in NAMED:
        found = load_named(data, root=root)
        return found.without_classes(list(exclude)) if exclude else found
    path = Path(data).expanduser()
    if path.is_dir():
        return from_folder(path, exclude=exclude)
    if path.is_file() and path.suffix.lower() == ".csv":
        return from_table(path, exclude=exclude)
    if path.is_file():
        raise DataError(f"{path} is neither a folder of class folders nor a CSV")
    raise DataError(
        f"{data} is neither a folder, nor a CSV, nor a dataset's name; "
        f"the names are {', '.join(NAMED)}"
    )
