"""Images of every allowed format, damaged: an image or a BrokenImageError, nothing else."""

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosen.data.decoding import Preprocess, decode_image
from cosen.data.inspection import inspect_data
from cosen.data.sources import from_folder
from robustness.damage import damaged, example_images, fuzz, survives, with_right_checksums

IMAGES = example_images()
SIZE = Preprocess(16, 16)


def decodes(content: bytes) -> bool:
    def read():
        pixels = SIZE(decode_image(io.BytesIO(content), least_size=SIZE.least_size))
        assert pixels.shape == (16, 16, 3)
        assert pixels.dtype == np.uint8

    return survives(read)


@pytest.mark.parametrize("name", IMAGES)
def test_the_examples_are_valid(name):
    assert decodes(IMAGES[name])


@pytest.mark.parametrize("name", IMAGES)
def test_damaged_images(name):
    outcomes = set()

    @fuzz(120)
    @given(damaged(IMAGES[name]))
    def check(content):
        outcomes.add(decodes(content))

    check()
    assert False in outcomes, "no case was broken: the generator does not work"


@pytest.mark.parametrize("name", [name for name in IMAGES if name.endswith(".png")])
def test_damaged_images_whose_checksums_are_right(name):
    @fuzz(60)
    @given(damaged(IMAGES[name]))
    def check(content):
        decodes(with_right_checksums(content))

    check()


@fuzz(200)
@given(st.sampled_from(sorted(IMAGES)), st.binary(max_size=400))
def test_random_content_after_a_valid_start(name, content):
    decodes(IMAGES[name][:16] + content)
    decodes(content)


def test_a_folder_of_broken_files_is_inspected(tmp_path):
    for number, (name, content) in enumerate(IMAGES.items()):
        folder = tmp_path / ("even" if number % 2 else "odd")
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
        (folder / f"cut-{name}").write_bytes(content[: len(content) // 3])
    broken = inspect_data(from_folder(tmp_path)).broken
    assert len(broken) > len(IMAGES) / 2
    assert all("cut-" in name for name in broken)
