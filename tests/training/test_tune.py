"""Tuning: real small searches on the digits, and what must not happen in them."""

import itertools
import json
import logging
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import optuna
import pytest
import torch
import typer
from typer.testing import CliRunner

from cosen.cli.tune import tune as tune_command
from cosen.costs import CostLearner
from cosen.data.memory import from_arrays
from cosen.errors import DataError, InputError, RunError
from cosen.methods import make_loss
from cosen.networks.vgg import VGG16Features
from cosen.training import tune as tuning
from cosen.training.config import TrainConfig, make_config, read_config
from cosen.training.task import make_task
from cosen.training.tune import Candidate, compare, describe, divide, training_pool, tune

CONFIG = TrainConfig(imbalance="odd:0.2", split="fraction:0.4", epochs=2)


@pytest.fixture(autouse=True)
def quick_features(monkeypatch):
    monkeypatch.setattr(tuning, "FEATURE_EPOCHS", 1)


@pytest.fixture
def made_up_errors(monkeypatch):
    """Held-out errors by a function of the costs and of the fold, in place of training."""

    def use(error):
        def errors(self, costs):
            return (error(costs, fold) for fold in range(len(self.samples)))

        monkeypatch.setattr(tuning._Judge, "errors", errors)

    return use


def finished_trials(out):
    storage = optuna.storages.JournalStorage(
        optuna.storages.journal.JournalFileBackend(str(out / "study.log"))
    )
    study = optuna.load_study(study_name="cosen", storage=storage)
    return [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]


def test_a_study_goes_on_as_if_it_had_not_stopped(tmp_path, monkeypatch):
    tune(CONFIG, tmp_path / "stopped", trials=2, folds=2)
    judged = []
    real = tuning.held_out_error
    monkeypatch.setattr(tuning, "held_out_error", lambda *a, **k: judged.append(1) or real(*a, **k))
    parts = tune(CONFIG, tmp_path / "stopped", trials=4, folds=2)
    assert len(judged) == 2 * 2  # two more trials of two folds; no costs are not judged again
    whole = tune(CONFIG, tmp_path / "whole", trials=4, folds=2)
    assert parts.sentence() == whole.sentence()
    first, second = finished_trials(tmp_path / "stopped"), finished_trials(tmp_path / "whole")
    assert [t.params for t in first] == [t.params for t in second]
    assert [t.user_attrs for t in first] == [t.user_attrs for t in second]
    assert len({json.dumps(t.params) for t in first}) == 4
    judged.clear()
    assert tune(CONFIG, tmp_path / "whole", trials=3, folds=2).finished == 4
    assert not judged


def test_the_first_candidate_is_the_defaults_and_they_are_within_the_search(
    tmp_path, made_up_errors
):
    made_up_errors(lambda _, __: 0.5)
    tuned = tune(CONFIG, tmp_path, trials=1, folds=2)
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


@pytest.mark.parametrize("clear", [True, False], ids=["clear", "within noise"])
def test_the_settings_are_what_train_takes(tmp_path, made_up_errors, clear):
    def error(costs, fold):
        gain = 0.2 if costs["confusion_std"] == math.inf else 0.0
        return 0.5 - (gain if clear or fold == 0 else 0.0)

    made_up_errors(error)
    tuned = tune(CONFIG, tmp_path, trials=12, folds=3)
    config = make_config(read_config(tmp_path / "tuned.toml"))
    assert config.costs == tuned.chosen.costs
    assert math.inf in config.costs.values()
    assert make_loss("cosen", np.array([5, 5]), objective="overall", options=config.costs)
    assert tuned.best.costs["confusion_std"] == math.inf
    assert (tuned.chosen == tuned.best) == clear
    assert ("is within noise" in tuned.sentence()) != clear
    assert ("is more than noise" in tuned.sentence()) == clear
    assert "\n" not in tuned.sentence()
    json.loads(json.dumps(tuned.as_json(), allow_nan=False))


def test_costs_that_harm_are_said_to(tmp_path, made_up_errors):
    made_up_errors(lambda costs, fold: 0.1 + 0.01 * fold + 0.3 * (costs["cost_lr"] > 0))
    said = tune(CONFIG, tmp_path, trials=2, folds=3).sentence()
    assert "Chose the defaults" in said
    assert "better beyond noise: consider --method baseline" in said


def test_a_bad_candidate_is_given_up_early(tmp_path, made_up_errors):
    judged = []

    def error(costs, fold):
        judged.append(fold)
        bad = len(judged) > 3 * (1 + tuning.PRUNE_AFTER)  # after no costs and the first five
        return 0.9 if bad else 0.1

    made_up_errors(error)
    tuned = tune(CONFIG, tmp_path, trials=8, folds=3)
    assert (tuned.finished, tuned.pruned) == (8, 3)
    assert judged[-3:] == [0, 0, 0]
    assert tuned.best.mean == pytest.approx(0.1)


def test_the_test_set_takes_no_part(tmp_path, monkeypatch):
    """Neither in the folds nor in any batch of images that is asked for."""
    task = make_task(make_config({"network": "small-cnn"}, base=CONFIG))
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
    batches = tuning.Task.batches

    def recorded(self, part, **options):
        used.update(part.rows.tolist())
        return batches(self, part, **options)

    monkeypatch.setattr(tuning.Task, "batches", recorded)
    tune(CONFIG, tmp_path, trials=1, folds=3)
    assert used == set(pool.rows.tolist())


def test_features_of_a_fold_do_not_know_what_it_holds_out(tmp_path, monkeypatch):
    """The network that gives a fold's features is trained on the fold's training part alone."""
    trained = []
    learn = tuning._learn_features

    def recorded(config, task, train, pool):
        trained.append(set(train.rows.tolist()))
        return learn(config, task, train, pool)

    monkeypatch.setattr(tuning, "_learn_features", recorded)
    tune(CONFIG, tmp_path, trials=1, folds=2)
    task = make_task(make_config({"network": "small-cnn"}, base=CONFIG))
    pool = training_pool(task.splits.train, task.splits.val)
    parts = divide(pool, folds=2, validation=CONFIG.validation, seed=CONFIG.seed)
    assert trained == [set(fold.train.rows.tolist()) for fold in parts]


def test_features_of_pre_trained_weights(tmp_path, make_folder):
    folder, weights = make_folder(cat=16, dog=10), tmp_path / "vgg16.pth"
    torch.save(VGG16Features().state_dict(), weights)
    config = TrainConfig(data=str(folder), weights=str(weights), size=32, epochs=2)
    tuned = tune(config, tmp_path / "out", trials=2, folds=2)
    assert tuned.samples == 21
    assert not (tmp_path / "out" / "features.safetensors").exists()  # they are in the cache


def test_what_is_given_is_not_varied(tmp_path, made_up_errors):
    made_up_errors(lambda _, __: 0.5)
    given = {"acceptance": "revert", "separability_std": 0.5, "shrink": 0.1}
    tune(make_config({"costs": given}, base=CONFIG), tmp_path, trials=6, folds=2)
    trials = finished_trials(tmp_path)
    assert all(given.items() <= trial.user_attrs["costs"].items() for trial in trials)
    assert len({trial.user_attrs["costs"]["separability_mean"] for trial in trials}) == 6
    assert read_config(tmp_path / "tuned.toml")["costs"]["shrink"] == 0.1


def test_an_expert_decides(tmp_path):
    names = [str(digit) for digit in range(10)]
    rows = [[str(int(p != n)) for n in names] for p in names]
    expert = tmp_path / "costs.csv"
    expert.write_text(
        "\n".join(
            [",".join(["", *names])] + [",".join([p, *r]) for p, r in zip(names, rows, strict=True)]
        )
    )
    by_expert = tune(
        make_config({"expert": str(expert)}, base=CONFIG), tmp_path / "a", trials=1, folds=2
    )
    overall = tune(CONFIG, tmp_path / "b", trials=1, folds=2)
    assert by_expert.chosen.errors == pytest.approx(overall.chosen.errors)  # 0-1 costs
    assert make_config(read_config(by_expert.path)).expert == str(expert)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"folds": 1}, "folds must be at least 2, but is 1"),
        ({}, {"trials": 0}, "trials must be at least 1, but is 0"),
        ({"costs.acceptance": "sometimes"}, {}, "acceptance must be one of shrink, revert"),
        ({"costs.no_such": 1}, {}, "does not take these cost options: no_such"),
        ({"method": "baseline"}, {}, "tune is for the method cosen"),
        ({"costs": dict.fromkeys(tuning.SEARCHED, 0.5) | {"acceptance": "always"}}, {}, "nothing"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path, changes, options, message):
    with pytest.raises(InputError, match=message):
        tune(make_config(changes, base=CONFIG), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_class_smaller_than_the_folds_is_named():
    labels = np.array([0] * 20 + [1] * 2)
    data = from_arrays(np.zeros((22, 8, 8), np.uint8), labels, class_names=("cat", "lynx"))
    with pytest.raises(DataError, match=r"class 'lynx' .* has 2 images .* too few for 3 folds"):
        divide(data, folds=3, validation=0.05, seed=0)
    grouped = from_arrays(
        np.zeros((22, 8, 8), np.uint8),
        np.array([0] * 11 + [1] * 11),
        class_names=("cat", "lynx"),
        groups=np.array([*range(11), *[20, 21] * 5, 20]),
    )
    with pytest.raises(DataError, match=r"class 'lynx' .* has 2 groups of images"):
        divide(grouped, folds=3, validation=0.05, seed=0)


def test_groups_are_not_torn_apart():
    labels, groups = np.tile([0, 1], 60), np.repeat(np.arange(30), 4)
    data = from_arrays(
        np.zeros((120, 8, 8), np.uint8), labels, class_names=("a", "b"), groups=groups
    )
    for fold in divide(data, folds=3, validation=0.1, seed=0):
        seen = [set(part.groups.tolist()) for part in (fold.train, fold.val, fold.held_out)]
        assert all(not first & second for first, second in itertools.combinations(seen, 2))


def test_a_study_of_something_else_is_refused(tmp_path, made_up_errors):
    made_up_errors(lambda _, __: 0.5)
    tune(CONFIG, tmp_path, trials=1, folds=2)
    with pytest.raises(RunError, match="holds a study with folds 2, not 3: use another --out"):
        tune(CONFIG, tmp_path, trials=1, folds=3)
    with pytest.raises(RunError, match=r"holds a study with lr 0\.05, not 0\.1"):
        tune(make_config({"lr": 0.1}, base=CONFIG), tmp_path, trials=1, folds=2)
    (tmp_path / "run.json").touch()
    with pytest.raises(RunError, match="holds a training run"):
        tune(CONFIG, tmp_path, trials=1, folds=2)


def test_a_stopped_trial_is_tried_again(tmp_path, made_up_errors):
    def stop(costs, fold):
        if costs["cost_lr"] and fold == 1:
            raise KeyboardInterrupt
        return 0.5

    made_up_errors(stop)
    with pytest.raises(KeyboardInterrupt):
        tune(CONFIG, tmp_path, trials=3, folds=2)
    with (tmp_path / "study.log").open("ab") as file:
        file.write(b'{"op_code": 4, "half a li')  # as a killed process may leave it
    made_up_errors(lambda _, __: 0.5)
    assert tune(CONFIG, tmp_path, trials=3, folds=2).finished == 3


def test_a_killed_search_goes_on(tmp_path):
    program = (
        "import sys; from pathlib import Path; from cosen.training.tune import tune; "
        "from cosen.training.config import TrainConfig; import torch; torch.set_num_threads(1); "
        "tune(TrainConfig(imbalance='odd:0.2', split='fraction:0.4', epochs=2), "
        "Path(sys.argv[1]), trials=500, folds=2)"
    )
    out = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", program, str(out)], env=dict(os.environ))
    try:
        deadline = time.monotonic() + 60
        log = out / "study.log"
        while not log.exists() or b'"errors"' not in log.read_bytes():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = len(finished_trials(out))
    assert tune(CONFIG, out, trials=before + 1, folds=2).finished == before + 1


def test_divergence_is_one_sentence(tmp_path):
    with pytest.raises(RunError, match=r"training diverged: .*use a lower learning rate"):
        tune(make_config({"lr": 1e20}, base=CONFIG), tmp_path, trials=1, folds=2)


def test_a_warning_is_given_once(tmp_path, made_up_errors, caplog):
    def error(costs, fold):
        logging.getLogger("cosen").warning("class %d lacks samples", 3)
        return 0.5

    made_up_errors(error)
    tune(CONFIG, tmp_path, trials=2, folds=2)
    assert [record.getMessage() for record in caplog.records] == ["class 3 lacks samples"]


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


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(tune_command)
    command = ["digits", "--imbalance", "odd:0.2", "--split", "fraction:0.4", "--trials", "1"]
    command += ["--folds", "2", "--epochs", "1", "--objective", "balanced"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0
    said, use = result.stdout.splitlines()
    assert said.startswith("Chose the defaults (cost_lr 0.1")
    assert use == (
        "Use it with: cosen train digits --split fraction:0.4 --imbalance odd:0.2 "
        "--config runs/digits-tune-0/tuned.toml"
    )
    assert result.stderr == ""
    plain = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    assert json.loads(plain.stdout)["sentence"] == said

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "_search", interrupt)
    stopped = CliRunner().invoke(app, command)
    assert stopped.exit_code == 130
    assert "Go on with the same command" in stopped.stderr
