"""What outputs mean: fitted on samples of known distributions."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import cosen
from cosen.errors import InputError
from cosen.training.calibration import (
    Calibration,
    estimate_shares,
    expected_offsets,
    fit_calibration,
    make_calibration,
)

CENTRES = 2.5 * torch.eye(3)
SHARES = torch.tensor([0.8, 0.15, 0.05])
COUNTS = 2000 * SHARES


def draw(count, shares, seed=0):
    """Points of three normal distributions, and the log-density of each class at each."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.multinomial(shares, count, replacement=True, generator=generator)
    points = CENTRES[target] + torch.randn(count, 3, generator=generator)
    return -(points[:, None] - CENTRES).square().sum(2) / 2, target


def log_loss(logits, target):
    return float(nn.functional.cross_entropy(logits, target))


@pytest.mark.parametrize("lean", [0.0, 1.0, 1.5], ids=["plain", "balanced", "too far"])
@pytest.mark.parametrize("is_expected", [True, False])
def test_the_posterior_of_any_method_is_found(lean, is_expected):
    """Outputs that lean towards rare classes, and are 1.7 times too confident."""
    densities, target = draw(1500, SHARES)
    offsets = lean * SHARES.log()

    def outputs(found):
        return 1.7 * (found + SHARES.log() - offsets)

    known = offsets - offsets.mean() if is_expected else None
    calibration = fit_calibration(outputs(densities), target, COUNTS, expected=known)
    for shares in (SHARES, torch.ones(3) / 3, torch.tensor([0.2, 0.3, 0.5])):
        tested, labels = draw(4000, shares, seed=1)
        ideal = log_loss(tested + shares.log(), labels)
        found = log_loss(calibration.logits(outputs(tested), shares), labels)
        assert found < ideal + 0.03
        plain = log_loss(outputs(tested), labels)
        assert found < plain


def test_few_samples_decide_little():
    densities, target = draw(1500, SHARES)
    logits = densities + SHARES.log()
    assert fit_calibration(3 * logits, target, COUNTS).temperature == pytest.approx(3, rel=0.2)
    few = fit_calibration(logits[:3], target[:3], COUNTS)
    assert 0.5 < few.temperature < 2
    assert few.offsets.abs().max() < 0.1
    none = fit_calibration(logits[:0], target[:0], COUNTS)
    assert (none.temperature, none.offsets.tolist()) == (1.0, [0.0] * 3)
    sure = fit_calibration(20 * torch.eye(3), torch.arange(3), COUNTS)
    assert sure.temperature == 1.0, "no errors: not more confident than they allow"


@pytest.mark.parametrize("scale", [0.5, 2.0, 8.0])
def test_confidence_without_errors_is_that_of_one_error_in_two_more_images(scale):
    logits = scale * torch.eye(3).repeat(33, 1)
    calibration = fit_calibration(logits, torch.arange(99) % 3, COUNTS)
    confidence = calibration.logits(logits).softmax(1).amax(1).mean()
    plain = logits.softmax(1).amax(1).mean()
    if plain < 100 / 101:
        assert plain < confidence <= 100 / 101
    else:
        assert calibration.temperature == 1.0


def test_parts_of_the_samples_are_added(monkeypatch):
    densities, target = draw(500, SHARES)
    whole = fit_calibration(densities, target, COUNTS)
    monkeypatch.setattr("cosen.training.calibration.CHUNK", 3 * 7)
    parts = fit_calibration(densities, target, COUNTS)
    assert parts.temperature == pytest.approx(whole.temperature, rel=1e-4)
    torch.testing.assert_close(parts.offsets, whole.offsets, atol=1e-4, rtol=0)


def test_shares_by_hand():
    # 0.6 * (1/8) / (6/8) = 0.1, 0.4 * (7/8) / (2/8) = 1.4: a share of 1.5
    calibration = make_calibration(1.0, (), torch.tensor([6, 2]))
    logits, shares = torch.tensor([[0.6, 0.4]]).log(), torch.tensor([1.0, 7.0])
    expected = torch.tensor([[0.1 / 1.5, 1.4 / 1.5]], dtype=torch.float64)
    torch.testing.assert_close(calibration.probabilities(logits, shares), expected)
    moved = calibration.logits(logits, shares)
    again = calibration.of_shares(shares).probabilities(moved, torch.tensor([6.0, 2.0]))
    torch.testing.assert_close(again.float(), logits.exp())


LOSSES = {
    "plain": (nn.CrossEntropyLoss(), None, None),
    "weights": (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 4.0])), None, [0, -math.log(4)]),
    "draws": (nn.CrossEntropyLoss(), np.array([1.0, 9.0]), [0, -math.log(9)]),
    "balanced": (cosen.BalancedSoftmaxLoss([90, 10], tau=0.5), None, [0, -math.log(3)]),
    "adaptive": (cosen.AdaptiveCosts([90, 10], margin=2.0), None, [0, -math.log(9)]),
    "weighting": (cosen.AdaptiveCosts([90, 10], weighting=1.0), None, [0, -math.log(9)]),
    "half": (cosen.AdaptiveCosts([90, 10], weighting=0.5), None, [0, -math.log(9)]),
    "held out": (cosen.AdaptiveCosts([90, 10], offsets=[-1.0, 1.0]), None, [0, -math.log(9)]),
    "costs": (
        cosen.CostSensitiveCrossEntropyLoss([[1.0, 0.5], [1.0, 0.5]]),
        None,
        [0, -math.log(2)],
    ),
    "hinge": (cosen.CostSensitiveHingeLoss([[1.0, 0.5], [1.0, 0.5]]), None, None),
}


@pytest.mark.parametrize(("loss", "draws", "expected"), LOSSES.values(), ids=LOSSES)
def test_what_a_loss_implies(loss, draws, expected):
    found = expected_offsets(loss, draws)
    if expected is None:
        assert found is None
    else:
        torch.testing.assert_close((found - found[0]).float(), torch.tensor(expected))


def test_shares_of_unlabelled_images_are_estimated():
    calibration = Calibration(1.0, torch.zeros(3, dtype=torch.float64), COUNTS)
    shares = torch.tensor([0.2, 0.3, 0.5])
    found = []
    for seed in range(20):
        densities, _ = draw(500, shares, seed=seed)
        estimate, errors = estimate_shares(
            calibration.probabilities(densities + SHARES.log(), SHARES), SHARES.double()
        )
        assert float(estimate.sum()) == pytest.approx(1)
        found.append((estimate - shares) / errors)
    scaled = torch.stack(found)
    assert scaled.abs().max() < 4
    assert 0.6 < float(scaled.std()) < 1.5, "the standard errors are right"


@pytest.mark.parametrize("logits", [draw(5, SHARES)[0], torch.zeros(1000, 3)], ids=["few", "same"])
def test_shares_that_images_do_not_determine_are_refused(logits):
    with pytest.raises(InputError, match="do not determine the class shares"):
        estimate_shares(logits.double().softmax(1), torch.ones(3).double() / 3)
