"""Decoding one image: upright, eight bits, grey or RGB, whatever it was stored as."""

import io
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from cosen.errors import BrokenImageError

SUFFIXES = frozenset(
    (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
)

SYSTEM_FILES = frozenset(("Thumbs.db", "desktop.ini", "__MACOSX"))
"""What file managers and archivers leave beside images; what is hidden is passed over as well."""


def decode_image(source: Path | bytes, *, least_size: tuple[int, int] | None = None) -> Image.Image:
    """The image in a file or in memory, in mode ``L`` (grey) or ``RGB``, the right way up.

    Palettes, CMYK and alpha become RGB (transparent parts white), sixteen bits are scaled to
    eight, EXIF rotation is applied, and of an animation the first frame is taken.

    Args:
        source: A path, or the bytes of a file.
        least_size: (width, height) that suffice; a larger JPEG may be decoded at a fraction of
            its size, never below this.

    Raises:
        BrokenImageError: The file is no image, is cut off, or is too large to decode safely.
    """
    try:
        with warnings.catch_warnings():
            # large images are legitimate; truly dangerous ones raise DecompressionBombError
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
                if least_size is not None and image.format == "JPEG":
                    longest = max(least_size)  # the image may yet be turned
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
        reason = "cut off" if "truncated" in str(error).lower() else str(error) or "unreadable"
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
    """Sixteen-bit grey scaled to eight bits; Pillow's own conversion would clip it."""
    values = np.asarray(image, dtype=np.float64)
    top = values.max(initial=0)
    if image.mode == "F" and top <= 1:
        scale = 255.0
    elif image.mode.startswith("I;16") or top > 255:
        scale = 255 / 65535
    else:
        scale = 1.0
    return Image.fromarray((values * scale).round().clip(0, 255).astype(np.uint8))


def is_animated(source: Path) -> bool:
    """Whether a file holds more than one frame, of which only the first is used."""
    with Image.open(source) as image:
        return bool(getattr(image, "is_animated", False))
