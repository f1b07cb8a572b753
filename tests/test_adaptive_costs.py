"""AdaptiveCosts, and the features it shares with CostLearner."""

import copy
import math
from dataclasses import fields

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
    Objective,
)
from cosen.costs.objective import validation_rates
from cosen.errors import InputError

COUNTS = [900, 300, 30]

counts_lists = st.lists(st.integers(1, 5000), min_size=2, max_size=6)


def ratios(costs):
    """Costs relative to the largest of their row: cross-entropy depends on these only."""
    return costs / costs.amax(1, keepdim=True)


def validation(seed=0, *, bias=0.0, samples=600):
    """Logits of a mediocre network that is biased to frequent classes, and the true classes."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, 3, (samples,), generator=generator)
    logits = torch.randn(samples, 3, generator=generator)
    logits[torch.arange(samples), target] += 2
    return logits + bias * torch.tensor(COUNTS).float().log(), target


@given(
    counts=counts_lists,
    tau=st.floats(0, 3),
    margin=st.floats(0, 6),
)
def test_costs_equal_reference(counts, tau, margin):
    costs = AdaptiveCosts(counts, tau=tau, margin=margin).costs
    expected = torch.tensor(reference.adaptive_costs(counts, tau, margin))
    torch.testing.assert_close(costs, expected.clamp(min=1e-12), rtol=1e-3, atol=1e-12)


def test_offsets_and_weights_are_part_of_the_state():
    saved = AdaptiveCosts([90, 10], offsets=[-0.5, 0.5], weighting=0.5)
    same = AdaptiveCosts([90, 10], offsets=[0.0, 0.0], weighting=0.5)
    logits, target = torch.randn(8, 2), torch.arange(8) % 2
    before = same(logits, target)
    same.load_state_dict(saved.state_dict())
    assert same(logits, target) == saved(logits, target) != before
    with pytest.raises(RuntimeError, match="offsets"):
        AdaptiveCosts([90, 10], weighting=0.5).load_state_dict(saved.state_dict())
    with pytest.raises(RuntimeError, match="weight"):
        AdaptiveCosts([90, 10], offsets=[0.0, 0.0]).load_state_dict(saved.state_dict())


def test_offsets_that_change_in_place_are_noticed():
    costs = AdaptiveCosts([90, 10], offsets=[0.0, 0.0])
    logits, target = torch.randn(8, 2), torch.arange(8) % 2
    before = costs(logits, target)
    costs.offsets.copy_(torch.tensor([-0.5, 0.5]))
    changed = AdaptiveCosts([90, 10], offsets=[-0.5, 0.5])
    assert costs(logits, target) == changed(logits, target) != before


def test_offsets_raise_what_was_neglected():
    plain, raised = AdaptiveCosts([90, 10]), AdaptiveCosts([90, 10], offsets=[-0.5, 0.5])
    difference = raised.costs.log() - plain.costs.log()
    torch.testing.assert_close(difference[:, 1] - difference[:, 0], torch.tensor([-1.0, -1.0]))
    assert plain.learn_tau
    assert not raised.learn_tau, "offsets are learned from more samples"
    assert AdaptiveCosts([90, 10], offsets=[-0.5, 0.5], learn_tau=True).learn_tau
    logits, target = torch.randn(8, 2), torch.arange(8) % 2
    wanted = torch.nn.functional.cross_entropy(logits + raised.costs[target].log(), target)
    torch.testing.assert_close(raised(logits, target), wanted)


def test_importance_can_be_a_weight_instead_of_a_cost():
    logits, target = torch.randn(30, 3), torch.arange(30) % 3
    weighted = AdaptiveCosts(COUNTS, weighting=1, margin=0)
    inverse = 1 / torch.tensor(COUNTS).float()
    wanted = torch.nn.functional.cross_entropy(logits, target, weight=inverse)
    torch.testing.assert_close(weighted(logits, target), wanted)
    half = AdaptiveCosts(COUNTS, weighting=0.5, margin=0)
    frequencies = torch.tensor(COUNTS).float().log()
    wanted = torch.nn.functional.cross_entropy(
        logits + 0.5 * frequencies, target, weight=inverse.sqrt()
    )
    torch.testing.assert_close(half(logits, target), wanted)


def test_frequencies_alone_are_balanced_softmax():
    logits, target = validation()
    costs = AdaptiveCosts(COUNTS, learn_tau=False, margin=0.0)
    plain = F.balanced_softmax(logits, target, F.class_frequencies(torch.tensor(COUNTS)))
    torch.testing.assert_close(costs(logits, target), plain)
    costs.step(logits, target)
    torch.testing.assert_close(costs(logits, target), plain)


@given(seed=st.integers(0, 50), bias=st.floats(-0.6, 0.6))
@settings(max_examples=15)
def test_tau_moves_until_predictions_are_not_biased(seed, bias):
    logits, target = validation(seed, bias=bias)
    costs = AdaptiveCosts(COUNTS, cost_lr=1.0)
    before, after = costs.tau, costs.step(logits, target).tau
    biases = [
        reference.frequency_bias(logits.tolist(), target.tolist(), COUNTS, change)
        for change in (0.0, after - before)
    ]
    assert abs(biases[1]) <= abs(biases[0]) + 1e-6
    if after != before:
        assert (after > before) == (biases[0] > 0)
        assert abs(biases[1]) < 0.15


def test_tau_does_not_change_within_noise():
    logits, target = validation(samples=12)
    costs = AdaptiveCosts(COUNTS)
    assert costs.step(logits, target).tau == 1.0


def test_tau_stays_in_its_range():
    logits, target = validation(bias=5.0)
    costs = AdaptiveCosts(COUNTS, cost_lr=1.0)
    for _ in range(6):
        costs.step(logits, target)
    assert costs.tau == 3.0
    for _ in range(12):
        costs.step(logits - 20 * torch.tensor(COUNTS).float().log(), target)
    assert costs.tau == 0.0


@pytest.mark.parametrize(("right", "margin"), [(0.98, math.log(98 / 2)), (0.5, 0.0), (0.2, 0.0)])
def test_the_margin_is_the_log_odds_of_being_right(right, margin):
    target = torch.arange(3).repeat(1000)
    predicted = torch.where(torch.arange(3000) // 3 < 1000 * right, target, (target + 1) % 3)
    costs = AdaptiveCosts(COUNTS)
    step = costs.step(torch.eye(3)[predicted], target)
    assert step.margin == pytest.approx(margin, abs=0.05)
    rarest, most = costs.costs[2].log(), costs.costs[0].log()
    plain = AdaptiveCosts(COUNTS, tau=costs.tau, margin=0.0).costs.log()
    lost = [
        float((plain - full)[k] - (plain - full)[1])
        for k, plain, full in ((2, plain[2], rarest), (0, plain[0], most))
    ]
    assert lost[0] == pytest.approx(step.margin, abs=1e-4)
    assert lost[1] == pytest.approx((30 / 900) ** 0.25 * step.margin, abs=1e-4)


def test_margin_scale_multiplies_the_margin():
    steps = [
        AdaptiveCosts(COUNTS, margin_scale=scale).step(*validation()).margin for scale in (1.0, 3.0)
    ]
    assert steps[1] == pytest.approx(3 * steps[0])
    assert steps[0] > 0


def test_a_learned_margin_has_a_bound():
    target = torch.arange(3).repeat(1000)
    costs = AdaptiveCosts(COUNTS, margin_scale=3.0)
    step = costs.step(9 * torch.eye(3)[target], target)
    assert step.margin == 8.0
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


def test_misclassification_costs_set_the_importance_of_a_class():
    mistakes = torch.tensor([[0.0, 1, 1], [1, 0, 1], [8, 8, 0]])
    costs = AdaptiveCosts(COUNTS, objective=mistakes, margin=0.0).costs
    torch.testing.assert_close(ratios(costs)[0], torch.tensor([1.0, 1.0, 1 / 8]))
    step = AdaptiveCosts(COUNTS, objective=mistakes).step(*validation())
    assert 0 < step.val_error < 1


def test_pairwise_errors_raise_the_cost_of_what_is_confused():
    logits, target = validation()
    logits[target == 2, 0] += 3  # class 2 is mistaken for class 0
    plain, full = AdaptiveCosts(COUNTS), AdaptiveCosts(COUNTS, errors=1.0)
    for costs in (plain, full):
        costs.step(logits, target)
    change = (full.costs.log() - plain.costs.log())[2]
    assert change[0] > change[1]


def test_the_costs_never_leave_their_range():
    costs = AdaptiveCosts([1, 10**6], tau=3.0)
    logits, target = torch.tensor([[9.0, 0], [0, 9.0]]).repeat(500, 1), torch.tensor([0, 1] * 500)
    for _ in range(5):
        step = costs.step(logits, target)
        assert (step.costs > 0).all()
        assert (step.costs <= 1).all()
        assert torch.isfinite(costs(logits, target))


def test_a_class_may_have_no_validation_samples():
    logits, target = validation()
    step = AdaptiveCosts(COUNTS).step(logits[target != 2], target[target != 2])
    assert all(map(math.isfinite, (step.tau, step.margin)))


def test_state_is_kept():
    costs = AdaptiveCosts(COUNTS)
    costs.step(*validation(bias=0.4))
    restored = AdaptiveCosts(COUNTS)
    restored.load_state_dict(copy.deepcopy(costs.state_dict()))
    torch.testing.assert_close(restored.costs, costs.costs)
    one, two = (kind.step(*validation(1, bias=0.2)) for kind in (costs, restored))
    assert (one.tau, one.margin) == (two.tau, two.margin)
    assert (one.number, one.best_error) == (two.number, two.best_error)
    assert cosen.AdaptiveCosts is AdaptiveCosts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": -1}, "tau"),
        ({"margin": math.nan}, "margin"),
        ({"margin_scale": -1.0}, "margin_scale"),
        ({"learn_tau": "no"}, "learn_tau must be true or false"),
        ({"offsets": [1.0]}, "offsets must be 3 finite numbers"),
        ({"weighting": 1.5}, "weighting must lie in"),
        ({"errors": -0.1}, "errors"),
        ({"cost_lr": 2}, "cost_lr must lie in"),
        ({"objective": "best"}, "objective must be"),
        ({"tau": 3.5}, "tau must be at most 3, but is 3.5"),
        ({"objective": torch.ones(2, 2)}, r"objective must have the shape \(3, 3\)"),
        ({"objective": [[0, 0, 0]] * 3}, "costs in objective are all zero"),
        ({"objective": None}, "objective must be 'overall', 'balanced' or a matrix"),
        ({"objective": [["a"]]}, "objective must be numbers"),
    ],
)
def test_bad_options_raise(options, message):
    with pytest.raises(InputError, match=message):
        AdaptiveCosts(COUNTS, **options)


NAN = torch.full((2, 3), math.nan)


@pytest.mark.parametrize("kind", [AdaptiveCosts, CostLearner])
@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        (NAN, torch.tensor([0, 1]), "logits contain NaN"),
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), "validation split has no samples"),
        (torch.zeros(2, 4), torch.tensor([0, 1]), "has 4 outputs, but there are costs for 3 class"),
        (torch.tensor(0.0), torch.tensor(0), "logits must have the shape"),
        (torch.zeros(2), torch.tensor([0, 1]), "has 2 outputs, but there are costs for 3 class"),
        (torch.zeros(3), torch.tensor([0, 1]), r"target .* must have the shape \(\) for logits"),
        (torch.zeros(2, 3, 4), torch.zeros(2, 3).long(), r"shape \(2, 4\) for logits of the shape"),
        (np.zeros((2, 3)), torch.tensor([0, 1]), "logits must be a tensor, but is a ndarray"),
        (torch.zeros(2, 3), [0, 1], "target must be a tensor, but is a list: use torch.as_tensor"),
        (
            torch.eye(3)[:2] * math.inf,
            torch.tensor([0, 1]),
            "logits contain NaN, first in sample 0",
        ),
        (torch.tensor([[0, math.inf, 0]]), torch.tensor([0]), "logits contain infinity, first in"),
        (
            (torch.zeros(2, 3), torch.zeros(2, 5)),
            torch.tensor([0, 1]),
            "features, pass the logits only",
        ),
        (torch.zeros(2, 3), torch.tensor([0, 1, 2]), r"target .* must have the shape \(2,\)"),
        (torch.zeros(2, 3), torch.tensor([0, 3]), "target must lie in 0..2"),
        (torch.zeros(2, 3), torch.tensor([0, -1]), r"target must lie in 0\.\.2 .* sample 1 has -1"),
        (torch.zeros(2, 3), torch.full((2,), -100), "validation split has no samples"),
        (torch.zeros(2, 3), torch.full((2, 3), 1 / 3), "must be class indices, but is torch.float"),
        (torch.zeros(2, 3), torch.tensor([True, False]), "class indices or probabilities"),
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
        assert learner.objective.matrix.tolist() == matrix
        assert learner.step(torch.eye(3), torch.arange(3)).val_error == 0


@pytest.mark.parametrize("kind", [AdaptiveCosts, CostLearner])
def test_the_state_of_another_kind_raises(kind):
    other = CostLearner if kind is AdaptiveCosts else AdaptiveCosts
    state = {"_extra_state": other(COUNTS).get_extra_state()}
    with pytest.raises(InputError, match=f"not that of {kind.__name__}"):
        kind(COUNTS).load_state_dict(state, strict=False)


@pytest.mark.parametrize("kind", [AdaptiveCosts, CostLearner])
def test_another_number_of_outputs_is_named(kind):
    with pytest.raises(InputError, match="has 4 outputs, but there are costs for 3 classes: pass"):
        kind([50, 5, 2])(torch.zeros(2, 4), torch.tensor([0, 1]))
    with pytest.raises(InputError, match="has 4 outputs, but there are costs for 3 classes"):
        kind([50, 5, 2])(torch.zeros(2, 4, 3), torch.zeros(2, 3).long())


def as_images(logits, target, ignored):
    """The same samples as pixels of images, with as many ignored pixels between them."""
    logits = torch.stack([logits, torch.randn_like(logits)], 1)  # (V, 2, C)
    target = torch.stack([target, torch.full_like(target, ignored)], 1)
    images = logits.reshape(-1, 10, 2, 3).movedim(-1, 1)  # (V / 10, C, 10, 2)
    return images, target.reshape(-1, 10, 2)


@pytest.mark.parametrize("ignored", [-100, 7])
@pytest.mark.parametrize("options", [{}, {"errors": 1.0}, {"objective": "overall"}], ids=str)
def test_pixels_teach_what_samples_teach(ignored, options):
    plain, dense = (AdaptiveCosts(COUNTS, ignore_index=i, **options) for i in (-100, ignored))
    for seed in range(3):
        logits, target = validation(seed, bias=0.3)
        one, two = plain.step(logits, target), dense.step(*as_images(logits, target, ignored))
        assert (one.val_error, one.tau, one.margin) == (two.val_error, two.tau, two.margin)
        assert torch.equal(one.costs, two.costs)
        assert torch.equal(one.confusion, two.confusion)
        images, classes = as_images(logits, target, ignored)
        torch.testing.assert_close(dense(images, classes), plain(logits, target))


@pytest.mark.parametrize("kind", [AdaptiveCosts, CostLearner])
def test_reduction_and_ignore_index_are_those_of_the_other_losses(kind):
    logits, target = validation(samples=12)
    target[::4] = 255
    costs = kind(COUNTS, ignore_index=255)
    for reduction in ("mean", "sum", "none"):
        options = {"reduction": reduction, "ignore_index": 255}
        expected = F.cost_sensitive_cross_entropy(logits, target, costs.costs, **options)
        assert torch.equal(kind(COUNTS, **options)(logits, target), expected)
    with pytest.raises(InputError, match="reduction must be one of mean, sum, none"):
        kind(COUNTS, reduction="average")
    assert torch.equal(
        costs.step(logits, target).costs,
        kind(COUNTS).step(logits[target != 255], target[target != 255]).costs,
    )


def test_a_step_has_no_fields_of_the_other_kind():
    names = [
        {field.name for field in fields(kind(COUNTS).step(torch.eye(3), torch.arange(3)))}
        for kind in (AdaptiveCosts, CostLearner)
    ]
    shared = {"number", "val_error", "best_error", "accepted", "confusion"}
    assert names == [
        shared | {"tau", "margin", "row", "diagonal", "pair_term"},
        shared | {"cost_lr", "cost_matrix", "target_costs", "separability"},
    ]


def test_classes_without_samples_raise():
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
        drawn.append(Objective.of(objective).error(counts))
    expected = torch.tensor([[72, 8], [8, 12]])
    noise = Objective.of(objective).noise(expected)
    # of the whole split for the two that do not look at classes, whose sizes are fixed here
    assert float(torch.tensor(drawn).std()) == pytest.approx(noise, rel=0.25)


def test_the_noise_of_a_single_sample_is_not_nothing():
    assert Objective.of("balanced").noise(torch.tensor([[50, 0], [0, 1]])) > 0.1


def test_importance():
    counts = torch.tensor([90, 10])
    assert Objective.of("overall").class_importance(counts).tolist() == [1, 1]
    assert Objective.of("balanced").class_importance(counts).tolist() == pytest.approx([10 / 9, 10])
    assert validation_rates(torch.tensor([[3, 1], [0, 0]]))[1].tolist() == [0.25, 0.75]


@pytest.mark.parametrize("convert", ["half", "bfloat16"])
def test_in_half_precision_the_costs_keep_theirs(convert):
    costs = AdaptiveCosts([90_000, 1])
    before = costs.costs.clone()
    getattr(costs, convert)()
    assert torch.equal(costs.costs, before)
    logits = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    target = torch.arange(40) % 2
    assert costs.step(logits.half(), target).costs.min() > 0
    assert costs.double().costs.dtype == torch.float64


@pytest.mark.parametrize("name", ["tau", "margin", "margin_scale", "errors", "cost_lr"])
def test_options_must_be_numbers(name):
    with pytest.raises(InputError, match=rf"{name} must be a number, but is '3'"):
        AdaptiveCosts([9, 1], **{name: "3"})


def test_a_step_needs_values():
    logits, target = torch.zeros(4, 2, device="meta"), torch.zeros(4, dtype=torch.long)
    with pytest.raises(InputError, match="needs values, but a tensor is on the device meta"):
        AdaptiveCosts([9, 1]).step(logits, target)
    with pytest.raises(InputError, match="needs values"):
        AdaptiveCosts([9, 1]).to("meta").step(torch.zeros(4, 2), target)


def observed(separability=6.0, margin=2.0):
    """Costs of an output layer on three classes, of which the first two are spread along x."""
    torch.manual_seed(0)
    target = torch.arange(60) % 3
    features = torch.randn(60, 2) * torch.tensor([3.0, 0.1]) + 5 * torch.eye(3)[target][:, :2]
    output = torch.nn.Linear(2, 3)
    costs = AdaptiveCosts(COUNTS, margin=margin, separability=separability)
    costs.observe(lambda: output.weight, features, target)
    return costs, output, features, target


def test_separability_adds_costs_of_pairs():
    costs, output, features, target = observed()
    plain = AdaptiveCosts(COUNTS, margin=2.0)
    spread = F.within_class_spread(features, target)
    pairs = F.spread_margins(output.weight, spread, torch.arange(3)).detach()
    strengths = 6 / torch.tensor(COUNTS).sqrt()
    expected = plain.costs.log() + strengths[:, None] * pairs
    torch.testing.assert_close(ratios(costs.costs), ratios(expected.exp()), rtol=1e-4, atol=1e-6)
    with torch.no_grad():
        logits = output(features)
    torch.testing.assert_close(
        costs(logits, target),
        F.cost_sensitive_cross_entropy(logits, target, costs.costs),
        rtol=1e-4,
        atol=1e-5,
    )
    step = costs.step(logits, target)
    torch.testing.assert_close(step.costs, costs.costs)


def test_separability_trains_the_weights_without_a_margin():
    costs, output, features, target = observed(margin=0.0)
    slopes = []
    for separability in (0.0, 6.0):
        costs.separability = separability
        (slope,) = torch.autograd.grad(costs(output(features), target), output.weight)
        slopes.append(slope)
    assert not torch.allclose(*slopes)
    ignored = target.clone()
    ignored[:5] = -100
    expected = costs(output(features[5:]), target[5:])
    torch.testing.assert_close(costs(output(features), ignored), expected)
    costs.separability = 0.0
    plain = AdaptiveCosts(COUNTS, margin=0.0)
    assert costs(output(features), target) == plain(output(features), target)


def test_separability_of_mixed_samples_is_the_mean_of_their_strengths():
    costs, output, features, target = observed()
    logits = output(features).detach()
    one_hot = torch.eye(3)[target]
    torch.testing.assert_close(costs(logits, one_hot), costs(logits, target), rtol=1e-4, atol=1e-5)


def test_separability_takes_pixels_and_names_bad_targets():
    costs, output, features, target = observed()
    logits = output(features).detach()
    pixels = logits.reshape(20, 3, 3).movedim(-1, 1)
    torch.testing.assert_close(costs(pixels, target.reshape(20, 3)), costs(logits, target))
    with pytest.raises(InputError, match="but sample 0 has 3"):
        costs(logits, target + 3)
    with pytest.raises(InputError, match="shape"):
        costs(logits, target[:-1])


def test_separability_is_bounded():
    """Otherwise large weights would get larger in each step."""
    costs, output, _, _ = observed(margin=0.0)
    with torch.no_grad():
        output.weight *= 1000
    apart = AdaptiveCosts(COUNTS, margin=0.0).costs.log() - costs.costs.log()
    off_diagonal = apart - apart.diagonal()[:, None]
    torch.testing.assert_close(off_diagonal, -8 * (1 - torch.eye(3)), rtol=1e-4, atol=1e-4)


def test_observed_costs_can_be_copied_and_restored():
    costs, output, features, target = observed()
    copied = copy.deepcopy(costs)
    assert copied.spread is not None
    other = observed()[0]
    other.spread.zero_()
    other.load_state_dict(costs.state_dict())
    torch.testing.assert_close(
        other(output(features), target), costs(output(features), target), rtol=1e-5, atol=1e-6
    )
