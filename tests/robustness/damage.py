"""Generators of damaged files, and the rule that every reader must keep.

``COSEN_FUZZ=20`` runs twenty times as many cases, with new random numbers; ``make fuzz`` does so.
"""

import io
import os
import struct
import time
import zlib
from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from PIL import Image

from cosen.errors import CosenError

FACTOR = int(os.environ.get("COSEN_FUZZ", "1"))
SECONDS = 20
"""Longest time that a reader may take for one small file."""


def fuzz(cases: int) -> settings:
    """Decorator: run this number of cases, more with ``COSEN_FUZZ``."""
    return settings(
        max_examples=cases * FACTOR,
        derandomize=FACTOR == 1,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def survives(read: Callable[[], object]) -> bool:
    """Call a reader: True if it has a result, False for a CosenError. Other errors are raised."""
    start = time.perf_counter()
    try:
        read()
    except CosenError as error:
        message = str(error)
    else:
        message = None
    assert time.perf_counter() - start < SECONDS
    assert message != ""
    return message is None


def _edited(content: bytes, edits: list[tuple[str, float, bytes]]) -> bytes:
    for kind, place, value in edits:
        at = int(place * len(content))
        size = max(1, len(value))
        match kind:
            case "replace":
                content = content[:at] + value + content[at + size :]
            case "insert":
                content = content[:at] + value + content[at:]
            case "delete":
                content = content[:at] + content[at + 3 * size :]
            case "repeat":
                content = content[:at] + content[max(0, at - 4 * size) :]
            case "cut":
                content = content[:at]
    return content


INTERESTING = st.sampled_from(
    [
        b"\0",
        b"\xff",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"\0\0\0\0",
        b"\x80",
        b"\n",
        b'"',
        b"-1",
    ]
)


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Return the content with a few changes; half of the changes are near its start."""
    place = st.floats(0, 1) | st.floats(0, 0.05)
    kinds = st.sampled_from(["replace", "replace", "replace", "insert", "delete", "repeat", "cut"])
    edit = st.tuples(kinds, place, st.binary(min_size=1, max_size=4) | INTERESTING)
    return st.lists(edit, min_size=1, max_size=4).map(lambda edits: _edited(content, edits))


def flipped(content: bytes) -> st.SearchStrategy[bytes]:
    """Return the content with one bit flipped."""

    def flip(place: int, bit: int) -> bytes:
        return content[:place] + bytes([content[place] ^ (1 << bit)]) + content[place + 1 :]

    return st.builds(flip, st.integers(0, len(content) - 1), st.integers(0, 7))


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", "../../etc", "nan", "0", "\x1b[31m", "x" * 300]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def changed_json(draw: st.DrawFn, value: object) -> object:
    """Replace a random part of a JSON value by another value, or remove it."""
    if not isinstance(value, dict | list) or not value or draw(st.integers(0, 5)) == 0:
        return draw(JSON_VALUES)
    if isinstance(value, dict):
        key = draw(st.sampled_from(sorted(value)))
        rest = {name: entry for name, entry in value.items() if name != key}
        if draw(st.integers(0, 7)) == 0:
            return rest
        return rest | {key: draw(changed_json(value[key]))}
    at = draw(st.integers(0, len(value) - 1))
    if draw(st.integers(0, 7)) == 0:
        return value[:at] + value[at + 1 :]
    return [*value[:at], draw(changed_json(value[at])), *value[at + 1 :]]


def example_images() -> dict[str, bytes]:
    """Return small images of every allowed format and many modes, by name."""
    grey = np.linspace(0, 255, 24 * 32).reshape(24, 32).round().astype(np.uint8)
    colours = Image.fromarray(np.dstack([grey, grey[::-1], np.full_like(grey, 90)]))
    alpha = Image.fromarray(np.dstack([grey, grey, grey, grey[::-1]]))
    deep, real = (
        Image.fromarray(grey.astype(np.uint16) * 257),
        Image.fromarray(grey / np.float32(255)),
    )
    exif = Image.Exif()
    exif[0x0112] = 6
    frames = {"save_all": True, "append_images": [colours.rotate(90)], "duration": 40}
    images = {
        "rgb.png": (colours, "PNG", {"exif": exif}),
        "palette.png": (colours.quantize(16), "PNG", {"transparency": 3}),
        "alpha.png": (alpha, "PNG", {}),
        "deep.png": (deep, "PNG", {}),
        "bits.png": (colours.convert("1"), "PNG", {}),
        "rgb.jpg": (colours, "JPEG", {"exif": exif}),
        "progressive.jpg": (colours, "JPEG", {"progressive": True, "subsampling": 2}),
        "cmyk.jpg": (colours.convert("CMYK"), "JPEG", {}),
        "rgb.webp": (colours, "WEBP", {}),
        "lossless.webp": (alpha, "WEBP", {"lossless": True}),
        "frames.gif": (colours.quantize(16), "GIF", frames),
        "rgb.bmp": (colours, "BMP", {}),
        "palette.bmp": (colours.quantize(16), "BMP", {}),
        "raw.tif": (colours, "TIFF", {}),
        "lzw.tif": (alpha, "TIFF", {"compression": "tiff_lzw"}),
        "jpeg.tif": (colours, "TIFF", {"compression": "jpeg"}),
        "float.tif": (real, "TIFF", {}),
        "rgb.ppm": (colours, "PPM", {}),
        "grey.pgm": (Image.fromarray(grey), "PPM", {}),
        "rgb.avif": (colours, "AVIF", {}),
    }
    found = {}
    for name, (image, kind, options) in images.items():
        buffer = io.BytesIO()
        if kind == "AVIF" and "AVIF" not in Image.registered_extensions().values():
            continue
        image.save(buffer, kind, **options)
        found[name] = buffer.getvalue()
    return found


def with_right_checksums(png: bytes) -> bytes:
    """Return a PNG with the checksums of its chunks repaired, so that decoding goes on."""
    fixed, at = png[:8], 8
    while at + 12 <= len(png):
        size = struct.unpack(">I", png[at : at + 4])[0]
        body = png[at + 4 : at + 8 + size]
        fixed += png[at : at + 4] + body + struct.pack(">I", zlib.crc32(body))
        at += 12 + size
    return fixed + png[at:]
