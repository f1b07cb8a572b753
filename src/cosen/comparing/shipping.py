"""Folders as bytes, to send them to machines that share no file system."""

import tempfile
from io import BytesIO
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from cosen.errors import DataError, RunError


def pack(folder: Path) -> bytes:
    """A folder's files and folders; not compressed, since weights hardly shrink."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder} to send")
    buffer = BytesIO()
    with ZipFile(buffer, "w", strict_timestamps=False) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Make a folder what :func:`pack` packed; what it held before is gone.

    It is filled beside its place and then renamed, so that it is whole whenever it is there.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as name:
            new, old = Path(name) / "new", Path(name) / "old"
            new.mkdir()
            _extract(data, new, folder)
            try:
                if folder.exists():
                    folder.rename(old)
                new.rename(folder)
            finally:  # interrupted between the two: what was there before is kept
                if old.exists() and not folder.exists():
                    old.rename(folder)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror or error}") from error


def _extract(data: bytes, place: Path, folder: Path) -> None:
    try:
        with ZipFile(BytesIO(data)) as archive:
            for name in archive.namelist():
                if not (place / name).resolve().is_relative_to(place.resolve()):
                    raise DataError(f"what was sent for {folder} would write outside it: {name!r}")
            archive.extractall(place)
    except BadZipFile as error:
        raise DataError(f"what was sent for {folder} is damaged: {error}") from error
