"""SMOTE-RSB* (Ramentol et al. 2012) on deep features."""

from dataclasses import dataclass

import numpy as np

from cosen.errors import InputError
from cosen.methods.method import Samples, Setting
from cosen.methods.sampling import MOST_SIMILARITY, check_features, smote_rsb
from cosen.methods.smote import Smote


@dataclass(frozen=True)
class SmoteRSB(Smote):
    """SMOTE, of whose samples those are kept that no sample of another class resembles.

    Attributes:
        neighbours: How many of its class a sample is mixed with.
        similarity: From which similarity on samples resemble each other, to begin with.
    """

    name = "smote-rsb"
    description = "SMOTE-RSB*: SMOTE, cleaned by rough sets"

    similarity: float = 0.4

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.similarity <= MOST_SIMILARITY:
            raise InputError(
                f"similarity must lie in [0, {MOST_SIMILARITY}], but is {self.similarity}"
            )

    def resample(self, features: np.ndarray, labels: np.ndarray, setting: Setting) -> Samples:
        check_features(features, labels, method=self.name, class_names=setting.class_names)
        return smote_rsb(
            features,
            labels,
            neighbours=self.neighbours,
            similarity=self.similarity,
            seed=setting.seed,
        )
