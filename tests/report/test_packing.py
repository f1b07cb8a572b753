import base64
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from cosen.report.packing import STEPS, pack, packed_size, unpack

SHAPES = array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)
NUMBERS = st.floats(-(2.0**99), 2.0**99, width=32)


@given(arrays(np.float32, SHAPES, elements=NUMBERS))
def test_numbers_come_back_to_half_a_step(array):
    packed = pack(array)
    found = unpack(packed)
    assert found.shape == array.shape
    half = (packed["high"] - packed["low"]) / STEPS / 2
    np.testing.assert_allclose(found, array, rtol=1e-9, atol=half * 1.001)
    if array.size:
        assert (packed["low"], packed["high"]) == (array.min(), array.max())


@given(arrays(np.float64, SHAPES, elements=st.floats(1e-6, 1.0)))
def test_logarithms_keep_the_share(array):
    found = unpack(pack(array, log=True))
    np.testing.assert_allclose(found, array, rtol=2e-4)  # six powers of ten in 65535 steps


@given(arrays(np.int64, SHAPES, elements=st.integers(-(2**15), 2**15 - 1)))
def test_whole_numbers_come_back_exactly(array):
    np.testing.assert_array_equal(unpack(pack(array)), array)


@given(arrays(np.float32, SHAPES, elements=st.floats(width=32)), st.booleans())
def test_whatever_it_is_it_can_be_written(array, log):
    with np.errstate(over="ignore"):
        packed = pack(array, log=log)
        assert unpack(packed).shape == array.shape
    json.dumps(packed, allow_nan=False)


def test_what_is_not_finite_is_drawn_to_the_ends():
    found = unpack(pack([np.nan, -np.inf, 1.0, 3.0, np.inf]))
    np.testing.assert_allclose(found, [1, 1, 1, 3, 3])
    np.testing.assert_allclose(
        unpack(pack([0.0, -1.0, 0.01, 1.0], log=True)), [0.01, 0.01, 0.01, 1]
    )


def test_a_constant_and_nothing_known_at_all():
    np.testing.assert_array_equal(unpack(pack([0.3, 0.3])), [0.3, 0.3])
    np.testing.assert_array_equal(unpack(pack([np.nan, np.nan])), [0.0, 0.0])
    assert unpack(pack(np.zeros((0, 3)))).shape == (0, 3)


def test_bytes_are_as_the_page_reads_them():
    packed = pack([0.0, 0.5, 1.0])
    assert base64.b64decode(packed["data"]) == b"\x00\x00\x00\x80\xff\xff"  # the low byte first
    assert packed_size(3) == len(packed["data"])
