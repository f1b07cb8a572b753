"""Whole runs in this process: results, files and errors."""

import csv
import errno
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from cosen import files as atomic
from cosen.costs import AdaptiveCosts, CostLearner
from cosen.data.named import load_named
from cosen.data.splits import FoldSplit
from cosen.errors import DataError, InputError, RunError
from cosen.networks.vgg import VGG16Features
from cosen.training.config import TrainConfig
from cosen.training.loop import Callbacks
from cosen.training.model_file import load_model
from cosen.training.run_folder import RunFolder
from cosen.training.task import make_task, parse_split
from run_contents import cost_steps, history_without_times, weights

pytestmark = pytest.mark.training


def test_a_run_writes_everything_that_later_commands_need(finished_run):
    run = finished_run
    record = run.record()
    assert record.config.imbalance == "odd:0.1"
    counts = record.prepared.class_counts
    assert counts.train[1] < counts.train[0]
    assert counts.train.dtype == torch.int64
    assert {"torch", "numpy"} <= set(record.versions)
    assert [row.epoch for row in run.history()] == [1, 2, 3]
    assert len(cost_steps(run)) == 3
    assert cost_steps(run)[0]["costs"].shape == (10, 10)
    test, metrics = run.predictions()["test"], run.metrics().test
    assert len(run.image_names().test) == len(test.target) == metrics.samples
    assert len(run.image_names().train) == record.prepared.class_counts.train.sum()
    accuracy = (test.logits.argmax(1) == test.target).float().mean()
    assert metrics.accuracy == pytest.approx(float(accuracy), abs=1e-6)
    assert list((run.path / "tensorboard").iterdir())
    classifier, info = load_model(run.path)
    assert info.class_names == tuple("0123456789")
    assert classifier(torch.zeros(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("method", ["cosen-paper", "cosen-hinge", "cosen-mse"])
def test_costs_are_learned_in_each_loss(quick_train, method):
    options = {"separability_std": 1.0, "acceptance": "revert"}
    steps = cost_steps(quick_train(method=method, options=options, epochs=4))
    assert not torch.equal(steps[-1]["costs"], torch.ones(10, 10))
    assert "separability" in steps[0]


def test_the_strengths_of_the_default_are_kept(finished_run):
    with safe_open(finished_run.path / "costs" / "0003.safetensors", "pt") as kept:
        numbers = kept.metadata()
    assert 0 <= float(numbers["tau"]) <= 3
    learner = AdaptiveCosts([1] * 10)
    learner.load_state_dict(finished_run.checkpoint()["loss"])
    assert learner.steps == 3
    assert learner.margin == float(numbers["margin"]) > 0
    assert torch.equal(learner.costs, cost_steps(finished_run)[-1]["costs"])


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adamw", "lr": 1e-3},
        {"schedule": "step", "clip": 1.0, "accumulate": 2},
        {"ema": 0.9},
        {"augment": ("crop", "mixup")},
        {"network": "resnet32", "size": 8},
        {"objective": "balanced"},
    ],
    ids=str,
)
def test_settings_run_and_repeat(quick_train, settings):
    one = quick_train("one", epochs=2, **settings)
    two = quick_train("two", epochs=2, **settings)
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, weights(two)[name]), name
    assert history_without_times(one) == history_without_times(two)


def test_accumulating_two_halves_is_one_whole_batch(quick_train):
    """Weights agree without batch normalisation, which would see each half separately."""
    plain = {"network": "small-cnn", "epochs": 1, "schedule": "constant", "lr": 1e-3}
    whole = quick_train("whole", batch_size=64, **plain)
    halves = quick_train("halves", batch_size=32, accumulate=2, **plain)
    distance = sum(
        float((a - weights(halves)[name]).abs().max())
        for name, a in weights(whole).items()
        if name.endswith("output.weight")
    )
    assert distance < 1e-2


def test_another_seed_is_another_run(quick_train, finished_run):
    one, two = finished_run, quick_train(seed=1)
    assert one.record().prepared.fingerprint != two.record().prepared.fingerprint
    assert any(not torch.equal(t, weights(two)[name]) for name, t in weights(one).items())


def test_early_stopping_and_the_best_epoch(quick_train):
    run = quick_train(epochs=40, patience=2, lr=1e-12, method="baseline")
    rows = run.history()
    assert len(rows) == 3, "nothing is learned, so it stops two epochs after the first"
    assert rows[0].best


def test_callbacks_see_batches_and_epochs(quick_train):
    batches, epochs = [], []
    quick_train(
        epochs=2,
        callbacks=Callbacks(
            batch=lambda done, total: batches.append((done, total)), epoch=epochs.append
        ),
    )
    assert [record.epoch for record in epochs] == [1, 2]
    assert batches[-1][0] == batches[-1][1]


def test_a_resumed_run_ends_as_one_never_interrupted(quick_train):
    settings = {"epochs": 4, "ema": 0.9, "augment": ("flip",)}
    whole = quick_train("whole", **settings)

    class Stop(Exception):
        pass

    def stop(record):
        if record.epoch == 2:
            raise Stop

    with pytest.raises(Stop):
        quick_train("cut", callbacks=Callbacks(epoch=stop), **settings)
    cut = quick_train("cut", resume=True)
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(cut)[name]), name
    for one, two in zip(cost_steps(whole), cost_steps(cut), strict=True):
        assert torch.equal(one["costs"], two["costs"])
    assert history_without_times(whole) == history_without_times(cut)
    assert whole.metrics() == cut.metrics()


def test_a_finished_run_resumes_to_the_same(quick_train, copied_run):
    before = copied_run.metrics()
    assert quick_train(resume=True).metrics() == before


# Errors


def test_a_folder_with_a_run_is_not_overwritten(quick_train, copied_run):
    with pytest.raises(RunError, match=r"already holds a run: resume it \(--resume"):
        quick_train(epochs=1)


def test_a_folder_in_use_is_refused(quick_train, tmp_path):
    with RunFolder(tmp_path / "run").in_use(), pytest.raises(RunError, match="in use by another"):
        quick_train(epochs=1)


def test_a_folder_without_a_run_cannot_be_resumed(quick_train):
    with pytest.raises(RunError, match="is not a run folder"):
        quick_train("nothing", resume=True)


def test_a_damaged_checkpoint_is_named_and_the_one_before_kept(quick_train, copied_run):
    run = copied_run
    path = run.path / "checkpoint.pt"
    path.write_bytes(path.read_bytes()[:1000])
    (run.path / "metrics.json").unlink()
    with pytest.raises(RunError, match=r"is damaged: to resume from the one before it, remove"):
        quick_train(resume=True)
    assert torch.load(run.path / "checkpoint-before.pt", weights_only=True)["best_epoch"] >= 1
    path.unlink()
    assert len(quick_train(resume=True).history()) == 3


def test_a_full_disk_keeps_the_last_good_checkpoint(quick_train, finished_run, monkeypatch):
    original = torch.save
    written = []

    def save(state, path):
        written.append(path)
        if len(written) == 2:
            Path(path).write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        original(state, path)

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(RunError, match=r"No space left .* is kept; free some space"):
        quick_train("full", epochs=3)
    monkeypatch.undo()
    resumed = quick_train("full", resume=True)
    assert finished_run.metrics() == resumed.metrics()
    assert list(resumed.path.glob(".*.part")) == []


@pytest.mark.parametrize("method", ["baseline", "cosen"])
def test_a_loss_that_is_no_number_says_what_to_do(quick_train, method):
    with pytest.raises(RunError, match=r"diverged in epoch \d+: .* lower learning rate \(--lr\)"):
        quick_train(method=method, lr=1e30, epochs=3)


def test_changed_data_is_noticed(quick_train, make_folder):
    root = make_folder(cat=12, dog=12)
    settings = {"data": str(root), "imbalance": None, "size": 8, "epochs": 1}
    quick_train(**settings)
    (root / "cat" / "000.png").unlink()
    with pytest.raises(RunError, match="the data has changed"):
        quick_train(resume=True)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (
            {"method": "magic"},
            InputError,
            "no method 'magic': choose from baseline, cosen, ",
        ),
        ({"method": "baselin"}, InputError, "did you mean 'baseline'"),
        (
            {"method": "baseline", "options": {"cost_lr": 1}},
            InputError,
            "method baseline has no option 'cost_lr': choose from label_smoothing",
        ),
        ({"options": {"cost_lrr": 1}}, InputError, "cost_lrr"),
        ({"network": "resnet"}, InputError, "did you mean 'resnet32'"),
        ({"split": "half"}, InputError, "split 'half' is unknown"),
        ({"imbalance": "weird"}, InputError, "imbalance 'weird'"),
        ({"network": "head"}, InputError, "--weights"),
        ({"freeze": "nothing"}, InputError, "no layer 'nothing'"),
        ({"validation": 0.0}, DataError, "there are no validation images"),
        ({"objective": "none.csv"}, InputError, "no cost file none.csv"),
    ],
)
def test_mistakes_are_errors_before_training(quick_train, settings, error, message, tmp_path):
    with pytest.raises(error, match=message):
        quick_train(**settings)
    assert not (tmp_path / "run").exists()  # the name can be used again


def test_nothing_that_was_there_is_removed(tmp_path):
    (tmp_path / "mine").mkdir()
    with RunFolder(tmp_path / "mine").in_use():
        pass
    with RunFolder(tmp_path / "a" / "b").in_use():
        (tmp_path / "a" / "note.txt").touch()
    assert [path.name for path in sorted(tmp_path.rglob("*"))] == ["a", "note.txt", "mine"]


def test_resuming_from_another_folder_is_an_error(quick_train, make_folder, monkeypatch):
    monkeypatch.chdir(make_folder(cat=12, dog=12).parent)
    quick_train(data="images", epochs=1)
    monkeypatch.chdir("/")
    with pytest.raises(RunError, match="trained on images, which does not exist in /: resume it"):
        quick_train(resume=True)


# Parts


def test_splits_are_parsed():
    data = load_named("digits")
    assert parse_split("auto", data).train == 0.8
    assert parse_split("fraction:0.6", data).train == 0.6
    assert (parse_split("count:30/50", data).train, parse_split("count:30/50", data).test) == (
        30,
        50,
    )
    assert parse_split("fold:2/3", data) == FoldSplit(3, 1)
    for text in ("fold:3", "fraction:", "count:x", "folds:1/2"):
        with pytest.raises(InputError, match="use auto, official"):
            parse_split(text, data)


def test_misclassification_costs_decide_which_epoch_is_best(quick_train, tmp_path):
    names = [str(digit) for digit in range(10)]
    lines = [["", *names]] + [
        [true, *("0" if given == true else "9" if true == "1" else "1" for given in names)]
        for true in reversed(names)
    ]
    with (tmp_path / "costs.csv").open("w", newline="") as file:
        csv.writer(file).writerows(lines)
    run = quick_train(objective=str(tmp_path / "costs.csv"))
    confusion = np.array(run.metrics().val.confusion)
    wrong = confusion * (1 - np.eye(10))
    expected = (wrong.sum() + 8 * wrong[1].sum()) / confusion.sum() / 9
    assert run.metrics().val.error == pytest.approx(expected, abs=1e-6)


def test_the_head_trains_on_cached_features(quick_train, make_folder, tmp_path, monkeypatch):
    torch.manual_seed(0)
    save_file(VGG16Features().state_dict(), tmp_path / "vgg.safetensors")
    root = make_folder(cat=12, dog=12)
    settings = {
        "data": str(root),
        "imbalance": None,
        "weights": str(tmp_path / "vgg.safetensors"),
        "network": "head",
        "size": 32,
        "epochs": 2,
    }
    run = quick_train("first", **settings)
    classifier, info = load_model(run.path)
    assert info.features == "vgg16"
    task = make_task(TrainConfig(**settings, device="cpu"))
    rows = task.splits.test.rows
    pixels = torch.from_numpy(np.asarray(task.decoded.pixels[rows]))
    logits = classifier(info.normalise.from_bytes(pixels))
    stored = run.predictions()["test"].logits
    torch.testing.assert_close(logits, stored, atol=1e-4, rtol=1e-4)

    def forbidden(*args):
        raise AssertionError("features were computed again")

    monkeypatch.setattr(VGG16Features, "forward", forbidden)
    monkeypatch.setattr("cosen.training.thumbnails.find_map_layer", lambda *_: None)
    quick_train("second", **settings)


def test_with_all_but_the_output_frozen_features_are_cached(quick_train, monkeypatch):
    from cosen.networks.small import SmallCNN

    seen = []
    original = SmallCNN.forward

    def forward(self, images):
        seen.append(len(images))
        return original(self, images)

    monkeypatch.setattr(SmallCNN, "forward", forward)
    monkeypatch.setattr("cosen.training.thumbnails.find_map_layer", lambda *_: None)
    run = quick_train(epochs=5, freeze="features", imbalance=None)
    samples = 1797 + run.metrics().val.samples + run.metrics().test.samples
    assert sum(seen) == samples, "once for the cache, once for the final evaluation"
    start = torch.load(run.path / "checkpoint.pt", weights_only=True)
    assert len(start["history"]) == 5


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file.json"
    atomic.write_text(path, json.dumps({"a": 1}))

    def write_half(partial):
        partial.write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        atomic.write_with(path, write_half)
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_resuming_keeps_the_learners_state(quick_train):
    run = quick_train(epochs=2, method="cosen-paper", options={"separability_std": 1.0})
    state = run.checkpoint()
    learner = CostLearner([1] * 10, separability_std=1.0)
    learner.load_state_dict(state["loss"])
    assert learner.steps == 2
    assert torch.equal(learner.costs, cost_steps(run)[-1]["costs"])


def test_another_number_of_processes_is_refused(quick_train, copied_run):
    run, state = copied_run, copied_run.checkpoint()
    state["processes"] = state["processes"] * 2
    run.write_checkpoint(state)
    with pytest.raises(RunError, match="started with 2 processes"):
        quick_train(resume=True)


def test_a_network_of_another_version_is_refused(quick_train, copied_run):
    run, state = copied_run, copied_run.checkpoint()
    state["network"]["output.bias"] = torch.zeros(10)  # a linear layer instead of cosines
    run.write_checkpoint(state)
    with pytest.raises(RunError, match=r"another version of cosen.* start a new run"):
        quick_train(resume=True)


def test_config_is_frozen():
    with pytest.raises(AttributeError):
        TrainConfig().epochs = 3
    assert replace(TrainConfig(), epochs=3).epochs == 3


def test_broken_images_are_named_or_skipped(quick_train, make_folder):
    root = make_folder(cat=12, dog=12)
    (root / "cat" / "000.png").write_bytes(b"no image")
    (root / "dog" / "gone.png").symlink_to(root / "nowhere.png")
    settings = {"data": str(root), "imbalance": None, "size": 8, "epochs": 1}
    with pytest.raises(DataError, match=r"cat/000\.png: not an image"):
        quick_train(**settings)
    run = quick_train(**settings, skip_broken=True)
    counts = run.record().prepared.class_counts
    assert sum(int(part.sum()) for part in (counts.train, counts.val, counts.test)) == 23


def test_a_validation_folder_of_the_users_own_is_kept(quick_train, make_folder):
    make_folder("set/train", cat=20, dog=20)
    root = make_folder("set/val", cat=5, dog=5).parent
    run = quick_train(data=str(root), imbalance=None, size=8, epochs=1)
    names = run.image_names()
    assert all(name.startswith("val/") for name in names.val)
    assert len(names.val) == 10
    assert all(name.startswith("train/") for name in names.test)


def test_a_run_interrupted_while_reading_images_can_be_resumed(quick_train, monkeypatch):
    from cosen.training import run as run_module

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "make_task", interrupt)
    with pytest.raises(KeyboardInterrupt):
        quick_train(epochs=1)
    monkeypatch.undo()
    assert quick_train(resume=True).metrics().test.samples > 0


def test_a_mistake_leaves_the_folder_free(quick_train):
    with pytest.raises(InputError):
        quick_train(freeze="nothing")
    assert quick_train(epochs=1).is_finished


def test_the_last_line_of_the_history_is_not_lost(quick_train, copied_run):
    path = copied_run.path / "history.csv"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    (copied_run.path / "metrics.json").unlink()
    assert len(quick_train(resume=True).history()) == 3


@pytest.mark.parametrize(
    "error", [RuntimeError("unexpected pos 64"), SafetensorError("No space left on device")]
)
def test_a_full_disk_as_the_writers_report_it(tmp_path, error):
    def fail(_):
        raise error

    with pytest.raises(RunError, match="is kept; free some space"):
        atomic.write_with(tmp_path / "file", fail)


def test_files_can_be_read_by_others(finished_run):
    for name in ("model.safetensors", "checkpoint.pt", "predictions.safetensors"):
        assert (finished_run.path / name).stat().st_mode & 0o044 == 0o044


def write_costs(path, value):
    names = [str(digit) for digit in range(10)]
    lines = [",".join(["", *names])]
    lines += [",".join([p, *("0" if p == n else str(value) for n in names)]) for p in names]
    path.write_text("\n".join(lines))
    return str(path)


def test_misclassification_costs_are_blended_from_a_file(quick_train, tmp_path):
    costs = write_costs(tmp_path / "costs.csv", 2)
    options = {"misclassification_costs": costs, "misclassification_weight": 1.0, "cost_lr": 1.0}
    run = quick_train(epochs=1, method="cosen-paper", options=options)
    torch.testing.assert_close(cost_steps(run)[0]["costs"], torch.ones(10, 10))


def test_a_file_of_misclassification_costs_may_move_after_the_start(quick_train, tmp_path):
    run = quick_train(epochs=1, objective=write_costs(tmp_path / "costs.csv", 1))
    (tmp_path / "costs.csv").unlink()
    before = run.metrics()
    assert quick_train(resume=True).metrics() == before
    with pytest.raises(InputError, match="no cost above zero"):
        quick_train("zero", objective=write_costs(tmp_path / "zero.csv", 0))


def test_a_users_own_module_is_trained(quick_train):
    def own():
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
        )

    run = quick_train(epochs=8, imbalance=None, network=own)
    assert run.metrics().test.accuracy > 0.8
    classifier, _ = load_model(run.path, network=own)
    assert classifier(torch.zeros(1, 1, 8, 8)).shape == (1, 10)
    with pytest.raises(RunError, match="a custom network"):
        load_model(run.path)


@pytest.mark.parametrize(
    "settings",
    [{"momentum": -1.0}, {"seed": 2**40}, {"lr": float("nan")}, {"validation": 1.0}],
    ids=str,
)
def test_impossible_settings_are_refused(settings):
    with pytest.raises(InputError):
        TrainConfig(**settings)
