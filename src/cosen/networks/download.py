"""Downloading one file, whole and checked or not at all."""

import hashlib
import http.client
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from cosen.errors import DataError

Progress = Callable[[str, int, int | None], None]
"""Told the file, the bytes that have come, and how many there will be, where that is known."""

CHUNK = 1 << 18
TIMEOUT = 60.0


def download(
    path: Path, sha256_prefix: str, urls: Sequence[str], *, progress: Progress | None = None
) -> None:
    """Put a file whose SHA-256 begins so at ``path``, from the first address that gives it.

    It comes into a temporary folder beside its place and is moved there in one step: a download
    that breaks off leaves nothing behind, and what was there before.
    """
    reasons = []
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as scratch:
        target = Path(scratch, path.name)
        for url in urls:
            try:
                receive(url, target, progress)
            except TransferError as error:
                reasons.append(f"{url}: {error}")
                continue
            found = sha256(target)
            if found.startswith(sha256_prefix):
                target.replace(path)
                return
            reasons.append(f"{url}: its SHA-256 is {found}, and should begin with {sha256_prefix}")
    raise DataError(
        f"could not download {path.name} ({'; '.join(reasons)}); nothing was kept. Try again "
        f"later, or get it elsewhere and put it at {path}"
    )


def sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class TransferError(Exception):
    """Why an address did not give a file."""


def receive(url: str, target: Path, progress: Progress | None) -> None:
    """Write what an address gives to a file, or raise ``TransferError``."""
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "cosen"})
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        raise TransferError(f"the server answered {error.code} {error.reason}") from error
    except urllib.error.URLError as error:
        raise TransferError(f"no answer ({error.reason})") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise TransferError(f"no answer ({error})") from error
    with response, target.open("wb") as file:
        length = response.headers.get("Content-Length")
        total = int(length) if length and length.isdigit() else None
        received = 0
        while True:
            try:
                chunk = response.read(CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise TransferError(f"broke off after {received} bytes ({error})") from error
            if not chunk:
                break
            file.write(chunk)
            received += len(chunk)
            if progress is not None:
                progress(target.name, received, total)
    if total is not None and received < total:
        raise TransferError(f"broke off after {received} of {total} bytes")
