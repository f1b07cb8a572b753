"""Download a file from the first mirror that has it, and keep it only if its checksum is right."""

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pooch
import requests

from cosen.errors import DataError

DownloadProgress = Callable[[str, int, int | None], None]
"""Callback for progress: file name, bytes received, bytes in total (None if unknown)."""

CHUNK = 1 << 18
TIMEOUT = 60.0
# "identity": some servers would send a .gz file as compressed content, which requests unpacks
HEADERS = {"User-Agent": "cosen", "Accept-Encoding": "identity"}


def download(
    path: Path,
    checksum: str,
    mirrors: Sequence[str],
    *,
    progress: DownloadProgress | None = None,
    destination: Path | None = None,
) -> None:
    """Download a file to ``path``, unless a file with this checksum is already there.

    The file is written to a temporary folder next to ``path`` and moved when it is complete. If the
    download fails, no partial file remains and an existing file at ``path`` is kept.

    Args:
        path: Where to put the file; its name is appended to the address of each mirror.
        checksum: ``md5:...`` or ``sha256:...``; the first digits are enough.
        mirrors: Addresses of folders, tried in order.
        progress: Callback for progress.
        destination: Path for the error message, if the file is unpacked; default: ``path``.
    """
    if path.is_file() and _checksum(path, checksum).startswith(checksum):
        return
    bar = False if progress is None else _ProgressBar(path.name, progress)
    fetch = pooch.HTTPDownloader(bar, chunk_size=CHUNK, timeout=TIMEOUT, headers=HEADERS)
    reasons = []
    # not pooch.retrieve: it makes files readable for their owner only and needs whole checksums
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as scratch:
        target = Path(scratch, path.name)
        for mirror in mirrors:
            url = f"{mirror.rstrip('/')}/{path.name}"
            try:
                fetch(url, str(target), None)
            except requests.RequestException as error:
                reasons.append(f"{url}: {_reason(error)}")
                continue
            found = _checksum(target, checksum)
            if found.startswith(checksum):
                target.replace(path)
                return
            reasons.append(f"{url}: the checksum is {found}, but should be {checksum}")
    raise DataError(
        f"could not download {path.name} ({'; '.join(reasons)}). Try again later, or get it "
        f"elsewhere and put it at {destination or path}"
    )


class _ProgressBar:
    """The interface that pooch expects of a progress bar."""

    total = 0  # set by pooch; 0 if the server does not send it

    def __init__(self, file: str, progress: DownloadProgress) -> None:
        self.file = file
        self.progress = progress
        self.received = 0

    def update(self, size: int) -> None:
        self.received += size
        if self.total:  # pooch adds whole chunks, also for a shorter last one
            self.received = min(self.received, self.total)
        self.progress(self.file, self.received, self.total or None)

    def reset(self) -> None:
        self.received = 0

    def close(self) -> None: ...


def _checksum(path: Path, like: str) -> str:
    """Compute the checksum of a file with the algorithm of another checksum."""
    algorithm = like.partition(":")[0]
    with path.open("rb") as file:
        # pooch.file_hash fails for MD5 on systems that allow it only with this flag
        digest = hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False))
    return f"{algorithm}:{digest.hexdigest()}"


def _reason(error: requests.RequestException) -> str:
    match error:
        case requests.HTTPError(response=requests.Response() as response):
            return f"the server answered {response.status_code} {response.reason}"
        case requests.exceptions.ChunkedEncodingError():
            return "the connection was lost"
        case requests.ConnectionError():
            return "no answer"
    return str(error)
