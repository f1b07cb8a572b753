"""The report of a run or a study: one self-contained HTML file."""

from pathlib import Path

from cosen.errors import InputError

FILE = "report.html"


def write_report(
    path: Path | str, out: Path | str | None = None, *, against: Path | str | None = None
) -> Path:
    """Write the report of a run or a study.

    Args:
        path: A run folder or a study folder.
        out: The file to write. Default: ``report.html`` in the folder.
        against: A run folder with the same split, to compare a run with.

    Returns:
        The path of the file.
    """
    from cosen.files import is_folder, write_text
    from cosen.report.contents import read_contents
    from cosen.report.page import render

    file = Path(path) / FILE if out is None else Path(out)
    if out is not None and not is_folder(file.parent):
        raise InputError(f"folder {file.parent} does not exist: create it, or name another file")
    if is_folder(file):
        raise InputError(f"{file} is a folder: name a file, such as {file / FILE}")
    write_text(file, render(read_contents(path, against=against)))
    return file
