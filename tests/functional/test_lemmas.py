"""The paper's nine lemmas and Proposition 1, each as a property."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import reference
from cosen import functional as F
from cosen.errors import InputError

seeds = st.integers(0, 10_000)
class_counts = st.integers(2, 6)
THREE_LOSSES = (F.cost_sensitive_cross_entropy, F.cost_sensitive_hinge, F.cost_sensitive_mse)


def random_costs(classes, seed, low=0.05):
    generator = torch.Generator().manual_seed(seed)
    unit = torch.rand(classes, classes, generator=generator, dtype=torch.float64)
    return low + (1 - low) * unit


def random_posteriors(classes, seed, samples=1):
    generator = torch.Generator().manual_seed(seed + 77)
    logits = 1.5 * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    return logits.softmax(1)


@given(seeds, class_counts)
def test_lemma_1_offsetting_the_costs_of_a_true_class_changes_no_decision(seed, classes):
    """The paper offsets columns of ξ′: in its risk they are the true class, which is our row."""
    costs = 10 * random_costs(classes, seed)
    posteriors = random_posteriors(classes, seed, samples=30)
    risks = (posteriors @ costs).sort(1).values
    clear = risks[:, 1] - risks[:, 0] > 1e-6  # rounding may decide a tie either way
    offsets = 100 * random_costs(classes, seed + 1)[:, :1]
    before = F.bayes_decision(posteriors, costs)
    assert torch.equal(before[clear], F.bayes_decision(posteriors, costs + offsets)[clear])


@given(seeds, class_counts)
def test_lemma_2_the_true_class_costs_less_than_the_mean(seed, classes):
    """If a certain class is chosen, its cost is at most the mean over all decisions."""
    costs = 10 * random_costs(classes, seed)
    decisions = F.bayes_decision(torch.eye(classes, dtype=torch.float64), costs)
    for label in range(classes):
        if decisions[label] == label:
            assert costs[label, label] <= costs[label].mean()


@given(seeds, class_counts)
def test_lemma_3_all_ones_is_cost_insensitive(seed, classes):
    ones = torch.ones(classes, classes, dtype=torch.float64)
    logits = 3 * torch.randn(
        8, classes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    target = torch.arange(8) % classes
    plain = torch.nn.functional.cross_entropy(logits, target)
    torch.testing.assert_close(F.cost_sensitive_cross_entropy(logits, target, ones), plain)
    hot = torch.nn.functional.one_hot(target, classes)
    squared = (hot - logits.sigmoid()).square().sum(1).mean() / 2
    torch.testing.assert_close(F.cost_sensitive_mse(logits, target, ones), squared)
    hinge = (1 - (2 * hot - 1) * logits).clamp(min=0).sum(1).mean()
    torch.testing.assert_close(F.cost_sensitive_hinge(logits, target, ones), hinge)
    # and the traditional 1 - I, with a zero diagonal, is cost-insensitive in the Bayes rule
    posteriors = logits.softmax(1)
    assert torch.equal(F.bayes_decision(posteriors, ones - ones.diag().diag()), logits.argmax(1))
    assert torch.equal(F.costs_from_misclassification(ones - ones.diag().diag()), ones)


@pytest.mark.parametrize("loss", THREE_LOSSES)
@given(seed=seeds, classes=class_counts)
@settings(max_examples=15)
def test_lemma_4_costs_are_positive(loss, seed, classes):
    """A zero cost raises an error: the output's gradient would not depend on the weights."""
    costs = random_costs(classes, seed)
    row, column = seed % classes, (seed // 7) % classes
    costs[row, column] = 0
    with pytest.raises(InputError, match=rf"costs\[{row}, {column}\] is 0"):
        loss(torch.zeros(1, classes), torch.tensor([row]), costs)


@pytest.mark.parametrize("loss", [F.cost_sensitive_hinge, F.cost_sensitive_mse])
def test_lemma_4_the_gradient_vanishes_with_the_cost(loss):
    for cost in (1e-2, 1e-4, 1e-8):
        logits = torch.tensor([[0.3, -0.2]], requires_grad=True)
        loss(logits, torch.tensor([0]), torch.tensor([[1.0, cost], [1.0, 1.0]])).backward()
        assert abs(float(logits.grad[0, 1])) <= cost


@pytest.mark.parametrize("loss", THREE_LOSSES)
@given(seed=seeds, above=st.floats(1.001, 100))
@settings(max_examples=15)
def test_lemma_5_costs_are_at_most_one(loss, seed, above):
    costs = random_costs(3, seed)
    costs[seed % 3, seed % 2] = above
    with pytest.raises(InputError, match=r"costs must lie in \(0, 1\]"):
        loss(torch.zeros(1, 3), torch.tensor([0]), costs)


@given(seeds, class_counts, st.floats(0.01, 50))
def test_lemma_5_targets_and_steps_keep_the_range(seed, classes, spread):
    frequencies = F.frequency_matrix(random_costs(classes, seed)[0])
    matrix = spread * random_costs(classes, seed + 1)
    target = F.target_costs(
        frequencies,
        matrix,
        matrix,
        separability_mean=0.5,
        separability_std=0.2,
        confusion_mean=0.5,
        confusion_std=0.2,
    )
    for costs in (target, F.step_costs(torch.ones_like(target), target, cost_lr=0.5)):
        assert ((costs > 0) & (costs <= 1)).all()


@pytest.mark.parametrize("loss", [F.cost_sensitive_hinge, F.cost_sensitive_mse])
@given(seed=seeds, classes=class_counts)
@settings(max_examples=15)
def test_lemma_6_offsetting_towards_zero_leads_to_the_guess_point(loss, seed, classes):
    """Costs 1 - c with c → 1: the loss of correct outputs approaches that of a guess, o = 0."""
    target = torch.arange(4) % classes
    generator = torch.Generator().manual_seed(seed)
    sizes = 5 * torch.rand(4, classes, generator=generator, dtype=torch.float64)
    logits = torch.where(torch.nn.functional.one_hot(target, classes) == 1, sizes, -sizes)
    gaps = []
    for offset in (0.0, 0.9, 0.999, 0.999999):
        costs = torch.ones(classes, classes, dtype=torch.float64) - offset
        guess = loss(torch.zeros_like(logits), target, costs)
        gaps.append(float(guess - loss(logits, target, costs)))
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-3
    with pytest.raises(InputError):
        loss(logits, target, torch.zeros(classes, classes, dtype=torch.float64))


@given(seeds, class_counts, st.floats(-5, 5))
def test_lemma_7_cross_entropy_is_guess_averse(seed, classes, guess):
    """Outputs that favour the true class have a lower loss than equal outputs."""
    costs = random_costs(classes, seed, low=1e-3)
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(classes, classes, generator=generator, dtype=torch.float64)
    target = torch.arange(classes)
    logits[target, target] = logits.amax(1) + 0.1
    right = F.cost_sensitive_cross_entropy(logits, target, costs, reduction="none")
    arbitrary = F.cost_sensitive_cross_entropy(
        torch.full_like(logits, guess), target, costs, reduction="none"
    )
    assert (right < arbitrary).all()


@given(seeds, class_counts)
def test_lemma_8_the_diagonal_is_positive(seed, classes):
    """With ξ_pp → 0 the loss is unbounded for any output, so zero raises an error."""
    costs = random_costs(classes, seed)
    label = seed % classes
    target = torch.tensor([label])
    logits = torch.zeros(1, classes, dtype=torch.float64)
    losses = []
    for diagonal in (1e-2, 1e-5, 1e-8):
        costs[label, label] = diagonal
        losses.append(float(F.cost_sensitive_cross_entropy(logits, target, costs)))
    assert losses[0] < losses[1] < losses[2]
    costs[label, label] = 0
    with pytest.raises(InputError, match=rf"costs\[{label}, {label}\] is 0"):
        F.cost_sensitive_cross_entropy(logits, target, costs)


def minimiser_of_expected_loss(costs, posterior):
    """The outputs that minimise Σ_p P(p) ℓ(ξ, p, o), found numerically (convex), with mean 0."""
    classes = len(posterior)
    labels = torch.arange(classes)

    def value_and_slope(outputs):
        o = torch.tensor(outputs, requires_grad=True)
        losses = F.cost_sensitive_cross_entropy(
            o.expand(classes, classes), labels, costs, reduction="none"
        )
        risk = (posterior * losses).sum()
        risk.backward()
        return float(risk.detach()), o.grad.numpy()

    found = minimize(
        value_and_slope, np.zeros(classes), jac=True, method="BFGS", options={"gtol": 1e-9}
    )
    return torch.tensor(found.x - found.x.mean())


@given(seeds, st.integers(2, 5))
@settings(max_examples=20)
def test_lemma_9_calibration_the_optimum_satisfies_the_papers_equation(seed, classes):
    """P(t) = exp(o_t) Σ_p P(p) ξ_pt / Σ_k ξ_pk exp(o_k), the exact line of the proof."""
    costs, posterior = random_costs(classes, seed), random_posteriors(classes, seed)[0]
    o = minimiser_of_expected_loss(costs, posterior)
    normalisers = (costs * o.exp()).sum(1)
    closed_form = o.exp() * (posterior[:, None] * costs / normalisers[:, None]).sum(0)
    torch.testing.assert_close(closed_form, posterior, atol=1e-5, rtol=1e-4)


@given(seeds, st.integers(2, 5))
@settings(max_examples=20)
def test_lemma_9_calibration_the_last_step_is_exact_where_rows_are_alike(seed, classes):
    """o_t = log P(t) - log Σ_p P(p) ξ_pt + const, exact if all rows of costs are equal."""
    row = random_costs(classes, seed)[0]
    posterior = random_posteriors(classes, seed)[0]
    o = minimiser_of_expected_loss(row.expand(classes, classes), posterior)
    closed_form = posterior.log() - row.log()
    torch.testing.assert_close(o, closed_form - closed_form.mean(), atol=1e-4, rtol=1e-4)


def test_lemma_9_calibration_the_last_step_is_an_approximation_in_general():
    """The counter-example of docs/paper.md: the closed form and the optimum decide differently."""
    costs = torch.tensor([[0.1, 1.0], [0.1, 0.1]], dtype=torch.float64)
    posterior = torch.tensor([0.3, 0.7], dtype=torch.float64)
    optimum = minimiser_of_expected_loss(costs, posterior)
    closed_form = posterior.log() - (posterior @ costs).log()
    assert float(optimum[0] - optimum[1]) == pytest.approx(-0.399, abs=1e-3)
    assert float(closed_form[0] - closed_form[1]) == pytest.approx(0.461, abs=1e-3)


@given(seeds, class_counts)
def test_lemma_9_all_ones_costs_are_calibrated_to_the_posterior(seed, classes):
    posterior = random_posteriors(classes, seed)[0]
    assume(float(posterior.sort().values[-2:].diff()) > 1e-3)
    ones = torch.ones(classes, classes, dtype=torch.float64)
    o = minimiser_of_expected_loss(ones, posterior)
    torch.testing.assert_close(o.softmax(0), posterior, atol=1e-5, rtol=1e-4)
    assert int(o.argmax()) == int(posterior.argmax())


@given(seeds, class_counts)
def test_proposition_1_the_gradient_formula_is_unchanged(seed, classes):
    """∂ℓ/∂o_m = y_m - d_m: the costs appear only in y."""
    costs = random_costs(classes, seed)
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, classes, generator=generator, dtype=torch.float64, requires_grad=True)
    label = seed % classes
    F.cost_sensitive_cross_entropy(logits, torch.tensor([label]), costs).backward()
    expected = reference.cross_entropy_gradient(logits[0].tolist(), label, costs.tolist())
    np.testing.assert_allclose(logits.grad[0], expected, atol=1e-12)
