"""Offsets of the classes and the strength of frequencies, from held-out outputs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cosen.costs.offsets import ACCURACY, MOST_NUMBERS, class_offsets, frequency_strength


def held_out(counts, bias, *, seed=0, signal=2.0):
    """Outputs of a good classifier, with a bias for each class."""
    generator = torch.Generator().manual_seed(seed)
    target = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    logits = torch.randn(len(target), len(counts), generator=generator)
    logits[torch.arange(len(target)), target] += signal
    return logits + torch.tensor(bias), target


def balanced(target, classes):
    return 1 / target.bincount(minlength=classes).clamp(min=1).float()


def mean_recall(logits, target):
    right = (logits.argmax(1) == target).float()
    return torch.stack([right[target == one].mean() for one in target.unique()]).mean()


@pytest.mark.parametrize("counts", [[400, 400, 400], [1500, 300, 60]])
def test_a_bias_is_found(counts):
    bias = [1.5, 0.0, -1.5]
    logits, target = held_out(counts, bias)
    offsets = class_offsets(logits, target, balanced(target, 3))
    assert offsets.mean().abs() < 1e-5
    assert torch.equal(offsets.argsort(), torch.tensor([0, 1, 2]))
    fresh, classes = held_out([500] * 3, bias, seed=1)
    assert mean_recall(fresh + offsets, classes) > mean_recall(fresh, classes) + 0.05


@given(st.integers(0, 10_000))
def test_nothing_changes_without_evidence(seed):
    logits, target = held_out([30, 20, 4], [0.0, 0.0, 0.0], seed=seed)
    offsets = class_offsets(logits, target, balanced(target, 3))
    assert offsets.abs().max() < 1.5
    same = torch.zeros(60, 3)
    assert torch.equal(class_offsets(same, torch.arange(60) % 3, torch.ones(3)), torch.zeros(3))


def test_most_draws_without_a_bias_give_no_offsets():
    found = [held_out([30, 20, 4], [0.0, 0.0, 0.0], seed=seed) for seed in range(40)]
    offsets = [class_offsets(*one, balanced(one[1], 3)) for one in found]
    assert sum(bool((one == 0).all()) for one in offsets) >= 24


def test_the_importance_decides():
    """Outputs of rare samples are too low: this matters only if rare classes do."""
    logits, target = held_out([2000, 60], [1.0, -1.0])
    equal = class_offsets(logits, target, balanced(target, 2))
    by_frequency = class_offsets(logits, target, torch.ones(2))
    assert equal[1] > by_frequency[1] + 0.3


def test_classes_that_were_not_trained_and_missing_samples():
    logits, target = held_out([100, 100, 100], [2.0, 0.0, 0.0])
    logits[:50, 2] = -torch.inf
    assert class_offsets(logits, target, torch.ones(3)).isfinite().all()
    assert torch.equal(class_offsets(logits[:0], target[:0], torch.ones(3)), torch.zeros(3))


def test_too_many_outputs_are_left_alone():
    rows = MOST_NUMBERS // 1000 + 1
    logits = torch.zeros(1, 1).expand(rows, 1000)
    assert not class_offsets(logits, torch.zeros(rows).long(), torch.ones(1000)).any()


def test_a_class_without_held_out_samples_has_no_offset():
    logits, target = held_out([300, 300, 300], [1.5, 0.0, -1.5])
    unknown = torch.cat([logits, torch.full((len(logits), 1), 1.0)], 1)
    weights = balanced(target, 4)
    offsets = class_offsets(unknown, target, weights)
    assert offsets[3] == 0
    assert torch.equal(offsets[:3], class_offsets(logits, target, weights[:3]))


def leaning(logits, target, strength):
    """Outputs that stand for those of a network trained with this strength."""
    shares = target.bincount(minlength=logits.shape[1]).float()
    return logits + (1 - strength) * (shares / shares.sum()).log()


@given(st.lists(st.integers(5, 400), min_size=2, max_size=5), st.integers(0, 1000))
def test_recall_is_only_given_for_much_more_accuracy(counts, seed):
    logits, target = held_out(counts, [0.0] * len(counts), seed=seed)
    strength = frequency_strength(logits, target, balanced(target, len(counts)))
    assert 0 <= strength <= 1
    moved = leaning(logits, target, strength)
    lost = mean_recall(logits, target) - mean_recall(moved, target)
    right = [(one.argmax(1) == target).float().mean() for one in (logits, moved)]
    assert lost <= ACCURACY * (right[1] - right[0]) + 1e-5


def test_a_lower_strength_keeps_recall_and_raises_accuracy_on_new_samples():
    counts = [3000, 600, 120]
    logits, target = held_out(counts, [0.0] * 3)
    strength = frequency_strength(logits, target, balanced(target, 3))
    assert 0.5 < strength < 1
    fresh, classes = held_out([10 * count for count in counts], [0.0] * 3, seed=1)
    moved = leaning(fresh, classes, strength)
    assert mean_recall(moved, classes) > mean_recall(fresh, classes) - 0.01
    accuracy = [(one.argmax(1) == classes).float().mean() for one in (fresh, moved)]
    assert accuracy[1] > accuracy[0] + 0.005


def test_the_strength_stays_where_it_cannot_help():
    logits, target = held_out([100, 100, 100], [0.0] * 3)
    assert frequency_strength(logits, target, balanced(target, 3)) == 1
    logits, target = held_out([300, 30], [0.0] * 2, signal=100.0)
    assert frequency_strength(logits, target, balanced(target, 2)) == 1
    assert frequency_strength(logits, target, torch.ones(2)) == 1


@pytest.mark.parametrize(("times", "moves"), [(1, False), (50, True)])
def test_few_samples_of_a_class_are_no_evidence(times, moves):
    """One of twelve samples is wrong, and right with a lower strength."""
    target = torch.tensor([0] * 8 + [1] * 2 + [2] * 2)
    logits = 5 * torch.eye(3)[target]
    logits[0] = torch.tensor([0.0, 0.5, -9.0])
    repeated, target = logits.repeat(times, 1), target.repeat(times)
    strength = frequency_strength(repeated, target, balanced(target, 3))
    assert (strength < 1) == moves
