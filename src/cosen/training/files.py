"""Writing a file whole or not at all."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from safetensors import SafetensorError

from cosen.errors import RunError


@contextmanager
def write_whole(path: Path) -> Iterator[Path]:
    """A path beside ``path`` to write to; it takes the place of ``path`` once it is on disk.

    Whatever happens meanwhile, ``path`` holds either what it held before or all of the new.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield partial
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.chmod(0o666 & ~_umask())  # some writers would keep it from others
        partial.replace(path)
    except (OSError, SafetensorError, RuntimeError) as error:  # as torch and safetensors raise them
        raise RunError(_cannot_write(path, error)) from error
    finally:
        with suppress(OSError):  # where nothing can be written, nothing is there to remove
            partial.unlink(missing_ok=True)


def _cannot_write(path: Path, error: Exception) -> str:
    number = getattr(error, "errno", None)
    reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
    if "enforce fail" in reason:  # torch, of a file that it could not finish
        reason = "it could not be finished"
    if number == errno.ENOENT:
        advice = f"make the folder {path.parent}, or write elsewhere"
    elif number in (errno.EROFS, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR):
        advice = "write elsewhere"
    else:
        advice = "free some space, and try again"
    return f"cannot write {path} ({reason}): what was there before is kept; {advice}"


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def make_folder(path: Path) -> None:
    """Make a folder, with those above it, unless it is there."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot make the folder {path}: {error.strerror}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text whole or not at all."""
    with write_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """Let a function write a file whole or not at all."""
    with write_whole(path) as partial:
        write(partial)
