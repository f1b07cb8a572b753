"""SMOTE (Chawla et al. 2002) on deep features."""

from dataclasses import dataclass

import numpy as np

from cosen.errors import InputError
from cosen.methods.method import Samples, SamplingMethod, Setting
from cosen.methods.sampling import check_features, check_neighbours, smote


@dataclass(frozen=True)
class Smote(SamplingMethod):
    """Over-samples every class to the size of the largest.

    Attributes:
        neighbours: How many of its class a sample is mixed with.
    """

    name = "smote"
    description = "SMOTE on deep features: rare classes are over-sampled between neighbours"

    neighbours: int = 5

    def __post_init__(self) -> None:
        if self.neighbours < 1:
            raise InputError(f"neighbours must be at least 1, but is {self.neighbours}")

    def check(self, setting: Setting) -> None:
        super().check(setting)
        check_neighbours(
            setting.class_counts,
            method=self.name,
            class_names=setting.class_names,
            neighbours=self.neighbours,
        )

    def resample(self, features: np.ndarray, labels: np.ndarray, setting: Setting) -> Samples:
        check_features(features, labels, method=self.name, class_names=setting.class_names)
        return smote(features, labels, neighbours=self.neighbours, seed=setting.seed)
