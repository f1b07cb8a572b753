"""Operating points, on samples of known distributions."""

import numpy as np
import pytest
import torch

from cosen.errors import InputError
from cosen.inference.decisions import (
    Known,
    LowestCost,
    PredictionSets,
    RequiredRecall,
    ReviewBudget,
    _least_correct,
    parse_rule,
)

NAMES = ("benign", "melanoma", "nevus")


def drawn(count, seed=0, *, rare=0.1):
    """Images of three classes whose probabilities are correct."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.tensor([0.9 - rare, rare, 0.1])
    target = torch.multinomial(shares, count, replacement=True, generator=generator)
    points = 2 * torch.eye(3)[target] + torch.randn(count, 3, generator=generator)
    densities = -(points[:, None] - 2 * torch.eye(3)).square().sum(2) / 2
    return Known((densities + shares.log()).double().softmax(1), target, NAMES)


def test_the_bound_of_a_recall_is_that_of_clopper_and_pearson():
    scipy_stats = pytest.importorskip("scipy.stats")
    for samples, recall in ((59, 0.95), (100, 0.9), (300, 0.99), (40, 0.5), (2000, 0.9)):
        least = _least_correct(samples, recall)

        def bound(correct, of=samples):
            return scipy_stats.beta.ppf(0.05, correct, of - correct + 1)

        assert bound(least) >= recall > bound(least - 1)
    assert _least_correct(58, 0.95) is None
    assert _least_correct(0, 0.5) is None


def test_a_required_recall_is_kept():
    kept = []
    for seed in range(40):
        rule = RequiredRecall("melanoma", 0.9).fit(drawn(1500, seed))
        test = drawn(4000, seed + 1000)
        own = test.target == 1
        kept.append(float((rule.decide(test.probabilities).classes[own] == 1).double().mean()))
    assert np.mean(np.array(kept) >= 0.9) > 0.85, "with 95 % confidence"
    assert np.mean(kept) < 0.96, "and not much more than required"
    sentence = rule.describe(test)
    assert sentence.startswith(f"recall of 'melanoma' {100 * kept[-1]:.1f} % at a probability of")


def test_a_recall_that_cannot_be_promised_is_refused():
    known = drawn(200)
    own = int((known.target == 1).sum())
    with pytest.raises(InputError, match=f"it has {own} validation images, and 59 are needed"):
        RequiredRecall("melanoma", 0.95).fit(known)
    with pytest.raises(InputError, match="did you mean 'melanoma'"):
        RequiredRecall("melanomas", 0.5).fit(known)


def test_a_review_budget_is_kept_and_helps():
    rule, test = ReviewBudget(0.2).fit(drawn(2000)), drawn(4000, 1)
    found = rule.decide(test.probabilities)
    assert float(found.review.double().mean()) == pytest.approx(0.2, abs=0.03)
    correct = found.classes == test.target
    assert correct[~found.review].double().mean() > correct.double().mean() + 0.03
    assert "of the images are to be checked" in rule.describe(test)


def test_sets_cover_every_class():
    covered, sizes = [], []
    for seed in range(20):
        rule, test = PredictionSets(0.9).fit(drawn(1000, seed)), drawn(4000, seed + 500)
        sets = rule.decide(test.probabilities).sets
        inside = sets[torch.arange(len(test.target)), test.target]
        covered.append([float(inside[test.target == label].double().mean()) for label in range(3)])
        sizes.append(float(sets.sum(1).double().mean()))
    np.testing.assert_allclose(np.mean(covered, 0), 0.9, atol=0.02)
    assert 1 < np.mean(sizes) < 2
    assert "lowest class" in rule.describe(test)


def test_a_class_with_few_images_is_in_every_set():
    known = drawn(60, rare=0.03)
    assert (known.target == 1).sum() < 9
    rule = PredictionSets(0.9).fit(known)
    assert rule.decide(known.probabilities).sets[:, 1].all()
    text = rule.describe(known)
    assert "too few validation images (9 are needed), so in every set: 'melanoma', 'nevus'" in text


def test_costs():
    known, costs = drawn(1000), torch.tensor([[0.0, 1, 1], [20, 0, 20], [1, 1, 0]])
    rule = parse_rule("probability", costs)
    assert isinstance(rule, LowestCost)
    decided = rule.decide(known.probabilities).classes
    usual = known.probabilities.argmax(1)
    assert costs[known.target, decided].mean() < costs[known.target, usual].mean()
    assert rule.describe(known).startswith("mean cost 0.")


@pytest.mark.parametrize(
    "text",
    [
        "recall:0.9",
        "recall:melanoma",
        "recall:melanoma=2",
        "review",
        "review:a=0.1",
        "sets:1",
        "no",
    ],
)
def test_mistakes(text):
    with pytest.raises(InputError, match=r"decide must be probability, recall:NAME=0\.95"):
        parse_rule(text)


def test_costs_and_another_rule():
    with pytest.raises(InputError, match=r"either by costs or by 'sets:0\.9'"):
        parse_rule("sets:0.9", torch.ones(2, 2))
