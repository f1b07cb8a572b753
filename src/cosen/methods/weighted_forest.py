"""A random forest weighted by class (Chen et al. 2004)."""

from dataclasses import dataclass

import numpy as np
import torch

from cosen.errors import InputError
from cosen.methods.method import ClassifierMethod, Scores, Setting
from cosen.methods.sampling import check_features


@dataclass(frozen=True)
class WeightedForest(ClassifierMethod):
    """A forest on deep features, in which rare classes weigh more in splits and votes.

    Attributes:
        trees: How many.
    """

    name = "wrf"
    description = "random forest on deep features, weighted by class"

    trees: int = 300

    def __post_init__(self) -> None:
        if self.trees < 1:
            raise InputError(f"trees must be at least 1, but is {self.trees}")

    def fit(self, features: np.ndarray, labels: np.ndarray, setting: Setting) -> Scores:
        from sklearn.ensemble import RandomForestClassifier

        check_features(features, labels, method=self.name, class_names=setting.class_names)
        forest = RandomForestClassifier(
            self.trees,
            class_weight="balanced",
            random_state=setting.seed,
            n_jobs=torch.get_num_threads(),
        ).fit(features, labels)
        least = 1 / (2 * self.trees)  # log of no vote at all

        def scores(samples: np.ndarray) -> np.ndarray:
            found: np.ndarray = np.log(np.maximum(forest.predict_proba(samples), least))
            return found

        return scores
