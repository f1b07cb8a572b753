import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosen.data.imbalance import make_imbalanced, parse_imbalance
from cosen.data.sources import from_arrays
from cosen.errors import DataError, InputError


def data_of(*counts):
    labels = np.repeat(np.arange(len(counts)), counts)
    return from_arrays(np.zeros((len(labels), 1, 1), dtype=np.uint8), labels)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("odd:0.1", [100, 10, 100, 10]),
        ("even:0.25", [25, 100, 25, 100]),
        ("odd:50", [100, 50, 100, 50]),
        ("odd:500", [100, 100, 100, 100]),
        ("step:10", [100, 100, 10, 10]),
        ("longtail:100", [100, 21, 4, 1]),
        ("longtail:1", [100, 100, 100, 100]),
        ("2=0.5,3=7", [100, 100, 50, 7]),
        ({"0": 3, "1": 0.2}, [3, 20, 100, 100]),
        ("odd:0.0001", [100, 1, 100, 1]),
    ],
)
def test_what_is_left(text, expected):
    left = make_imbalanced(data_of(100, 100, 100, 100), parse_imbalance(text), seed=0)
    assert left.class_counts.tolist() == expected


def test_a_profile_never_asks_for_more_than_there_is():
    left = make_imbalanced(data_of(100, 5, 50, 2), parse_imbalance("longtail:10"), seed=0)
    assert left.class_counts.tolist() == [100, 5, 21, 2]


def test_with_an_odd_number_of_classes_the_middle_one_of_a_step_is_large():
    left = make_imbalanced(data_of(20, 20, 20), parse_imbalance("step:4"), seed=0)
    assert left.class_counts.tolist() == [20, 20, 5]


@given(st.integers(0, 50), st.floats(0.05, 0.9))
def test_smaller_shares_are_parts_of_larger_ones(seed, share):
    """The same seed keeps the same images: a larger share only adds images."""
    data = data_of(40, 60)
    large = make_imbalanced(data, parse_imbalance({"1": share}), seed=seed)
    small = make_imbalanced(data, parse_imbalance({"1": share / 2}), seed=seed)
    assert set(small.rows.tolist()) <= set(large.rows.tolist())
    assert (np.diff(large.rows) > 0).all()


def test_an_unknown_class_is_named():
    with pytest.raises(DataError, match="no class 'melanoma'"):
        make_imbalanced(data_of(5, 5), parse_imbalance("melanoma=0.5"), seed=0)


@pytest.mark.parametrize(
    "text",
    ["odd", "odd:", "odd:0", "odd:-1", "odd:1.5", "odd:x", "step:0.1", "step:x", "longtail:inf"],
)
def test_bad_amounts_say_what_to_write(text):
    with pytest.raises(InputError, match=r"such as"):
        parse_imbalance(text)


def test_an_unknown_kind_lists_the_choices():
    with pytest.raises(InputError, match=r"odd:0\.1, even:0\.25, step:10, longtail:100"):
        parse_imbalance("weird:1")
