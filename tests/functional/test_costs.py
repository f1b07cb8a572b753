import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from cosen import functional as F
from cosen.errors import InputError

MOMENTS = {
    "separability_mean": 0.3,
    "separability_std": 0.4,
    "confusion_mean": 0.2,
    "confusion_std": 0.6,
}


def random_matrix(size, seed):
    return torch.rand(
        size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def test_class_frequencies():
    counts = torch.tensor([6000, 600, 60])
    torch.testing.assert_close(F.class_frequencies(counts), counts / 6660)
    torch.testing.assert_close(
        F.class_frequencies(counts, relative_to="largest"), torch.tensor([1.0, 0.1, 0.01])
    )


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=8), st.sampled_from(["total", "largest"])
)
def test_class_frequencies_equal_reference(counts, relative_to):
    frequencies = F.class_frequencies(torch.tensor(counts), relative_to=relative_to)
    expected = reference.class_frequencies(counts, relative_to)
    np.testing.assert_allclose(frequencies, expected, rtol=1e-6)


@given(st.lists(st.floats(0.001, 1.0), min_size=1, max_size=8))
def test_frequency_matrix_and_its_complement_equal_reference(frequencies):
    h = torch.tensor(frequencies, dtype=torch.float64)
    np.testing.assert_array_equal(F.frequency_matrix(h), reference.frequency_matrix(frequencies))
    np.testing.assert_allclose(
        F.frequency_complement(h), reference.frequency_complement(frequencies), rtol=1e-12
    )


def test_frequency_matrix_by_hand():
    expected = torch.tensor([[0.6, 0.6, 0.6], [0.6, 0.3, 0.3], [0.6, 0.3, 0.1]])
    torch.testing.assert_close(F.frequency_matrix(torch.tensor([0.6, 0.3, 0.1])), expected)


@pytest.mark.parametrize("size", [2, 6])
def test_target_costs_equal_reference(size):
    frequencies = F.frequency_matrix(random_matrix(size, 1)[0].clamp(0.01))
    separability, confusion = 2 * random_matrix(size, 2), random_matrix(size, 3)
    expected = reference.target_costs(
        frequencies.tolist(), separability.tolist(), confusion.tolist(), *MOMENTS.values(), 1e-3
    )
    actual = F.target_costs(frequencies, separability, confusion, **MOMENTS, floor=1e-3)
    np.testing.assert_allclose(actual, expected, rtol=1e-12)


def test_a_factor_is_switched_off_by_none_or_an_infinite_std():
    frequencies = F.frequency_matrix(torch.tensor([0.7, 0.3]))
    matrix = torch.tensor([[1.0, 0.4], [0.5, 1.0]])
    without = F.target_costs(frequencies, None, None, **MOMENTS)
    torch.testing.assert_close(without, frequencies)
    wide = MOMENTS | {"separability_std": math.inf, "confusion_std": math.inf}
    torch.testing.assert_close(F.target_costs(frequencies, matrix, matrix, **wide), frequencies)


def test_target_costs_that_underflow_are_at_the_floor():
    frequencies = torch.full((2, 2), 0.5)
    far = torch.full((2, 2), 1e4)
    costs = F.target_costs(frequencies, far, None, **MOMENTS, floor=1e-5)
    torch.testing.assert_close(costs, torch.full((2, 2), 1e-5))


def test_objective_equals_reference_and_its_gradient_is_the_step():
    costs, target = random_matrix(4, 5).clamp(0.1), random_matrix(4, 6).clamp(0.1)
    expected = reference.cost_objective(costs.tolist(), target.tolist(), 0.25)
    np.testing.assert_allclose(F.cost_objective(costs, target, 0.25), expected)
    costs.requires_grad_()
    F.cost_objective(costs, target, 0.25).backward()
    stepped = F.step_costs(costs.detach(), target, cost_lr=0.2)
    torch.testing.assert_close(stepped, costs.detach() - 0.1 * costs.grad)  # 2 is in cost_lr


@given(
    st.integers(0, 1000),
    st.floats(0, 3),
    st.sampled_from([1e-6, 1e-3, 0.2]),
)
def test_steps_stay_in_range_and_reach_the_target(seed, cost_lr, floor):
    costs = F.project_costs(random_matrix(4, seed), floor=floor)
    target = F.project_costs(random_matrix(4, seed + 1), floor=floor)
    stepped = F.step_costs(costs, target, cost_lr=cost_lr, floor=floor)
    assert (stepped >= floor).all()
    assert (stepped <= 1).all()
    torch.testing.assert_close(F.step_costs(costs, target, cost_lr=1.0, floor=floor), target)
    torch.testing.assert_close(F.step_costs(costs, target, cost_lr=0.0, floor=floor), costs)
    if cost_lr <= 1:
        assert F.cost_objective(stepped, target, 0) <= F.cost_objective(costs, target, 0) + 1e-12


@given(st.integers(0, 1000), st.floats(0, 3), st.sampled_from([1e-6, 0.2]))
def test_steps_and_projection_equal_reference(seed, cost_lr, floor):
    costs, target = random_matrix(4, seed).clamp(floor), random_matrix(4, seed + 1).clamp(floor)
    np.testing.assert_allclose(
        F.step_costs(costs, target, cost_lr=cost_lr, floor=floor),
        reference.step_costs(costs.tolist(), target.tolist(), cost_lr, floor),
        rtol=1e-12,
    )
    outside = 3 * random_matrix(4, seed) - 1
    np.testing.assert_array_equal(
        F.project_costs(outside, floor=floor), reference.project_costs(outside.tolist(), floor)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_no_precision_loses_the_floor(dtype):
    zeros, ones = torch.zeros(2, 2, dtype=dtype), torch.ones(2, 2, dtype=dtype)
    floor = torch.full((2, 2), 1e-8, dtype=torch.promote_types(dtype, torch.float32))
    close = {"rtol": 1e-6, "atol": 0}
    torch.testing.assert_close(F.project_costs(zeros, floor=1e-8), floor, **close)
    assert (F.project_costs(zeros, floor=1e-60) > 0).all()
    far = torch.full((2, 2), 1e3)
    target = F.target_costs(ones, far, None, **MOMENTS, floor=1e-8)
    torch.testing.assert_close(target, floor, **close)
    thirds = ones / 3
    torch.testing.assert_close(
        F.target_costs(thirds, 0 * far, None, **MOMENTS),
        F.target_costs(thirds.to(floor.dtype), 0 * far, None, **MOMENTS),
        **close,
    )
    stepped = F.step_costs(ones, target, cost_lr=1.0, floor=1e-8)
    torch.testing.assert_close(stepped, floor, **close)


@given(st.integers(0, 1000), st.integers(2, 6))
def test_costs_from_misclassification_equal_reference(seed, classes):
    mistakes = 9 * random_matrix(classes, seed).fill_diagonal_(0)
    np.testing.assert_allclose(
        F.costs_from_misclassification(mistakes, floor=0.01),
        reference.costs_from_misclassification(mistakes.tolist(), 0.01),
        rtol=1e-12,
    )


@pytest.mark.parametrize(("dtype", "worst"), [(torch.float16, 4e4), (torch.float32, 2e38)])
def test_huge_misclassification_costs_do_not_overflow(dtype, worst):
    mistakes = torch.tensor([[0.0, worst / 2], [worst, 0.0]], dtype=dtype)
    expected = torch.tensor([[1.0, 1 / 3], [1.0, 1.0]])
    torch.testing.assert_close(F.costs_from_misclassification(mistakes), expected)


def test_bayes_decision_works_in_full_precision():
    """The risks 1024.5 and 1024 are the same number in float16."""
    half = {"dtype": torch.float16}
    posterior = torch.tensor([[0.5, 0.25, 0.25]], **half)
    costs = torch.tensor([[2048, 2048, 3000], [2, 0, 0], [0, 0, 0]], **half)
    assert int(F.bayes_decision(posterior, costs)) == 1


@given(st.integers(0, 1000), st.integers(2, 6))
def test_bayes_decision_equals_reference(seed, classes):
    generator = torch.Generator().manual_seed(seed)
    posteriors = torch.rand(20, classes, generator=generator, dtype=torch.float64).softmax(1)
    costs = 9 * torch.rand(classes, classes, generator=generator, dtype=torch.float64)
    expected = reference.bayes_decision(posteriors.tolist(), costs.tolist())
    assert F.bayes_decision(posteriors, costs).tolist() == expected


def test_bayes_decision_with_uniform_costs_is_the_most_probable_class():
    posteriors = random_matrix(7, 0).softmax(1)
    assert torch.equal(F.bayes_decision(posteriors, 1 - torch.eye(7)), posteriors.argmax(1))


def test_uniform_misclassification_costs_become_ones():
    assert torch.equal(F.costs_from_misclassification(3 * (1 - torch.eye(4))), torch.ones(4, 4))


def test_a_mistake_without_cost_gets_the_floor_and_scale_does_not_matter():
    costs = torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 4.0], [4.0, 4.0, 0.0]])
    converted = F.costs_from_misclassification(costs, floor=0.01)
    expected = torch.tensor([[1.0, 1 / 3, 0.01], [1 / 7, 1.0, 1.0], [1.0, 1.0, 1.0]])
    torch.testing.assert_close(converted, expected)
    torch.testing.assert_close(F.costs_from_misclassification(50 * costs, floor=0.01), expected)


@given(st.floats(0.1, 10), st.floats(0.1, 10), st.floats(0.02, 0.98))
def test_with_two_classes_costs_from_misclassification_decide_like_the_bayes_rule(
    first, second, posterior
):
    """The slope of the loss at the boundary o_0 = o_1 points to the Bayes decision."""
    mistakes = torch.tensor([[0.0, first], [second, 0.0]], dtype=torch.float64)
    chance = torch.tensor([posterior, 1 - posterior], dtype=torch.float64)
    risks = chance @ mistakes
    if (risks[0] - risks[1]).abs() < 1e-6:
        return
    logits = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    losses = F.cost_sensitive_cross_entropy(
        logits, torch.arange(2), F.costs_from_misclassification(mistakes), reduction="none"
    )
    (chance * losses).sum().backward()
    slope = logits.grad.sum(0)  # the two rows are the same output, once for each true class
    assert int(slope.argmin()) == int(F.bayes_decision(chance[None], mistakes))


@given(st.floats(0.01, 0.5), st.floats(0.02, 0.98))
def test_fixed_frequency_costs_decide_for_a_rare_class_above_their_threshold(rare, posterior):
    """With H and two classes the threshold for the rare class is 1 / (3 - 2 h): never below 1/3."""
    threshold = 1 / (3 - 2 * rare)
    if abs(posterior - threshold) < 1e-3:
        return
    costs = F.frequency_matrix(torch.tensor([rare, 1 - rare], dtype=torch.float64))
    logits = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    losses = F.cost_sensitive_cross_entropy(logits, torch.arange(2), costs, reduction="none")
    (torch.tensor([posterior, 1 - posterior]) * losses).sum().backward()
    decision = int(logits.grad.sum(0).argmin())
    assert (decision == 0) == (posterior > threshold)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.class_frequencies(torch.tensor([3, 0, 1, 0])), "is 0 for class 1, 3"),
        (lambda: F.class_frequencies(torch.tensor([3]), relative_to="x"), "'total' or 'largest'"),
        (lambda: F.frequency_matrix(torch.tensor([60, 40])), "for counts use class_frequencies"),
        (lambda: F.frequency_matrix(torch.tensor([0.5, torch.nan])), "class 1 has nan"),
        (
            lambda: F.target_costs(torch.ones(2, 2), torch.ones(3, 3), None, **MOMENTS),
            r"separability must have the shape \(2, 2\)",
        ),
        (
            lambda: F.target_costs(torch.ones(2, 2), None, torch.eye(2) / 0, **MOMENTS),
            "confusion must be finite",
        ),
        (
            lambda: F.target_costs(
                torch.ones(2, 2), None, None, **(MOMENTS | {"confusion_std": 0.0})
            ),
            "confusion_std positive",
        ),
        (
            lambda: F.target_costs(
                torch.ones(2, 2), torch.ones(2, 2, device="meta"), None, **MOMENTS
            ),
            "separability and frequency_matrix must be on one device",
        ),
        (
            lambda: F.cost_objective(torch.ones(2, 2), torch.ones(2, 2, device="meta"), 0),
            "target_costs and costs must be on one device",
        ),
        (
            lambda: F.bayes_decision(torch.ones(1, 2), torch.ones(2, 2, device="meta")),
            "misclassification_costs and probabilities must be on one device",
        ),
        (lambda: F.cost_objective(torch.tensor(1.0), torch.ones(2, 2), 0), "costs must have the"),
        (lambda: F.cost_objective(torch.ones(2, 2), torch.tensor(1.0), 0), "target_costs must"),
        (lambda: F.cost_objective(torch.ones(0, 0), torch.ones(0, 0), 0), "costs must have the"),
        (lambda: F.class_frequencies(torch.ones(0)), r"shape \(classes,\), but has \(0,\)"),
        (lambda: F.project_costs(torch.ones(2, 2).long()), "costs must be floating point"),
        (lambda: F.project_costs(torch.ones(2, 2), floor=0), r"floor must lie in \(0, 1\]"),
        (lambda: F.project_costs(torch.full((2, 2), torch.nan)), "NaN"),
        (lambda: F.step_costs(torch.ones(2, 2), torch.ones(2, 2), cost_lr=-1), "cost_lr"),
        (lambda: F.step_costs(torch.ones(2, 2), torch.zeros(2, 2), cost_lr=1), "target_costs must"),
        (lambda: F.costs_from_misclassification(torch.zeros(2, 2)), "all zero"),
        (lambda: F.costs_from_misclassification(torch.ones(2, 2)), "zero diagonal"),
        (lambda: F.bayes_decision(torch.ones(2), torch.ones(2, 2)), "probabilities must be"),
        (lambda: F.bayes_decision(torch.ones(1, 2), torch.ones(3, 3)), r"shape \(2, 2\)"),
        (lambda: F.bayes_decision(-torch.ones(1, 2), torch.ones(2, 2)), "negative"),
        (lambda: F.bayes_decision(torch.ones(1, 2), torch.eye(2) / 0), "must be finite"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
