"""Use costs in a scikit-learn pipeline, and choose them by grid search.

Runs on scikit-learn's digits, with 10 % of the odd digits in the training set.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import recall_score
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline

from cosen.sklearn import CosenClassifier

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)
kept = (y % 2 == 0) | (np.random.default_rng(0).random(len(y)) < 0.1)
X, y = X[kept], y[kept]

model = make_pipeline(PCA(40, random_state=0), CosenClassifier(epochs=20, random_state=0))
search = GridSearchCV(
    model, {"cosenclassifier__costs": [None, "H", "adaptive"]}, scoring="balanced_accuracy", cv=2
)
search.fit(X, y)
for costs, score in zip(
    search.cv_results_["param_cosenclassifier__costs"],
    search.cv_results_["mean_test_score"],
    strict=True,
):
    print(f"costs={costs!r:10} mean recall {score:.3f} in cross-validation")

recall = recall_score(y_test, search.predict(X_test), average=None)
print(f"chosen: {search.best_params_}")
print(
    f"test recall of even digits {recall[::2].mean():.3f}, of odd digits {recall[1::2].mean():.3f}"
)
