"""The search: its first trials, the options it varies, and the trials it stops early."""

import math

import pytest
import torch

from cosen.costs import CostLearner
from cosen.training.config import make_config, read_config
from cosen.training.tuning import tune
from cosen.training.tuning.search import PRUNE_AFTER

pytestmark = pytest.mark.training


def test_the_first_candidate_is_the_defaults_and_they_are_within_the_search(
    tmp_path, config, finished_trials, made_up_errors
):
    made_up_errors(lambda _, __: 0.5)
    tuned = tune(config, tmp_path, trials=1, folds=2)
    (first,) = finished_trials(tmp_path)
    learner = CostLearner([1, 1])
    for name, value in first.user_attrs["costs"].items():
        assert getattr(learner, name) == value
        assert math.isinf(value) if name == "separability_std" else True
    assert tuned.chosen == tuned.defaults
    assert tuned.no_costs.costs["cost_lr"] == 0


def test_no_costs_is_plain_cross_entropy():
    learner = CostLearner([9, 1], cost_lr=0.0)
    logits, target = torch.randn(6, 2), torch.tensor([0, 1, 0, 1, 0, 0])
    learner.step(logits, target)
    torch.testing.assert_close(
        learner(logits, target), torch.nn.functional.cross_entropy(logits, target)
    )


def test_what_is_given_is_not_varied(tmp_path, config, finished_trials, made_up_errors):
    made_up_errors(lambda _, __: 0.5)
    given = {"acceptance": "revert", "separability_std": 0.5, "shrink": 0.1}
    tune(make_config({"options": given}, base=config), tmp_path, trials=6, folds=2)
    trials = finished_trials(tmp_path)
    assert all(given.items() <= trial.user_attrs["costs"].items() for trial in trials)
    assert len({trial.user_attrs["costs"]["separability_mean"] for trial in trials}) == 6
    assert read_config(tmp_path / "tuned.toml")["options"]["shrink"] == 0.1


def test_a_bad_candidate_is_stopped_early(tmp_path, config, made_up_errors):
    evaluated = []

    def error(costs, fold):
        evaluated.append(fold)
        bad = len(evaluated) > 3 * (1 + PRUNE_AFTER)  # after no costs and the first five
        return 0.9 if bad else 0.1

    made_up_errors(error)
    tuned = tune(config, tmp_path, trials=8, folds=3)
    assert (tuned.finished, tuned.pruned) == (8, 3)
    assert evaluated[-3:] == [0, 0, 0]
    assert tuned.best.mean == pytest.approx(0.1)
