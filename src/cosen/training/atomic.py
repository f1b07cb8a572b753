"""Writing a file whole or not at all."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise RunError(
            f"cannot write {path} ({reason}): what was there before is kept; "
            "free some space, and try again"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write a text whole or not at all."""
    with write_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """Let a function write a file whole or not at all."""
    with write_whole(path) as partial:
        write(partial)
