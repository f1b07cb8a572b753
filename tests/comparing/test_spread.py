import pytest

from cosen.comparing.spread import Spread


def test_the_mean_and_the_deviation_of_some_values():
    assert Spread.of([]) is None
    assert Spread.of([0.5]) == Spread(0.5, None, 1)
    assert Spread.of([0.25, 0.75]) == Spread(0.5, pytest.approx(0.5**0.5 / 2), 2)


def test_a_mean_is_judged_by_its_95_per_cent_interval():
    """Of Student's t: 12.706 standard errors with two seeds, 4.303 with three."""
    three = Spread.of([1.0, 2.0, 3.0])
    assert three.half_interval == pytest.approx(4.302653 / 3**0.5)
    assert [three.against(number) for number in (-0.49, -0.48, 2, 4.48, 4.49)] == [
        *("above", "within", "within", "within", "below"),
    ]
    assert Spread.of([1.0, 3.0]).half_interval == pytest.approx(12.706205)
    assert Spread.of([1.0, 1.0]).against(1.1) == "below"
    assert Spread.of([1.0]).half_interval is None
    assert Spread.of([1.0]).against(99.0) is None
