"""Offsets of the classes from held-out outputs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cosen.costs.offsets import MOST_NUMBERS, class_offsets


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
