import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs

from cosen.sklearn import CosenClassifier


@pytest.fixture
def quick():
    """Makes an estimator that fits quickly: ``quick("H", loss="mse")``."""

    def make(costs="learned", **options):
        return CosenClassifier(costs, **{"epochs": 10, "hidden": 20, "random_state": 0} | options)

    return make


@pytest.fixture(scope="session")
def blobs():
    """Three classes with string labels: 60, 30 and 10 samples."""
    X, y = make_blobs([60, 30, 10], n_features=5, cluster_std=2.0, random_state=0)
    return X, np.array(["cat", "dog", "eel"])[y]


@pytest.fixture(scope="session")
def digits():
    bunch = load_digits()
    kept = bunch.target < 3
    return bunch.images[kept], bunch.target[kept]
