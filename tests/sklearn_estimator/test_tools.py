"""The estimator in scikit-learn's tools, imbalanced-learn, pandas and pickle."""

import pickle

import numpy as np
import pandas as pd
import pytest
from imblearn.over_sampling import SMOTE, RandomOverSampler
from imblearn.pipeline import make_pipeline as make_imblearn_pipeline
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cosen.sklearn import CosenClassifier

pytestmark = pytest.mark.training


@pytest.fixture
def frame(blobs):
    """The blobs with names, and their labels in a Series with another index."""
    X, y = blobs
    index = range(1000, 1000 + len(X))
    return pd.DataFrame(X, columns=list("abcde"), index=index), pd.Series(y, index=index)


def test_pipeline_does_what_its_steps_do(quick, blobs):
    X, y = blobs
    scaler = StandardScaler()
    alone = quick().fit(scaler.fit_transform(X), y)
    pipeline = make_pipeline(StandardScaler(), quick()).fit(X, y)
    np.testing.assert_array_equal(
        pipeline.predict_proba(X), alone.predict_proba(scaler.transform(X))
    )
    assert pipeline.classes_.tolist() == ["cat", "dog", "eel"]


def test_cross_val_score(quick, blobs):
    X, y = blobs
    for scoring in ("accuracy", "balanced_accuracy", "roc_auc_ovr"):
        scores = cross_val_score(quick(), X, y, cv=3, scoring=scoring, error_score="raise")
        assert scores.mean() > 0.7, scoring


def test_a_pipeline_passes_sample_weights_on(quick, blobs):
    X, y = blobs
    weight = np.where(y == "eel", 5.0, 1.0)
    pipeline = make_pipeline(StandardScaler(), quick())
    pipeline.fit(X, y, cosenclassifier__sample_weight=weight)
    alone = quick().fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
    np.testing.assert_array_equal(
        pipeline.predict_proba(X), alone.predict_proba(StandardScaler().fit_transform(X))
    )


def test_grid_search_over_costs_of_every_kind(quick, blobs):
    X, y = blobs
    kinds = [None, "H", "learned", {"eel": 2.0}, np.full((3, 3), 0.5)]
    search = GridSearchCV(
        make_pipeline(StandardScaler(), quick()),
        {"cosenclassifier__costs": kinds, "cosenclassifier__lr": [1e-9, 0.01]},
        cv=2,
        error_score="raise",
    )
    search.fit(X, y)
    assert len(search.cv_results_["params"]) == 10
    assert search.best_params_["cosenclassifier__lr"] == 0.01
    assert search.score(X, y) > 0.8


@pytest.mark.parametrize(
    "sampler", [SMOTE(k_neighbors=3, random_state=0), RandomOverSampler(random_state=0)]
)
def test_imbalanced_learns_pipeline_trains_on_what_the_sampler_gives(quick, blobs, sampler):
    X, y = blobs
    pipeline = make_imblearn_pipeline(sampler, quick("H")).fit(X, y)
    np.testing.assert_allclose(pipeline[-1].costs_, 1 / 3, rtol=1e-6)  # balanced classes
    assert pipeline.score(X, y) > 0.8
    assert cross_val_score(pipeline, X, y, cv=2, error_score="raise").mean() > 0.7


def test_a_frame_has_names_and_a_series_has_labels(quick, frame, blobs):
    model = quick().fit(*frame)
    assert model.feature_names_in_.tolist() == list("abcde")
    assert model.classes_.tolist() == ["cat", "dog", "eel"]
    np.testing.assert_allclose(
        model.predict_proba(frame[0]), quick().fit(*blobs).predict_proba(blobs[0])
    )
    for kind in ("category", "string", "object"):
        labels = frame[1].astype(kind)
        assert (quick().fit(frame[0], labels).predict(frame[0]) == model.predict(frame[0])).all()


def test_a_frame_of_other_columns_is_refused(quick, frame):
    X, y = frame
    model = quick(epochs=1).fit(X, y)
    for method in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
            method(X[list("bacde")])
        with pytest.raises(ValueError, match="unseen at fit time:\n- z"):
            method(X.rename(columns={"c": "z"}))
        with pytest.raises(ValueError, match="now missing:\n- e"):
            method(X[list("abcd")])
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(X.to_numpy())


def test_a_frame_of_mixed_columns_goes_through_a_pipeline(quick, frame):
    X, y = frame
    X = X.assign(place=np.where(y == "eel", "sea", "land"), count=np.arange(len(X)))
    encode = make_column_transformer((OneHotEncoder(), ["place"]), remainder="passthrough")
    assert make_pipeline(encode, quick()).fit(X, y).score(X, y) > 0.9
    with pytest.raises(ValueError, match="could not convert string to float: 'land'"):
        quick().fit(X, y)


@pytest.mark.parametrize("kind", ["features", "images"])
@pytest.mark.parametrize("costs", ["learned", "H", None, np.full((3, 3), 0.5)], ids=str)
def test_pickles(quick, blobs, digits, kind, costs):
    X, y = blobs if kind == "features" else digits
    model = quick(costs, epochs=2).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    for method in ("predict", "predict_proba", "decision_function"):
        np.testing.assert_array_equal(getattr(again, method)(X), getattr(model, method)(X))
    np.testing.assert_array_equal(again.costs_, model.costs_)
    again.fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_pickles_name_the_public_class():
    assert pickle.loads(b"ccosen.sklearn\nCosenClassifier\n.") is CosenClassifier
    assert type(pickle.loads(pickle.dumps(CosenClassifier()))) is CosenClassifier


def test_clones(quick, blobs):
    matrix = np.full((3, 3), 0.5)
    model = quick(matrix, loss="mse").fit(*blobs)
    copy = clone(model)
    assert not hasattr(copy, "network_")
    assert copy.get_params()["loss"] == "mse"
    np.testing.assert_array_equal(copy.costs, matrix)
    np.testing.assert_array_equal(
        copy.fit(*blobs).predict_proba(blobs[0]), model.predict_proba(blobs[0])
    )
    assert copy.set_params(epochs=3).get_params()["epochs"] == 3
