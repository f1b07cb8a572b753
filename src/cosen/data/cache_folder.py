"""The folder that decoded images and features are kept in: bounded, shared, never half-written.

An entry is a file or a folder under a kind (``images``, ``features``) and a key that says all that
it depends on. It is written beside its place and moved there in one step, under a lock that other
processes wait for. A note beside it says that it is whole; one without a readable note is built
again. When the whole grows past its bound, what was not used for longest goes, but nothing whose
lock another process holds.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from cosen.data.stores import ImageFiles, ImagePatches, ImageStore
from cosen.errors import DataError

DEFAULT_BOUND = 20 * 2**30
KINDS = ("images", "features")
UNFINISHED = "unfinished"
DATABASE = "contents.sqlite"


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
        lock = FileLock(self.root / kind / f"{key}.lock")
        try:
            lock.acquire()
        except OSError as error:
            raise cannot_write(self.root, error) from error
        try:
            yield self.path(kind, key)
        finally:
            lock.release()

    def use(self, path: Path, note: dict[str, Any]) -> None:
        """Note that an entry was used now, and what is known of it (at least ``about``)."""
        partial = path.with_name(f"{path.name}.{os.getpid()}.json")
        try:
            partial.write_text(json.dumps(note), encoding="utf-8")
            partial.replace(_note_of(path))
            os.utime(path)
        except OSError as error:
            raise cannot_write(path.parent, error) from error
        finally:
            partial.unlink(missing_ok=True)

    def note(self, path: Path) -> dict[str, Any] | None:
        """What was noted of an entry; None if it is not there, or not whole."""
        if not path.exists():
            return None
        try:
            note = json.loads(_note_of(path).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return note if isinstance(note, dict) and "about" in note else None

    def entries(self) -> list[Entry]:
        """What is there, the longest unused first."""
        found = []
        for kind in KINDS:
            for path in (self.root / kind).iterdir():
                if path.suffix in (".lock", ".json"):
                    continue
                try:
                    note = self.note(path)
                    about = UNFINISHED if note is None else str(note["about"])
                    used = path.stat().st_mtime
                    found.append(Entry(kind, path.name, path, _size(path), used, about))
                except FileNotFoundError:
                    continue  # another process cleared it in this moment
        return sorted(found, key=lambda entry: entry.used)

    def make_room(self, needed: int, *, keep: Path | None = None) -> None:
        """Drop what was not used for longest until so many more bytes fit the bound.

        Args:
            needed: Bytes to make room for.
            keep: An entry that stays: the one whose lock is held now.
        """
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
            if entry.path == keep:
                continue
            with self._locked_at_once(entry.kind, entry.path) as free:
                if free:
                    _remove(entry.path)
                    _remove(_note_of(entry.path))
                    total -= entry.size

    def clear(self) -> int:
        """Drop everything that no process is using now; returns the bytes freed."""
        freed = 0
        for kind in KINDS:
            by_key = defaultdict(list)
            for path in (self.root / kind).iterdir():
                by_key[_key_in(path)].append(path)
            for paths in by_key.values():
                with self._locked_at_once(kind, paths[0]) as free:
                    if not free:
                        continue
                    lock = self.root / kind / f"{_key_in(paths[0])}.lock"
                    for path in {*paths, lock}:
                        if path.suffix not in (".lock", ".json") and path.exists():
                            freed += _size(path)
                        _remove(path)
        self._forget_contents()
        return freed

    @contextmanager
    def _locked_at_once(self, kind: str, path: Path) -> Iterator[bool]:
        """Hold the lock of what a file belongs to, if no one else does; tells whether."""
        lock = FileLock(self.root / kind / f"{_key_in(path)}.lock", timeout=0)
        try:
            lock.acquire()
        except (Timeout, OSError):
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def contents(self, images: ImageStore) -> list[bytes]:
        """The digest of each image's content; a file unchanged since last time is not read again.

        Unchanged means the same path, size, inode and times of modification and change. A file
        that cannot be read has a digest that says so; decoding it tells the reason.
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
        digests: list[bytes] = []
        fresh: dict[bytes, tuple[str, bytes]] = {}
        for number, path in enumerate(images.paths):
            name = os.fsencode(path.absolute())
            try:
                status = path.stat()
                identity = json.dumps(
                    [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
                )
                remembered = known.get(name)
                if remembered is None or remembered[0] != identity:
                    remembered = (identity, images.content(number))
                    fresh[name] = remembered
            except OSError as error:
                digests.append(f"unreadable: {error.strerror}".encode())
            else:
                digests.append(remembered[1])
        if fresh:
            self._remember(fresh)
        return digests

    def _database(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.root / DATABASE, timeout=60)
        database.execute(
            "CREATE TABLE IF NOT EXISTS digests (path BLOB PRIMARY KEY, identity TEXT, digest BLOB)"
        )
        return database

    def _known_contents(self) -> dict[bytes, tuple[str, bytes]]:
        try:
            with closing(self._database()) as database:
                rows = database.execute("SELECT path, identity, digest FROM digests")
                return {path: (identity, digest) for path, identity, digest in rows}
        except sqlite3.OperationalError:
            return {}  # the disk is full: files are read again
        except sqlite3.DatabaseError:
            (self.root / DATABASE).unlink(missing_ok=True)  # no database any more
            return {}

    def _remember(self, fresh: dict[bytes, tuple[str, bytes]]) -> None:
        with (
            suppress(sqlite3.OperationalError),  # the disk is full: files are read again
            closing(self._database()) as database,
            database,
        ):
            database.executemany(
                "INSERT OR REPLACE INTO digests VALUES (?, ?, ?)",
                [(path, identity, digest) for path, (identity, digest) in fresh.items()],
            )

    def _forget_contents(self) -> None:
        """Empty the database; the file stays, for another process may have it open."""
        try:
            with closing(self._database()) as database:
                database.execute("DELETE FROM digests")
                database.commit()
                database.execute("VACUUM")
        except sqlite3.OperationalError:
            return  # in use, or the disk is full
        except sqlite3.DatabaseError:
            (self.root / DATABASE).unlink(missing_ok=True)


def key_of(*parts: object) -> str:
    """A key that changes whenever one of its parts does."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def cannot_write(folder: Path, error: Exception) -> DataError:
    """The error for a cache that nothing more can be written to."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return DataError(
        f"cannot write {folder} ({reason}): free some space, "
        "or name another cache folder with COSEN_CACHE"
    )


def _key_in(path: Path) -> str:
    """The key of the entry that a file is, or is the lock, the note or a part of."""
    return path.name.partition(".")[0]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):  # Windows does not remove what a process has open
            path.unlink(missing_ok=True)


def _note_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return path.stat().st_size
