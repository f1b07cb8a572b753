"""Decode images and convert them to one size, in parallel."""

import errno
import math
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Condition
from typing import IO, Literal, TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError
from PIL.ImageFile import ImageFile

from cosen.errors import BrokenImageError, InputError, escape_controls
from cosen.files import open_regular

SUFFIXES = frozenset(
    (
        *(".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif"),
        *(".tiff", ".webp"),
    )
)

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF")
"""Formats that are read. Pillow has decoders for many more; some start other programs."""

MAX_PIXELS = 178_956_970
"""Largest image that is decoded; Pillow's own limit, which a program may have changed."""

MAX_SIDE = 4096
"""Largest height or width that images are converted to."""

LARGE = 2**24
"""Pixels above which an image is reduced at once, if it is needed at a smaller size."""

STRIP = 2**20
"""Pixels that are converted at once."""

PIXELS_AT_ONCE = 2**27
"""Pixels of all images that are decoded at the same time; one larger image is decoded alone."""

Progress = Callable[[int, int], None]
"""Callback for progress: number done, total number."""

Result = TypeVar("Result")

_BATCH = 512  # queued at once: saves memory, and Ctrl-C does not wait for a whole dataset


def decode_image(
    source: Path | IO[bytes], *, least_size: tuple[int, int] | None = None
) -> Image.Image:
    """Decode an image to mode ``L`` (grey) or ``RGB``, rotated according to its EXIF data.

    Palettes, CMYK and alpha become RGB (transparent parts white), sixteen bits are scaled to
    eight, and only the first frame of an animation is used.

    Args:
        source: A path or an open file.
        least_size: Sufficient (width, height). A larger JPEG may be decoded at a fraction of its
            size, and a very large image is reduced, but never below this.

    Raises:
        BrokenImageError: The file is not an image, is truncated, or is too large to decode safely.
    """
    with opened_image(source) as image:
        if least_size is not None:
            longest = max(least_size)  # the image may be rotated below
            least_size = (longest, longest)
            if image.format == "JPEG":
                image.draft(image.mode, least_size)
        with _decoding.share(image.width * image.height):
            image.load()
            return _reduced(_as_grey_or_rgb(image), least_size)


@contextmanager
def opened_image(source: Path | IO[bytes]) -> Iterator[Image.Image]:
    """Open an image without decoding it. Any error of a decoder means that it is broken."""
    file: AbstractContextManager[IO[bytes]]
    image: Image.Image | None = None
    try:
        file = open_regular(source) if isinstance(source, Path) else nullcontext(source)
        with file as content, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about metadata, and about sizes that are checked here
            with Image.open(content, formats=_readable_formats()) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise Image.DecompressionBombError
                yield image
    except FileNotFoundError as error:
        raise BrokenImageError("the file is missing") from error
    except UnidentifiedImageError as error:
        raise BrokenImageError("not an image of a supported format") from error
    except Image.DecompressionBombError as error:
        raise BrokenImageError("too many pixels to decode safely") from error
    except Exception as error:  # decoders raise errors of any type for a damaged file
        is_large = image is not None and image.width * image.height > LARGE
        if isinstance(error, MemoryError) and is_large:
            raise  # the file may be fine: memory ran out
        if isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.EMFILE, errno.ENFILE):
            raise
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        reason = "truncated" if "truncated" in reason.lower() else reason.splitlines()[0]
        raise BrokenImageError(escape_controls(reason)) from error


@cache
def _readable_formats() -> tuple[str, ...]:
    Image.init()  # old versions of Pillow have no AVIF
    return tuple(name for name in FORMATS if name in Image.OPEN)


class _PixelBudget:
    """Lets threads decode images while their pixels together are within a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = self._free = limit
        self._changed = Condition()

    @contextmanager
    def share(self, pixels: int) -> Iterator[None]:
        pixels = min(pixels, self._limit)
        with self._changed:
            self._changed.wait_for(lambda: self._free >= pixels)
            self._free -= pixels
        try:
            yield
        finally:
            with self._changed:
                self._free += pixels
                self._changed.notify_all()


_decoding = _PixelBudget(PIXELS_AT_ONCE)


def _as_grey_or_rgb(image: Image.Image) -> Image.Image:
    with suppress(Exception):  # damaged EXIF data
        ImageOps.exif_transpose(image, in_place=True)
    if image.mode in ("L", "RGB"):
        return image.copy() if isinstance(image, ImageFile) else image  # a copy has no open file
    if image.mode == "1":
        return image.convert("L")
    if image.mode.startswith("I") or image.mode == "F":
        return _eight_bit_grey(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        return _on_white(image)
    return image.convert("RGB")


def _on_white(image: Image.Image) -> Image.Image:
    """Replace transparent parts by white, a strip at a time to save memory."""
    result = Image.new("RGB", image.size)
    rows = max(1, STRIP // max(1, image.width))
    for top in range(0, image.height, rows):
        strip = image.crop((0, top, image.width, min(top + rows, image.height)))
        strip.info = image.info
        visible = strip.convert("RGBA")
        white = Image.new("RGBA", visible.size, "white")
        result.paste(Image.alpha_composite(white, visible).convert("RGB"), (0, top))
    return result


def _reduced(image: Image.Image, least_size: tuple[int, int] | None) -> Image.Image:
    """Average blocks of pixels of a large image, but keep at least ``least_size``."""
    if least_size is None or image.width * image.height <= LARGE:
        return image
    factor = min(image.width // least_size[0], image.height // least_size[1])
    return image.reduce(factor) if factor > 1 else image


def _eight_bit_grey(image: Image.Image) -> Image.Image:
    """Scale sixteen-bit grey to eight bits; Pillow's conversion would clip it."""
    values = np.asarray(image)  # uint16, int32 or float32
    top = values.max(initial=0)
    if image.mode == "F" and top <= 1:
        scale = 255.0
    elif image.mode.startswith("I;16") or top > 255:
        scale = 255 / 65535
    else:
        scale = 1.0
    grey = np.empty(values.shape, dtype=np.uint8)
    rows = max(1, STRIP // max(1, image.width))  # a strip at a time: float64 needs eight bytes
    for start in range(0, len(values), rows):
        strip = np.nan_to_num(values[start : start + rows].astype(np.float64) * scale)
        grey[start : start + rows] = strip.round().clip(0, 255)
    return Image.fromarray(grey)


Fit = Literal["crop", "stretch", "pad"]
Interpolation = Literal["bilinear", "bicubic"]


@dataclass(frozen=True)
class Preprocess:
    """Converts images to one size and number of channels.

    Attributes:
        height: Pixels.
        width: Pixels.
        channels: 1 for grey, 3 for RGB.
        fit: ``"crop"`` keeps the aspect ratio and crops the centre, ``"stretch"`` changes the
            aspect ratio, ``"pad"`` keeps it and adds black borders.
        interpolation: How pixels are computed when the size changes.
        share: Share of the sides that ``"crop"`` keeps; 1 crops only what the aspect ratio needs.
    """

    height: int
    width: int
    channels: Literal[1, 3] = 3
    fit: Fit = "crop"
    interpolation: Interpolation = "bilinear"
    share: float = 1.0

    def __post_init__(self) -> None:
        sides = (self.height, self.width)
        if not 1 <= min(sides) <= max(sides) <= MAX_SIDE or self.channels not in (1, 3):
            raise InputError(
                f"images need sides of 1 to {MAX_SIDE} pixels and 1 or 3 channels, but the size is "
                f"{self.height} x {self.width} x {self.channels}"
            )
        if self.fit not in ("crop", "stretch", "pad"):
            raise InputError(f"fit must be crop, stretch or pad, but is {self.fit!r}")
        if self.interpolation not in ("bilinear", "bicubic") or not 0 < self.share <= 1:
            raise InputError(
                "interpolation must be bilinear or bicubic and share in (0, 1], but they are "
                f"{self.interpolation!r} and {self.share}"
            )

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.height, self.width, self.channels)

    @property
    def least_size(self) -> tuple[int, int]:
        """Smallest (width, height) to decode an image at without losing sharpness."""
        return (math.ceil(2 * self.width / self.share), math.ceil(2 * self.height / self.share))

    def box(self, size: tuple[int, int]) -> tuple[float, float, float, float]:
        """Return the part of an image of (width, height) that is used: left, top, right, bottom.

        With ``"pad"`` it is larger than the image.

        Example:
            >>> Preprocess(100, 100).box((400, 200))
            (100.0, 0.0, 300.0, 200.0)
        """
        if self.fit == "stretch":
            return (0.0, 0.0, float(size[0]), float(size[1]))
        ratios = (self.width / size[0], self.height / size[1])
        scale = max(ratios) / self.share if self.fit == "crop" else min(ratios)
        width, height = self.width / scale, self.height / scale
        left, top = (size[0] - width) / 2, (size[1] - height) / 2
        return (left, top, left + width, top + height)

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Convert an image to uint8, shape ``(height, width, channels)``."""
        mode = "L" if self.channels == 1 else "RGB"
        image = image if image.mode == mode else image.convert(mode)
        if image.size != (self.width, self.height) or (self.fit == "crop" and self.share < 1):
            image = self._resized(image)
        return np.asarray(image).reshape(self.shape)

    def _resized(self, image: Image.Image) -> Image.Image:
        wanted, how = (self.width, self.height), Image.Resampling[self.interpolation.upper()]
        if self.fit == "stretch":
            return image.resize(wanted, how)
        if self.fit == "crop":
            left, top, right, bottom = self.box(image.size)
            # rounding may have left the image
            inside = (max(0.0, left), max(0.0, top), min(right, image.width))
            return image.resize(wanted, how, box=(*inside, min(bottom, image.height)))
        scale = min(self.width / image.width, self.height / image.height)
        inner = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        padded = Image.new(image.mode, wanted)
        corner = ((self.width - inner[0]) // 2, (self.height - inner[1]) // 2)
        padded.paste(image.resize(inner, how), corner)
        return padded


def in_threads(
    call: Callable[[int], Result], numbers: Sequence[int], progress: Progress | None
) -> Iterator[Result]:
    """Call a function for each number in one thread per core; yield the results in order."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for start in range(0, len(numbers), _BATCH):
            batch = numbers[start : start + _BATCH]
            yield from threads.map(call, batch)
            if progress is not None:
                progress(start + len(batch), len(numbers))
