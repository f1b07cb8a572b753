"""Costs whose few strengths are learned."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import cosen
import reference
from cosen import functional as F
from cosen.costs import (
    AdaptiveCosts,
    CostLearner,
    class_importance,
    validation_error,
    validation_noise,
)
from cosen.costs.objective import validation_rates
from cosen.errors import InputError

COUNTS = [900, 300, 30]

counts_lists = st.lists(st.integers(1, 5000), min_size=2, max_size=6)


def ratios(costs):
    """Costs relative to the largest of their row: all that cross-entropy sees."""
    return costs / costs.amax(1, keepdim=True)


def validation(seed=0, *, bias=0.0, samples=600):
    """Logits of a mediocre network that leans to frequent classes, and the true classes."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, 3, (samples,), generator=generator)
    logits = torch.randn(samples, 3, generator=generator)
    logits[torch.arange(samples), target] += 2
    return logits + bias * torch.tensor(COUNTS).float().log(), target


@given(
    counts=counts_lists,
    frequency=st.floats(0, 3),
    margin=st.floats(0, 6),
)
def test_costs_equal_reference(counts, frequency, margin):
    costs = AdaptiveCosts(counts, frequency=frequency, margin=margin).costs
    expected = torch.tensor(reference.adaptive_costs(counts, frequency, margin))
    torch.testing.assert_close(costs, expected.clamp(min=1e-12), rtol=1e-3, atol=1e-12)


def test_frequencies_alone_are_balanced_softmax():
    logits, target = validation()
    costs = AdaptiveCosts(COUNTS, learn_frequency=False, margin=0.0)
    plain = F.balanced_softmax(logits, target, F.class_frequencies(torch.tensor(COUNTS)))
    torch.testing.assert_close(costs(logits, target), plain)
    costs.step(logits, target)
    torch.testing.assert_close(costs(logits, target), plain)


@given(seed=st.integers(0, 50), bias=st.floats(-0.6, 0.6))
@settings(max_examples=15)
def test_tau_moves_until_predictions_do_not_lean(seed, bias):
    logits, target = validation(seed, bias=bias)
    costs = AdaptiveCosts(COUNTS, rate=1.0)
    before, after = costs.frequency, costs.step(logits, target).strengths["frequency"]
    leant = [
        reference.leaning(logits.tolist(), target.tolist(), COUNTS, change)
        for change in (0.0, after - before)
    ]
    assert abs(leant[1]) <= abs(leant[0]) + 1e-6
    if after != before:
        assert (after > before) == (leant[0] > 0)
        assert abs(leant[1]) < 0.15


def test_tau_stays_where_leaning_is_noise():
    logits, target = validation(samples=12)
    costs = AdaptiveCosts(COUNTS)
    assert costs.step(logits, target).strengths["frequency"] == 1.0


def test_tau_stays_in_its_range():
    logits, target = validation(bias=5.0)
    costs = AdaptiveCosts(COUNTS, rate=1.0)
    for _ in range(6):
        costs.step(logits, target)
    assert costs.frequency == 3.0
    for _ in range(12):
        costs.step(logits - 20 * torch.tensor(COUNTS).float().log(), target)
    assert costs.frequency == 0.0


@pytest.mark.parametrize(("right", "margin"), [(0.98, math.log(98 / 2)), (0.5, 0.0), (0.2, 0.0)])
def test_the_margin_is_the_log_odds_of_being_right(right, margin):
    target = torch.arange(3).repeat(1000)
    predicted = torch.where(torch.arange(3000) // 3 < 1000 * right, target, (target + 1) % 3)
    costs = AdaptiveCosts(COUNTS)
    step = costs.step(torch.eye(3)[predicted], target)
    assert step.strengths["margin"] == pytest.approx(margin, abs=0.05)
    rarest, most = costs.costs[2].log(), costs.costs[0].log()
    plain = AdaptiveCosts(COUNTS, frequency=costs.frequency, margin=0.0).costs.log()
    lost = [
        float((plain - full)[k] - (plain - full)[1])
        for k, plain, full in ((2, plain[2], rarest), (0, plain[0], most))
    ]
    assert lost[0] == pytest.approx(step.strengths["margin"], abs=1e-4)
    assert lost[1] == pytest.approx((30 / 900) ** 0.25 * step.strengths["margin"], abs=1e-4)


def test_the_margin_is_as_many_times_wider_as_asked_for():
    steps = [
        AdaptiveCosts(COUNTS, margin_scale=scale).step(*validation()).strengths["margin"]
        for scale in (1.0, 3.0)
    ]
    assert steps[1] == pytest.approx(3 * steps[0])
    assert steps[0] > 0


def test_a_learned_margin_has_a_bound():
    target = torch.arange(3).repeat(1000)
    costs = AdaptiveCosts(COUNTS, margin_scale=3.0)
    step = costs.step(9 * torch.eye(3)[target], target)
    assert step.strengths["margin"] == 8.0
    expected = torch.tensor(reference.adaptive_costs(COUNTS, 1.0, 8.0))
    torch.testing.assert_close(costs.costs, expected, rtol=1e-3, atol=1e-12)


def test_balanced_classes_have_no_frequency_costs():
    costs = AdaptiveCosts([50, 50, 50], margin=0.0)
    logits, target = validation(bias=1.0)
    costs.step(logits, target)
    torch.testing.assert_close(costs.costs, torch.ones(3, 3))


def test_the_overall_error_has_no_frequency_costs():
    costs = AdaptiveCosts(COUNTS, objective="overall", margin=0.0)
    torch.testing.assert_close(costs.costs, torch.ones(3, 3))


def test_an_expert_says_how_important_a_class_is():
    mistakes = torch.tensor([[0.0, 1, 1], [1, 0, 1], [8, 8, 0]])
    costs = AdaptiveCosts(COUNTS, objective=mistakes, margin=0.0).costs
    torch.testing.assert_close(ratios(costs)[0], torch.tensor([1.0, 1.0, 1 / 8]))
    step = AdaptiveCosts(COUNTS, objective=mistakes).step(*validation())
    assert 0 < step.val_error < 1


def test_pairwise_errors_raise_the_cost_of_what_is_confused():
    logits, target = validation()
    logits[target == 2, 0] += 3  # class 2 is taken for class 0
    plain, full = AdaptiveCosts(COUNTS), AdaptiveCosts(COUNTS, errors=1.0)
    for costs in (plain, full):
        costs.step(logits, target)
    change = (full.costs.log() - plain.costs.log())[2]
    assert change[0] > change[1]


def test_the_costs_never_leave_their_range():
    costs = AdaptiveCosts([1, 10**6], frequency=3.0)
    logits, target = torch.tensor([[9.0, 0], [0, 9.0]]).repeat(500, 1), torch.tensor([0, 1] * 500)
    for _ in range(5):
        step = costs.step(logits, target)
        assert (step.costs > 0).all()
        assert (step.costs <= 1).all()
        assert torch.isfinite(costs(logits, target))


def test_a_class_without_validation_samples_is_no_trouble():
    logits, target = validation()
    step = AdaptiveCosts(COUNTS).step(logits[target != 2], target[target != 2])
    assert all(map(math.isfinite, step.strengths.values()))


def test_state_is_kept():
    costs = AdaptiveCosts(COUNTS)
    costs.step(*validation(bias=0.4))
    restored = AdaptiveCosts(COUNTS)
    restored.load_state_dict(copy.deepcopy(costs.state_dict()))
    torch.testing.assert_close(restored.costs, costs.costs)
    one, two = (kind.step(*validation(1, bias=0.2)) for kind in (costs, restored))
    assert one.strengths == two.strengths
    assert (one.number, one.best_error) == (two.number, two.best_error)
    assert cosen.AdaptiveCosts is AdaptiveCosts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frequency": -1}, "frequency"),
        ({"margin": math.nan}, "margin"),
        ({"margin_scale": -1.0}, "margin_scale"),
        ({"learn_frequency": "no"}, "learn_frequency must be true or false"),
        ({"errors": -0.1}, "errors"),
        ({"rate": 2}, "rate must lie in"),
        ({"objective": "best"}, "objective must be"),
        ({"frequency": 3.5}, "frequency must be at most 3, but is 3.5"),
        ({"objective": torch.ones(2, 2)}, r"objective must have the shape \(3, 3\)"),
        ({"objective": [[0, 0, 0]] * 3}, "costs in objective are all zero"),
        ({"objective": None}, "objective must be 'overall', 'balanced' or a matrix"),
        ({"objective": [["a"]]}, "objective must be numbers"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        AdaptiveCosts(COUNTS, **options)


NAN = torch.full((2, 3), math.nan)


@pytest.mark.parametrize("kind", [AdaptiveCosts, CostLearner])
@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        (NAN, torch.tensor([0, 1]), "logits contain NaN"),
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), "validation has no samples"),
        (torch.zeros(2, 4), torch.tensor([0, 1]), "has 4 outputs, but there are costs for 3 class"),
        (torch.zeros(2), torch.tensor([0, 1]), "logits must have the shape"),
        (np.zeros((2, 3)), torch.tensor([0, 1]), "logits must be a tensor, but is a ndarray"),
        (torch.zeros(2, 3), [0, 1], "target must be a tensor, but is a list: use torch.as_tensor"),
        (
            torch.eye(3)[:2] * math.inf,
            torch.tensor([0, 1]),
            "logits contain NaN, first in sample 0",
        ),
        (torch.tensor([[0, math.inf, 0]]), torch.tensor([0]), "logits contain infinity, first in"),
        ((torch.zeros(2, 3), torch.zeros(2, 5)), torch.tensor([0, 1]), "features, take the first"),
        (torch.zeros(2, 3), torch.tensor([0, 1, 2]), r"target .* of the shape \(2,\)"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "target must lie in 0..2"),
        (torch.zeros(2, 3), torch.tensor([0, -100]), "has -100: leave samples to be ignored out"),
    ],
)
def test_nothing_is_learned_from_bad_validation(kind, logits, target, message):
    learner = kind([50, 5, 2])
    before = copy.deepcopy(learner.state_dict())
    with pytest.raises(InputError, match=message):
        learner.step(logits, target)
    assert str(learner.state_dict()) == str(before)


@pytest.mark.parametrize("kind", [AdaptiveCosts, CostLearner])
def test_an_objective_may_be_lists_or_an_array(kind):
    matrix = [[0, 1, 1], [1, 0, 1], [9, 9, 0]]
    for objective in (matrix, np.array(matrix), torch.tensor(matrix)):
        learner = kind(COUNTS, objective=objective)
        assert learner.objective.tolist() == matrix
        assert learner.step(torch.eye(3), torch.arange(3)).val_error == 0


@pytest.mark.parametrize("kind", [AdaptiveCosts, CostLearner])
def test_the_state_of_another_kind_is_refused(kind):
    other = CostLearner if kind is AdaptiveCosts else AdaptiveCosts
    state = {"_extra_state": other(COUNTS).get_extra_state()}
    with pytest.raises(InputError, match=f"not that of {kind.__name__}"):
        kind(COUNTS).load_state_dict(state, strict=False)


@pytest.mark.parametrize("kind", [AdaptiveCosts, CostLearner])
def test_another_number_of_outputs_is_named(kind):
    with pytest.raises(InputError, match="has 4 outputs, but there are costs for 3 classes: give"):
        kind([50, 5, 2])(torch.zeros(2, 4), torch.tensor([0, 1]))


def test_classes_without_samples_are_refused():
    with pytest.raises(InputError, match="class_counts"):
        AdaptiveCosts([5, 0, 3])


@pytest.mark.parametrize("objective", ["overall", "balanced", torch.tensor([[0.0, 2], [1, 0]])])
def test_the_noise_is_that_of_repeated_draws(objective):
    generator = torch.Generator().manual_seed(0)
    drawn = []
    for _ in range(400):
        right = torch.stack(
            [(torch.rand(n, generator=generator) < p).sum() for n, p in ((80, 0.9), (20, 0.6))]
        )
        counts = torch.diag(right)
        counts[0, 1], counts[1, 0] = 80 - right[0], 20 - right[1]
        drawn.append(validation_error(counts, objective))
    expected = torch.tensor([[72, 8], [8, 12]])
    noise = validation_noise(expected, objective)
    # of the whole split for the two that do not look at classes, whose sizes are fixed here
    assert float(torch.tensor(drawn).std()) == pytest.approx(noise, rel=0.25)


def test_the_noise_of_a_single_sample_is_not_nothing():
    assert validation_noise(torch.tensor([[50, 0], [0, 1]]), "balanced") > 0.1


def test_importance():
    counts = torch.tensor([90, 10])
    assert class_importance(counts, "overall").tolist() == [1, 1]
    assert class_importance(counts, "balanced").tolist() == pytest.approx([10 / 9, 10])
    assert validation_rates(torch.tensor([[3, 1], [0, 0]]))[1].tolist() == [0.25, 0.75]
