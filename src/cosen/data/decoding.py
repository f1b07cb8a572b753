"""Decode images and convert them to one size, in parallel."""

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal, TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from cosen.errors import BrokenImageError, InputError

SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)

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
            size, but never below this.

    Raises:
        BrokenImageError: The file is not an image, is truncated, or is too large to decode safely.
    """
    try:
        with warnings.catch_warnings():
            # large images are fine; Pillow raises DecompressionBombError for dangerous ones
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(source) as image:
                if least_size is not None and image.format == "JPEG":
                    longest = max(least_size)  # the image may be rotated below
                    image.draft(image.mode, (longest, longest))
                image.load()
                return _as_grey_or_rgb(ImageOps.exif_transpose(image))
    except FileNotFoundError as error:
        raise BrokenImageError("the file is missing") from error
    except UnidentifiedImageError as error:
        raise BrokenImageError("not an image") from error
    except Image.DecompressionBombError as error:
        raise BrokenImageError("too many pixels to decode safely") from error
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        reason = "truncated" if "truncated" in str(error).lower() else str(error) or "unreadable"
        raise BrokenImageError(reason) from error


def _as_grey_or_rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("L", "RGB"):
        return image
    if image.mode == "1":
        return image.convert("L")
    if image.mode.startswith("I") or image.mode == "F":
        return _eight_bit_grey(image)
    if image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info:
        visible = image.convert("RGBA")
        background = Image.new("RGBA", visible.size, "white")
        return Image.alpha_composite(background, visible).convert("RGB")
    return image.convert("RGB")


def _eight_bit_grey(image: Image.Image) -> Image.Image:
    """Scale sixteen-bit grey to eight bits; Pillow's conversion would clip it."""
    values = np.asarray(image, dtype=np.float64)
    top = values.max(initial=0)
    if image.mode == "F" and top <= 1:
        scale = 255.0
    elif image.mode.startswith("I;16") or top > 255:
        scale = 255 / 65535
    else:
        scale = 1.0
    return Image.fromarray((values * scale).round().clip(0, 255).astype(np.uint8))


Fit = Literal["crop", "stretch", "pad"]


@dataclass(frozen=True)
class Preprocess:
    """Converts images to one size and number of channels.

    Attributes:
        height: Pixels.
        width: Pixels.
        channels: 1 for grey, 3 for RGB.
        fit: ``"crop"`` keeps the aspect ratio and crops the centre, ``"stretch"`` changes the
            aspect ratio, ``"pad"`` keeps it and adds black borders.
    """

    height: int
    width: int
    channels: Literal[1, 3] = 3
    fit: Fit = "crop"

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 1 or self.channels not in (1, 3):
            raise InputError(
                "images need at least one pixel and 1 or 3 channels, but the size is "
                f"{self.height} x {self.width} x {self.channels}"
            )
        if self.fit not in ("crop", "stretch", "pad"):
            raise InputError(f"fit must be crop, stretch or pad, but is {self.fit!r}")

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.height, self.width, self.channels)

    @property
    def least_size(self) -> tuple[int, int]:
        """Smallest (width, height) to decode an image at without losing sharpness."""
        return (2 * self.width, 2 * self.height)

    def __call__(self, image: Image.Image) -> np.ndarray:
        """Convert an image to uint8, shape ``(height, width, channels)``."""
        image = image.convert("L" if self.channels == 1 else "RGB")
        if image.size != (self.width, self.height):
            image = self._resized(image)
        return np.asarray(image).reshape(self.shape)

    def _resized(self, image: Image.Image) -> Image.Image:
        wanted = (self.width, self.height)
        if self.fit == "stretch":
            return image.resize(wanted, Image.Resampling.BILINEAR)
        ratios = (self.width / image.width, self.height / image.height)
        if self.fit == "crop":
            scale = max(ratios)
            box_width, box_height = self.width / scale, self.height / scale
            left = max(0.0, (image.width - box_width) / 2)  # rounding may make it negative
            top = max(0.0, (image.height - box_height) / 2)
            right, bottom = min(left + box_width, image.width), min(top + box_height, image.height)
            box = (left, top, right, bottom)
            return image.resize(wanted, Image.Resampling.BILINEAR, box=box)
        scale = min(ratios)
        inner = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        padded = Image.new(image.mode, wanted)
        corner = ((self.width - inner[0]) // 2, (self.height - inner[1]) // 2)
        padded.paste(image.resize(inner, Image.Resampling.BILINEAR), corner)
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
