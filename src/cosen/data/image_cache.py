"""Cache of decoded images: one memory-mapped uint8 array per store and preprocessing."""

import errno
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cosen.data.cache_folder import CacheFolder, key_of, replacing
from cosen.data.decoding import Preprocess, Progress, in_threads
from cosen.data.labelled import LabelledImages
from cosen.data.stores import ImageArray, printable
from cosen.errors import BrokenImageError, DataError

VERSION = 1
"""Increase it when decoding or preprocessing changes the pixels."""

_log = logging.getLogger("cosen")


@dataclass(frozen=True)
class DecodedImages:
    """A dataset with decoded images.

    Attributes:
        data: The dataset, without broken images.
        pixels: uint8, shape ``(images in the store, height, width, channels)``, read-only. Index it
            with the ``rows`` of the dataset or of a split.
        key: Hash of the content of all images and of the preprocessing.
    """

    data: LabelledImages
    pixels: np.ndarray
    key: str


def decode_images(
    data: LabelledImages,
    preprocess: Preprocess,
    *,
    skip_broken: bool = False,
    cache: CacheFolder | None = None,
    progress: Progress | None = None,
) -> DecodedImages:
    """Decode all images of a dataset, or load them from the cache.

    Args:
        data: The dataset. Splits of it use the same pixels.
        preprocess: Size and channels of the pixels.
        skip_broken: Remove broken images and log how many; otherwise an error lists them all.
        cache: The cache; default: the user's cache.
        progress: Callback for progress.
    """
    images = data.images
    shape = (len(images), *preprocess.shape)
    cache = cache or CacheFolder()
    key = key_of(VERSION, preprocess, *cache.contents(images))
    if isinstance(images, ImageArray) and images.shape == preprocess.shape:
        pixels = images.images.reshape(shape)
        pixels.flags.writeable = False
        return DecodedImages(data, pixels, key)  # they already have the right shape
    with cache.locked("images", key) as path:
        note = cache.note(path)
        if note is not None and "broken" in note and path.stat().st_size == np.prod(shape):
            broken = note["broken"]
        else:
            cache.make_room(int(np.prod(shape)), keep=path)
            broken = _build(data, preprocess, path, shape, progress)
        cache.use(path, {"about": f"{data.source}: {len(images)} images", "broken": broken})
        pixels = np.memmap(path, dtype=np.uint8, mode="r", shape=shape)
    wanted = set(data.rows.tolist())
    used = {int(row): reason for row, reason in broken.items() if int(row) in wanted}
    if used and not (skip_broken and len(used) < len(data)):
        raise broken_images_error(data, used)
    if used:
        _log.warning("%s: skipped %d broken files of %d", data.source, len(used), len(data))
        data = data.take(~np.isin(data.rows, list(used)))
    return DecodedImages(data, pixels, key)


def broken_images_error(data: LabelledImages, broken: dict[int, str]) -> DataError:
    """Return the error that lists all broken images, given their numbers and the reasons."""
    lines = [f"  {printable(data.images.name(row))}: {broken[row]}" for row in sorted(broken)]
    return DataError(
        f"{data.source}: {len(broken)} of {len(data)} files cannot be used:\n"
        + "\n".join(lines)
        + f"\nfix or remove them{', or use --skip-broken' * (len(broken) < len(data))}"
    )


def _build(
    data: LabelledImages,
    preprocess: Preprocess,
    path: Path,
    shape: tuple[int, ...],
    progress: Progress | None,
) -> dict[str, str]:
    """Decode into a temporary file and rename it when it is complete.

    Returns:
        The numbers of broken images (their pixels are black) with the reasons.
    """
    broken: dict[str, str] = {}

    def decode(row: int) -> None:
        try:
            pixels[row] = preprocess(data.images.open(row, least_size=preprocess.least_size))
        except BrokenImageError as error:
            broken[str(row)] = str(error)

    with replacing(path) as partial:
        _reserve(partial, int(np.prod(shape)))
        pixels = np.memmap(partial, dtype=np.uint8, mode="r+", shape=shape)
        for _ in in_threads(decode, range(shape[0]), progress):
            pass
        pixels.flush()
    return broken


def _reserve(path: Path, size: int) -> None:
    """Allocate a file of zeros: writing to a sparse mapped file crashes if the disk is full."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, size)
                return
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                    raise  # else the file system does not support it
        piece = bytes(2**20)
        for start in range(0, size, len(piece)):
            file.write(piece[: size - start])
