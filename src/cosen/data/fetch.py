"""Downloading the datasets that may be downloaded, whole and checked or not at all.

All work happens in a temporary folder beside the destination. Only what has the right checksum
is moved to its place, in one step, so that a download that breaks off leaves nothing behind.
"""

import hashlib
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cosen.data.named import find_named
from cosen.errors import DataError
from cosen.networks.download import Progress, TransferError, receive

MARK = ".fetched"
"""The file in an unpacked folder that keeps the checksum of its archive."""


@dataclass(frozen=True)
class Download:
    """What to download for a dataset.

    Attributes:
        mirrors: Addresses of folders that hold the files, in the order to try.
        checksums: For each file ``md5:...`` or ``sha256:...``, as its makers published it.
        folder: Where the files go below the data root.
        unpacks_to: The folder that an archive holds; empty where files are kept as they are.
    """

    mirrors: tuple[str, ...]
    checksums: Mapping[str, str]
    folder: str = ""
    unpacks_to: str = ""


DOWNLOADS: dict[str, Download] = {
    "mnist": Download(
        mirrors=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
        checksums={
            "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
        },
        folder="mnist",
    ),
    "fashion-mnist": Download(
        mirrors=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        ),
        checksums={
            "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
        },
        folder="fashion-mnist",
    ),
    "cifar10": Download(
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        checksums={"cifar-10-python.tar.gz": "md5:c58f30108f718f92721af3b95e74349a"},
        unpacks_to="cifar-10-batches-py",
    ),
    "cifar100": Download(
        mirrors=("https://www.cs.toronto.edu/~kriz/",),
        checksums={"cifar-100-python.tar.gz": "md5:eb9058c3a382ffc7106e4002c42a8d85"},
        unpacks_to="cifar-100-python",
    ),
    "caltech101": Download(
        mirrors=("https://data.caltech.edu/records/mzrjq-6wc02/files/",),
        checksums={"caltech-101.zip": "md5:3138e1922a9193bfa496528edbbc45d0"},
        unpacks_to="101_ObjectCategories",
    ),
}


def fetch(
    name: str,
    root: Path,
    *,
    progress: Progress | None = None,
    urls: Sequence[str] | None = None,
) -> list[Path]:
    """Downloads a dataset into its official layout, and says where its files or folder lie.

    What is there with the right checksum is not downloaded again.

    Args:
        name: A name of :data:`cosen.data.named.NAMED`.
        root: The data root.
        progress: Called as bytes come in.
        urls: Addresses of folders to try in place of the official ones; checksums stay the same.
    """
    dataset, _ = find_named(name)
    download = DOWNLOADS.get(dataset.name)
    if download is None:
        raise DataError(f"{dataset.name} cannot be downloaded. {dataset.where}")
    mirrors = download.mirrors if urls is None else tuple(urls)
    folder = root / download.folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [
            _fetch_archive(folder, file, checksum, download.unpacks_to, mirrors, progress)
            if download.unpacks_to
            else _fetch_file(folder, file, checksum, mirrors, progress)
            for file, checksum in download.checksums.items()
        ]
    except OSError as error:
        raise DataError(
            f"cannot write {dataset.name} into {folder} ({error}): make room or give another "
            "data root"
        ) from error


def _fetch_file(
    folder: Path, file: str, checksum: str, mirrors: Sequence[str], progress: Progress | None
) -> Path:
    path = folder / file
    if path.is_file() and _checksum_of(path, checksum) == checksum:
        return path
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        downloaded = Path(scratch, file)
        _download(downloaded, checksum, mirrors, progress, destination=path)
        downloaded.replace(path)
    return path


def _fetch_archive(
    folder: Path,
    file: str,
    checksum: str,
    unpacks_to: str,
    mirrors: Sequence[str],
    progress: Progress | None,
) -> Path:
    path = folder / unpacks_to
    if path.exists():
        mark = path / MARK
        if mark.is_file() and mark.read_text().strip() == checksum:
            return path
        raise DataError(
            f"{path} is there already, but not from a download of {file}: use it as it is, or "
            "move it away and fetch again"
        )
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as scratch:
        archive = Path(scratch, file)
        _download(archive, checksum, mirrors, progress, destination=path)
        unpacked = Path(scratch, "unpacked")
        _unpack(archive, unpacked, unpacks_to)
        (unpacked / unpacks_to / MARK).write_text(f"{checksum}\n")
        (unpacked / unpacks_to).rename(path)
    return path


def _download(
    target: Path,
    checksum: str,
    mirrors: Sequence[str],
    progress: Progress | None,
    *,
    destination: Path,
) -> None:
    """Writes a file with this checksum from the first mirror that gives it."""
    reasons = []
    for mirror in mirrors:
        url = f"{mirror.rstrip('/')}/{target.name}"
        try:
            receive(url, target, progress)
        except TransferError as error:
            reasons.append(f"{url}: {error}")
            continue
        found = _checksum_of(target, checksum)
        if found == checksum:
            return
        reasons.append(f"{url}: the checksum is {found}, not {checksum}")
    raise DataError(
        f"could not download {target.name} ({'; '.join(reasons)}); nothing was kept. Try again "
        f"later, or get it elsewhere and lay it out as {destination}"
    )


def _checksum_of(path: Path, wanted: str) -> str:
    """The checksum of a file, in the algorithm of the one that is wanted."""
    algorithm = wanted.partition(":")[0]
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, _hasher(algorithm)).hexdigest()}"


def _hasher(algorithm: str) -> Callable[[], "hashlib._Hash"]:
    # against broken downloads, not against forgery, so that md5 will do where none better is known
    return lambda: hashlib.new(algorithm, usedforsecurity=False)


def _unpack(archive: Path, into: Path, folder: str) -> None:
    """Unpacks a tar, or the ``<folder>.tar.gz`` in a zip, refusing what would land elsewhere."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as outer:
                for name in outer.namelist():
                    if PurePosixPath(name).name == f"{folder}.tar.gz":
                        with (
                            outer.open(name) as inner,
                            tarfile.open(fileobj=inner, mode="r|gz") as tar,
                        ):
                            tar.extractall(into, filter="data")
        else:
            with tarfile.open(archive) as tar:
                tar.extractall(into, filter="data")
    except (tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise DataError(f"{archive.name} cannot be unpacked ({error}); nothing was kept") from error
    if not (into / folder).is_dir():
        raise DataError(f"{archive.name} has no folder {folder}; nothing was kept")
