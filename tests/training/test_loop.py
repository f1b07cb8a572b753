"""One loop trains everything, with few calls before it."""

import inspect
import sys
import traceback

import numpy as np
import pytest

import cosen
from commands import run_command
from cosen.__main__ import main
from cosen.training.loop import Loop

pytestmark = pytest.mark.training

QUICK = ("digits", "--imbalance=odd:0.2", "--split=fraction:0.4", "--epochs=1")


@pytest.fixture
def fits(monkeypatch):
    """The loops that were run."""
    loops = []
    fit = Loop.fit

    def recorded(self):
        loops.append(self)
        fit(self)

    monkeypatch.setattr(Loop, "fit", recorded)
    return loops


def test_train_runs_the_loop(fits, tmp_path, capsys, monkeypatch):
    done = run_command(capsys, monkeypatch, "train", *QUICK, f"--out={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    assert [type(loop.loss).__name__ for loop in fits] == ["AdaptiveCosts"]


def test_tune_runs_the_loop(fits, tmp_path, capsys, monkeypatch):
    trials = ("--trials=1", "--folds=2", f"--out={tmp_path / 'search'}")
    done = run_command(capsys, monkeypatch, "tune", *QUICK, *trials)
    assert done.returncode == 0, done.stderr
    losses = [type(loop.loss).__name__ for loop in fits]  # features, plain training, the defaults
    assert losses == ["CrossEntropyLoss"] * 2 + ["CostLearner"] * 2 * 2


def test_the_estimator_runs_the_loop(fits):
    cosen.CosenClassifier(epochs=1).fit(np.random.default_rng(0).normal(size=(20, 3)), [0, 1] * 10)
    assert [type(loop.loss).__name__ for loop in fits] == ["AdaptiveCosts"]


def test_at_most_seven_calls_from_the_command_to_the_loss(tmp_path, monkeypatch):
    def fail(self, logits, target):
        raise ZeroDivisionError

    monkeypatch.setattr(cosen.AdaptiveCosts, "forward", fail)
    monkeypatch.setattr(sys, "argv", ["cosen", "train", *QUICK, f"--out={tmp_path / 'run'}"])
    with pytest.raises(ZeroDivisionError) as caught:
        main()
    frames = [frame for frame, _ in traceback.walk_tb(caught.value.__traceback__)]
    calls = [
        f"{frame.f_globals['__name__'].removeprefix('cosen.')}.{frame.f_code.co_name}"
        for frame in frames
        if frame.f_globals["__name__"].startswith("cosen.")
    ]
    assert calls == [
        "__main__.main",
        "cli.train.train",  # the command
        "api.train",
        "training.run.train_run",
        "methods.method.run",
        "training.loop.fit",
        "training.loop.train_batch",  # calls the loss
    ]
    assert len(calls) - 1 <= 7


def test_algorithm_1_fits_on_one_screen():
    assert len(inspect.getsource(Loop.fit).splitlines()) <= 45
