"""Checksums of the files in a run or study folder: a damaged file is never used unnoticed.

``checksums.json`` has the SHA-256 of each file. A file and its checksum cannot be replaced at the
same moment, so a new checksum is added before the file is replaced, and the last few are kept: if
the process is killed in between, the file still has a known checksum. They detect damage, not
forgery.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from cosen.errors import RunError
from cosen.files import open_regular, read_regular, write_text, write_whole

FILE = "checksums.json"

KEPT = 4
"""Checksums per file."""


def write_checked(path: Path, write: Callable[[Path], object], *, name: str | None = None) -> None:
    """Write a file atomically with a function, and keep its checksum.

    Args:
        path: The file.
        write: Called with the path to write to.
        name: The name under which the checksum is kept, for files that are renamed later.
    """
    name = name or path.name
    with write_whole(path) as partial:
        write(partial)
        with partial.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        known = _read(path.parent)
        if known.get(name, [""])[0] != digest:
            known[name] = list(dict.fromkeys([digest, *known.get(name, [])]))[:KEPT]
            write_text(path.parent / FILE, json.dumps(known, indent=1, sort_keys=True))


def write_checked_text(path: Path, text: str) -> None:
    """Write a text atomically, and keep its checksum."""
    write_checked(path, lambda partial: partial.write_text(text, encoding="utf-8"))


def check(path: Path, *, name: str | None = None) -> None:
    """Raise an error if a file differs from its checksum. A file without a checksum is accepted."""
    with open_regular(path) as file:
        _compare(path, name or path.name, hashlib.file_digest(file, "sha256").hexdigest())


def read_checked(path: Path) -> bytes:
    """Read a regular file; raise an error if it differs from its checksum."""
    content = read_regular(path)
    _compare(path, path.name, hashlib.sha256(content).hexdigest())
    return content


def _compare(path: Path, name: str, digest: str) -> None:
    known = _read(path.parent).get(name)
    if known is not None and digest not in known:
        raise RunError(
            f"{path} is damaged: it does not match its checksum. If you changed it yourself, "
            f"delete {path.parent / FILE}"
        )


def _read(folder: Path) -> dict[str, list[str]]:
    path = folder / FILE
    try:
        known = json.loads(read_regular(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError):
        known = None
    is_valid = isinstance(known, dict) and all(
        isinstance(entry, list) and entry and all(isinstance(digest, str) for digest in entry)
        for entry in known.values()
    )
    if not is_valid:
        raise RunError(f"{path} is damaged: remove it to use the other files without a check")
    return dict(known)
