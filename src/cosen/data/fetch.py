"""Download datasets into the layout that the loaders read.

A dataset is stored only if it is complete and has the right checksum. A failed download leaves no
files.
"""

import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cosen.data.named import find_named
from cosen.downloads import DownloadProgress, download
from cosen.errors import DataError

MARK = ".fetched"
"""File in an unpacked folder with the checksum of its archive."""


@dataclass(frozen=True)
class Download:
    """The files of a dataset.

    Attributes:
        mirrors: Addresses of folders with the files, tried in order.
        checksums: For each file its published checksum, ``md5:...`` or ``sha256:...``.
        folder: Folder below the data root for the files.
        unpacks_to: The folder in the archive; empty if the files are not archives.
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
    progress: DownloadProgress | None = None,
    urls: Sequence[str] | None = None,
) -> list[Path]:
    """Download a dataset and return the paths of its files or of its folder.

    Files that are already there with the right checksum are not downloaded again.

    Args:
        name: A name in :data:`cosen.data.named.NAMED`.
        root: The data root.
        progress: Callback for progress.
        urls: Addresses of folders to try instead of the official ones; the checksums are the same.
    """
    dataset, _ = find_named(name)
    files = DOWNLOADS.get(dataset.name)
    if files is None:
        raise DataError(f"{dataset.name} cannot be downloaded. {dataset.where}")
    mirrors = files.mirrors if urls is None else urls
    folder = root / files.folder
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, checksum in files.checksums.items():
            if files.unpacks_to:
                path = folder / files.unpacks_to
                _fetch_archive(path, file, checksum, mirrors, progress)
            else:
                path = folder / file
                download(path, checksum, mirrors, progress=progress)
            paths.append(path)
    except OSError as error:
        raise DataError(
            f"cannot write {dataset.name} to {folder} ({error}): free some space or choose "
            "another data root"
        ) from error
    return paths


def _fetch_archive(
    path: Path, file: str, checksum: str, mirrors: Sequence[str], progress: DownloadProgress | None
) -> None:
    """Download an archive and move its folder ``path.name`` to ``path``."""
    if path.exists():
        mark = path / MARK
        if mark.is_file() and mark.read_text().strip() == checksum:
            return
        raise DataError(
            f"{path} already exists, but was not downloaded by this command: use it, or move it "
            "away and fetch again"
        )
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as scratch:
        archive = Path(scratch, file)
        download(archive, checksum, mirrors, progress=progress, destination=path)
        unpacked = Path(scratch, "unpacked")
        _unpack(archive, unpacked, path.name)
        (unpacked / path.name / MARK).write_text(f"{checksum}\n")
        (unpacked / path.name).rename(path)


def _unpack(archive: Path, into: Path, folder: str) -> None:
    """Unpack a tar file, or ``<folder>.tar.gz`` inside a zip file."""
    # not pooch.Untar: on Python 3.11 it also writes files outside of the folder
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
        raise DataError(f"{archive.name} cannot be unpacked ({error}): fetch it again") from error
    if not (into / folder).is_dir():
        raise DataError(f"{archive.name} has no folder {folder}: fetch it again")
