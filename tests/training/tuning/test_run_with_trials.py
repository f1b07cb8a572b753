"""``trials`` of cosen-paper: a run that first chooses its options by cross-validation."""

import json
import math
from dataclasses import replace

import pytest
import torch

from cosen.comparing.grid import train_job
from cosen.comparing.jobs import JobProgress
from cosen.errors import InputError
from cosen.methods import make_method
from cosen.methods.learned_costs import CosenPaper
from cosen.training import tuning
from cosen.training.config import make_config, read_config
from cosen.training.loop import Callbacks
from cosen.training.run import Inputs, check_config, train_run
from cosen.training.run_folder import RunFolder
from cosen.training.task import Task, make_task
from run_contents import logits_of_test

pytestmark = pytest.mark.training

TRIALS = {"trials": 2, "folds": 2}


@pytest.fixture
def config(config, monkeypatch):
    """A run that tunes, on the digits, in a second or two."""
    monkeypatch.setattr(tuning, "HEAD_EPOCHS", 1)
    wish = {"method": "cosen-paper", "options": {**TRIALS, "shrink": 0.1}, "device": "cpu"}
    return make_config(wish, base=config)


def test_it_trains_with_what_was_chosen(tmp_path, config, made_up_errors):
    """The run uses the chosen options; the search has no other effect on its result."""
    made_up_errors(lambda costs, fold: 0.1 if costs["cost_lr"] not in (0.0, 1.0) else 0.5)
    said = []
    run = train_run(config, tmp_path / "run", callbacks=Callbacks(phase=said.append))
    found = read_config(run.path / "tuning" / "tuned.toml")
    assert found["method"] == "cosen-paper"
    assert found["options"]["cost_lr"] != 1.0
    assert found["options"]["shrink"] == 0.1  # as it was given
    record = run.record()
    assert record.config.options == found["options"]
    assert record.tuning.sentence == said[-1]
    assert (record.tuning.trials, record.tuning.folds) == (2, 2)
    assert record.seconds > record.tuning.seconds > 0
    plain = train_run(replace(config, options=found["options"]), tmp_path / "plain")
    torch.testing.assert_close(logits_of_test(run), logits_of_test(plain), rtol=0, atol=0)


def test_a_stopped_search_goes_on_and_a_finished_one_is_not_repeated(tmp_path, config, monkeypatch):
    whole = train_run(config, tmp_path / "whole")
    real, evaluated = tuning.held_out_error, []

    def stops(*arguments, **options):
        evaluated.append(1)
        if len(evaluated) == 6:  # no costs, the defaults, and one fold of the next
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(tuning, "held_out_error", stops)
    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "run")
    monkeypatch.setattr(tuning, "held_out_error", real)

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "run", resume=True, callbacks=Callbacks(epoch=stop))
    monkeypatch.setattr(tuning, "tune", stop)
    run = train_run(config, tmp_path / "run", resume=True)
    assert run.record().config.options == whole.record().config.options
    torch.testing.assert_close(logits_of_test(run), logits_of_test(whole), rtol=0, atol=0)


def test_the_test_images_take_no_part(tmp_path, config, monkeypatch):
    """The search uses images of the training pool only."""
    task = make_task(config)
    pool = {*task.splits.train.rows.tolist(), *task.splits.val.rows.tolist()}
    used, real, tune = set(), Task.batches, tuning.tune

    def recorded(self, part, **options):
        used.update(part.rows.tolist())
        return real(self, part, **options)

    def recorded_tune(*arguments, **options):
        monkeypatch.setattr(Task, "batches", recorded)
        try:
            return tune(*arguments, **options)
        finally:
            monkeypatch.setattr(Task, "batches", real)

    monkeypatch.setattr(tuning, "tune", recorded_tune)
    train_run(config, tmp_path / "run")
    assert used == pool
    assert not used & set(task.splits.test.rows.tolist())


def test_misclassification_costs_decide(tmp_path, config):
    names = [str(digit) for digit in range(10)]
    rows = [",".join([p, *(str(int(p != n)) for n in names)]) for p in names]
    costs = tmp_path / "costs.csv"
    costs.write_text("\n".join([",".join(["", *names]), *rows]))
    run = train_run(replace(config, objective=str(costs)), tmp_path / "run")
    assert read_config(run.path / "tuning" / "tuned.toml")["objective"] == str(costs)
    blended = make_config({"options.misclassification_costs": str(costs)}, base=config)
    run = train_run(blended, tmp_path / "blended")
    assert run.record().config.options["misclassification_costs"] == str(costs)


def test_a_users_own_method_object_and_network(tmp_path, config, made_up_errors):
    """It is resumed with the object, and still trains with the chosen options."""
    made_up_errors(lambda costs, fold: 0.1 if costs["cost_lr"] not in (0.0, 1.0) else 0.5)

    def network():
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

    def stop(_):
        raise KeyboardInterrupt

    inputs = Inputs(method=CosenPaper(**TRIALS), network=network)
    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "run", inputs=inputs, callbacks=Callbacks(epoch=stop))
    made_up_errors(stop)
    run = train_run(config, tmp_path / "run", inputs=inputs, resume=True)
    assert run.record().config.options["cost_lr"] != 1.0
    assert json.loads((run.path / "model.json").read_text())


def test_a_head_does_not_take_the_optimizer_settings_of_a_fine_tuned_network(config):
    fine = replace(config, network="paper", lr=0.001, schedule="step", batch_size=32)
    found = tuning._head_config(fine, CosenPaper(**TRIALS), own_network=False)
    assert (found.lr, found.schedule, found.batch_size) == (None, "cosine", 64)
    head = tuning._head_config(
        replace(fine, network="head"), CosenPaper(**TRIALS), own_network=False
    )
    assert (head.lr, head.schedule, head.batch_size) == (0.001, "step", 32)


def test_a_run_of_a_comparison(tmp_path, config, made_up_errors):
    made_up_errors(lambda _, __: 0.5)
    reported = []
    train_job((config, Inputs()), tmp_path / "run", (), reported.append)
    run = RunFolder(tmp_path / "run")
    assert run.is_finished
    assert "Chose the defaults of cosen-paper" in run.record().tuning.sentence
    assert math.inf in run.record().config.options.values()
    assert JobProgress(4, 4) in reported  # two candidates of two folds


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cosen-hinge", {"trials": 2}, "only cosen-paper has trials and folds: remove them"),
        ("cosen-mse", {"folds": 5}, "only cosen-paper has trials and folds: remove them"),
        ("cosen-paper", {"trials": -1}, "trials must be at least 0, but is -1"),
        ("cosen-paper", {"trials": 2.5}, r"must be a whole number, but is 2\.5"),
        ("cosen-paper", {"folds": 1}, "folds must be at least 2, but is 1"),
    ],
)
def test_bad_options_are_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        make_method(name, options)


def test_bad_settings_leave_no_run(tmp_path, config, monkeypatch):
    with pytest.raises(InputError, match="a run in one process, but this one has 2: choose"):
        train_run(replace(config, devices=2), tmp_path / "run")
    given = dict.fromkeys(tuning.SEARCHED, 0.5) | {"acceptance": "always"}
    with pytest.raises(InputError, match="there is nothing to tune"):
        train_run(replace(config, options=TRIALS | given), tmp_path / "run")
    method = CosenPaper(trials=2, misclassification_costs=torch.ones(10, 10))
    with pytest.raises(InputError, match="must be the path of a CSV"):
        train_run(config, tmp_path / "run", inputs=Inputs(method=method))
    assert not RunFolder(tmp_path / "run").has_run
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(InputError, match="this one has 4"):
        check_config(config, make_method(config.method, config.options))
