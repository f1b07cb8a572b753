"""The memory for decoding is bounded: per image, and for all images together."""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosen.data import decoding
from cosen.data.decoding import Preprocess, decode_image
from cosen.errors import BrokenImageError

GIB = 2**30


@pytest.mark.parametrize(
    ("mode", "width", "height"),
    [
        ("I;16", 13_000, 13_000),
        ("RGBA", 13_000, 13_000),
        ("LA", 60, 2_900_000),
        ("P", 13_000, 13_000),
    ],
)
def test_a_small_file_of_many_pixels_takes_little_memory(tmp_path, mode, width, height):
    resource = pytest.importorskip("resource")
    path = tmp_path / "large.png"
    Image.new(mode, (width, height)).save(path, compress_level=1)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (soft - int(2.25 * GIB), hard))  # 1.75 GiB are left
    size = Preprocess(64, 64)
    pixels = size(decode_image(path, least_size=size.least_size))
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert (pixels == (255 if mode in ("RGBA", "LA") else 0)).all()  # transparent parts are white


IN_LITTLE_MEMORY = """
import resource, sys

from cosen.data.decoding import decode_image

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**27, -1))
try:
    decode_image(sys.argv[1])
except MemoryError:
    print("out of memory")
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells the memory")
def test_running_out_of_memory_is_not_a_broken_image(tmp_path):
    """In a process of its own: another may have freed memory to use."""
    path = tmp_path / "large.png"
    Image.new("RGB", (10_000, 10_000)).save(path, compress_level=1)
    done = subprocess.run(
        [sys.executable, "-c", IN_LITTLE_MEMORY, path], capture_output=True, text=True, check=False
    )
    assert done.stdout == "out of memory\n", done.stderr


def test_too_many_pixels_are_refused_whatever_pillow_allows(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    path = tmp_path / "bomb.png"
    Image.new("1", (20_000, 20_000)).save(path)
    with pytest.raises(BrokenImageError, match="too many pixels"):
        decode_image(path)


def test_a_large_image_keeps_its_content_when_it_is_reduced(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    coarse = generator.integers(0, 256, (8, 8, 3), dtype=np.uint8)
    path = tmp_path / "image.png"
    Image.fromarray(coarse).resize((800, 800), Image.Resampling.NEAREST).save(path)
    size = Preprocess(64, 64)
    whole = size(decode_image(path, least_size=size.least_size))
    monkeypatch.setattr(decoding, "LARGE", 1000)
    reduced = decode_image(path, least_size=size.least_size)
    assert reduced.size == (134, 134)
    assert np.abs(size(reduced).astype(int) - whole).mean() < 3


def test_large_images_are_not_decoded_at_the_same_time():
    budget = decoding._PixelBudget(100)
    running, most = 0, 0
    lock = threading.Lock()

    def decode(pixels):
        nonlocal running, most
        with budget.share(pixels):
            with lock:
                running += min(pixels, 100)
                most = max(most, running)
            threading.Event().wait(0.002)
            with lock:
                running -= min(pixels, 100)

    threads = [threading.Thread(target=decode, args=(pixels,)) for pixels in (40, 60, 90, 500) * 8]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 0 < most <= 100
