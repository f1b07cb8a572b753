"""Bad input raises one sentence that names the estimator and the class, before training."""

import numpy as np
import pandas as pd
import pytest

from cosen.errors import InputError
from cosen.sklearn import CosenClassifier

pytestmark = pytest.mark.training

ONE_ZERO = np.ones((3, 3))
ONE_ZERO[0, 2] = 0


@pytest.fixture
def no_training(monkeypatch):
    """Fail a test that makes a network."""
    monkeypatch.setattr(
        CosenClassifier, "_make_network", lambda self: pytest.fail("training has begun")
    )


def refusal(model, X, y, **options) -> str:
    with pytest.raises(InputError) as caught:
        model.fit(X, y, **options)
    message = str(caught.value)
    assert "CosenClassifier" in message
    assert "\n" not in message
    return message


def test_one_class_only(quick, blobs, no_training):
    X, _ = blobs
    message = refusal(quick(), X, ["cat"] * len(X))
    assert message.endswith("at least two classes, but y has one class only: 'cat'")


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (-np.inf, "infinity")])
def test_features_that_are_not_finite(quick, blobs, no_training, value, name):
    X, y = blobs
    X = X.copy()
    sample = y.tolist().index("eel")
    X[sample, 2] = value
    message = refusal(quick(), X, y)
    assert message.startswith(f"Input X contains {name}: CosenClassifier needs finite numbers")
    assert f"sample {sample} of class 'eel' has {name} in feature 2;" in message
    frame = pd.DataFrame(X, columns=["height", "width", "weight", "age", "speed"])
    for kind in ("float64", "float32", "Float64"):
        assert f"'eel' has {name} in feature 'weight';" in refusal(quick(), frame.astype(kind), y)


def test_images_that_are_not_finite(quick, digits, no_training):
    images, y = digits
    images = images.copy()
    images[4, 1, 7] = np.nan
    for options in ({}, {"network": "head"}):
        message = refusal(quick(**options), images, y)
        assert f"sample 4 of class {y[4]} has NaN in pixel (1, 7);" in message


def test_prediction_of_samples_that_are_not_finite(quick, blobs):
    X, y = blobs
    model = quick(epochs=1).fit(X, y)
    X = X.copy()
    X[7, 0] = np.nan
    with pytest.raises(InputError, match=r"CosenClassifier .* sample 7 has NaN in feature 0;"):
        model.predict(X)


@pytest.mark.parametrize(
    ("costs", "end"),
    [
        (np.ones((2, 2)), "each of the classes 'cat', 'dog', 'eel', but have (2, 2)"),
        (np.ones((3, 4)), "each of the classes 'cat', 'dog', 'eel', but have (3, 4)"),
        (np.ones(3), "each of the classes 'cat', 'dog', 'eel', but have (3,)"),
        (ONE_ZERO, "must lie in (0, 1], but the cost of true class 'cat' and output 'eel' is 0"),
        (ONE_ZERO.T * 2, "the cost of true class 'cat' and output 'cat' is 2"),
        (np.full((3, 3), np.nan), "the cost of true class 'cat' and output 'cat' is nan"),
        (np.full((3, 3), -0.5), "the cost of true class 'cat' and output 'cat' is -0.5"),
        (
            {"cow": 2.0},
            "weight for class 'cow', which is not in y; its classes are 'cat', 'dog', 'eel'",
        ),
        ({"dog": -1.0}, "must be positive and finite, but class 'dog' has -1.0"),
        ({"dog": 0}, "must be positive and finite, but class 'dog' has 0"),
        ({"dog": np.inf}, "must be positive and finite, but class 'dog' has inf"),
        ({"dog": "heavy"}, "must be positive and finite, but class 'dog' has 'heavy'"),
    ],
    ids=str,
)
def test_costs(quick, blobs, no_training, costs, end):
    message = refusal(quick(costs), *blobs)
    assert "costs of CosenClassifier" in message
    assert message.endswith(end)


def test_many_classes_are_not_all_listed(quick, no_training):
    y = np.arange(100) % 25
    message = refusal(quick(np.ones((2, 2))), np.zeros((100, 1)), y)
    assert "classes 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 15 more, but have" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"costs": [["a"]]}, "costs of CosenClassifier must be a matrix of numbers"),
        (
            {"costs": "S"},
            "costs of CosenClassifier must be one of adaptive, learned, H, None, .* is 'S'",
        ),
        ({"loss": "log"}, "loss of CosenClassifier must be one of cross_entropy, hinge, mse"),
        ({"network": "vgg"}, "network of CosenClassifier must be one of auto, head, small-cnn"),
        ({"network": "small-cnn"}, r"takes images .* but X has \(100, 5\)"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"epochs": "ten"}, "epochs must be a whole number, but is 'ten'"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"hidden": 0}, "hidden must be at least 1"),
        ({"lr": 0.0}, "lr must be finite and positive"),
        ({"lr": "fast"}, "lr must be a number, but is 'fast'"),
        ({"device": "foo"}, "device 'foo' cannot be used: "),
        ({"device": 3.5}, "device 3.5 cannot be used: "),
        ({"weight_decay": -1.0}, "weight_decay must be finite and not negative"),
        ({"validation_fraction": 1.0}, "validation_fraction must lie between 0 and 1"),
        ({"objective": np.ones((3, 3))}, "zero diagonal"),
        ({"objective": np.zeros((3, 3))}, "costs in objective are all zero"),
        (
            {"costs": pd.DataFrame(np.ones((3, 3)), index=list("abc"), columns=list("abc"))},
            "for each of the classes 'cat', 'dog', 'eel', but have the rows 'a', 'b', 'c' and",
        ),
        ({"acceptance": "never"}, "acceptance must be one of"),
        ({"costs": "adaptive", "acceptance": "never"}, "acceptance must be one of"),
        ({"cost_lr": 2.0}, "cost_lr must lie in"),
        ({"confusion_std": 0.0}, "confusion_std positive"),
    ],
)
def test_options(quick, blobs, no_training, options, message):
    with pytest.raises(InputError, match=message):
        quick(**options).fit(*blobs)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": 1e30}, "the training of CosenClassifier diverged: use a lower lr"),
        ({"objective": "best"}, "objective must be 'overall', 'balanced' or a matrix"),
    ],
)
def test_errors_during_training(quick, blobs, options, message):
    with pytest.raises(InputError, match=message):
        quick(**options).fit(*blobs)


@pytest.mark.parametrize(
    ("weight", "end"),
    [
        (np.ones(7), "must have the shape (100,), one weight per sample, but has (7,)"),
        (np.ones((100, 1)), "must have the shape (100,), one weight per sample, but has (100, 1)"),
        (np.r_[np.ones(99), -1], "must be finite and not negative, but sample 99 has -1"),
        (np.r_[np.nan, np.ones(99)], "must be finite and not negative, but sample 0 has nan"),
        (np.r_[1, np.inf, np.ones(98)], "must be finite and not negative, but sample 1 has inf"),
        (np.zeros(100), "must not be zero for all samples"),
        (["heavy"] * 100, "must be numbers: could not convert string to float: 'heavy'"),
    ],
    ids=str,
)
def test_sample_weight(quick, blobs, no_training, weight, end):
    message = refusal(quick(), *blobs, sample_weight=weight)
    assert message.startswith("sample_weight of CosenClassifier")
    assert message.endswith(end)


def test_weights_that_leave_one_class(quick, blobs, no_training):
    X, y = blobs
    message = refusal(quick(), X, y, sample_weight=y == "cat")
    assert message.endswith("at least two classes, but y has one class only: 'cat'")


def test_labels(quick, blobs, no_training):
    X, y = blobs
    message = refusal(quick(), X, np.where(y == "cat", None, y.astype(object)))
    assert message.endswith("but y has NoneType and str")
    with pytest.raises(ValueError, match="NaN"):
        quick().fit(X, np.where(y == "cat", np.nan, 1.0))


def test_shapes(quick, blobs, digits):
    X, y = blobs
    with pytest.raises(ValueError, match="expecting 5 features"):
        quick().fit(X, y).predict(X[:, :4])
    images, labels = digits
    with pytest.raises(InputError, match="one or three channels"):
        quick().fit(np.repeat(images[..., None], 2, axis=3), labels)
    with pytest.raises(InputError, match="at least 4 x 4 pixels"):
        quick().fit(images[:, :3], labels)
    model = quick(epochs=1).fit(images, labels)
    for narrow in (images[:, :, :6], list(images[:, :, :6])):
        with pytest.raises(InputError, match=r"fitted with samples of the shape \(8, 8\)"):
            model.predict(narrow)
