"""Predictions and evaluation with trained models."""

import csv
import json
import logging
import re
import shutil

import numpy as np
import pytest
import torch
import typer
from PIL import Image, ImageOps
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import cosen
from cosen.cli import models as use
from cosen.costs import Objective
from cosen.errors import CosenError, DataError, InputError, RunError
from cosen.inference.evaluate_run import evaluate_run, stored_metrics
from cosen.inference.predict import open_models, parse_prior, predict_images
from cosen.networks.network import PenultimateFeatures
from cosen.networks.vgg import VGG16Features
from cosen.training.config import TrainConfig
from cosen.training.model_file import build_classifier, load_info
from cosen.training.run import train_run
from cosen.training.run_folder import RunFolder

# the tests share the runs of one process
pytestmark = [pytest.mark.training, pytest.mark.xdist_group("predict")]

COUNTS = {"blue": 8, "green": 20, "red": 30}
CLASSES = list(COUNTS)


def paint(root, counts):
    """Noisy images; in most of them the channel of their class is brighter."""
    generator = np.random.default_rng(0)
    for name, count in counts.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            colour = generator.integers(0, 100, 3)
            colour[["red", "green", "blue"].index(name)] += 80
            pixels = colour + generator.integers(0, 70, (18, 22, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(root / name / f"{number:03d}.png")
    return root


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return paint(tmp_path_factory.mktemp("data") / "colours", COUNTS)


@pytest.fixture(scope="module", params=["cosen", "baseline"])
def run(request, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    config = TrainConfig(
        data=str(data),
        method=request.param,
        network="small-cnn",
        size=16,
        split="fraction:0.5",
        epochs=4,
        batch_size=4,
        precision="float32",
        device="cpu",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSEN_CACHE", str(folder / "cache"))
        return train_run(config, folder / request.param).path


@pytest.fixture
def copy(run, tmp_path):
    """A copy of the run that a test may change."""
    ignored = shutil.ignore_patterns("checksums.json")
    return shutil.copytree(run, tmp_path / "copy", ignore=ignored)


def set_temperature(folder, temperature):
    plain = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps(plain | {"temperature": temperature}))


def probabilities(predictions):
    """As an array, classes in the model's order."""
    return np.array(
        [
            [{entry.name: entry.probability for entry in p.top}[name] for name in CLASSES]
            for p in predictions
        ]
    )


def test_predictions_are_those_of_the_test_images(run, data):
    names = RunFolder(run).image_names().test
    predictions = predict_images(run, [data / name for name in names], top=3, batch_size=7)
    assert [p.image for p in predictions] == [(data / name).as_posix() for name in names]
    logits = RunFolder(run).predictions()["test"].logits.double()
    stored = [CLASSES[label] for label in logits.argmax(1)]
    assert [p.decision for p in predictions] == stored
    assert len(set(stored)) > 1
    temperature = json.loads((run / "model.json").read_text())["temperature"]
    expected = (logits / temperature).softmax(1).numpy()
    np.testing.assert_allclose(probabilities(predictions), expected, atol=1e-5)


def test_without_calibration_it_is_the_plain_softmax(copy, data):
    set_temperature(copy, 5.0)
    files = [data / name for name in RunFolder(copy).image_names().test]
    plain = predict_images(copy, files, top=3, calibrated=False)
    softmax = RunFolder(copy).predictions()["test"].logits.softmax(1).numpy()
    np.testing.assert_allclose(probabilities(plain), softmax, atol=1e-5)
    calibrated = predict_images(copy, files, top=3)
    assert [p.decision for p in calibrated] == [p.decision for p in plain]
    assert all(c.probability < p.probability for c, p in zip(calibrated, plain, strict=True))


def test_the_top_classes_are_sorted_and_begin_with_the_decision(run, data):
    for prediction in predict_images(run, data, top=2):
        first, second = prediction.top
        assert first.probability >= second.probability
        assert (first.name, first.probability) == (prediction.decision, prediction.probability)
    assert len(predict_images(run, data / "red" / "000.png", top=99)[0].top) == 3


def test_a_folder_is_walked_in_the_order_of_its_names(run, data, tmp_path):
    shutil.copytree(data / "blue", tmp_path / "new" / "deep" / "er")
    (tmp_path / "new" / ".hidden").write_text("not an image")
    (tmp_path / "new" / "Thumbs.db").write_text("nor this")
    found = [p.image for p in predict_images(run, tmp_path / "new")]
    assert found == sorted(found)
    assert len(found) == COUNTS["blue"]
    twice = predict_images(run, [tmp_path / "new", data / "red" / "000.png"])
    assert twice[-1].image == (data / "red" / "000.png").as_posix()


def test_only_the_model_file_is_needed(run, data, tmp_path):
    for name in ("model.json", "model.safetensors"):
        shutil.copy(run / name, tmp_path)
    assert predict_images(tmp_path, data / "red") == predict_images(run, data / "red")


def test_a_prior_changes_the_shares_of_the_posterior(run, data, caplog):
    outputs = probabilities(predict_images(run, data, top=3))
    offsets = np.array(json.loads((run / "model.json").read_text())["offsets"])
    plain = probabilities(predict_images(run, data, top=3, prior="train"))
    weighted = outputs * np.exp(offsets)
    np.testing.assert_allclose(plain, weighted / weighted.sum(1, keepdims=True), atol=1e-9)
    counts = np.array(json.loads((run / "model.json").read_text())["class_counts"])
    assert (counts == RunFolder(run).record().prepared.class_counts.train.numpy()).all()

    balanced = probabilities(predict_images(run, data, top=3, prior="balanced"))
    weighted = plain / counts
    np.testing.assert_allclose(balanced, weighted / weighted.sum(1, keepdims=True), atol=1e-9)

    prior = {"red": 1, "blue": 98, "green": 1}  # in any order and unit
    stated = probabilities(predict_images(run, data, top=3, prior=prior))
    weighted = plain * [98, 1, 1] / counts
    np.testing.assert_allclose(stated, weighted / weighted.sum(1, keepdims=True), atol=1e-9)

    as_trained = dict(zip(CLASSES, counts.tolist(), strict=True))
    found = probabilities(predict_images(run, data, top=3, prior=as_trained))
    np.testing.assert_allclose(found, plain, atol=1e-9)

    predict_images(run, data, prior="estimate")  # the training images themselves, and the others
    shares = re.findall(r"(\w+) (0\.\d+) ± 0\.\d+", caplog.text)
    assert [name for name, _ in shares] == list(CLASSES)
    true = np.array(list(COUNTS.values())) / sum(COUNTS.values())
    expected = [true[list(COUNTS).index(name)] for name, _ in shares]
    np.testing.assert_allclose([float(share) for _, share in shares], expected, atol=0.1)


def test_costs_decide_by_the_expected_cost_of_the_corrected_probabilities(run, data):
    costs = torch.tensor([[0.0, 30, 30], [1, 0, 2], [1, 2, 0]])  # missing a blue one is expensive
    decided = predict_images(run, data, top=3, misclassification_costs=costs, prior="balanced")
    risks = probabilities(decided) @ costs.double().numpy()
    assert [p.decision for p in decided] == [CLASSES[label] for label in risks.argmin(1)]
    assert any(p.decision != p.top[0].name for p in decided)
    for prediction in decided:
        chance = {entry.name: entry.probability for entry in prediction.top}
        assert prediction.probability == chance[prediction.decision]
    symmetric = predict_images(run, data, misclassification_costs=1 - torch.eye(3))
    plain = predict_images(run, data, prior="train")  # without a prior, that of training
    assert [p.decision for p in symmetric] == [p.decision for p in plain]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": {"blue": 0.5, "green": 0.5}}, "prior has no share for 'red'"),
        ({"prior": {"blue": 1, "green": 1, "reed": 1}}, "did you mean 'red'"),
        ({"prior": {"blue": 0, "green": 1, "red": 1}}, "must be positive and finite, but 'blue'"),
        ({"prior": "equal"}, "'train', 'balanced', 'estimate'"),
        ({"misclassification_costs": torch.ones(2, 2)}, "must have the shape"),
        ({"top": 0}, "top must be at least 1"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"device": "toaster"}, "device 'toaster' cannot be used"),
    ],
)
def test_a_wrong_option_is_refused(run, data, options, message):
    with pytest.raises(InputError, match=message):
        predict_images(run, data, **options)


def test_a_study_is_a_model(data, tmp_path, capsys):
    settings = {"network": "small-cnn", "size": 16, "epochs": 2, "device": "cpu", "workers": 1}
    study = cosen.compare(data, methods=["baseline"], seeds=2, out=tmp_path / "study", **settings)
    runs = [study.run("baseline", seed) for seed in range(2)]
    assert study.predict(data, top=3) == runs[0].predict(data, top=3)
    single = [probabilities(run.predict(data, top=3, prior="train")) for run in runs]
    both = study.predict(data, top=3, prior="train", ensemble=True)
    np.testing.assert_allclose(probabilities(both), np.mean(single, 0), atol=1e-12)
    app(
        ["predict", str(study.path), str(data), "--ensemble", "--prior=train"],
        standalone_mode=False,
    )
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [line["class"] for line in lines] == [one.decision for one in both]
    study.predict(data, ensemble=True, decide="review:0.5")
    known = open_models(runs[0].path, validation_runs=study.validation_runs).validation(None)
    first, second = (one.folder.image_names() for one in runs)
    assert len(known.target) == len({*first.val, *second.val}) > len(first.val)
    metrics = study.evaluate(data, ensemble=True, flip=True)
    assert metrics.samples == sum(COUNTS.values())
    app(["evaluate", str(study.path), str(data), "--ensemble", "--tta=flip"], standalone_mode=False)
    with pytest.raises(InputError, match="--ensemble is for a study"):
        app(["predict", str(runs[0].path), str(data), "--ensemble"], standalone_mode=False)
    with pytest.raises(InputError, match="--tta is for other data"):
        app(["evaluate", str(study.path), "--tta=flip"], standalone_mode=False)


def test_mirror_images_are_averaged(run, data, tmp_path):
    image = Image.open(data / "red" / "000.png")
    ImageOps.mirror(image).save(tmp_path / "mirrored.png")
    options = {"top": 3, "calibrated": False}
    plain, mirrored = (
        np.log(probabilities(predict_images(run, path, **options)))
        for path in (data / "red" / "000.png", tmp_path / "mirrored.png")
    )
    both = np.exp((plain + mirrored) / 2)
    found = probabilities(predict_images(run, data / "red" / "000.png", flip=True, **options))
    np.testing.assert_allclose(found, both / both.sum(), atol=1e-6)


def test_operating_points_from_the_command_line(run, data, tmp_path, capsys, caplog):
    args = ["predict", str(run), str(data / "red")]
    app([*args, "--decide=review:0.5"], standalone_mode=False)
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {line["review"] for line in lines} <= {"yes", "no"}
    app([*args, "--decide=sets:0.5", "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert all(set(one["classes"]) <= set(CLASSES) for one in found)
    app(["evaluate", str(run), "--decide=review:0.5", "--prior=train"], standalone_mode=False)
    (tmp_path / "costs.csv").write_text("true,red,green,blue\nred,0,2,1\ngreen,2,0,1\nblue,9,9,0\n")
    costs = ["--decide=costs", f"--objective={tmp_path / 'costs.csv'}"]
    app(["evaluate", str(run), *costs], standalone_mode=False)
    assert len(re.findall(r"on \d+ (?:validation|test) images: mean cost", caplog.text)) == 2
    with pytest.raises(InputError, match=r"give --objective costs\.csv"):
        app(["evaluate", str(run), costs[0]], standalone_mode=False)
    for name in ("model.json", "model.safetensors"):
        shutil.copy(run / name, tmp_path)
    with pytest.raises(RunError, match="has no predictions for its validation images"):
        predict_images(tmp_path, data / "red", decide="review:0.5")


@pytest.mark.parametrize(
    ("text", "prior"),
    [
        ("balanced", "balanced"),
        (" training ", "train"),
        ("estimate", "estimate"),
        ("blue=0.1,red=0.9", {"blue": 0.1, "red": 0.9}),
        ("a=b=2, c=1e-3", {"a=b": 2.0, "c": 0.001}),
        ('"cat, black=1",dog=3', {"cat, black": 1.0, "dog": 3.0}),
    ],
)
def test_a_prior_as_text(text, prior):
    assert parse_prior(text) == prior


@pytest.mark.parametrize("text", ["equal", "blue=", "=1", "blue=much", "blue=nan", "a=1,,b=2"])
def test_a_text_that_is_no_prior_is_refused(text):
    with pytest.raises(InputError, match="a share for each class"):
        parse_prior(text)
    with pytest.raises(InputError, match="twice"):
        parse_prior("blue=1,blue=2")


def test_broken_files_are_all_named_or_skipped(run, data, tmp_path, caplog):
    shutil.copytree(data / "red", tmp_path / "new")
    (tmp_path / "new" / "a.png").write_text("no image")
    whole = (tmp_path / "new" / "000.png").read_bytes()
    (tmp_path / "new" / "b.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError) as caught:
        predict_images(run, tmp_path / "new")
    for part in ("2 of 32", "a.png: not an image", "b.png: truncated", "--skip-broken"):
        assert part in str(caught.value)
    with caplog.at_level(logging.WARNING, "cosen"):
        kept = predict_images(run, tmp_path / "new", skip_broken=True)
    assert "skipped 2 broken files of 32" in caplog.text
    assert "a.png" in caplog.text
    sound = predict_images(run, data / "red")
    assert [p.decision for p in kept] == [p.decision for p in sound]
    with pytest.raises(DataError, match="1 of 1"):
        predict_images(run, tmp_path / "new" / "a.png", skip_broken=True)


def test_images_that_are_not_there_are_refused(run, tmp_path):
    with pytest.raises(DataError, match=r"no file or folder x\.png, y\.png"):
        predict_images(run, ["x.png", "y.png"], skip_broken=True)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty has no images"):
        predict_images(run, tmp_path / "empty")
    with pytest.raises(DataError, match="give files or folders"):
        predict_images(run, [])


def test_a_run_that_is_not_finished_gives_a_warning(run, data, tmp_path, caplog):
    shutil.copytree(run, tmp_path / "stopped")
    (tmp_path / "stopped" / "metrics.json").unlink()
    with caplog.at_level(logging.WARNING, "cosen"):
        assert predict_images(run, data) == predict_images(tmp_path / "stopped", data)
    assert caplog.messages == [
        f"{tmp_path / 'stopped'} is not finished; its best model so far is used (cosen train "
        f"--resume {tmp_path / 'stopped'})"
    ]


def test_a_study_is_not_a_run(run, data, tmp_path):
    shutil.copytree(run, tmp_path / "runs" / "cosen" / "0")
    with pytest.raises(
        RunError, match=r"not a run folder: .* a study, .* one of its runs: .*cosen"
    ):
        predict_images(tmp_path, data)


def test_what_is_no_run_folder_is_refused(data, tmp_path):
    for use_run in (predict_images, evaluate_run):
        with pytest.raises(RunError, match="is not a run folder"):
            use_run(tmp_path, data)
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(RunError, match="there is no model yet"):
        predict_images(tmp_path, data)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1}', '{"format": 99}'])
def test_a_damaged_model_json_is_refused(copy, data, content):
    (copy / "model.json").write_text(content)
    with pytest.raises(RunError, match=r"model\.json"):
        predict_images(copy, data)


def test_weights_that_do_not_fit_are_refused(copy, data):
    path = copy / "model.safetensors"
    weights = load_file(path)
    save_file({name: tensor for name, tensor in weights.items() if "output" not in name}, path)
    with pytest.raises(RunError, match=r"model\.safetensors does not fit model\.json"):
        predict_images(copy, data)
    path.write_bytes(b"not safetensors")
    with pytest.raises(CosenError, match="cannot read weights"):
        predict_images(copy, data)
    path.unlink()
    with pytest.raises(CosenError, match="no weights file"):
        predict_images(copy, data)


def test_evaluate_gives_what_is_stored(run):
    assert stored_metrics(run) == RunFolder(run).metrics()
    overall = stored_metrics(run, Objective.of("overall")).test
    assert overall.error == pytest.approx(1 - overall.accuracy)


def test_evaluate_on_the_test_images_alone_gives_the_stored_metrics(run, data, tmp_path, caplog):
    for name in RunFolder(run).image_names().test:
        (tmp_path / "new" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(data / name, tmp_path / "new" / name)
    found, stored = evaluate_run(run, tmp_path / "new"), RunFolder(run).metrics().test
    assert found.confusion == stored.confusion
    assert found.error == stored.error
    assert found.auc == pytest.approx(stored.auc)
    assert not caplog.records


def test_evaluate_with_costs_measures_the_mean_cost_in_worst_mistakes(run, data, tmp_path):
    shutil.copytree(data, tmp_path / "new")
    costs = torch.tensor([[0.0, 30, 30], [1, 0, 2], [1, 2, 0]])
    found = evaluate_run(run, tmp_path / "new", objective=Objective.of(costs))
    total = (torch.tensor(found.confusion) * costs).sum()
    assert found.error == pytest.approx(float(total) / 30 / found.samples)


def test_evaluate_warns_of_the_data_that_it_was_trained_on(run, data, caplog):
    with caplog.at_level(logging.WARNING, "cosen"):
        evaluate_run(run, data.parent / "colours" / ".")
    assert (
        "the data that the run was trained on, so these metrics are too optimistic" in caplog.text
    )


def test_evaluate_orders_classes_by_name_and_names_those_that_differ(run, data, tmp_path, caplog):
    table = tmp_path / "reds-first.csv"
    rows = [(data / name / "000.png", name) for name in reversed(CLASSES)]
    table.write_text("path,label\n" + "".join(f"{path},{name}\n" for path, name in rows))
    assert np.array(evaluate_run(run, table).confusion).sum(1).tolist() == [1, 1, 1]

    with pytest.raises(DataError, match=r"has none of the model's classes \('blue', "):
        evaluate_run(run, "digits")
    shutil.copytree(data, tmp_path / "more")
    shutil.copytree(data / "red", tmp_path / "more" / "pink")
    with pytest.raises(DataError, match="does not know: 'pink'; remove them with --exclude"):
        evaluate_run(run, tmp_path / "more")
    assert evaluate_run(run, tmp_path / "more", exclude=("pink",)).samples == 58
    shutil.rmtree(tmp_path / "more" / "blue")
    fewer = evaluate_run(run, tmp_path / "more", exclude=("pink",))
    assert fewer.class_recall[0] is None, "there is no image of blue"
    assert "no images of 'blue'" in caplog.text


# As commands

COSTS_OPTION = "--misclassification-costs"

app = typer.Typer()
app.command()(use.predict)
app.command()(use.evaluate)


def invoke(*arguments):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_predict_prints_csv(run, data):
    lines = list(csv.DictReader(invoke("predict", run, data, "--top", 2).splitlines()))
    expected = predict_images(run, data)
    assert [(line["image"], line["class"]) for line in lines] == [
        (p.image, p.decision) for p in expected
    ]
    assert float(lines[0]["probability"]) == pytest.approx(expected[0].probability, abs=1e-6)
    assert list(lines[0])[3:] == ["class_1", "probability_1", "class_2", "probability_2"]
    assert lines[0]["class_1"] == lines[0]["class"]
    assert invoke("predict", run, data).splitlines()[0] == "image,class,probability"


def test_predict_takes_every_option(run, data, tmp_path):
    table = tmp_path / "costs.csv"
    table.write_text("true,red,green,blue\nred,0,2,1\ngreen,2,0,1\nblue,30,30,0\n")
    arguments = (run, data, "--prior", "red=1,green=1,blue=9", "--no-calibration", "--skip-broken")
    found = json.loads(invoke("predict", *arguments, COSTS_OPTION, table, "--top", 3, "--json"))
    expected = predict_images(
        run,
        data,
        top=3,
        calibrated=False,
        prior={"red": 1, "green": 1, "blue": 9},
        misclassification_costs=torch.tensor([[0.0, 30, 30], [1, 0, 2], [1, 2, 0]]),
    )
    assert [entry["class"] for entry in found] == [p.decision for p in expected]
    assert found[0]["top"][0] == {
        "name": expected[0].top[0].name,
        "probability": expected[0].top[0].probability,
    }


def test_predict_writes_files(run, data, tmp_path):
    said = invoke("predict", run, data, "--out", tmp_path / "found.csv")
    assert said == f"Wrote 58 predictions to {tmp_path / 'found.csv'}\n"
    assert (tmp_path / "found.csv").read_text() == invoke("predict", run, data)
    said = json.loads(invoke("predict", run, data, "--out", tmp_path / "found.json", "--json"))
    assert said["images"] == len(json.loads((tmp_path / "found.json").read_text())) == 58
    with pytest.raises(InputError, match=r"a \.csv or \.json file"):
        invoke("predict", run, data, "--out", tmp_path / "found.txt")


def test_evaluate_prints(run, data, tmp_path):
    stored = RunFolder(run).metrics().model_dump(mode="json")
    assert json.loads(invoke("evaluate", run, "--json"))["test"] == stored["test"]
    assert f"accuracy {100 * stored['test']['accuracy']:.2f} %" in invoke("evaluate", run)
    shutil.copytree(data, tmp_path / "new")
    found = json.loads(invoke("evaluate", run, tmp_path / "new", "--json"))["all"]
    said = invoke("evaluate", run, tmp_path / "new")
    assert f"accuracy {100 * found['accuracy']:.2f} %" in said
    assert "on 58 images" in said


def test_evaluate_takes_an_objective(run, data, tmp_path):
    table = tmp_path / "costs.csv"
    table.write_text("true,red,green,blue\nred,0,2,1\ngreen,2,0,1\nblue,30,30,0\n")
    costs = torch.tensor([[0.0, 30, 30], [1, 0, 2], [1, 2, 0]])
    shutil.copytree(data, tmp_path / "new")
    for part, *where in (("test",), ("all", tmp_path / "new")):
        found = json.loads(invoke("evaluate", run, *where, "--objective", table, "--json"))[part]
        cost = (torch.tensor(found["confusion"]) * costs).sum() / 30 / found["samples"]
        assert found["error"] == pytest.approx(float(cost))
        plain = json.loads(invoke("evaluate", run, *where, "--objective", "overall", "--json"))
        assert plain[part]["error"] == pytest.approx(1 - plain[part]["accuracy"])
    with pytest.raises(InputError, match="objective must be overall, balanced or a CSV"):
        invoke("evaluate", run, "--objective", "balence")


def test_model_files_are_enough_to_predict(run, data, tmp_path):
    for name in ("model.json", "model.safetensors"):
        shutil.copy(run / name, tmp_path / name)
    assert invoke("predict", tmp_path, data) == invoke("predict", run, data)


def test_vgg16_of_timm_is_not_the_convolutions_below_a_head(run):
    """Both have the same name in ``model.json``."""
    info = load_info(run).changed(
        network="linear",
        options={"in_features": 4096},
        features="vgg16",
        feature_options={"size": [64, 64]},
    )
    head = info.changed(network="head", options={"in_features": 512}, feature_options={})
    with torch.device("meta"):  # without weights
        assert isinstance(build_classifier(info).backbone, PenultimateFeatures)
        assert isinstance(build_classifier(head).backbone, VGG16Features)
