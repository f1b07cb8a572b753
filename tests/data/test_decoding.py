import io

import numpy as np
import pytest
from PIL import Image

from cosen.data.decoding import decode_image
from cosen.errors import BrokenImageError

GRADIENT = np.linspace(0, 255, 16 * 24).reshape(16, 24).round().astype(np.uint8)
COLOURS = np.stack([GRADIENT, GRADIENT[::-1], np.full_like(GRADIENT, 90)], axis=2)


def encoded(image, kind="PNG", **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def pixels(data):
    return np.asarray(decode_image(io.BytesIO(data)))


def test_grey_stays_grey():
    image = decode_image(io.BytesIO(encoded(Image.fromarray(GRADIENT))))
    assert image.mode == "L"
    np.testing.assert_array_equal(np.asarray(image), GRADIENT)


def test_palette_becomes_rgb():
    palette = Image.fromarray(COLOURS).quantize(16)
    expected = np.asarray(palette.convert("RGB"))
    np.testing.assert_array_equal(pixels(encoded(palette)), expected)
    np.testing.assert_array_equal(pixels(encoded(palette, "GIF")), expected)


def test_cmyk_becomes_rgb():
    flat = np.full((16, 24, 3), (200, 40, 90), dtype=np.uint8)
    cmyk = Image.fromarray(flat).convert("CMYK")
    for kind in ("JPEG", "TIFF"):
        decoded = pixels(encoded(cmyk, kind))
        assert decoded.shape == (16, 24, 3)
        assert np.abs(decoded.astype(int) - flat).max() <= 6


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_applied(orientation):
    upright = Image.fromarray(COLOURS)
    undo = {
        2: [Image.Transpose.FLIP_LEFT_RIGHT],
        3: [Image.Transpose.ROTATE_180],
        4: [Image.Transpose.FLIP_TOP_BOTTOM],
        5: [Image.Transpose.TRANSPOSE],
        6: [Image.Transpose.ROTATE_90],
        7: [Image.Transpose.TRANSVERSE],
        8: [Image.Transpose.ROTATE_270],
    }
    stored = upright
    for step in undo.get(orientation, []):
        stored = stored.transpose(step)
    exif = Image.Exif()
    exif[0x0112] = orientation
    np.testing.assert_array_equal(pixels(encoded(stored, exif=exif)), COLOURS)


def test_sixteen_bits_are_scaled_not_clipped():
    deep = GRADIENT.astype(np.uint16) * 257
    for kind in ("PNG", "TIFF"):
        np.testing.assert_array_equal(pixels(encoded(Image.fromarray(deep), kind)), GRADIENT)


def test_bilevel_and_float_images():
    bits = Image.fromarray(GRADIENT).convert("1")
    np.testing.assert_array_equal(pixels(encoded(bits)), np.asarray(bits.convert("L")))
    floats = Image.fromarray(GRADIENT.astype(np.float32) / 255)
    np.testing.assert_array_equal(pixels(encoded(floats, "TIFF")), GRADIENT)


def test_transparent_parts_are_white():
    alpha = np.zeros((16, 24), dtype=np.uint8)
    alpha[:8] = 255
    decoded = pixels(encoded(Image.fromarray(np.dstack([COLOURS, alpha]))))
    np.testing.assert_array_equal(decoded[:8], COLOURS[:8])
    assert (decoded[8:] == 255).all()


def test_of_an_animation_the_first_frame():
    frames = [Image.fromarray(np.full((8, 8), value, np.uint8)) for value in (10, 200)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (pixels(data) == 10).all()


def test_a_large_jpeg_is_decoded_smaller_but_never_too_small():
    large = Image.fromarray(COLOURS).resize((1600, 1200))
    small = decode_image(io.BytesIO(encoded(large, "JPEG")), least_size=(200, 150))
    assert 200 <= small.width < 1600
    assert 150 <= small.height < 1200


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not an image"),
        (b"<html>not found</html>", "not an image"),
        (encoded(Image.fromarray(COLOURS).resize((300, 300)), "JPEG")[:900], "truncated"),
        (encoded(Image.fromarray(COLOURS).resize((300, 300)), "PNG")[:900], "truncated"),
    ],
)
def test_broken_images_say_why(data, reason):
    with pytest.raises(BrokenImageError, match=reason):
        decode_image(io.BytesIO(data))


def test_a_missing_file_is_broken(tmp_path):
    with pytest.raises(BrokenImageError, match="missing"):
        decode_image(tmp_path / "none.png")
