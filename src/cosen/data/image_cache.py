"""Images decoded once: one memory-mapped array of uint8 for a store and a preprocessing."""

import errno
import logging
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cosen.data.cache_folder import CacheFolder, cannot_write, key_of
from cosen.data.decoding import Progress, broken_images_error, in_threads
from cosen.data.labelled import LabelledImages
from cosen.data.preprocess import Preprocess
from cosen.data.stores import ImageArray
from cosen.errors import BrokenImageError

VERSION = 1
"""To be raised when decoding or preprocessing changes what comes out."""

_log = logging.getLogger("cosen")


@dataclass(frozen=True)
class DecodedImages:
    """Data all of whose images are decoded.

    Attributes:
        data: The data, without what could not be decoded.
        pixels: uint8, shape ``(images in the store, height, width, channels)``, read-only; to be
            indexed with the ``rows`` of the data or of any part of it.
        key: Names the pixels: changes with the content of any image and with the preprocessing.
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
    """Decode all images of a dataset, or map what was decoded at an earlier time.

    Args:
        data: The data; parts of it taken later share what is decoded now.
        preprocess: What is done to each image.
        skip_broken: Leave out images that do not decode, and say how many; else an error names
            all of them.
        cache: Where the pixels are kept; the user's cache if not given.
        progress: Told how far it is.
    """
    images = data.images
    shape = (len(images), *preprocess.shape)
    cache = cache or CacheFolder()
    key = key_of(VERSION, preprocess, *cache.contents(images))
    if isinstance(images, ImageArray) and images.shape == preprocess.shape:
        pixels = images.images.reshape(shape)
        pixels.flags.writeable = False
        return DecodedImages(data, pixels, key)  # as they are: nothing to decode or to keep
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
    if used and not skip_broken:
        raise broken_images_error(data, used)
    if used:
        _log.warning("%s: left out %d broken files of %d", data.source, len(used), len(data))
        data = data.take(~np.isin(data.rows, list(used)))
    return DecodedImages(data, pixels, key)


def _build(
    data: LabelledImages,
    preprocess: Preprocess,
    path: Path,
    shape: tuple[int, ...],
    progress: Progress | None,
) -> dict[str, str]:
    """Decode into a file beside its place, and move it there once it is whole.

    Returns:
        The numbers of the images that did not decode (they are black), and why.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    broken: dict[str, str] = {}

    def decode(row: int) -> None:
        try:
            pixels[row] = preprocess(data.images.open(row, least_size=preprocess.least_size))
        except BrokenImageError as error:
            broken[str(row)] = str(error)

    try:
        _reserve(partial, int(np.prod(shape)))
        pixels = np.memmap(partial, dtype=np.uint8, mode="r+", shape=shape)
        for _ in in_threads(decode, range(shape[0]), progress):
            pass
        pixels.flush()
        partial.replace(path)
    except OSError as error:
        raise cannot_write(path.parent, error) from error
    finally:
        partial.unlink(missing_ok=True)
    return broken


def _reserve(path: Path, size: int) -> None:
    """Make a file of zeros that has its space: writing to a mapped hole of a full disk kills."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, size)
                return
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                    raise  # else the file system does not know it
        piece = bytes(2**20)
        for start in range(0, size, len(piece)):
            file.write(piece[: size - start])
