"""Write files atomically."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from cosen.errors import RunError


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
    except OSError as error:
        raise RunError(f"cannot create the folder {path}: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text atomically."""
    write_with(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file atomically with a function."""
    with write_whole(path) as partial:
        write(partial)
