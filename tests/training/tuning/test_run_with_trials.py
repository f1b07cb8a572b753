"""``trials`` of cosen-paper: a run that cross-validates its own options first."""

import json
import math
from dataclasses import replace

import pytest
import torch

from cosen.comparing.compare import Payload, train_once
from cosen.errors import InputError
from cosen.methods import make_method
from cosen.methods.learned_costs import CosenPaper
from cosen.training import tuned, tuning
from cosen.training.config import make_config, read_config
from cosen.training.loop import Watcher
from cosen.training.run import train
from cosen.training.run_folder import RunFolder
from cosen.training.task import Task, make_task
from cosen.training.tuning import evaluation as judging

TRIALS = {"trials": 2, "folds": 2}


@pytest.fixture
def config(config, monkeypatch):
    """A run that tunes, on the digits, in a second or two."""
    monkeypatch.setattr(tuned, "EPOCHS", 1)
    wish = {"method": "cosen-paper", "options": {**TRIALS, "shrink": 0.1}, "device": "cpu"}
    return make_config(wish, base=config)


def logits(run):
    return run.predictions()[0]["test_logits"]


def test_it_trains_with_what_was_chosen(tmp_path, config, made_up_errors):
    """The chosen options are the run's, and the search leaves no other trace in its result."""
    made_up_errors(lambda costs, fold: 0.1 if costs["cost_lr"] not in (0.0, 1.0) else 0.5)
    said = []
    run = train(config, tmp_path / "run", watcher=Watcher(phase=said.append))
    found = read_config(run.path / "tuning" / "tuned.toml")
    assert found["method"] == "cosen-paper"
    assert found["options"]["cost_lr"] != 1.0
    assert found["options"]["shrink"] == 0.1  # as it was given
    about = run.about()
    assert about["config"]["options"] == found["options"]
    assert about["tuned"]["sentence"] == said[-1]
    assert (about["tuned"]["trials"], about["tuned"]["folds"]) == (2, 2)
    assert about["seconds"] > about["tuned"]["seconds"] > 0
    plain = train(replace(config, options=found["options"]), tmp_path / "plain")
    torch.testing.assert_close(logits(run), logits(plain), rtol=0, atol=0)


def test_a_stopped_search_goes_on_and_a_finished_one_is_not_repeated(tmp_path, config, monkeypatch):
    whole = train(config, tmp_path / "whole")
    real, judged = judging.held_out_error, []

    def stops(*arguments, **options):
        judged.append(1)
        if len(judged) == 6:  # no costs, the defaults, and one fold of the next
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(judging, "held_out_error", stops)
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run")
    monkeypatch.setattr(judging, "held_out_error", real)

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", resume=True, watcher=Watcher(epoch=stop))
    monkeypatch.setattr(tuning, "tune", stop)
    run = train(config, tmp_path / "run", resume=True)
    assert run.about()["config"]["options"] == whole.about()["config"]["options"]
    torch.testing.assert_close(logits(run), logits(whole), rtol=0, atol=0)


def test_the_test_images_take_no_part(tmp_path, config, monkeypatch):
    """All that the search ever asks for is in the training pool."""
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
    train(config, tmp_path / "run")
    assert used == pool
    assert not used & set(task.splits.test.rows.tolist())


def test_an_expert_decides(tmp_path, config):
    names = [str(digit) for digit in range(10)]
    rows = [",".join([p, *(str(int(p != n)) for n in names)]) for p in names]
    expert = tmp_path / "costs.csv"
    expert.write_text("\n".join([",".join(["", *names]), *rows]))
    run = train(make_config({"expert": str(expert)}, base=config), tmp_path / "run")
    assert read_config(run.path / "tuning" / "tuned.toml")["expert"] == str(expert)
    blended = make_config({"options.expert": str(expert)}, base=config)
    run = train(blended, tmp_path / "blended")
    assert run.about()["config"]["options"]["expert"] == str(expert)


def test_an_object_and_a_network_of_the_users(tmp_path, config, made_up_errors):
    """It is resumed with the object, and still trains with what was chosen."""
    made_up_errors(lambda costs, fold: 0.1 if costs["cost_lr"] not in (0.0, 1.0) else 0.5)

    def network():
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            config,
            tmp_path / "run",
            method=CosenPaper(**TRIALS),
            network=network,
            watcher=Watcher(epoch=stop),
        )
    made_up_errors(stop)
    run = train(config, tmp_path / "run", method=CosenPaper(**TRIALS), network=network, resume=True)
    assert run.about()["config"]["options"]["cost_lr"] != 1.0
    assert json.loads((run.path / "model.json").read_text())


def test_how_a_network_is_fine_tuned_is_no_way_to_train_a_head(config):
    fine = replace(config, network="paper", lr=0.001, schedule="step", batch_size=32)
    found = tuned._for_tuning(fine, CosenPaper(**TRIALS), own_network=False)
    assert (found.lr, found.schedule, found.batch_size) == (0.05, "cosine", 64)
    head = tuned._for_tuning(replace(fine, network="head"), CosenPaper(**TRIALS), own_network=False)
    assert (head.lr, head.schedule, head.batch_size) == (0.001, "step", 32)


def test_a_run_of_a_comparison(tmp_path, config, made_up_errors):
    made_up_errors(lambda _, __: 0.5)
    told = []
    train_once(Payload(config, None), tmp_path / "run", (), lambda *far: told.append(far))
    run = RunFolder(tmp_path / "run")
    assert run.is_finished
    assert "Chose the defaults of cosen-paper" in run.about()["tuned"]["sentence"]
    assert math.inf in run.about()["config"]["options"].values()
    assert (4, 4) in told  # two candidates of two folds


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("cosen-hinge", {"trials": 2}, "only cosen-paper has trials and folds: leave them out"),
        ("cosen-mse", {"folds": 5}, "only cosen-paper has trials and folds: leave them out"),
        ("cosen-paper", {"trials": -1}, "trials must be at least 0, but is -1"),
        ("cosen-paper", {"trials": 2.5}, r"must be a whole number, but is 2\.5"),
        ("cosen-paper", {"folds": 1}, "folds must be at least 2, but is 1"),
    ],
)
def test_bad_options_are_refused(name, options, message):
    with pytest.raises(InputError, match=message):
        make_method(name, options)


def test_what_cannot_work_leaves_no_run(tmp_path, config, monkeypatch):
    with pytest.raises(InputError, match="a run in one process, but this one has 2: find the"):
        train(replace(config, devices=2), tmp_path / "run")
    given = dict.fromkeys(tuning.SEARCHED, 0.5) | {"acceptance": "always"}
    with pytest.raises(InputError, match="nothing is left to tune"):
        train(replace(config, options=TRIALS | given), tmp_path / "run")
    with pytest.raises(InputError, match="expert must be a CSV"):
        train(config, tmp_path / "run", method=CosenPaper(trials=2, expert=torch.ones(10, 10)))
    assert not RunFolder(tmp_path / "run").has_run
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(InputError, match="this one has 4"):
        tuned.check_trials(config, make_method(config.method, config.options))
