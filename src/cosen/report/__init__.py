"""The report of a run or a study: one HTML file that needs nothing else."""

from pathlib import Path

from cosen.errors import InputError

FILE = "report.html"


def write_report(
    path: Path | str, out: Path | str | None = None, *, against: Path | str | None = None
) -> Path:
    """Write the report of a run or of a study.

    Args:
        path: A run folder or a study folder.
        out: The file; ``report.html`` in the folder if not given.
        against: A run folder that a run is held against, on the same split.

    Returns:
        The file.
    """
    from cosen.report.contents import read_contents
    from cosen.report.page import render
    from cosen.training.files import write_text

    place = Path(path) / FILE if out is None else Path(out)
    if out is not None and not place.parent.is_dir():
        raise InputError(f"there is no folder {place.parent} to write {place.name} to: make it")
    if place.is_dir():
        raise InputError(f"{place} is a folder: name a file, such as {place / FILE}")
    write_text(place, render(read_contents(path, against=against).as_json()))
    return place
