"""The result of tuning, in numbers and in a sentence."""

import math

import pytest

from cosen.training.tuning import tune
from cosen.training.tuning.outcome import Candidate, compare, describe


def test_noise_by_hand():
    first, second = Candidate({}, (0.1, 0.2, 0.3)), Candidate({}, (0.2, 0.4, 0.4))
    found = compare(first, second, samples=10**6)
    deviation = math.sqrt(((0.1 - 0.4 / 3) ** 2 * 2 + (0.2 - 0.4 / 3) ** 2) / 2)
    assert found.mean == pytest.approx(0.4 / 3)
    assert found.standard_error == pytest.approx(deviation * math.sqrt(1 / 3 + 1 / 2))
    assert found.beyond_noise == (found.mean > 2.919986 * found.standard_error)  # t of 2, 95 %
    same = compare(first, first, samples=100)
    assert not same.beyond_noise
    fewer = Candidate({}, tuple(error - 1 / 100 for error in second.errors))
    assert not compare(fewer, second, samples=200).beyond_noise  # two samples, if evenly so
    assert compare(fewer, second, samples=3000).beyond_noise


def test_words():
    costs = {"cost_lr": 0.25, "acceptance": "always", "confusion_std": math.inf}
    assert describe(costs) == "cost_lr 0.25, acceptance always, confusion off"


@pytest.mark.training
def test_the_sentence_says_that_costs_harm(tmp_path, config, made_up_errors):
    made_up_errors(lambda costs, fold: 0.1 + 0.01 * fold + 0.3 * (costs["cost_lr"] > 0))
    said = tune(config, tmp_path, trials=2, folds=3).sentence()
    assert "Chose the defaults of cosen-paper (" in said
    assert "Consider --method baseline." in said
