"""Folds: which images each fold, and the network that computes its features, may use."""

import itertools

import numpy as np
import pytest

from cosen.data.sources import from_arrays
from cosen.errors import DataError
from cosen.training.config import make_config
from cosen.training.folds import divide, training_pool
from cosen.training.task import Task, make_task
from cosen.training.tuning import folds as folds_module
from cosen.training.tuning import tune

pytestmark = pytest.mark.training


def test_the_test_set_takes_no_part(tmp_path, config, monkeypatch):
    """No test image is in a fold or in a batch."""
    task = make_task(make_config({"network": "small-cnn"}, base=config))
    test_rows = set(task.splits.test.rows.tolist())
    pool = training_pool(task.splits.train, task.splits.val)
    parts = divide(pool, folds=3, validation=0.05, seed=0)
    assert len(test_rows) > 500
    for fold in parts:
        rows = [set(part.rows.tolist()) for part in (fold.train, fold.val, fold.held_out)]
        assert all(not first & second for first, second in itertools.combinations(rows, 2))
        assert set.union(*rows) == set(pool.rows.tolist())
        assert not test_rows & set.union(*rows)
    held_out = np.concatenate([fold.held_out.rows for fold in parts])
    assert sorted(held_out) == sorted(pool.rows)

    used = set()
    batches = Task.batches

    def recorded(self, part, **options):
        used.update(part.rows.tolist())
        return batches(self, part, **options)

    monkeypatch.setattr(Task, "batches", recorded)
    tune(config, tmp_path, trials=1, folds=3)
    assert used == set(pool.rows.tolist())


def test_features_of_a_fold_do_not_know_what_it_holds_out(tmp_path, config, monkeypatch):
    """The network that computes the features of a fold is trained on its training part only."""
    trained = []
    learn = folds_module.learn_features

    def recorded(config, task, train, pool):
        trained.append(set(train.rows.tolist()))
        return learn(config, task, train, pool)

    monkeypatch.setattr(folds_module, "learn_features", recorded)
    tune(config, tmp_path, trials=1, folds=2)
    task = make_task(make_config({"network": "small-cnn"}, base=config))
    pool = training_pool(task.splits.train, task.splits.val)
    parts = divide(pool, folds=2, validation=config.validation, seed=config.seed)
    assert trained == [set(fold.train.rows.tolist()) for fold in parts]


WARNING = "too few images to hold any out: lynx; the errors do not include these classes"


def made(labels, groups=None):
    return from_arrays(
        np.zeros((len(labels), 8, 8), np.uint8),
        np.array(labels),
        class_names=("cat", "lynx"),
        groups=groups,
    )


def counts(parts):
    """Number of training and held-out images of the rare class, by fold."""
    return sorted(
        (int((fold.train.labels == 1).sum()), int((fold.held_out.labels == 1).sum()))
        for fold in parts
    )


def test_a_class_smaller_than_the_folds_is_held_out_where_it_can_be(caplog):
    parts = divide(made([0] * 20 + [1] * 2), folds=3, validation=0.05, seed=0)
    assert counts(parts) == [(1, 1), (1, 1), (2, 0)]
    assert not caplog.messages
    grouped = made([0] * 11 + [1] * 11, groups=np.array([*range(11), *[20, 21] * 5, 20]))
    parts = divide(grouped, folds=3, validation=0.05, seed=0)
    assert counts(parts) == [(5, 6), (6, 5), (11, 0)]


def test_the_only_image_of_a_class_is_trained_on_in_every_fold(caplog):
    parts = divide(made([0] * 20 + [1]), folds=3, validation=0.05, seed=0)
    assert counts(parts) == [(1, 0)] * 3
    assert caplog.messages == [WARNING]


def test_the_only_group_of_a_class_stays_whole(caplog):
    """With the images of other classes in it."""
    labels, groups = [0] * 20 + [0, 1, 1], np.array([*range(20), 20, 20, 20])
    parts = divide(made(labels, groups=groups), folds=3, validation=0.05, seed=0)
    assert counts(parts) == [(2, 0)] * 3
    assert not any(20 in fold.held_out.groups for fold in parts)
    assert caplog.messages == [WARNING]


def test_folds_that_would_hold_out_nothing_are_refused():
    with pytest.raises(DataError, match=r"too few images for 3 folds.* fewer folds"):
        divide(made([0, 0, 1]), folds=3, validation=0.05, seed=0)
    for labels, validation in (([0] * 20, 0.05), ([0] * 60 + [1] * 8, 0.95)):
        with pytest.raises(
            DataError, match=r"'lynx' .* no training images in a fold.* --exclude lynx"
        ):
            divide(made(labels), folds=2, validation=validation, seed=0)
    with pytest.raises(DataError, match="a fold has no validation images"):
        divide(made([0] * 4 + [1] * 3), folds=3, validation=0.0, seed=0)


def test_groups_stay_together():
    labels, groups = np.tile([0, 1], 60), np.repeat(np.arange(30), 4)
    data = from_arrays(
        np.zeros((120, 8, 8), np.uint8), labels, class_names=("a", "b"), groups=groups
    )
    for fold in divide(data, folds=3, validation=0.1, seed=0):
        seen = [set(part.groups.tolist()) for part in (fold.train, fold.val, fold.held_out)]
        assert all(not first & second for first, second in itertools.combinations(seen, 2))
