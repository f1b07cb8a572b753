"""A support vector machine whose costs are inverse to the class frequencies (Tang et al. 2009)."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from cosen.functional.checks import check_positive
from cosen.methods.method import ClassifierMethod, Scores, Setting
from cosen.methods.sampling import check_features


@dataclass(frozen=True)
class WeightedSVM(ClassifierMethod):
    """LIBSVM on standardised deep features.

    Attributes:
        C: What an error costs, before the class weights.
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

        check_features(features, labels, method=self.name, class_names=setting.class_names)
        # ties of the votes are broken by the margins, so that the largest score decides
        machine = SVC(C=self.C, kernel=self.kernel, class_weight="balanced", break_ties=True)
        fitted = make_pipeline(StandardScaler(), machine).fit(features, labels)

        def scores(samples: np.ndarray) -> np.ndarray:
            found: np.ndarray = fitted.decision_function(samples)
            return found if found.ndim == 2 else np.stack([-found, found], 1)

        return scores
