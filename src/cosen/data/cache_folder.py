"""Cache folder for decoded images and features, with a size limit and locks between processes.

An entry is a file or folder with a kind (``images``, ``features``) and a key, a hash of everything
it depends on. It is written under a temporary name and then renamed, under a lock that other
processes wait for. A JSON note next to it marks it as complete; an entry without a readable note is
built again. If the cache exceeds its limit, the least recently used entries are removed, except
those that another process has locked.
"""

import hashlib
import json
import os
import shutil
import sqlite3
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from cosen.data.stores import ImageFiles, ImagePatches, ImageStore
from cosen.errors import DataError

DEFAULT_BOUND = 20 * 2**30
KINDS = ("images", "features")
UNFINISHED = "unfinished"
DATABASE = "contents.sqlite"

FILES_AT_ONCE = 900
"""Files whose digests are looked up and stored at once; old versions of SQLite allow 999."""


@dataclass(frozen=True)
class Entry:
    """One entry of the cache."""

    kind: str
    key: str
    path: Path
    size: int
    used: float
    about: str


class CacheFolder:
    """The cache.

    Args:
        root: The folder; default: ``COSEN_CACHE`` or ``~/.cache/cosen``.
        bound: Size limit in bytes; default: ``COSEN_CACHE_BYTES`` or 20 GiB.
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
                "choose another with COSEN_CACHE"
            ) from error

    def path(self, kind: str, key: str) -> Path:
        """Path of an entry, whether it exists or not."""
        return self.root / kind / key

    @contextmanager
    def locked(self, kind: str, key: str) -> Iterator[Path]:
        """Lock an entry: one process builds it, the others wait and then find it."""
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
        """Write the note of an entry (at least ``about``) and mark it as used now."""
        with replacing(_note_of(path)) as partial:
            partial.write_text(json.dumps(note), encoding="utf-8")
            os.utime(path)

    def note(self, path: Path) -> dict[str, Any] | None:
        """Read the note of an entry; None if the entry is missing or incomplete."""
        if not path.exists():
            return None
        try:
            note = json.loads(_note_of(path).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return note if isinstance(note, dict) and "about" in note else None

    def entries(self) -> list[Entry]:
        """All entries, least recently used first."""
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
                    continue  # another process just removed it
        return sorted(found, key=lambda entry: entry.used)

    def make_room(self, needed: int, *, keep: Path | None = None) -> None:
        """Remove the least recently used entries until this many bytes are free.

        Args:
            needed: Number of bytes.
            keep: An entry that is not removed: the caller holds its lock.
        """
        entries = self.entries()
        total = sum(entry.size for entry in entries)
        for entry in entries:
            if total + needed <= self.bound:
                return
            # another process may be writing an unfinished entry: keep it for a day
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
        """Remove all entries that no process has locked; returns the number of bytes freed."""
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
        """Try to lock the entry of a file without waiting; yields whether it worked."""
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
        """Digest of each image's content; unchanged files are not read again.

        Unchanged means same path, size, inode and times of modification and change. The digest of
        an unreadable file is the error message; decoding reports it.
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
        digests: list[bytes] = []
        for start in range(0, len(images), FILES_AT_ONCE):
            digests += self._contents(images, range(start, min(start + FILES_AT_ONCE, len(images))))
        return digests

    def _contents(self, images: ImageFiles, numbers: range) -> list[bytes]:
        """Digests of some files."""
        names = {number: os.fsencode(images.paths[number].absolute()) for number in numbers}
        known = self._known_contents(names.values())
        digests: list[bytes] = []
        fresh: dict[bytes, tuple[str, bytes]] = {}
        for number, name in names.items():
            path = images.paths[number]
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

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.root / DATABASE, timeout=60)) as database:
            database.execute(
                "CREATE TABLE IF NOT EXISTS digests "
                "(path BLOB PRIMARY KEY, identity TEXT, digest BLOB)"
            )
            yield database

    def _known_contents(self, names: Collection[bytes]) -> dict[bytes, tuple[str, bytes]]:
        marks = ", ".join("?" * len(names))
        query = f"SELECT path, identity, digest FROM digests WHERE path IN ({marks})"
        try:
            with self._database() as database:
                rows = database.execute(query, tuple(names))
                return {path: (identity, digest) for path, identity, digest in rows}
        except sqlite3.OperationalError:
            return {}  # the disk is full: read the files again
        except sqlite3.DatabaseError:
            (self.root / DATABASE).unlink(missing_ok=True)  # it is damaged
            return {}

    def _remember(self, fresh: dict[bytes, tuple[str, bytes]]) -> None:
        with (
            suppress(sqlite3.OperationalError),  # the disk is full: read the files again
            self._database() as database,
            database,
        ):
            database.executemany(
                "INSERT OR REPLACE INTO digests VALUES (?, ?, ?)",
                [(path, identity, digest) for path, (identity, digest) in fresh.items()],
            )

    def _forget_contents(self) -> None:
        """Empty the database; the file stays, since another process may have it open."""
        try:
            with self._database() as database:
                database.execute("DELETE FROM digests")
                database.commit()
                database.execute("VACUUM")
        except sqlite3.OperationalError:
            return  # in use, or the disk is full
        except sqlite3.DatabaseError:
            (self.root / DATABASE).unlink(missing_ok=True)


def key_of(*parts: object) -> str:
    """Hash the parts into a key."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def cannot_write(folder: Path, error: Exception) -> DataError:
    """Return the error for a cache that cannot be written."""
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return DataError(
        f"cannot write {folder} ({reason}): free some space, "
        "or choose another cache folder with COSEN_CACHE"
    )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path that is renamed to ``path`` at the end, or removed on an error."""
    partial = path.with_name(f"{path.name}.{os.getpid()}{path.suffix or '.part'}")
    try:
        yield partial
        partial.replace(path)
    except (OSError, SafetensorError) as error:
        raise cannot_write(path.parent, error) from error
    finally:
        partial.unlink(missing_ok=True)


def _key_in(path: Path) -> str:
    """Key of the entry that a file, a lock or a note belongs to."""
    return path.name.partition(".")[0]


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):  # Windows cannot remove open files
            path.unlink(missing_ok=True)


def _note_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.iterdir() if file.is_file())
    return path.stat().st_size
