"""The public functions: train, compare, inspect and load, with all kinds of data and networks."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import cosen
from cosen import api
from cosen.errors import DataError, InputError, RunError
from cosen.methods.learned_costs import Cosen
from cosen.methods.resampling import Smote
from cosen.training.config import TrainConfig
from cosen.training.loop import Callbacks
from small_study import Smoothed, run_here

# the tests share a run and a study of one process
pytestmark = [pytest.mark.training, pytest.mark.xdist_group("api")]

COUNTS = (30, 20, 10)
QUICK = {"epochs": 1, "device": "cpu", "precision": "float32", "validation": 0.2}


def make_images():
    """Return grey images of three classes, 8 x 8 pixels, brighter from class to class."""
    labels = np.repeat(np.arange(len(COUNTS)), COUNTS)
    noise = np.random.default_rng(0).integers(0, 100, (len(labels), 8, 8))
    return (noise + 70 * labels[:, None, None]).astype(np.uint8), labels


IMAGES, LABELS = make_images()


class OwnDataset(Dataset):
    """A dataset as users write it: Pillow images and labels."""

    classes = ("low", "mid", "high")

    def __len__(self):
        return len(LABELS)

    def __getitem__(self, number):
        return Image.fromarray(IMAGES[number]), int(LABELS[number])


def write_folder(root):
    for number, (image, label) in enumerate(zip(IMAGES, LABELS, strict=True)):
        path = root / str(label) / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return root


DATA = {
    "path": write_folder,
    "text": lambda root: str(write_folder(root)),
    "name": lambda _: "digits",
    "arrays": lambda _: (IMAGES, LABELS),
    "lists": lambda _: (list(IMAGES), LABELS.tolist()),
    "tensors": lambda _: (torch.from_numpy(IMAGES)[:, None], torch.from_numpy(LABELS)),
    "dataset": lambda _: OwnDataset(),
    "tensor-dataset": lambda _: TensorDataset(
        torch.from_numpy(IMAGES)[:, None] / 255, torch.from_numpy(LABELS)
    ),
}


def make_network():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 3))


NETWORKS = {"name": lambda: "small-cnn", "module": make_network, "factory": lambda: make_network}


@pytest.fixture
def here(monkeypatch):
    """Train in this process: starting another takes seconds."""
    monkeypatch.setattr("cosen.comparing.grid.run_locally", run_here)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run and a study with a user-defined network. Do not change their files."""
    folder = tmp_path_factory.mktemp("api")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSEN_CACHE", str(folder / "cache"))
        patch.setattr("cosen.comparing.grid.run_locally", run_here)
        options = {"network": make_network(), **QUICK}
        data = (IMAGES, LABELS)
        run = cosen.train(data, method="cosen", out=folder / "run", **options)
        study = cosen.compare(data, methods=["focal"], seeds=2, out=folder / "study", **options)
    return run, study


@pytest.fixture
def run(finished):
    return finished[0]


@pytest.fixture
def study(finished):
    return finished[1]


# Training


@pytest.mark.parametrize("kind", DATA)
def test_train_takes_data_of_all_kinds(tmp_path, kind):
    run = cosen.train(DATA[kind](tmp_path / "images"), out=tmp_path / "run", **QUICK)
    assert 0 <= run.metrics.mean_recall <= 1
    if kind != "name":
        record = run.record.prepared
        total = sum(getattr(record.class_counts, part) for part in ("train", "val", "test"))
        assert total.tolist() == list(COUNTS)
        assert record.class_names == (OwnDataset.classes if kind == "dataset" else ("0", "1", "2"))


def test_the_same_images_give_the_same_run_however_they_are_passed(tmp_path):
    runs = [
        cosen.train(DATA[kind](tmp_path / "images"), out=tmp_path / kind, **QUICK)
        for kind in ("arrays", "tensors", "dataset")
    ]
    assert runs[0].metrics == runs[1].metrics == runs[2].metrics


@pytest.mark.parametrize("kind", NETWORKS)
def test_train_takes_networks_of_all_kinds(tmp_path, kind):
    network = NETWORKS[kind]()
    before = [tensor.clone() for tensor in network.parameters()] if kind == "module" else []
    run = cosen.train((IMAGES, LABELS), network=network, out=tmp_path / "run", **QUICK)
    assert run.record.prepared.network == ("small-cnn" if kind == "name" else "own")
    Image.fromarray(IMAGES[0]).save(tmp_path / "new.png")
    (prediction,) = run.predict(tmp_path / "new.png")
    assert prediction.decision in ("0", "1", "2")
    if kind == "module":  # the module itself does not change
        assert all(map(torch.equal, before, network.parameters()))


def test_train_takes_settings_and_method_objects(tmp_path):
    config = TrainConfig(epochs=7, lr=0.02, device="cpu")
    data = (IMAGES, LABELS)
    options = {"epochs": 1, "exclude": "2", "validation": "0.3", "data_root": tmp_path}
    run = cosen.train(data, method=Smoothed(0.2), config=config, out=tmp_path / "a", **options)
    used = run.record.config
    assert (used.epochs, used.lr, used.validation, used.exclude) == (1, 0.02, 0.3, ("2",))
    assert (used.method, used.data_root) == ("smoothed", str(tmp_path))
    assert run.record.prepared.class_names == ("0", "1")
    named = cosen.train(data, method="focal(gamma=1)", out=tmp_path / "b", **QUICK)
    assert (named.record.config.method, named.record.config.options) == ("focal", {"gamma": 1})


def test_a_run_folder_is_chosen(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = [cosen.train((IMAGES, LABELS), method="baseline", **QUICK).path for _ in range(2)]
    assert [path.as_posix() for path in paths] == [
        "runs/arrays-baseline-0",
        "runs/arrays-baseline-0-2",
    ]


def test_a_stopped_run_is_resumed_with_its_objects(tmp_path):
    def stop(record):
        if record.epoch == 1:
            raise KeyboardInterrupt

    objects = {"data": (IMAGES, LABELS), "network": make_network(), "method": Smoothed(0.2)}
    options = {**QUICK, "epochs": 2}
    with pytest.raises(KeyboardInterrupt):
        cosen.train(out=tmp_path / "cut", callbacks=Callbacks(epoch=stop), **objects, **options)
    resumed = cosen.train(resume=tmp_path / "cut", **objects)
    whole = cosen.train(out=tmp_path / "whole", **objects, **options)
    assert len(resumed.history) == 2
    assert resumed.metrics == whole.metrics


def test_a_baseline_can_be_a_run(tmp_path):
    data = (IMAGES, LABELS)
    baseline = cosen.train(data, method="baseline", out=tmp_path / "baseline", **QUICK)
    run = cosen.train(data, method=Smote(2), baseline=baseline, out=tmp_path / "smote", **QUICK)
    assert not (run.path / "baseline").exists()
    assert run.record.baseline == str(baseline.path)


# Runs


def test_a_run_has_its_results(run):
    assert repr(run) == f"Run({str(run.path)!r})"
    assert run.record.config.method == "cosen"
    assert [record.epoch for record in run.history] == [1]
    assert run.metrics.samples + run.val_metrics.samples < sum(COUNTS)
    assert run.metrics == run.folder.metrics().test


def test_predict(run, tmp_path):
    folder = write_folder(tmp_path / "new")
    found = run.predict(folder, top=3)
    assert len(found) == len(LABELS)
    assert all(len(prediction.top) == 3 for prediction in found)
    # if the decision for class 2 never costs anything, all are class 2
    costs = [[0, 1, 0], [1, 0, 0], [1, 1, 0]]
    decisions = {each.decision for each in run.predict([folder], misclassification_costs=costs)}
    assert decisions == {"2"}
    with pytest.raises(DataError, match="no-such"):
        run.predict(tmp_path / "no-such.png")


def test_evaluate(run):
    assert run.evaluate() == run.metrics
    everything = run.evaluate((IMAGES, LABELS))
    assert everything.samples == sum(COUNTS)
    assert everything.error == pytest.approx(1 - everything.mean_recall)
    overall = run.evaluate(objective="overall")
    assert overall.error == pytest.approx(1 - run.metrics.accuracy)
    costs = [[0, 1, 1], [1, 0, 1], [4, 4, 0]]
    confusion = np.array(run.metrics.confusion)
    expected = (confusion * np.array(costs)).sum() / confusion.sum() / 4
    assert run.evaluate(objective=costs).error == pytest.approx(expected)
    with pytest.raises(InputError, match="objective"):
        run.evaluate(objective=[[0, 1], [1, 0]])


def test_report_and_export(run, study, tmp_path):
    page = run.report(tmp_path / "run.html")
    assert page.read_text().lower().startswith("<!doctype html>")
    compared = run.report(tmp_path / "both.html", against=study.run("baseline", 0))
    assert "compared with baseline" in compared.read_text()
    assert "compared with" not in page.read_text().split("</title>")[0]
    assert study.report(tmp_path / "study.html").exists()
    exported = study.export(tmp_path / "study.pt", card=True)
    assert f"method={study.choice.method}" in exported.card.read_text()
    pytest.importorskip("onnxruntime")
    run.export(tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").exists()


# Comparisons


def test_a_study_has_its_results(study):
    board, choice = study.leaderboard, study.choice
    assert repr(study) == f"Study({str(study.path)!r})"
    assert {row.method for row in board.rows} == {"baseline", "focal"}
    assert choice.method in ("baseline", "focal")
    assert str(choice).startswith(choice.sentence)
    assert "| focal | " in str(board)
    assert study.best.record.config.method == choice.method
    assert study.best.record.config.seed == choice.seeds[0] == 0
    assert study.best.path == study.run(choice.method).path
    with pytest.raises(InputError, match="has no method 'focl': did you mean 'focal'"):
        study.run("focl")
    with pytest.raises(RunError, match="is not a run folder"):
        study.run("focal", 9)


def test_the_best_run_predicts_with_the_own_network(study, tmp_path):
    Image.fromarray(IMAGES[0]).save(tmp_path / "new.png")
    assert study.best.predict([tmp_path / "new.png"])[0].decision in ("0", "1", "2")


@pytest.mark.parametrize("kind", ["path", "name", "arrays", "dataset"])
def test_compare_takes_data_of_all_kinds(tmp_path, here, kind):
    data, out = DATA[kind](tmp_path / "images"), tmp_path / "study"
    options = {**QUICK, "seeds": 1, "out": out}
    study = cosen.compare(data, methods="baseline", **options)
    assert [row.method for row in study.leaderboard.rows] == ["baseline"]
    assert study.best.metrics.samples
    outcomes = []
    callbacks = cosen.comparing.grid.CompareCallbacks(outcome=outcomes.append)
    cosen.compare(data, methods=["baseline"], callbacks=callbacks, **options)
    assert outcomes == []  # it is finished


@pytest.mark.parametrize("kind", ["module", "factory"])
def test_compare_takes_networks_of_all_kinds(tmp_path, here, kind):
    study = cosen.compare(
        (IMAGES, LABELS),
        methods=[],
        seeds=1,
        network=NETWORKS[kind](),
        out=tmp_path / "study",
        **QUICK,
    )
    assert study.best.record.prepared.network == "own"


def test_objects_go_to_other_processes(tmp_path):
    """A dataset, a network and a method whose classes are in this file."""

    class Net(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Flatten(), nn.Linear(64, 3))

    study = cosen.compare(
        OwnDataset(),
        methods=[Smoothed(0.2), Smote(neighbours=2)],
        seeds=1,
        network=Net(),
        workers=1,
        out=tmp_path / "study",
        **QUICK,
    )
    assert not any(row.failures for row in study.leaderboard.rows)
    assert {row.method for row in study.leaderboard.rows} == {
        *("baseline", "smoothed(amount=0.2)", "smote(neighbours=2)")
    }


def test_a_study_folder_is_chosen(tmp_path, here, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study = cosen.compare((IMAGES, LABELS), methods=[], seeds=1, epochs=1, device="cpu")
    assert study.path.as_posix() == "studies/arrays"
    assert study.folder.record().config.validation == 0.2


# Loading


def test_load(finished):
    run, study = finished
    loaded = cosen.load(run.path, network=make_network)
    assert isinstance(loaded, cosen.Run)
    assert loaded.metrics == run.metrics
    again = cosen.load(str(study.path), network=make_network())
    assert isinstance(again, cosen.Study)
    assert again.leaderboard == study.leaderboard
    assert json.loads(again.choice.model_dump_json())["method"] == again.choice.method
    with pytest.raises(RunError, match=r"is neither a run nor a study: it has no run\.json and no"):
        cosen.load(run.path.parent)


@pytest.mark.parametrize(
    ("given", "stored"),
    [("photos/", "photos"), ("photos", "photos"), ("digits/", "digits/"), ("/", "/")],
)
def test_a_slash_at_the_end_of_a_folder_makes_no_difference(given, stored):
    """``digits/`` is a folder, ``digits`` a dataset."""
    config, _ = api._settings(given, None, None, None, {})
    assert config.data == stored


def test_the_own_network_must_be_given_again(run, tmp_path):
    Image.fromarray(IMAGES[0]).save(tmp_path / "new.png")
    with pytest.raises((InputError, RunError), match="a custom network"):
        cosen.load(run.path).predict([tmp_path / "new.png"])


def test_inspect(capsys):
    found = cosen.inspect((IMAGES, LABELS))
    assert capsys.readouterr().out.strip() == str(found).strip()
    cosen.inspect(OwnDataset(), quiet=True)
    assert capsys.readouterr().out == ""


# Mistakes

TRAIN_MISTAKES = {
    "setting": ({"epoch": 1}, "there is no setting 'epoch': did you mean 'epochs'"),
    "value": ({"epochs": 0}, "epochs must be at least 1, but is 0"),
    "type": ({"lr": "fast"}, "lr must be a number, but is 'fast'"),
    "objective": ({"objective": "recall"}, "objective must be overall, balanced or a CSV"),
    "method": ({"method": "cosin"}, "there is no method 'cosin': did you mean 'cosen'"),
    "method-class": ({"method": Smote}, "method must be a name or a method object such as Smote"),
    "option": ({"method": "focal(beta=1)"}, "method focal has no option 'beta'"),
    "network": ({"network": "resnet"}, "there is no network 'resnet': did you mean 'resnet32'"),
    "network-object": ({"network": 3}, "network must be a name, a module, or a function"),
    "data": ({"data": 3}, "data must be a path, the name of a dataset, a tuple"),
    "data-name": ({"data": "digit"}, "digit is neither a folder"),
    "labels": ({"data": (IMAGES, LABELS[:-1])}, "60 images, but 59 labels"),
    "floats": ({"data": (IMAGES * 1.5, LABELS)}, r"float images must be in \[0, 1\]"),
    "class": ({"exclude": ["9"]}, "has no class '9'"),
}


@pytest.mark.parametrize("mistake", TRAIN_MISTAKES)
def test_a_mistake_is_one_error_and_leaves_nothing(tmp_path, mistake):
    given, message = TRAIN_MISTAKES[mistake]
    with pytest.raises((InputError, DataError), match=message) as raised:
        cosen.train(**({"data": (IMAGES, LABELS), "out": tmp_path / "run"} | QUICK | given))
    assert str(raised.value).count("\n") == 0
    assert not (tmp_path / "run").exists()


def test_compare_has_no_single_method(tmp_path):
    with pytest.raises(InputError, match="compare has no setting 'method': use methods"):
        cosen.compare((IMAGES, LABELS), method="cosen", out=tmp_path / "study")
    with pytest.raises(InputError, match="there is no setting 'seed_count'"):
        cosen.compare((IMAGES, LABELS), seed_count=3, out=tmp_path / "study")
    with pytest.raises(InputError, match="is not a method: pass a name, or an object"):
        cosen.compare((IMAGES, LABELS), methods=[Smote], out=tmp_path / "study")
    assert not (tmp_path / "study").exists()


def stop_after(epochs):
    def epoch(record):
        if record.epoch == epochs:
            raise KeyboardInterrupt

    return Callbacks(epoch=epoch)


def test_a_built_in_method_object_is_recorded_with_its_options_and_resumed_with_them(tmp_path):
    settings = QUICK | {"epochs": 2, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        cosen.train("digits", method=Cosen(margin=4), callbacks=stop_after(1), **settings)
    record = cosen.load(tmp_path / "run").record
    assert (record.config.method, record.config.options) == ("cosen", {"margin": 4})
    assert record.objects == ()
    run = cosen.train(resume=tmp_path / "run")
    assert run.folder.checkpoint()["loss"]["_extra_state"]["margin"] == 4


@pytest.mark.parametrize("name", ["data", "method", "network"])
def test_a_run_that_was_started_with_objects_needs_them_again(tmp_path, name):
    given = {"data": (IMAGES, LABELS), "method": Smoothed(0.2), "network": make_network}
    settings = QUICK | {"epochs": 2, "out": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        cosen.train(**given, callbacks=stop_after(1), **settings)
    others = {key: value for key, value in given.items() if key != name}
    with pytest.raises(RunError, match=f"was started with a {name} object: pass it again"):
        cosen.train(resume=tmp_path / "run", **others)
    assert len(cosen.train(resume=tmp_path / "run", **given).history) == 2


def test_a_resume_that_fails_keeps_the_run(tmp_path):
    data = IMAGES, LABELS
    run = cosen.train(data, method="wrf", out=tmp_path / "run", **QUICK)
    with pytest.raises(RunError, match="was started with a data object"):
        cosen.train(resume=run.path)
    with pytest.raises(RunError):
        cosen.train((IMAGES[::-1].copy(), LABELS[::-1].copy()), resume=run.path)
    assert cosen.load(run.path).metrics == run.metrics


def test_a_resumed_run_keeps_its_settings(run):
    with pytest.raises(InputError, match="keeps its settings: remove epochs"):
        cosen.train(resume=run.path, epochs=7)


def test_an_objective_may_be_an_object(tmp_path):
    costs = np.array([[0, 1, 1], [1, 0, 1], [5, 5, 0]])
    (tmp_path / "costs.csv").write_text("t,0,1,2\n0,0,1,1\n1,1,0,1\n2,5,5,0\n")
    errors = [
        cosen.train((IMAGES, LABELS), objective=goal, out=tmp_path / str(n), **QUICK).metrics.error
        for n, goal in enumerate((costs, cosen.Objective.of(costs), tmp_path / "costs.csv"))
    ]
    assert errors[0] == errors[1] == errors[2]
    run = cosen.load(tmp_path / "0")
    assert run.record.objective.matrix.tolist() == costs.tolist()
    assert run.evaluate(objective=tmp_path / "costs.csv").error == errors[0]
    overall = cosen.Objective.of("overall")
    run = cosen.train((IMAGES, LABELS), objective=overall, out=tmp_path / "overall", **QUICK)
    assert run.record.config.objective == "overall"
    with pytest.raises(InputError, match="objective"):
        cosen.train((IMAGES, LABELS), objective=np.eye(2), out=tmp_path / "bad", **QUICK)


def test_an_objective_object_is_used_in_the_search_for_options_and_never_lost(tmp_path):
    costs = np.array([[0, 1, 1], [1, 0, 1], [5, 5, 0]])
    (tmp_path / "costs.csv").write_text("t,0,1,2\n0,0,1,1\n1,1,0,1\n2,5,5,0\n")
    sentences = []
    for name, goal in {"object": costs, "csv": tmp_path / "costs.csv"}.items():
        run = cosen.train(
            (IMAGES, LABELS),
            method="cosen-paper(trials=1,folds=2)",
            objective=goal,
            out=tmp_path / name,
            **QUICK,
        )
        sentences.append(run.record.tuning.sentence)
    assert sentences[0] == sentences[1]
    record = cosen.load(tmp_path / "object").record
    assert record.objects == ("data", "objective")
    early = tmp_path / "early"  # as a run that was killed while it read its images
    early.mkdir()
    record.changed(data=None).write(early)
    with pytest.raises(RunError, match="stopped before it read its data"):
        cosen.train((IMAGES, LABELS), resume=early)


def test_a_study_has_one_network(tmp_path, here):
    settings = QUICK | {"seeds": 1, "out": tmp_path / "study"}
    cosen.compare((IMAGES, LABELS), methods=["focal"], network=make_network, **settings)
    with pytest.raises(RunError, match="the data or the network has changed"):
        cosen.compare((IMAGES, LABELS), methods=["focal"], **settings)


def test_options_of_built_in_objects_are_in_their_labels(tmp_path, here):
    methods = ["cosen", Cosen(margin=4)]
    study = cosen.compare(
        (IMAGES, LABELS), methods=methods, seeds=1, out=tmp_path / "study", **QUICK
    )
    assert set(study.folder.record().methods) == {"baseline", "cosen", "cosen(margin=4)"}


def test_training_leaves_the_global_random_state_alone(tmp_path):
    before = torch.get_rng_state()
    cosen.train((IMAGES, LABELS), out=tmp_path / "run", **QUICK)
    assert torch.equal(torch.get_rng_state(), before)
