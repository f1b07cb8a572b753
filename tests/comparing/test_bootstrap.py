from dataclasses import dataclass
from time import process_time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cosen import functional as F
from cosen.comparing import bootstrap
from cosen.comparing.bootstrap import (
    SMALL_CLASS,
    Change,
    Spread,
    paired_change,
    sample_scores,
    sample_weights,
)
from cosen.costs import BALANCED, OVERALL, Objective

COSTS = torch.tensor([[0.0, 1.0, 2.0], [5.0, 0.0, 1.0], [8.0, 3.0, 0.0]])
OBJECTIVES = {"overall": OVERALL, "balanced": BALANCED, "costs": Objective.of(COSTS)}
each_objective = pytest.mark.parametrize("objective", OBJECTIVES.values(), ids=OBJECTIVES)


@dataclass
class Run:
    names: list
    target: np.ndarray
    predicted: np.ndarray


@pytest.fixture
def many_draws(monkeypatch):
    monkeypatch.setattr(bootstrap, "DRAWS", 20_000)


def pair_of(target, *predicted, seed=0):
    """The runs of two methods with one seed. Different seeds have different samples."""
    names = [f"{seed}/{n}" for n in range(len(target))]
    return tuple(Run(names, np.array(target), np.array(each)) for each in predicted)


def random_pair(generator, *, seed=0, counts=(30, 12, 6), right=(0.8, 0.6)):
    """Two methods on the same samples, with given shares of correct predictions."""
    target = np.repeat(np.arange(len(counts)), counts)
    generator.shuffle(target)
    predicted = [
        np.where(
            generator.random(len(target)) < share,
            target,
            (target + generator.integers(1, len(counts), len(target))) % len(counts),
        )
        for share in right
    ]
    return pair_of(target, *predicted, seed=seed)


def change_of(pairs, objective):
    first, second = zip(*pairs, strict=True)
    return paired_change(first, second, objective)


def score(run, objective, rows):
    """The weighted mean of some rows, which may contain a row several times."""
    scores = sample_scores(run.target, run.predicted, objective)
    return sample_weights(run.target, objective)[rows] @ scores[rows]


def slow_interval(pairs, objective, *, draws, same_samples=False):
    """The interval of the docstring, sample by sample."""
    generator = np.random.default_rng(1)
    drawn = []
    for _ in range(draws):
        differences, rows = [], None
        for number in generator.integers(len(pairs), size=len(pairs)):
            first, second = pairs[number]
            if rows is None or not same_samples:
                rows = np.concatenate(
                    [
                        generator.choice(np.flatnonzero(first.target == label), count)
                        for label, count in zip(
                            *np.unique(first.target, return_counts=True), strict=True
                        )
                    ]
                )
            differences.append(score(first, objective, rows) - score(second, objective, rows))
        drawn.append(np.mean(differences))
    return np.quantile(drawn, [0.025, 0.975])


@each_objective
@pytest.mark.parametrize("seeds", [1, 3])
def test_the_interval_is_that_of_explicit_resampling(objective, seeds, many_draws):
    generator = np.random.default_rng(seeds)
    pairs = [random_pair(generator, seed=seed) for seed in range(seeds)]
    change = change_of(pairs, objective)
    low, high = slow_interval(pairs, objective, draws=1000)
    assert (change.low, change.high) == pytest.approx((low, high), abs=0.08 * (high - low))


def test_samples_that_all_seeds_share_are_drawn_together(many_draws):
    one, other = random_pair(np.random.default_rng(0))
    target, first, second = one.target, one.predicted, other.predicted
    rolled = np.where(np.roll(second == target, 1), target, (target + 1) % 3)
    shared = [pair_of(target, first, each) for each in (second, rolled, second)]
    change = change_of(shared, BALANCED)
    low, high = slow_interval(shared, BALANCED, draws=1000, same_samples=True)
    assert (change.low, change.high) == pytest.approx((low, high), abs=0.08 * (high - low))
    apart = [
        pair_of(target, one.predicted, other.predicted, seed=seed)
        for seed, (one, other) in enumerate(shared)
    ]
    independent = change_of(apart, BALANCED)
    assert change.high - change.low > 1.2 * (independent.high - independent.low)


def test_hand_worked():
    # class 0: the first method has 1 more of 4 correct; class 1: both of 2, the other none
    pair = pair_of([0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 0, 0])
    assert change_of([pair], OVERALL).mean == pytest.approx(3 / 6)
    assert change_of([pair], BALANCED).mean == pytest.approx((1 / 4 + 1) / 2)
    costs = Objective.of([[0.0, 2.0], [4.0, 0.0]])
    assert change_of([pair], costs).mean == pytest.approx((2 * 1 + 4 * 2) / 6 / 4)
    assert change_of([pair, pair], BALANCED).mean == pytest.approx(0.625)


def test_tensors_and_arrays_give_the_same():
    pair = random_pair(np.random.default_rng(0))
    tensors = [
        Run(run.names, torch.from_numpy(run.target), torch.from_numpy(run.predicted))
        for run in pair
    ]
    assert change_of([tensors], BALANCED) == change_of([pair], BALANCED)


@each_objective
@given(data=st.data())
def test_scores_agree_with_the_validation_error(objective, data):
    labels = st.lists(st.integers(0, 2), min_size=1, max_size=30)
    target = np.array(data.draw(labels))
    predicted = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=len(target), max_size=len(target)))
    )
    score = sample_weights(target, objective) @ sample_scores(target, predicted, objective)
    confusion = F.confusion_matrix(
        torch.from_numpy(target), torch.from_numpy(predicted), num_classes=3
    )
    best = 0 if objective.name == "costs" else 1
    assert score == pytest.approx(best - objective.error(confusion))


@each_objective
@pytest.mark.parametrize("same_samples", [False, True])
def test_swapping_the_methods_negates_the_interval(objective, same_samples):
    generator = np.random.default_rng(5)
    pairs = [random_pair(generator, seed=seed) for seed in range(2)]
    if same_samples:
        pairs[1] = (pairs[0][1], pairs[0][1])
    change = change_of(pairs, objective)
    other = change_of([pair[::-1] for pair in pairs], objective)
    assert (other.mean, other.low, other.high) == pytest.approx(
        (-change.mean, -change.high, -change.low), abs=1e-15
    )


@each_objective
def test_equal_methods_do_not_differ(objective):
    first, _ = random_pair(np.random.default_rng(0))
    change = change_of([(first, first)] * 3, objective)
    assert change == Change(0.0, 0.0, 0.0)
    assert change.within_noise


def test_the_interval_does_not_change_from_call_to_call():
    pairs = [random_pair(np.random.default_rng(0))]
    assert change_of(pairs, BALANCED) == change_of(pairs, BALANCED)


@pytest.mark.parametrize(
    ("low", "high", "noise"), [(0.1, 0.2, False), (-0.2, -0.1, False), (-0.1, 0.1, True)]
)
def test_within_noise(low, high, noise):
    assert Change((low + high) / 2, low, high).within_noise is noise


@pytest.mark.parametrize(
    ("seeds", "samples", "least", "most"),
    [
        (1, 48, 0.88, 1.0),  # with one seed, seeds do not vary
        (8, 48, 0.88, 1.0),
        (3, 4800, 0.55, 0.85),  # too narrow, as the docstring warns: few seeds that vary much
    ],
)
def test_the_interval_covers_the_truth_as_often_as_documented(
    seeds, samples, least, most, monkeypatch
):
    monkeypatch.setattr(bootstrap, "DRAWS", 300)
    generator = np.random.default_rng(0)
    counts = (samples * 5 // 8, samples // 4, samples // 8)
    truth, covered, repeats = 0.1, 0, 120
    for _ in range(repeats):
        luck = generator.normal(0, 0.03, seeds) if seeds > 1 else [0.0]
        pairs = [
            random_pair(generator, seed=seed, counts=counts, right=(0.75 + own, 0.65))
            for seed, own in enumerate(luck)
        ]
        change = change_of(pairs, OVERALL)
        covered += change.low <= truth <= change.high
    assert least <= covered / repeats <= most


def test_one_sample_per_class_is_not_certain():
    target = np.arange(6)
    second = np.array([0, 1, 2, 3, 4, 0])
    change = change_of([pair_of(target, target, second)], OVERALL)
    assert change.within_noise  # one more sample is correct, which may be chance


def test_a_small_class_is_drawn_with_the_next():
    target = np.repeat([0, 1, 2], [1, SMALL_CLASS, 40])
    second = np.where(target == 0, 1, target)
    change = change_of([pair_of(target, target, second)], BALANCED)
    assert change.mean == pytest.approx(1 / 3)
    assert change.low == 0
    assert change.high > 1 / 3


def test_many_samples_take_little_time():
    generator = np.random.default_rng(0)
    pairs = [
        random_pair(generator, seed=seed, counts=(1000,) * 10, right=(0.9, 0.85))
        for seed in range(3)
    ]
    start = process_time()
    change = change_of(pairs, BALANCED)
    assert process_time() - start < 5  # a few hundredths of a second on an idle machine
    assert not change.within_noise


def test_the_mean_and_the_deviation_of_values():
    assert Spread.of([]) is None
    assert Spread.of([0.5]) == Spread(0.5, None, 1)
    assert Spread.of([0.25, 0.75]) == Spread(0.5, pytest.approx(0.5**0.5 / 2), 2)


def test_a_mean_is_compared_by_its_95_per_cent_interval():
    """By Student's t: 12.706 standard errors with two seeds, 4.303 with three."""
    three = Spread.of([1.0, 2.0, 3.0])
    assert three.half_interval == pytest.approx(4.302653 / 3**0.5)
    assert [three.against(number) for number in (-0.49, -0.48, 2, 4.48, 4.49)] == [
        *("above", "within", "within", "within", "below"),
    ]
    assert Spread.of([1.0, 3.0]).half_interval == pytest.approx(12.706205)
    assert Spread.of([1.0, 1.0]).against(1.1) == "below"
    assert Spread.of([1.0]).half_interval is None
    assert Spread.of([1.0]).against(99.0) is None
