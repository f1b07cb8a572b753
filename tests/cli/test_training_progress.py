"""What a terminal, and a log, show after each epoch."""

from dataclasses import replace

import pytest
import torch

from cosen.cli.training_progress import HEADER, watched
from cosen.costs import AdaptiveCosts, CostLearner
from report.small_runs import record

TARGET = torch.tensor([0, 0, 0, 1])
RIGHT = 4 * torch.eye(2)[TARGET]


@pytest.fixture
def lines(capsys, monkeypatch):
    """What is printed of epochs; a text among them begins a phase."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "100")

    def watch(*told):
        with watched(quiet=False) as (watcher, _):
            for one in told:
                (watcher.phase if isinstance(one, str) else watcher.epoch)(one)
        printed = capsys.readouterr().err.splitlines()
        return [line.rstrip() for line in printed if "images/s" in line or "%" in line]

    return watch


def history(costs, *outputs):
    """The epochs of a run whose costs learned from these outputs."""
    steps = [costs.step(logits, TARGET) for logits in outputs]
    return [
        replace(
            record(step.number),
            val_error=step.val_error,
            cost_accepted=step.accepted,
            cost_lr=step.cost_lr,
            best=step.accepted,
        )
        for step in steps
    ]


def test_an_epoch_is_a_line(lines):
    assert lines(record(1), record(2)) == [
        HEADER,
        "    1   1.0000    25.00 %      90.00 %      90.00 %       100  best",
        "    2   1.0000    12.50 %      90.00 %      90.00 %       100  best",
    ]


def test_adaptive_costs_are_not_said_to_slow_down(lines):
    epochs = history(AdaptiveCosts([3, 1]), RIGHT, -RIGHT, RIGHT, -RIGHT)
    assert [epoch.cost_accepted for epoch in epochs] == [True, False, True, False]
    for line in lines(*epochs):
        assert "costs" not in line


def test_costs_slow_down_where_the_error_rises(lines):
    epochs = history(CostLearner([3, 1]), RIGHT, -RIGHT, RIGHT, -RIGHT)
    _, *printed = lines(*epochs)
    assert [line.endswith("  costs slowed") for line in printed] == [False, True, False, True]


def test_costs_that_always_go_on_do_not_slow_down(lines):
    epochs = history(CostLearner([3, 1], acceptance="always"), RIGHT, -RIGHT)
    assert not epochs[1].cost_accepted
    assert "costs" not in lines(*epochs)[2]


def test_a_new_phase_is_not_compared_with_the_one_before(lines):
    first = history(CostLearner([3, 1], cost_lr=1.0), RIGHT)
    second = history(CostLearner([3, 1], cost_lr=0.1), RIGHT)
    printed = lines(*first, "Training cosen-paper", *second)
    assert [line for line in printed if line == HEADER] == [HEADER, HEADER]
    assert not any("costs" in line for line in printed)


def test_in_a_log_an_epoch_is_a_line_and_nothing_else(capsys):
    with watched(quiet=False) as (watcher, reading):
        reading(10, 10)
        watcher.phase("Training cosen")
        watcher.batch(1, 2)
        watcher.epoch(record(1))
    assert capsys.readouterr().err.splitlines() == [
        "Training cosen",
        HEADER,
        "    1   1.0000    25.00 %      90.00 %      90.00 %       100  best",
    ]


def test_in_a_log_long_reading_is_told_now_and_then(capsys, monkeypatch):
    seconds = iter((0.0, 30.0, 61.0, 62.0, 121.0))
    monkeypatch.setattr("cosen.cli.progress.time.monotonic", lambda: next(seconds))
    with watched(quiet=False) as (_, reading):
        for done in (100, 200, 300, 400):
            reading(done, 900)
    assert capsys.readouterr().err == "Reading images: 200 of 900\nReading images: 400 of 900\n"


def test_nobody_is_told_who_wants_json(capsys):
    with watched(quiet=True) as (watcher, reading):
        watcher.epoch(record(1))
    assert reading is None
    assert capsys.readouterr().err == ""
