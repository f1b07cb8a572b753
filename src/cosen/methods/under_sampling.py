"""Random under-sampling on deep features."""

from dataclasses import dataclass

import numpy as np

from cosen.methods.method import Samples, SamplingMethod, Setting
from cosen.methods.sampling import check_features, under_sample


@dataclass(frozen=True)
class UnderSampling(SamplingMethod):
    """Keeps as many samples of each class as the rarest has."""

    name = "rus"
    description = "random under-sampling on deep features, to the size of the rarest class"

    def resample(self, features: np.ndarray, labels: np.ndarray, setting: Setting) -> Samples:
        check_features(features, labels, method=self.name, class_names=setting.class_names)
        return under_sample(features, labels, seed=setting.seed)
