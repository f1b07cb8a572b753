"""Complete tuning: small searches on the digits."""

import json
import logging
import math
import re
from dataclasses import replace

import pytest
import torch
import typer
from typer.testing import CliRunner

from cosen.cli.train import tune as tune_command
from cosen.errors import InputError, RunError
from cosen.methods import make_method
from cosen.networks.vgg import VGG16Features
from cosen.training import tuning
from cosen.training.config import TrainConfig, make_config, read_config
from cosen.training.task import make_task
from cosen.training.tuning import tune
from cosen.training.tuning.search import SEARCHED

pytestmark = pytest.mark.training


@pytest.mark.parametrize("clear", [True, False], ids=["clear", "within noise"])
def test_the_settings_are_what_train_takes(tmp_path, config, made_up_errors, clear):
    def error(costs, fold):
        gain = 0.2 if costs["confusion_std"] == math.inf else 0.0
        return 0.5 - (gain if clear or fold == 0 else 0.0)

    made_up_errors(error)
    tuned = tune(config, tmp_path, trials=12, folds=3)
    written = make_config(read_config(tmp_path / "tuned.toml"))
    assert written.method == "cosen-paper"
    assert written.options == tuned.chosen.costs
    assert math.inf in written.options.values()
    assert make_method(written.method, written.options).options == tuned.chosen.costs
    assert tuned.best.costs["confusion_std"] == math.inf
    assert (tuned.chosen == tuned.best) == clear
    verdict = re.search(r"12 tried; difference [^,]*, (.*?)\), no costs", tuned.sentence())[1]
    assert verdict == ("better" if clear else "within noise")
    assert "\n" not in tuned.sentence()
    json.loads(json.dumps(tuned.as_json(), allow_nan=False))


def test_features_of_pre_trained_weights(tmp_path, make_folder):
    folder, weights = make_folder(cat=16, dog=10), tmp_path / "vgg16.pth"
    torch.save(VGG16Features().state_dict(), weights)
    config = TrainConfig(data=str(folder), weights=str(weights), size=32, epochs=2)
    tuned = tune(config, tmp_path / "out", trials=2, folds=2)
    assert tuned.samples == 21
    assert not (tmp_path / "out" / "features.safetensors").exists()  # they are in the cache


def test_misclassification_costs_decide(tmp_path, config):
    names = [str(digit) for digit in range(10)]
    rows = [[str(int(p != n)) for n in names] for p in names]
    costs = tmp_path / "costs.csv"
    costs.write_text(
        "\n".join(
            [",".join(["", *names])] + [",".join([p, *r]) for p, r in zip(names, rows, strict=True)]
        )
    )
    by_costs = tune(replace(config, objective=str(costs)), tmp_path / "a", trials=1, folds=2)
    overall = tune(replace(config, objective="overall"), tmp_path / "b", trials=1, folds=2)
    assert by_costs.chosen.errors == pytest.approx(overall.chosen.errors)  # 0-1 costs
    assert make_config(read_config(by_costs.path)).objective == str(costs)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"folds": 1}, "folds must be at least 2, but is 1"),
        ({}, {"trials": 0}, "trials must be at least 1, but is 0"),
        (
            {"options.acceptance": "sometimes"},
            {},
            "cosen-paper must be one of shrink, revert",
        ),
        ({"options.no_such": 1}, {}, "has no option 'no_such'"),
        ({"method": "smote"}, {}, "tune is for the method cosen-paper, but the method is smote"),
        ({"method": "cosen-hinge"}, {}, "but the method is cosen-hinge: remove that setting"),
        ({"options.trials": 5}, {}, "options.trials is for cosen train: use --trials instead"),
        (
            {"options": dict.fromkeys(SEARCHED, 0.5) | {"acceptance": "always"}},
            {},
            "nothing to tune",
        ),
    ],
)
def test_bad_settings_are_refused(tmp_path, config, changes, options, message):
    with pytest.raises(InputError, match=message):
        tune(make_config(changes, base=config), tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_classes_of_one_image_do_not_stop_it(tmp_path, config, caplog):
    uneven = replace(config, imbalance="odd:0.01")
    found = tune(uneven, tmp_path, trials=2, folds=2)
    assert found.finished == 2
    assert all(0 < error < 1 for error in found.best.errors)
    assert "too few images to hold any out: 1, 3, 5, 7, 9" in caplog.text
    splits = make_task(uneven).splits
    assert found.samples == len(splits.train) + len(splits.val) - 5


def test_divergence_is_one_sentence(tmp_path, config):
    with pytest.raises(RunError, match=r"diverged in epoch \d+: .*use a lower learning rate"):
        tune(make_config({"lr": 1e20}, base=config), tmp_path, trials=1, folds=2)


def test_a_warning_is_given_once(tmp_path, config, made_up_errors, caplog):
    def error(costs, fold):
        logging.getLogger("cosen").warning("class %d lacks samples", 3)
        return 0.5

    made_up_errors(error)
    tune(config, tmp_path, trials=2, folds=2)
    assert [record.getMessage() for record in caplog.records] == ["class 3 lacks samples"]


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(tune_command)
    command = ["digits", "--imbalance", "odd:0.2", "--split", "fraction:0.4", "--trials", "1"]
    command += ["--folds", "2", "--epochs", "1", "--objective", "balanced"]
    result = CliRunner().invoke(app, command, catch_exceptions=False)
    assert result.exit_code == 0
    said, use = result.stdout.splitlines()
    assert said.startswith("Chose the defaults of cosen-paper (cost_lr 1")
    assert use == (
        "Train with: cosen train digits --split fraction:0.4 --imbalance odd:0.2 "
        "--config runs/digits-tune-0/tuned.toml"
    )
    assert result.stderr == ""
    plain = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    assert json.loads(plain.stdout)["sentence"] == said

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "search", interrupt)
    stopped = CliRunner().invoke(app, command)
    assert stopped.exit_code == 130
    assert "run the same command to resume" in stopped.stderr
