"""Training images drawn with replacement, each class as often as the others."""

from dataclasses import dataclass

import numpy as np

from cosen.errors import InputError
from cosen.methods.method import NetworkMethod, Setting


@dataclass(frozen=True)
class WeightedSampling(NetworkMethod):
    """Cross-entropy on batches in which the classes are equally frequent on average.

    Attributes:
        power: A class is drawn in proportion to its frequency to the power of 1 less this.
    """

    name = "weighted-sampling"
    description = "cross-entropy, all classes drawn equally often"

    power: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.power <= 2:
            raise InputError(f"power must lie in [0, 2], but is {self.power}")

    def class_draws(self, setting: Setting) -> np.ndarray:
        return setting.class_counts.astype(np.float64) ** -self.power
