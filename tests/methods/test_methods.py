"""Tests that every method must pass, on digits and with the real loop."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.svm import SVC

from cosen.errors import CosenError, DataError, InputError
from cosen.methods import (
    METHODS,
    ClassifierMethod,
    NetworkMethod,
    SamplingMethod,
    Setting,
    find_method,
    make_method,
)
from cosen.networks.network import Outputs
from cosen.networks.small import SmallCNN
from cosen.networks.vgg import VGG16Features
from cosen.training.config import TrainConfig
from cosen.training.loop import Callbacks
from cosen.training.model_file import load_model
from cosen.training.run import Inputs, train_run
from cosen.training.run_folder import RunFolder
from cosen.training.task import make_task
from run_contents import logits_of_test

CONFIG = {
    "data": "digits",
    "exclude": tuple("456789"),
    "imbalance": "odd:0.2",
    "epochs": 6,
    "device": "cpu",
    "precision": "float32",
}
NAMES = tuple("0123")
ALL = tuple(METHODS)
DRAWN = (
    "cosen",
    "weighted-sampling",
    "ldam-drw",
    "smote",
    "smote-rsb",
    "rus",
    "wrf",
    "sosr",
    "crt",
)
"""Methods with their own random choices, or with steps outside the loop."""

# the tests share the runs of one process
pytestmark = [pytest.mark.training, pytest.mark.xdist_group("methods")]


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """Run a method on four digits: ``grid(name)``. Each is trained once for all tests."""
    folder = tmp_path_factory.mktemp("grid")
    patch = pytest.MonkeyPatch()
    costs = folder / "costs.csv"
    with costs.open("w", newline="") as file:
        csv.writer(file).writerows([["", *NAMES], *([n, *[0.5] * 4] for n in NAMES)])

    def run(name, *, again=False, **settings):
        patch.setenv("COSEN_CACHE", str(folder / "cache"))
        options = {"costs": str(costs)} if name == "fixed-costs" else {}
        config = TrainConfig(**(CONFIG | {"method": name, "options": options} | settings))
        kind = "-".join(map(str, settings.values())).replace("/", "_")
        out = folder / f"{name}{'-again' if again else ''}{kind}"
        if not (out / "metrics.json").exists():
            needed = METHODS[name].starts_from_baseline and not settings
            baseline = run("baseline").path if needed else None
            train_run(config, out, inputs=Inputs(baseline=baseline))
        return RunFolder(out)

    yield run
    patch.undo()


@pytest.mark.parametrize("name", ALL)
def test_has_a_name_and_one_line(name):
    method = METHODS[name]
    assert method.name == name
    assert 10 < len(method.description) <= 80
    assert "\n" not in method.description
    assert method.__doc__


@pytest.mark.parametrize("name", ALL)
def test_learns(grid, name):
    run = grid(name)
    metrics, names = run.metrics(), run.image_names()
    if name != "cosen-mse":  # it is slow to leave its plateau
        assert metrics.test.accuracy > 0.65
    for part, outputs in run.predictions().items():
        assert outputs.logits.shape == (len(outputs.target), 4)
        assert outputs.logits.isfinite().all()
        assert len(getattr(names, part)) == getattr(metrics, part).samples
    assert run.record().seconds > 0


@pytest.mark.parametrize("name", DRAWN)
def test_repeats_itself(grid, name):
    first, second = grid(name), grid(name, again=True)
    assert torch.equal(logits_of_test(first), logits_of_test(second))


@pytest.mark.parametrize("name", ALL)
def test_all_methods_see_the_same_split(grid, name):
    data, baseline = grid(name).record().prepared, grid("baseline").record().prepared
    assert data.fingerprint == baseline.fingerprint
    assert data.class_counts.model_dump() == baseline.class_counts.model_dump()


@pytest.mark.parametrize("name", ALL)
def test_its_model_gives_its_predictions(grid, name):
    run = grid(name)
    if issubclass(METHODS[name], ClassifierMethod):
        assert not (run.path / "model.json").exists()
        return
    classifier, _ = load_model(run.path)
    task = make_task(TrainConfig(**CONFIG))
    images = torch.cat([b.inputs for b in task.batches(task.splits.test, batch_size=64)])
    with torch.inference_mode():
        logits = classifier(images)
    torch.testing.assert_close(logits, logits_of_test(run), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [n for n in ALL if n not in ("fixed-costs", "sosr")])
def test_refuses_a_single_class_and_an_empty_one(name):
    method = make_method(name)
    with pytest.raises(DataError, match=f"method {name} .*one class only: 'cat'"):
        method.check(Setting(torch.tensor([9]), ("cat",)))
    with pytest.raises(DataError, match=f"method {name} .*class 'dog' has none.*--exclude dog"):
        method.check(Setting(torch.tensor([9, 0, 9]), ("cat", "dog", "elk")))


@pytest.mark.parametrize("name", ALL)
def test_refuses_options_that_it_does_not_have(name):
    with pytest.raises(InputError, match=f"method {name} .*'?sizzle"):
        make_method(name, {"sizzle": 1})


@pytest.mark.parametrize("name", [n for n in ALL if issubclass(METHODS[n], SamplingMethod)])
def test_works_on_features_of_pretrained_weights_without_a_baseline(make_folder, tmp_path, name):
    from safetensors.torch import save_file

    torch.manual_seed(0)
    weights = tmp_path / "vgg.safetensors"
    save_file(VGG16Features().state_dict(), weights)
    config = TrainConfig(
        data=str(make_folder(cat=20, dog=10)),
        method=name,
        network="head",
        weights=str(weights),
        size=32,
        epochs=1,
        device="cpu",
    )
    run = train_run(config, tmp_path / name)
    assert not (run.path / "baseline").exists()
    classifier, info = load_model(run.path)
    assert info.features == "vgg16"
    assert classifier(torch.zeros(1, 3, 32, 32)).shape == (1, 2)


# Methods of the user


class Halved(NetworkMethod):
    """A user's method."""

    name = "halved"
    description = "half the cross-entropy"

    def make_loss(self, setting: Setting):
        assert setting.class_names == NAMES
        return HalfCrossEntropy()


class HalfCrossEntropy(torch.nn.Module):
    def forward(self, logits, target):
        return torch.nn.functional.cross_entropy(logits, target) / 2


def test_a_users_own_method(tmp_path):
    config = TrainConfig(**(CONFIG | {"epochs": 12}))
    run = train_run(config, tmp_path / "run", inputs=Inputs(method=Halved()))
    assert run.record().config.method == "halved"
    assert run.metrics().test.accuracy > 0.65


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smot", "there is no method 'smot': did you mean 'smote'\\? Choose from baseline, cosen"),
        ("nowhere_at_all:Method", "there is no module 'nowhere_at_all'"),
        ("json:Method", "the module 'json' has no 'Method'"),
        ("json:JSONDecoder", "json:JSONDecoder is not a method"),
        (":Mine", ":Mine is not module:name"),
        (".x:Mine", "is not module:name"),
        ("cosen.methods:SamplingMethod", "a method without resample"),
    ],
)
def test_a_name_that_is_not_a_method_is_refused(name, message):
    with pytest.raises(InputError, match=message):
        find_method(name)


def test_a_method_is_found_in_a_module():
    assert find_method("cosen.methods.resampling:Smote") is METHODS["smote"]


# Starting from a baseline


@pytest.mark.parametrize("name", ["crt", "smote", "fixed-m", "wsvm"])
def test_a_baseline_is_trained_first_if_none_is_given(grid, tmp_path, name):
    run = train_run(TrainConfig(**(CONFIG | {"method": name})), tmp_path / "run")
    assert (run.path / "baseline" / "metrics.json").exists()
    assert torch.equal(logits_of_test(run), logits_of_test(grid(name)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "other data or another split"),
        ({"network": "resnet32", "size": 8}, "is a small-cnn, not a resnet32"),
    ],
)
def test_a_baseline_that_does_not_fit_is_refused(grid, tmp_path, changes, message):
    config = TrainConfig(**(CONFIG | {"method": "crt"} | changes))
    with pytest.raises(CosenError, match=message):
        train_run(config, tmp_path / "run", inputs=Inputs(baseline=grid("baseline").path))


def test_a_run_of_another_method_is_no_baseline(grid, tmp_path):
    config = TrainConfig(**(CONFIG | {"method": "crt"}))
    with pytest.raises(CosenError, match="was trained with focal"):
        train_run(config, tmp_path / "run", inputs=Inputs(baseline=grid("focal").path))


def test_seconds_include_those_of_the_baseline(grid):
    assert grid("tau-norm").record().seconds > grid("baseline").record().seconds


def test_features_of_a_users_own_network_can_be_resampled(tmp_path):
    def own():
        return SmallCNN(4, channels=1)

    config = TrainConfig(**(CONFIG | {"method": "smote", "epochs": 2}))
    run = train_run(config, tmp_path / "run", inputs=Inputs(network=own))
    classifier, info = load_model(run.path, network=own)
    assert info.features == "own"
    assert classifier(torch.zeros(2, 1, 8, 8)).shape == (2, 4)


# Single methods


def trained(grid, name):
    return load_model(grid(name).path)[0].network


def test_crt_changes_the_output_layer_alone(grid):
    before, after = trained(grid, "baseline").state_dict(), trained(grid, "crt").state_dict()
    differing = {name for name in before if not torch.equal(before[name], after[name])}
    assert differing == {"output.weight", "output.bias"}


def test_logit_adjustment_subtracts_the_log_frequencies(grid):
    run, baseline = grid("logit-adjustment"), grid("baseline")
    counts = run.record().prepared.class_counts.train.float()
    expected = logits_of_test(baseline) - (counts / counts.sum()).log()
    torch.testing.assert_close(logits_of_test(run), expected)


def test_tau_normalisation_evens_out_norms():
    layer = torch.nn.Linear(5, 3)
    outputs = Outputs(torch.zeros(2, 3), torch.randn(2, 5), torch.tensor([0, 1]))
    setting = Setting(torch.tensor([9, 5, 1]), ("a", "b", "c"), baseline=outputs)
    make_method("tau-norm", {"tau": 1.0}).adjust(layer, setting)
    torch.testing.assert_close(layer.weight.norm(dim=1), torch.ones(3))
    assert not layer.bias.any()


def test_tau_is_chosen_for_mean_recall_on_validation():
    layer = torch.nn.Linear(2, 2, bias=True)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[4.0, 0], [0, 1]]))
    # at tau 0 both samples are of class 0: 4 * 1 > 1 * 1.5; at tau 1 the second is of class 1
    features = torch.tensor([[1.0, 0.5], [1.0, 1.5]])
    outputs = Outputs(torch.zeros(2, 2), features, torch.tensor([0, 1]))
    setting = Setting(torch.tensor([9, 1]), ("a", "b"), baseline=outputs)
    make_method("tau-norm").adjust(layer, setting)
    norms = layer.weight.norm(dim=1)
    # 4^(1 - tau) < 1.5 from tau = 0.71 on; the smallest is taken if errors are equal
    torch.testing.assert_close(norms, torch.tensor([4 ** (1 - 0.8), 1.0]))


def test_weights_of_ldam_are_deferred():
    method = make_method("ldam-drw", {"defer": 0.5})
    setting = Setting(torch.tensor([100, 10]), ("a", "b"))
    loss = method.make_loss(setting)
    method.begin_epoch(loss, setting, 0.49)
    assert torch.equal(loss.loss.weight, torch.ones(2))
    method.begin_epoch(loss, setting, 0.5)
    assert loss.loss.weight[1] > 5 * loss.loss.weight[0]


def test_the_cosine_output_of_ldam_is_saved_with_the_model(grid):
    network = trained(grid, "ldam-drw")
    with torch.inference_mode():
        logits = network(10 * torch.randn(4, 1, 8, 8)).logits
    assert logits.abs().max() <= 30.001
    assert not hasattr(network.output, "bias")


def test_class_weights_are_inverse_to_the_counts():
    loss = make_method("class-weights").make_loss(Setting(torch.tensor([90, 10]), ("a", "b")))
    torch.testing.assert_close(loss.loss.weight, torch.tensor([5 / 9, 5.0]))


@pytest.mark.parametrize("name", ["class-weights", "class-balanced", "ldam-drw"])
def test_weighted_losses_of_parts_add_up_to_that_of_the_whole(name):
    method, setting = make_method(name), Setting(torch.tensor([90, 10]), ("a", "b"))
    loss = method.make_loss(setting)
    method.begin_epoch(loss, setting, 1.0)
    logits, target = torch.randn(6, 2), torch.tensor([0, 0, 0, 1, 0, 1])
    parts = loss(logits[:4], target[:4]) * 4 / 6 + loss(logits[4:], target[4:]) * 2 / 6
    torch.testing.assert_close(parts, loss(logits, target))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "cosen",
            {"output": "round"},
            "output of method cosen must be one of auto, linear",
        ),
        ("focal", {"gamma": "abc"}, "option gamma of method focal must be a finite number"),
        ("focal", {"gamma": -1.0}, "method focal: gamma must not be negative|gamma"),
        ("class-balanced", {"beta": 1.0}, "method class-balanced: beta"),
        ("balanced-softmax", {"tau": float("inf")}, "must be a finite number"),
        ("sosr", {"most": -1}, "method sosr: most"),
        ("fixed-h", {"relative_to": "foo"}, "must be one of total, largest"),
        ("wsvm", {"C": 0}, "method wsvm: C"),
        ("wsvm", {"kernel": "foo"}, "must be one of linear, rbf"),
        ("wrf", {"trees": 0}, "trees must be at least 1"),
        ("wrf", {"trees": 2.5}, "option trees of method wrf must be a whole number"),
        ("smote", {"neighbours": 2.5}, "must be a whole number"),
        ("smote", {"neighbours": 0}, "neighbours must be at least 1"),
        ("smote-rsb", {"similarity": 2}, "similarity must lie in"),
        ("ldam-drw", {"beta": 1}, "method ldam-drw: beta"),
        ("tau-norm", {"tau": float("nan")}, "must be a finite number"),
        ("logit-adjustment", {"tau": "abc"}, "must be a finite number"),
        ("weighted-sampling", {"power": 1000}, "power must lie in"),
        ("baseline", {"label_smoothing": 2}, "method baseline: label_smoothing"),
        ("cosen", {"cost_lr": "abc"}, "method cosen"),
        ("cosen", {"acceptance": "revert"}, "option of the paper's .* use --method cosen-paper"),
        ("cosen", {"loss": "hinge"}, "use cosen-hinge or cosen-mse"),
        (
            "cosen",
            {"margn": 1},
            "no option .margn.: did you mean .margin.. Choose from output, ",
        ),
        ("cosen", {"margin": "abc"}, "option margin of method cosen must be a number, but is 'abc"),
        ("cosen", {"learn_tau": 1}, "must be true or false, but is 1"),
        (
            "cosen-paper",
            {"cost_lt": 1},
            "did you mean 'cost_lr'. Choose from trials, folds, cost_lr",
        ),
        ("cosen-paper", {"separability_every": 1.5}, "must be a whole number"),
        (
            "cosen-hinge",
            {"sigma": 1},
            "method cosen-hinge has no option 'sigma': choose from cost_lr",
        ),
    ],
)
def test_bad_options_are_refused_at_once(name, options, message):
    with pytest.raises(InputError, match=message):
        make_method(name, options)


@pytest.mark.parametrize(("name", "even"), [("weighted-sampling", True), ("baseline", False)])
def test_classes_are_drawn_equally_often_with_weighted_sampling(name, even):
    task = make_task(TrainConfig(**CONFIG))
    method = make_method(name)
    setting = Setting(task.splits.train.class_counts, NAMES)
    order = torch.Generator().manual_seed(0)
    draws = method.class_draws(setting)
    seen = np.zeros(4)
    for _ in range(20):
        batches = task.batches(task.splits.train, batch_size=64, order=order, class_draws=draws)
        for batch in batches:
            seen += np.bincount(batch.target.numpy(), minlength=4)
    assert (seen.min() / seen.max() > 0.85) == even


def test_smote_trains_on_equally_large_classes():
    features = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    labels = np.repeat([0, 1], [30, 10])
    _, more = make_method("smote").resample(features, labels, Setting(torch.tensor([30, 10]), "ab"))
    assert np.bincount(more).tolist() == [30, 30]
    _, fewer = make_method("rus").resample(features, labels, Setting(torch.tensor([30, 10]), "ab"))
    assert np.bincount(fewer).tolist() == [10, 10]


@pytest.mark.parametrize("name", ["smote", "smote-rsb"])
def test_too_few_samples_for_smote_are_refused_before_training(tmp_path, name):
    config = TrainConfig(**(CONFIG | {"method": name, "imbalance": "odd:4"}))
    with pytest.raises(
        DataError, match=f"method {name} needs at least 6 .*class '[13]' has 2: lower"
    ):
        train_run(config, tmp_path / "run")
    assert not (tmp_path / "run" / "baseline").exists()
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("name", ["smote", "rus", "smote-rsb", "wsvm", "wrf"])
def test_features_that_are_not_finite_are_refused(name):
    features = np.zeros((20, 3), np.float32)
    features[15, 1] = np.nan
    context = SimpleNamespace(
        setting=Setting(torch.tensor([10, 10]), ("cat", "dog")),
        is_first_process=True,
        on_features=lambda: context,
        samples=lambda part: (features, np.repeat([0, 1], 10)),
    )
    with pytest.raises(DataError) as caught:
        make_method(name).run(context)
    assert str(caught.value) == (
        f"method {name} needs finite features, but 1 of 20 training samples have NaN or infinite "
        "ones, the first of class 'dog': fix these samples, or use the features of a network whose "
        "training has not diverged"
    )


@pytest.mark.parametrize("name", ["wsvm", "wrf"])
def test_classifiers_weigh_rare_classes(name):
    """Overlapping classes, one ten times as frequent: weights are needed to find the other."""
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1], [400, 40])
    features = generator.normal(size=(440, 2)).astype(np.float32) + 1.2 * labels[:, None]
    scores = make_method(name).fit(features, labels, Setting(torch.tensor([400, 40]), "ab"))
    assert scores(features).shape == (440, 2)
    test_labels = np.repeat([0, 1], 500)
    test = generator.normal(size=(1000, 2)).astype(np.float32) + 1.2 * test_labels[:, None]
    plain = SVC(kernel="linear") if name == "wsvm" else RandomForestClassifier(300, random_state=0)
    unweighted = plain.fit(features, labels).predict(test)
    rare = slice(500, None)
    assert (scores(test).argmax(1)[rare] == 1).mean() > (unweighted[rare] == 1).mean() + 0.05


def test_statistics_of_the_baseline_become_costs():
    logits = torch.tensor([[2.0, 0], [2, 0], [2, 0], [0, 2]])
    outputs = Outputs(logits, torch.randn(4, 3), torch.tensor([0, 0, 1, 1]))
    setting = Setting(torch.tensor([9, 9]), ("a", "b"), baseline=outputs)
    bare = make_method("fixed-m", {"reading": "statistic"}).make_loss(setting).costs
    torch.testing.assert_close(bare, torch.tensor([[1, 1e-6], [0.5, 0.5]]))
    factor = make_method("fixed-m", {"mean": 1.0, "std": 0.5}).make_loss(setting).costs
    expected = torch.tensor([[0, 1], [0.5, 0.5]]).square().div(-2 * 0.25).exp()
    torch.testing.assert_close(factor, expected)
    separability = make_method("fixed-s", {"reading": "statistic"}).make_loss(setting).costs
    assert separability.diagonal().tolist() == [1, 1]


def test_costs_of_sosr_are_dearer_for_rare_classes():
    setting = Setting(torch.tensor([900, 100]), ("a", "b"), seed=3)
    draws = [
        make_method("sosr").make_loss(Setting(setting.class_counts, "ab", seed=seed))
        for seed in range(200)
    ]
    mean = torch.stack([loss.misclassification_costs for loss in draws]).mean(0)
    torch.testing.assert_close(mean, torch.tensor([[0, 0.5 / 9], [4.5, 0]]), rtol=0.15, atol=0.01)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["", "a", "b"], ["a", 1, 0], ["b", 1, 1]], "has 0 for true class 'a' and output 'b'"),
        ([["", "a", "b"], ["a", 1, 1], ["b", 2, 1]], "has 2 for true class 'b' and output 'a'"),
        ([["", "a"], ["a", 1]], "a column and a line for every class, but lacks 'b'"),
        ([["", "a", "b"], ["a", 1], ["b", 1, 1]], "a number in every cell"),
    ],
)
def test_bad_costs_in_a_csv_are_refused(tmp_path, rows, message):
    path = tmp_path / "costs.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    method = make_method("fixed-costs", {"costs": str(path)})
    with pytest.raises(InputError, match=f"method fixed-costs.*{message}"):
        method.check(Setting(torch.tensor([5, 5]), ("a", "b")))


@pytest.mark.parametrize("name", ["smote", "crt", "ldam-drw", "weighted-sampling"])
def test_a_resumed_run_ends_as_one_never_interrupted(grid, tmp_path, name):
    def stop(record):
        if record.epoch == 4:
            raise KeyboardInterrupt

    config = TrainConfig(**(CONFIG | {"method": name}))
    needed = METHODS[name].starts_from_baseline
    baseline = grid("baseline").path if needed else None
    inputs, callbacks = Inputs(baseline=baseline), Callbacks(epoch=stop)
    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "run", inputs=inputs, callbacks=callbacks)
    run = train_run(config, tmp_path / "run", resume=True)  # it knows its baseline
    assert torch.equal(logits_of_test(run), logits_of_test(grid(name)))
    assert len(run.history()) == CONFIG["epochs"]


def test_a_baseline_of_other_settings_in_the_folder_is_not_used(tmp_path):
    """A baseline from a first attempt with other settings is trained again."""
    out = tmp_path / "run"
    train_run(TrainConfig(**(CONFIG | {"method": "tau-norm", "epochs": 1})), out)
    for name in ("run.json", "metrics.json"):
        (out / name).unlink()
    train_run(TrainConfig(**(CONFIG | {"method": "tau-norm", "epochs": 2})), out)
    assert len(RunFolder(out / "baseline").history()) == 2


def test_a_baseline_for_a_method_that_needs_none_is_refused(grid, tmp_path):
    with pytest.raises(InputError, match="method focal does not use a baseline"):
        train_run(
            TrainConfig(**(CONFIG | {"method": "focal"})),
            tmp_path / "run",
            inputs=Inputs(baseline=grid("baseline").path),
        )
