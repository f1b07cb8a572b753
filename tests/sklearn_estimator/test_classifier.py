"""Behaviour of the estimator that scikit-learn's checks do not cover."""

import doctest
import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_blobs, make_classification
from sklearn.metrics import recall_score
from sklearn.model_selection import train_test_split

from cosen import CostLearner
from cosen import functional as F
from cosen.sklearn import CosenClassifier
from cosen.sklearn.inputs import hold_out

pytestmark = pytest.mark.training

DOCS = Path(__file__).parents[2] / "docs"


def test_labels_come_back_as_they_were(quick, blobs):
    X, y = blobs
    model = quick().fit(X, y)
    assert model.classes_.tolist() == ["cat", "dog", "eel"]
    assert set(model.predict(X)) <= set(y)
    assert model.score(X, y) > 0.8
    for labels in (y.astype(object), np.searchsorted(model.classes_, y) * 7 - 3, y == "cat"):
        assert quick().fit(X, labels).predict(X).dtype == labels.dtype


def test_what_a_fit_leaves(quick, blobs):
    X, y = blobs
    model = quick(separability_std=1.0, verbose=False).fit(X, y)
    assert model.costs_.shape == (3, 3)
    assert model.n_features_in_ == 5
    assert model.n_iter_ == len(model.loss_curve_) == len(model.validation_errors_) == 10
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    assert quick(None).fit(X, y).validation_errors_ == []


def test_probabilities_decisions_and_classes_agree(quick, blobs):
    X, y = blobs
    model = quick().fit(X, y)
    logits, chances = model.decision_function(X), model.predict_proba(X)
    np.testing.assert_allclose(chances, torch.tensor(logits).softmax(1))
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(chances))
    assert (model.predict_proba(1e6 * X) == 0).any()
    assert np.isfinite(model.predict_log_proba(1e6 * X)).all()
    assert (model.classes_[logits.argmax(1)] == model.predict(X)).all()
    two = quick().fit(X, y == "cat")
    margin = two.decision_function(X)
    np.testing.assert_allclose(two.predict_proba(X)[:, 1], 1 / (1 + np.exp(-margin)))
    assert ((margin > 0) == two.predict(X)).all()


def test_scale_of_features_does_not_matter(quick, blobs):
    X, y = blobs
    far = X * [1, 1e-6, 1e6, 10, 100] + [0, 5, -1e8, 0, 3]
    np.testing.assert_allclose(
        quick().fit(X, y).predict_proba(X), quick().fit(far, y).predict_proba(far), atol=1e-3
    )


@pytest.mark.parametrize("layout", ["(n, h, w)", "(n, h, w, 1)", "(n, 1, h, w)", "(n, 3, h, w)"])
def test_images(quick, digits, layout):
    images, y = digits
    X = {
        "(n, h, w)": images,
        "(n, h, w, 1)": images[..., None],
        "(n, 1, h, w)": images[:, None],
        "(n, 3, h, w)": np.repeat(images[:, None], 3, axis=1).astype(np.uint8),
    }[layout]
    model = quick(epochs=4).fit(X, y)
    assert type(model.network_).__name__ == "SmallCNN"
    assert model.score(X, y) > 0.95
    np.testing.assert_allclose(model.predict_proba(X[:1]), model.predict_proba(X)[:1], atol=1e-4)


def test_images_can_go_to_the_head(quick, digits):
    images, y = digits
    flat = quick().fit(images.reshape(len(images), -1), y)
    model = quick(network="head").fit(images, y)
    np.testing.assert_array_equal(
        model.decision_function(images), flat.decision_function(images.reshape(len(images), -1))
    )


def test_costs_of_each_kind(quick, blobs):
    X, y = blobs
    given = np.full((3, 3), 0.5)
    h = np.array([0.6, 0.3, 0.1])
    models = {
        "none": quick(None),
        "H": quick("H"),
        "learned": quick(),
        "matrix": quick(given),
        "weights": quick({"eel": 5.0}),
    }
    models = {name: model.set_params(epochs=30).fit(X, y) for name, model in models.items()}
    costs = {name: model.costs_ for name, model in models.items()}
    np.testing.assert_array_equal(costs["none"], 1)
    np.testing.assert_allclose(costs["H"], np.maximum(h[:, None], h), rtol=1e-6)
    assert costs["learned"][2, 2] < costs["learned"][0, 0] < 1
    np.testing.assert_array_equal(costs["matrix"], 0.5)
    np.testing.assert_array_equal(costs["weights"], 1)
    assert models["weights"].class_weight_.tolist() == [1, 1, 5]
    logits = {name: model.decision_function(X) for name, model in models.items()}
    np.testing.assert_allclose(logits["matrix"], logits["none"], atol=1e-2)  # only ratios matter
    for name in ("H", "learned", "weights"):
        assert np.abs(logits[name] - logits["none"]).max() > 0.1, name


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy, pd.DataFrame, np.ndarray.tolist])
def test_a_matrix_may_be_of_any_kind_and_is_copied(quick, blobs, kind):
    matrix = np.full((3, 3), 0.5, np.float32)
    model = quick(kind(matrix), epochs=1).fit(*blobs)
    matrix[:] = 1
    np.testing.assert_array_equal(model.costs_, 0.5)


def test_a_frame_with_the_names_of_the_classes_is_put_in_their_order(quick, blobs):
    order = ["eel", "cat", "dog"]
    matrix = np.arange(1, 10).reshape(3, 3) / 10
    model = quick(pd.DataFrame(matrix, index=order, columns=order), epochs=1).fit(*blobs)
    assert model.classes_.tolist() == ["cat", "dog", "eel"]
    np.testing.assert_allclose(model.costs_, matrix[np.ix_([1, 2, 0], [1, 2, 0])])
    two = pd.DataFrame([[1.0, 0.5], [0.25, 1.0]])
    is_cat = quick(two, epochs=1).fit(blobs[0], blobs[1] == "cat")
    np.testing.assert_allclose(is_cat.costs_, two)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("cross_entropy", F.cost_sensitive_cross_entropy),
        ("hinge", F.cost_sensitive_hinge),
        ("mse", F.cost_sensitive_mse),
    ],
)
def test_training_uses_the_losses_of_the_package(blobs, name, function):
    """One batch and a learning rate of almost 0: the loss is that of the logits afterwards."""
    X, y = blobs
    target = torch.from_numpy(np.unique(y, return_inverse=True)[1])
    costs = torch.rand(3, 3, generator=torch.Generator().manual_seed(0)).clamp(min=0.1)
    still = {"loss": name, "epochs": 1, "batch_size": 100, "lr": 1e-12, "random_state": 0}
    model = CosenClassifier(costs, **still).fit(X, y)
    logits = torch.from_numpy(model.decision_function(X)).float()
    assert model.loss_curve_ == pytest.approx([float(function(logits, target, costs))], rel=1e-4)

    weight = torch.tensor([1.0, 2.0, 3.0])
    model = CosenClassifier({"dog": 2.0, "eel": 3.0}, **still).fit(X, y)
    losses = function(logits, target, torch.ones(3, 3), reduction="none") * weight[target]
    expected = float(losses.sum() / weight[target].sum())
    assert model.loss_curve_ == pytest.approx([expected], rel=1e-4)


@pytest.mark.parametrize("loss", ["hinge", "mse"])
@pytest.mark.parametrize("costs", ["adaptive", "learned", "H", {"eel": 3.0}])
def test_other_losses_learn(quick, blobs, loss, costs):
    X, y = blobs
    assert quick(costs, loss=loss, epochs=30).fit(X, y).score(X, y) > 0.8


def test_costs_raise_the_recall_of_a_rare_class():
    kinds = {
        "none": {"costs": None},
        "H": {"costs": "H"},
        "adaptive": {"costs": "adaptive"},
        "learned": {"costs": "learned"},
        "weights": {"costs": {1: 19.0}},
    }
    recall = {name: [] for name in kinds}
    for seed in range(3):
        X, y = make_classification(
            1500, 20, n_informative=6, weights=[0.95], class_sep=0.8, random_state=seed
        )
        X, X_test, y, y_test = train_test_split(X, y, stratify=y, test_size=0.5, random_state=seed)
        for name, options in kinds.items():
            model = CosenClassifier(**options, epochs=30, random_state=seed).fit(X, y)
            recall[name].append(recall_score(y_test, model.predict(X_test)))
    mean = {name: np.mean(values) for name, values in recall.items()}
    assert min(mean[name] for name in mean if name != "none") > mean["none"] + 0.03, mean


def test_objective_may_be_misclassification_costs(quick, blobs):
    X, y = blobs
    errors = quick(objective=1 - np.eye(3)).fit(X, y).validation_errors_
    assert errors == pytest.approx(quick().fit(X, y).validation_errors_)


def test_small_classes_stay_in_training(quick):
    labels = np.repeat([0, 1, 2, 3, 4], [100, 4, 3, 2, 1])
    mask = hold_out(labels, share=0.1, order=torch.Generator().manual_seed(0)).numpy()
    assert np.bincount(labels[mask], minlength=5).tolist() == [10, 2, 1, 0, 0]
    X, y = make_blobs([50, 1], random_state=0)
    assert quick().fit(X, y).costs_.shape == (2, 2)
    errors = quick().fit([[0.0], [1.0]], [0, 1]).validation_errors_  # validated on the training set
    assert errors[-1] == 0


def test_random_state_alone_decides(quick, blobs):
    X, y = blobs
    states = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    threads = torch.get_num_threads()
    first, second = (quick().fit(X, y).predict_proba(X) for _ in range(2))
    quick(random_state=None).fit(X, y)
    quick(random_state=np.random.RandomState(0)).fit(X, y)
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, quick(random_state=1).fit(X, y).predict_proba(X))
    np.testing.assert_array_equal(np.random.get_state()[1], states[0])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[1])
    assert torch.get_num_threads() == threads


def test_fits_in_threads_agree_and_restore_the_number_of_threads(quick, blobs):
    X, y = blobs
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(3) as pool:
            models = list(pool.map(lambda _: quick().fit(X, y), range(6)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    for model in models[1:]:
        np.testing.assert_array_equal(model.predict_proba(X), models[0].predict_proba(X))


def test_defaults_are_the_learners():
    ours, learners = (inspect.signature(kind).parameters for kind in (CosenClassifier, CostLearner))
    shared = (ours.keys() & learners.keys()) - {"objective"}  # here classes have equal weight
    assert {"loss", "cost_lr", "acceptance", "confusion_std"} < shared
    assert {name: ours[name].default for name in shared} == {
        name: learners[name].default for name in shared
    }


def test_verbose_prints_each_epoch(quick, blobs, capsys):
    quick(epochs=2, verbose=True).fit(*blobs)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("epoch 2 of 2: loss ")
    assert "validation error" in lines[1]
    quick("H", epochs=1, verbose=True).fit(*blobs)
    assert "validation error" not in capsys.readouterr().out


def test_the_example_in_the_documentation_runs():
    failed, tried = doctest.testfile(str(DOCS / "sklearn.md"), module_relative=False)
    assert tried > 5
    assert not failed
