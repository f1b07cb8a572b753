"""Classifier re-training (cRT, Kang et al. 2020)."""

from dataclasses import dataclass

import numpy as np

from cosen.methods.method import NetworkMethod, Setting


@dataclass(frozen=True)
class ClassifierRetraining(NetworkMethod):
    """Keeps the baseline's features and trains a new output layer on equally frequent classes."""

    name = "crt"
    description = "the baseline, its output layer re-trained with all classes drawn equally often"
    starts_from_baseline = True
    retrains_output = True

    def class_draws(self, setting: Setting) -> np.ndarray:
        return 1 / setting.class_counts.astype(np.float64)
