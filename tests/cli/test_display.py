"""Progress of commands: bars on a terminal, lines in a log, nothing with --json."""

import logging
from dataclasses import replace

import pytest
import torch

from cosen.cli.display import HEADER, Display, percent
from cosen.comparing.jobs import Outcome
from cosen.costs import AdaptiveCosts, CostLearner
from cosen.training.records import EpochRecord

TARGET = torch.tensor([0, 0, 0, 1])
RIGHT = 4 * torch.eye(2)[TARGET]


def record(epoch):
    return EpochRecord(
        epoch=epoch,
        lr=0.1,
        train_loss=1.0,
        train_error=0.5,
        val_error=0.5 / 2**epoch,
        val_accuracy=0.9,
        mean_recall=0.9,
        rare_recall=0.9,
        seconds=1.0,
        images_per_second=100.0,
        cost_accepted=None,
        cost_lr=None,
        best=True,
    )


def history(costs, *outputs):
    """The epochs of a run whose costs learn from these outputs."""
    steps = [costs.step(logits, TARGET) for logits in outputs]
    return [
        replace(
            record(step.number),
            val_error=step.val_error,
            cost_accepted=step.accepted,
            cost_lr=getattr(step, "cost_lr", None),
            best=step.accepted,
        )
        for step in steps
    ]


@pytest.fixture
def terminal(monkeypatch):
    """Standard error is a terminal that cannot move its cursor."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def lines(capsys, terminal):
    """Returns the lines for epochs; a text starts a phase."""

    def show(*calls):
        with Display() as display:
            callbacks = display.callbacks()
            for call in calls:
                (callbacks.phase if isinstance(call, str) else callbacks.epoch)(call)
        printed = capsys.readouterr().err.splitlines()
        return [line.rstrip() for line in printed if "images/s" in line or "%" in line]

    return show


def test_an_epoch_is_a_line(lines):
    assert lines(record(1), record(2)) == [
        HEADER,
        "    1   1.0000    25.00 %      90.00 %      90.00 %       100  best",
        "    2   1.0000    12.50 %      90.00 %      90.00 %       100  best",
    ]


def test_an_epoch_without_validation_has_dashes(capsys):
    empty = replace(record(1), val_error=None, mean_recall=None, rare_recall=None)
    with Display() as display:
        display.callbacks().epoch(empty)
    line = "    1   1.0000          -            -            -       100  best"
    assert capsys.readouterr().err.splitlines() == [HEADER, line]


def test_adaptive_costs_do_not_slow_down(lines):
    epochs = history(AdaptiveCosts([3, 1]), RIGHT, -RIGHT, RIGHT, -RIGHT)
    assert [epoch.cost_accepted for epoch in epochs] == [True, False, True, False]
    for line in lines(*epochs):
        assert "costs" not in line


def test_costs_slow_down_when_the_error_rises(lines):
    epochs = history(CostLearner([3, 1]), RIGHT, -RIGHT, RIGHT, -RIGHT)
    _, *printed = lines(*epochs)
    assert [line.endswith("  costs slowed") for line in printed] == [False, True, False, True]


def test_costs_that_are_always_accepted_do_not_slow_down(lines):
    epochs = history(CostLearner([3, 1], acceptance="always"), RIGHT, -RIGHT)
    assert not epochs[1].cost_accepted
    assert "costs" not in lines(*epochs)[2]


def test_a_new_phase_is_not_compared_with_the_one_before(lines):
    first = history(CostLearner([3, 1], cost_lr=1.0), RIGHT)
    second = history(CostLearner([3, 1], cost_lr=0.1), RIGHT)
    printed = lines(*first, "Training cosen-paper", *second)
    assert [line for line in printed if line == HEADER] == [HEADER, HEADER]
    assert not any("costs" in line for line in printed)


def test_a_log_has_a_line_per_epoch_and_nothing_else(capsys):
    with Display() as display:
        callbacks = display.callbacks()
        callbacks.reading(10, 10)
        callbacks.phase("Training cosen")
        callbacks.batch(1, 2)
        callbacks.epoch(record(1))
    assert capsys.readouterr().err.splitlines() == [
        "Training cosen",
        HEADER,
        "    1   1.0000    25.00 %      90.00 %      90.00 %       100  best",
    ]


def test_a_log_has_a_line_per_minute_of_reading(capsys, monkeypatch):
    seconds = iter((0.0, 30.0, 61.0, 62.0, 121.0))
    monkeypatch.setattr("cosen.cli.display.time.monotonic", lambda: next(seconds))
    with Display() as display:
        for done in (100, 200, 300, 400):
            display.callbacks().reading(done, 900)
    assert capsys.readouterr().err == "Reading images: 200 of 900\nReading images: 400 of 900\n"


def test_a_log_has_a_line_per_run_of_a_comparison(capsys):
    with Display() as display:
        callbacks = display.compare_callbacks()
        callbacks.outcome(Outcome("smote/0", "too few images"))
        callbacks.started(3, 1)
        callbacks.progress("focal/0", 1, 2)
        callbacks.outcome(Outcome("focal/0", "no memory"))
        callbacks.outcome(Outcome("cosen(margin=4)/0"))
    assert capsys.readouterr().err.splitlines() == [
        "smote/0 failed: too few images",
        "3 runs, 1 already finished",
        "focal/0 failed: no memory",
        "cosen(margin=4)/0 (3 of 3)",
    ]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_json_shows_no_progress(capsys, request, is_terminal):
    if is_terminal:
        request.getfixturevalue("terminal")
    with Display(quiet=True) as display:
        display.callbacks().epoch(record(1))
        display.callbacks().reading(1, 1)
        display.compare_callbacks().started(2, 0)
        display.progress("Downloading", 1, 2)
    assert capsys.readouterr().err == ""


def test_a_bar_restarts_for_another_total(terminal):
    with Display() as display:
        display.progress("Reading images", 9, 10)
        display.progress("Training [1/2]", 1, 40)
        (task,) = display._bars.tasks
        assert (task.description, task.completed, task.total) == ("Training [1/2]", 1, 40)
        display.bar("cosen/0", 1, 2, name="cosen/0")
        assert len(display._bars.tasks) == 2
        display.remove_bar("cosen/0")
        display.remove_bar("never/0")
        assert display._bars.tasks == [task]


@pytest.mark.parametrize("quiet", [True, False])
def test_a_warning_is_printed_once(capsys, quiet):
    log = logging.getLogger("cosen")
    with Display(quiet=quiet):
        for text in ("class 3 lacks samples", "focal/0: class 3 lacks samples", "another"):
            log.warning("%s", text)
    assert capsys.readouterr().err.splitlines() == [
        "cosen: class 3 lacks samples",
        "cosen: another",
    ]
    assert log.propagate


def test_an_interrupt_ends_with_a_message(capsys):
    with pytest.raises(SystemExit) as ended, Display(interrupted="Stopped."):
        raise KeyboardInterrupt
    assert ended.value.code == 130
    assert capsys.readouterr().err == "\nStopped.\n"
    with pytest.raises(KeyboardInterrupt), Display():
        raise KeyboardInterrupt


def test_percent():
    assert percent(0.12345) == "12.35 %"
    assert percent(1.0, digits=1, unit="") == "100.0"
    assert percent(None) == "-"
