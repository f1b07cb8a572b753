"""The folder that decoded images and features are kept in: bounded, shared, never half-written.

An entry is a file or a folder under a kind (``images``, ``features``) and a key that says all that
it depends on. It is written beside its place and moved there in one step, under a lock that other
processes wait for. When the whole grows past its bound, what was not used for longest goes.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from cosen.data.stores import ImageFiles, ImagePatches, ImageStore
from cosen.errors import DataError

DEFAULT_BOUND = 20 * 2**30
KINDS = ("images", "features")
UNFINISHED = "unfinished"


@dataclass(frozen=True)
class Entry:
    """One thing in the cache."""

    kind: str
    key: str
    path: Path
    size: int
    used: float
    about: str


class CacheFolder:
    """The cache below a folder.

    Args:
        root: The folder; ``COSEN_CACHE`` or ``~/.cache/cosen`` if not given.
        bound: The most bytes to keep; ``COSEN_CACHE_BYTES`` or 20 GiB if not given.
    """

    def __init__(self, root: Path | None = None, *, bound: int | None = None) -> None:
        self.root = root or Path(os.environ.get("COSEN_CACHE") or Path.home() / ".cache" / "cosen")
        given = os.environ.get("COSEN_CACHE_BYTES", str(DEFAULT_BOUND))
        if bound is None and not given.isdigit():
            raise DataError(f"COSEN_CACHE_BYTES must be a number of bytes, but is {given!r}")
        self.bound = int(given) if bound is None else bound
        try:
            for kind in KINDS:
                (self.root / kind).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"cannot write the cache folder {self.root} ({error.strerror}): "
                "name another with COSEN_CACHE"
            ) from error

    def path(self, kind: str, key: str) -> Path:
        """Where an entry stands, or would."""
        return self.root / kind / key

    @contextmanager
    def locked(self, kind: str, key: str) -> Iterator[Path]:
        """Hold an entry's lock: one process builds it, the others wait and find it there."""
        with FileLock(self.root / kind / f"{key}.lock"):
            yield self.path(kind, key)

    def use(self, path: Path, note: dict[str, Any]) -> None:
        """Note that an entry was used now, and what is known of it (at least ``about``)."""
        _note_of(path).write_text(json.dumps(note), encoding="utf-8")
        os.utime(path)

    def has(self, path: Path) -> bool:
        """Whether an entry is there and whole."""
        return path.exists() and _note_of(path).exists()

    def note(self, path: Path) -> dict[str, Any]:
        """What was noted of an entry."""
        note: dict[str, Any] = json.loads(_note_of(path).read_text(encoding="utf-8"))
        return note

    def entries(self) -> list[Entry]:
        """What is there, the longest unused first."""
        found = []
        for kind in KINDS:
            for path in (self.root / kind).iterdir():
                if path.suffix in (".lock", ".json"):
                    continue
                try:
                    about = self.note(path)["about"] if self.has(path) else UNFINISHED
                    used = path.stat().st_mtime
                    found.append(Entry(kind, path.name, path, _size(path), used, about))
                except FileNotFoundError:
                    continue  # another process cleared it in this moment
        return sorted(found, key=lambda entry: entry.used)

    def make_room(self, needed: int) -> None:
        """Drop what was not used for longest until so many more bytes fit the bound."""
        if needed > self.bound:
            raise DataError(
                f"{needed / 2**30:.1f} GiB do not fit a cache of {self.bound / 2**30:.1f} GiB: "
                "use smaller images, or set COSEN_CACHE_BYTES"
            )
        entries = self.entries()
        total = sum(entry.size for entry in entries)
        for entry in entries:
            if total + needed <= self.bound:
                return
            # not what another process is writing now: an unfinished entry is left for a day
            if entry.about == UNFINISHED and time.time() - entry.used < 86_400:
                continue
            self.remove(entry)
            total -= entry.size

    def remove(self, entry: Entry) -> None:
        if entry.path.is_dir():
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            entry.path.unlink(missing_ok=True)
        _note_of(entry.path).unlink(missing_ok=True)

    def clear(self) -> int:
        """Drop everything; returns the bytes freed."""
        entries = self.entries()
        for entry in entries:
            self.remove(entry)
        for kind in KINDS:
            for lock in (self.root / kind).glob("*.lock"):
                lock.unlink(missing_ok=True)
        (self.root / "contents.sqlite").unlink(missing_ok=True)
        return sum(entry.size for entry in entries)

    def contents(self, images: ImageStore) -> list[bytes]:
        """The digest of each image's content; a file unchanged since last time is not read again.

        Unchanged means the same path, size, inode and times of modification and change.
        """
        if isinstance(images, ImagePatches):
            of_files = self.contents(images.files)
            return [
                hashlib.blake2b(
                    of_files[int(file)] + f"{point.tolist()} {images.size}".encode(), digest_size=16
                ).digest()
                for file, point in zip(images.file_numbers, images.points, strict=True)
            ]
        if not isinstance(images, ImageFiles):
            return [images.content(number) for number in range(len(images))]
        known = self._known_contents()
        digests, fresh = [], {}
        for number, path in enumerate(images.paths):
            try:
                status = path.stat()
                identity = json.dumps(
                    [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
                )
                remembered = known.get(str(path.absolute()))
                if remembered is None or remembered[0] != identity:
                    remembered = (identity, images.content(number))
                    fresh[str(path.absolute())] = remembered
            except OSError as error:
                raise DataError(f"cannot read {path}: {error.strerror}") from error
            digests.append(remembered[1])
        if fresh:
            self._remember(fresh)
        return digests

    def _database(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.root / "contents.sqlite", timeout=60)
        database.execute(
            "CREATE TABLE IF NOT EXISTS contents "
            "(path TEXT PRIMARY KEY, identity TEXT, digest BLOB)"
        )
        return database

    def _known_contents(self) -> dict[str, tuple[str, bytes]]:
        with closing(self._database()) as database:
            rows = database.execute("SELECT path, identity, digest FROM contents")
            return {path: (identity, digest) for path, identity, digest in rows}

    def _remember(self, fresh: dict[str, tuple[str, bytes]]) -> None:
        with closing(self._database()) as database, database:
            database.executemany(
                "INSERT OR REPLACE INTO contents VALUES (?, ?, ?)",
                [(path, identity, digest) for path, (identity, digest) in fresh.items()],
            )


def key_of(*parts: object) -> str:
    """A key that changes whenever one of its parts does."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _note_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return path.stat().st_size
