"""Methods that fit a classifier on features: weighted SVM and weighted random forest."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from cosen.errors import InputError
from cosen.functional.checks import check_positive
from cosen.methods.method import ClassifierMethod, Scores, Setting


@dataclass(frozen=True)
class WeightedSVM(ClassifierMethod):
    """Support vector machine on standardised features (LIBSVM), weighted by class.

    Attributes:
        C: Penalty of an error, before the class weights.
        kernel: ``"linear"`` or ``"rbf"``.
    """

    name = "wsvm"
    description = "SVM on deep features, weighted by class (LIBSVM)"

    C: float = 1.0
    kernel: Literal["linear", "rbf"] = "linear"

    def __post_init__(self) -> None:
        check_positive(self.C, name="C")

    def fit(self, features: np.ndarray, labels: np.ndarray, setting: Setting) -> Scores:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVC

        # break_ties: the class with the largest score is the prediction
        machine = SVC(C=self.C, kernel=self.kernel, class_weight="balanced", break_ties=True)
        fitted = make_pipeline(StandardScaler(), machine).fit(features, labels)

        def scores(samples: np.ndarray) -> np.ndarray:
            found: np.ndarray = fitted.decision_function(samples)
            return found if found.ndim == 2 else np.stack([-found, found], 1)

        return scores


@dataclass(frozen=True)
class WeightedForest(ClassifierMethod):
    """Random forest on features, weighted by class (Chen et al. 2004).

    Attributes:
        trees: Number of trees.
    """

    name = "wrf"
    description = "random forest on deep features, weighted by class"

    trees: int = 300

    def __post_init__(self) -> None:
        if self.trees < 1:
            raise InputError(f"trees must be at least 1, but is {self.trees}")

    def fit(self, features: np.ndarray, labels: np.ndarray, setting: Setting) -> Scores:
        from sklearn.ensemble import RandomForestClassifier

        forest = RandomForestClassifier(
            self.trees,
            class_weight="balanced",
            random_state=setting.seed,
            n_jobs=torch.get_num_threads(),
        ).fit(features, labels)
        least = 1 / (2 * self.trees)  # instead of log 0

        def scores(samples: np.ndarray) -> np.ndarray:
            found: np.ndarray = np.log(np.maximum(forest.predict_proba(samples), least))
            return found

        return scores
