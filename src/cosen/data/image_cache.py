"""Cache of decoded images: one memory-mapped uint8 array per store and preprocessing.

Images that do not fit in the cache are decoded whenever they are needed, in other processes.
"""

import errno
import logging
import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cosen.data.cache_folder import CacheFolder, key_of, replacing
from cosen.data.decoding import Preprocess, Progress, in_threads
from cosen.data.labelled import LabelledImages
from cosen.data.stores import ImageArray, ImageStore, printable
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
    pixels: "np.ndarray | PixelsOnDemand"
    key: str

    def read(self, batches: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """Read batches of rows, ``(B, height, width, channels)`` each, ahead in the background."""
        if isinstance(self.pixels, PixelsOnDemand):
            yield from self.pixels.read(batches)
            return
        with ThreadPoolExecutor(1) as reader:
            ahead: deque[Future[np.ndarray]] = deque()
            for rows in batches:
                ahead.append(reader.submit(self.pixels.__getitem__, rows))
                if len(ahead) > 1:
                    yield np.asarray(ahead.popleft().result())
            for last in ahead:
                yield np.asarray(last.result())


@dataclass(frozen=True)
class PixelsOnDemand:
    """Pixels that are decoded when they are needed; indexed as an array of all images."""

    images: ImageStore
    preprocess: Preprocess

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.images), *self.preprocess.shape)

    def __getitem__(self, rows: int | np.ndarray) -> np.ndarray:
        if np.ndim(rows) == 0:
            return self.decode(int(rows))
        return np.stack([self.decode(row) for row in np.asarray(rows).tolist()])

    def decode(self, row: int) -> np.ndarray:
        """Decode an image, ``(height, width, channels)``."""
        image = self.images.open(row, least_size=self.preprocess.least_size)
        return self.preprocess(image)

    def read(self, batches: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
        """Decode batches of rows in other processes, in this order."""
        import torch
        from torch.utils.data import DataLoader

        loader: DataLoader[np.ndarray] = DataLoader(
            _Decoder(self),  # type: ignore[arg-type]
            batch_sampler=[rows.tolist() for rows in batches],
            num_workers=decoding_processes(),
            collate_fn=_collate,
            generator=torch.Generator(),  # does not draw from the global one
        )
        try:
            for pixels in loader:
                if isinstance(pixels, str):
                    raise DataError(
                        f"{pixels}; it could be read at the start: restore it, and resume the run"
                    )
                yield pixels
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise DataError(
                "a process that decodes images has ended, perhaps for lack of memory: set "
                "COSEN_WORKERS to a smaller number of processes"
            ) from error


class _Decoder:
    """The images as a PyTorch dataset by row; a text that says why an image cannot be decoded."""

    def __init__(self, pixels: PixelsOnDemand) -> None:
        self.pixels = pixels

    def __getitem__(self, row: int) -> np.ndarray | str:
        try:
            return self.pixels.decode(row)
        except BrokenImageError as error:
            return f"{printable(self.pixels.images.name(row))}: {error}"


def _collate(images: list[np.ndarray | str]) -> np.ndarray | str:
    """Stack images, or return the first error. Arrays, unlike tensors, need no shared memory."""
    for image in images:
        if isinstance(image, str):
            return image
    return np.stack(images)


def decoding_processes() -> int:
    """The number of processes that decode images: ``COSEN_WORKERS``, or one per core.

    Several training processes of this machine share the cores.
    """
    given = os.environ.get("COSEN_WORKERS", "")
    if given and not (given.isdigit() and int(given)):
        raise DataError(f"COSEN_WORKERS must be a number of processes, but is {given!r}")
    processes = int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
    return int(given) if given else max(1, (os.cpu_count() or 1) // processes)


def decode_images(
    data: LabelledImages,
    preprocess: Preprocess,
    *,
    skip_broken: bool = False,
    cache: CacheFolder | None = None,
    progress: Progress | None = None,
) -> DecodedImages:
    """Decode all images of a dataset, or load them from the cache.

    If they do not fit in the cache, each is decoded once to find the broken ones, and again
    whenever it is needed.

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
        array = images.images.reshape(shape)  # they already have the right shape
        array.flags.writeable = False
        return DecodedImages(data, array, key)
    size = int(np.prod(shape, dtype=np.int64))
    pixels: np.ndarray | PixelsOnDemand
    with cache.locked("images", key) as path:
        note = cache.note(path)
        stored = None if note is None or "broken" not in note else path.stat().st_size
        fits = size <= cache.bound or stored == size
        if stored == size or (stored == 0 and not fits):
            assert note is not None
            broken = note["broken"]
        elif fits:
            cache.make_room(size, keep=path)
            broken = _build(data, preprocess, path, shape, progress)
        else:
            broken = _broken(PixelsOnDemand(images, preprocess), progress)
            with replacing(path) as partial:
                partial.touch()
        about = f"{data.source}: {len(images)} images{'' if fits else ', without pixels'}"
        cache.use(path, {"about": about, "broken": broken})
        if fits:
            pixels = np.memmap(path, dtype=np.uint8, mode="r", shape=shape)
        else:
            pixels = PixelsOnDemand(images, preprocess)
            _log.warning(
                "%d images of %d x %d pixels take %.1f GiB, more than the cache (%.1f GiB, "
                "COSEN_CACHE_BYTES): they are decoded again in each epoch, by %d processes "
                "(COSEN_WORKERS)",
                *(len(images), preprocess.width, preprocess.height),
                *(size / 2**30, cache.bound / 2**30, decoding_processes()),
            )
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


def _broken(pixels: PixelsOnDemand, progress: Progress | None) -> dict[str, str]:
    """Decode all images once; return the numbers of the broken ones with the reasons."""

    def reason(row: int) -> str | None:
        try:
            pixels.decode(row)
        except BrokenImageError as error:
            return str(error)
        return None

    reasons = in_threads(reason, range(len(pixels.images)), progress)
    return {str(row): text for row, text in enumerate(reasons) if text is not None}


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
