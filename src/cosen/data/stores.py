"""Image stores: files, patches of files, arrays, or a PyTorch dataset.

A store decodes one image at a time, by number. It knows nothing about labels or splits.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from cosen.data.decoding import decode_image
from cosen.errors import DataError, escape_controls
from cosen.files import read_regular


class ImageStore(ABC):
    """Images by number."""

    @abstractmethod
    def __len__(self) -> int: ...

    def name(self, number: int) -> str:
        """Name of an image, unique in the store: a path below the root, or its number."""
        return str(number)

    @abstractmethod
    def open(self, number: int, *, least_size: tuple[int, int] | None = None) -> Image.Image:
        """Decode an image, grey or RGB; raises ``BrokenImageError``.

        A large JPEG may be decoded at a fraction of its size, but not below ``least_size``.
        """

    @abstractmethod
    def content(self, number: int) -> bytes:
        """Digest of the content of an image; it does not depend on its name or location."""


def printable(name: str) -> str:
    """Make a file name printable: replace bytes that are not UTF-8, escape control characters."""
    return escape_controls(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.digest()


class ImageFiles(ImageStore):
    """Image files below a root.

    Args:
        root: The folder that names are relative to.
        paths: The files, below the root or anywhere.
    """

    def __init__(self, root: Path, paths: Sequence[Path]) -> None:
        self.root = root
        self.paths = list(paths)

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, number: int) -> str:
        path = self.paths[number]
        return (path.relative_to(self.root) if path.is_relative_to(self.root) else path).as_posix()

    def open(self, number: int, *, least_size: tuple[int, int] | None = None) -> Image.Image:
        return decode_image(self.paths[number], least_size=least_size)

    def content(self, number: int) -> bytes:
        return _digest(read_regular(self.paths[number]))


class ImagePatches(ImageStore):
    """Square patches around points of image files; images are mirrored at their borders.

    Args:
        files: The images.
        file_numbers: The number of the file of each patch.
        points: The (row, column) of the centre of each patch.
        size: Side of a patch in pixels.
    """

    def __init__(
        self, files: ImageFiles, file_numbers: np.ndarray, points: np.ndarray, *, size: int
    ) -> None:
        self.files = files
        self.file_numbers = file_numbers
        self.points = points
        self.size = size
        self._opened: tuple[int, np.ndarray] | None = (
            None  # successive patches are often of the same image
        )

    def __len__(self) -> int:
        return len(self.file_numbers)

    def name(self, number: int) -> str:
        row, column = self.points[number]
        return f"{self.files.name(int(self.file_numbers[number]))}@{row},{column}"

    def open(self, number: int, *, least_size: tuple[int, int] | None = None) -> Image.Image:
        file_number = int(self.file_numbers[number])
        opened = self._opened  # read once: another thread may replace it
        if opened is None or opened[0] != file_number:
            opened = (file_number, np.asarray(self.files.open(file_number).convert("RGB")))
            self._opened = opened
        half = self.size // 2
        height, width = opened[1].shape[:2]
        row, column = (int(value) for value in self.points[number])
        rows = _mirrored(np.arange(row - half, row - half + self.size), height)
        columns = _mirrored(np.arange(column - half, column - half + self.size), width)
        return Image.fromarray(opened[1][rows[:, None], columns[None, :]])

    def content(self, number: int) -> bytes:
        where = f"{self.points[number].tolist()} {self.size}".encode()
        return _digest(self.files.content(int(self.file_numbers[number])), where)


def _mirrored(positions: np.ndarray, length: int) -> np.ndarray:
    """Reflect positions into 0..length-1, without repeating the border pixel."""
    if length == 1:
        return np.zeros_like(positions)
    period = 2 * (length - 1)
    folded = np.abs(positions) % period
    mirrored: np.ndarray = np.minimum(folded, period - folded)
    return mirrored


class ImageArray(ImageStore):
    """Images in memory.

    Args:
        images: uint8, shape ``(N, H, W)`` or ``(N, H, W, C)`` with one or three channels.
    """

    def __init__(self, images: np.ndarray) -> None:
        if images.dtype != np.uint8 or not (
            images.ndim == 3 or (images.ndim == 4 and images.shape[3] in (1, 3))
        ):
            raise DataError(
                "images must be uint8 of shape (N, H, W) or (N, H, W, 1 or 3), "
                f"but are {images.dtype} of shape {images.shape}"
            )
        self.images = images[..., 0] if images.ndim == 4 and images.shape[3] == 1 else images

    def __len__(self) -> int:
        return len(self.images)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(height, width, channels) of each image."""
        _, height, width, *channels = self.images.shape
        return height, width, channels[0] if channels else 1

    def open(self, number: int, *, least_size: tuple[int, int] | None = None) -> Image.Image:
        return Image.fromarray(self.images[number])

    def content(self, number: int) -> bytes:
        image = self.images[number]
        return _digest(str(image.shape).encode(), np.ascontiguousarray(image).tobytes())


class DatasetImages(ImageStore):
    """Images of a map-style ``torch.utils.data.Dataset`` whose items are (image, label).

    Args:
        dataset: Anything with ``__len__`` and ``__getitem__``. Images are Pillow images, arrays
            ``(H, W[, C])`` or tensors ``([C, ]H, W)``, uint8 or floats in [0, 1]. An item must
            always be the same image: the results of :meth:`content` are cached.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._contents: list[bytes | None] = [None] * len(dataset)

    def __len__(self) -> int:
        return len(self.dataset)

    def open(self, number: int, *, least_size: tuple[int, int] | None = None) -> Image.Image:
        image = self.dataset[number][0]
        if isinstance(image, Image.Image):
            return image if image.mode in ("L", "RGB") else image.convert("RGB")
        channels_first = hasattr(image, "detach")  # a tensor
        pixels = np.asarray(image.detach().cpu() if channels_first else image)
        if channels_first and pixels.ndim == 3:
            pixels = pixels.transpose(1, 2, 0)
        return Image.fromarray(ImageArray(as_bytes(pixels)[None]).images[0])

    def content(self, number: int) -> bytes:
        """Digest of the decoded image, since a dataset has no files.

        It is cached in this object only, so every process decodes each image once.
        """
        digest = self._contents[number]
        if digest is None:
            image = self.open(number)
            digest = _digest(str(image.size).encode(), image.mode.encode(), image.tobytes())
            self._contents[number] = digest
        return digest


def as_bytes(pixels: np.ndarray) -> np.ndarray:
    """Convert pixels to uint8; floats must be in [0, 1]."""
    if pixels.dtype == np.uint8:
        return pixels
    if np.issubdtype(pixels.dtype, np.floating):
        low, high = float(pixels.min(initial=0)), float(pixels.max(initial=0))
        if low >= 0 and high <= 1:
            return (pixels * 255).round().astype(np.uint8)
        raise DataError(
            f"float images must be in [0, 1], but are in [{low:g}, {high:g}]: "
            "do not normalise them, or use uint8"
        )
    raise DataError(f"images must be uint8 or floats in [0, 1], but are {pixels.dtype}")
