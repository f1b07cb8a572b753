"""Sample weights: what they change, and what they must not change."""

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import recall_score

pytestmark = pytest.mark.training

KINDS = ["adaptive", "learned", "H", None, {"eel": 3.0}]


def uneven(y):
    """A different weight for each sample."""
    return np.random.default_rng(0).uniform(0.5, 2.0, len(y))


@pytest.mark.parametrize("costs", KINDS, ids=str)
@pytest.mark.parametrize("weight", [1.0, 7.3])
def test_equal_weights_equal_no_weights(quick, blobs, costs, weight):
    X, y = blobs
    plain = quick(costs).fit(X, y).decision_function(X)
    for weights in (np.full(len(y), weight), weight):
        weighted = quick(costs).fit(X, y, sample_weight=weights).decision_function(X)
        np.testing.assert_array_equal(weighted, plain)


@pytest.mark.parametrize("costs", KINDS, ids=str)
def test_weight_zero_equals_removing_the_sample(quick, blobs, costs):
    X, y = blobs
    kept = np.random.default_rng(1).random(len(y)) < 0.7
    for weight in (np.ones(len(y)), uneven(y)):
        zero = quick(costs).fit(X, y, sample_weight=weight * kept)
        removed = quick(costs).fit(X[kept], y[kept], sample_weight=weight[kept])
        np.testing.assert_array_equal(zero.decision_function(X), removed.decision_function(X))
        assert zero.loss_curve_ == removed.loss_curve_


@pytest.mark.parametrize("costs", KINDS, ids=str)
@pytest.mark.parametrize("loss", ["cross_entropy", "hinge"])
def test_doubling_all_weights_changes_nothing(quick, blobs, costs, loss):
    X, y = blobs
    once = quick(costs, loss=loss).fit(X, y, sample_weight=uneven(y))
    twice = quick(costs, loss=loss).fit(X, y, sample_weight=2 * uneven(y))
    np.testing.assert_array_equal(once.decision_function(X), twice.decision_function(X))


def test_uneven_weights_change_the_fit(quick, blobs):
    X, y = blobs
    plain = quick().fit(X, y).decision_function(X)
    weighted = quick().fit(X, y, sample_weight=uneven(y)).decision_function(X)
    assert np.abs(plain - weighted).max() > 0.01


def test_a_heavier_class_gets_more_recall(quick):
    X, y = make_classification(
        1500, 20, n_informative=6, weights=[0.8], class_sep=0.8, random_state=0
    )
    recalls = [
        recall_score(
            y[750:],
            quick(None, epochs=20)
            .fit(X[:750], y[:750], sample_weight=np.where(y[:750] == 1, heavy, 1.0))
            .predict(X[750:]),
        )
        for heavy in (0.2, 1.0, 10.0)
    ]
    assert recalls[0] + 0.1 < recalls[1] < recalls[2] - 0.1, recalls


def test_class_weights_and_sample_weights_multiply(quick, blobs):
    X, y = blobs
    weight = uneven(y)
    both = quick({"eel": 4.0, "dog": 2.0}).fit(X, y, sample_weight=weight)
    factors = np.select([y == "eel", y == "dog"], [4.0, 2.0], 1.0)
    product = quick(None).fit(X, y, sample_weight=weight * factors)
    np.testing.assert_allclose(
        both.decision_function(X), product.decision_function(X), rtol=1e-4, atol=1e-4
    )
    assert both.class_weight_.tolist() == [1, 2, 4]


def test_lists_and_integers_are_weights(quick, blobs):
    X, y = blobs
    weight = np.arange(len(y)) % 3
    fits = [
        quick(None).fit(X, y, sample_weight=weights).decision_function(X)
        for weights in (weight, weight.tolist(), weight.astype(np.float64))
    ]
    np.testing.assert_array_equal(fits[0], fits[1])
    np.testing.assert_array_equal(fits[0], fits[2])
