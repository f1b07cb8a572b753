"""Read regular files only, write files atomically, and write safe CSV cells."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from safetensors import SafetensorError

from cosen.errors import RunError

PARTIAL = ".*.part"
"""Pattern of temporary files, which a killed process leaves behind."""


def expand_user(path: Path | str) -> Path:
    """Replace ``~``; the home of an unknown user stays as it is written."""
    return Path(os.path.expanduser(path))  # noqa: PTH111, Path.expanduser() raises errors


def is_file(path: Path) -> bool:
    """Whether this is a regular file; False also for names that no file can have."""
    return os.path.isfile(path)  # noqa: PTH113, Path.is_file() raises errors for some names


def is_folder(path: Path) -> bool:
    """Whether this is a folder; False also for names that no folder can have."""
    return os.path.isdir(path)  # noqa: PTH112


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading; raise ``OSError`` unless it is a regular file or a link to one.

    Opening a pipe would wait for a writer, and a device may never end.
    """
    no_wait = getattr(os, "O_NONBLOCK", 0)  # does not exist on Windows
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | no_wait))  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def read_regular(path: Path) -> bytes:
    """Read a whole regular file."""
    with open_regular(path) as file:
        return file.read()


def spreadsheet_text(text: str) -> str:
    """Return a CSV cell that a spreadsheet does not run as a formula: with ``'`` before it.

    Example:
        >>> spreadsheet_text("=1+1.png"), spreadsheet_text("-1"), spreadsheet_text("cat.png")
        ("'=1+1.png", '-1', 'cat.png')
    """
    try:
        float(text)  # a number is no formula
    except ValueError:
        return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
    return text


def remove_partial(folder: Path) -> None:
    """Remove temporary files of a killed process. The caller holds the lock of the folder."""
    for partial in folder.glob(PARTIAL):
        with suppress(OSError):
            partial.unlink()


@contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces ``path`` once it is on disk.

    ``path`` always has either the old or the complete new content.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.chmod(0o666 & ~_umask())  # some writers make files private
        partial.replace(path)
    except (OSError, SafetensorError, RuntimeError) as error:  # torch and safetensors raise these
        raise RunError(_cannot_write(path, error)) from error
    finally:
        with suppress(OSError):  # nothing could be written
            partial.unlink(missing_ok=True)


def _cannot_write(path: Path, error: Exception) -> str:
    number = getattr(error, "errno", None)
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    if "enforce fail" in reason:  # torch, for a file that it could not finish
        reason = "it could not be finished"
    if number == errno.ENOENT:
        advice = f"create the folder {path.parent}, or use another one"
    elif number == errno.ENAMETOOLONG:
        advice = "use a shorter name"
    elif number in (errno.EROFS, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR):
        advice = "use another folder"
    else:
        advice = "free some space and try again"
    return f"cannot write {path} ({reason}): the old content is kept; {advice}"


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def make_folder(path: Path) -> None:
    """Create a folder and its parents if they do not exist."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RunError(f"cannot create the folder {path}: {reason}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text atomically."""
    write_with(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically with a function."""
    with write_whole(path) as partial:
        write(partial)
