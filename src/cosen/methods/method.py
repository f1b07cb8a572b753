"""What a method is. There are four kinds, by what they change of plain training."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from torch import nn

from cosen.costs import Objective
from cosen.errors import DataError
from cosen.networks.output import Outputs

Samples = tuple[np.ndarray, np.ndarray]
"""Features ``(n, d)`` and classes ``(n,)``."""

Scores = Callable[[np.ndarray], np.ndarray]
"""Maps features ``(n, d)`` to a score for each class ``(n, C)``; the largest decides."""


@dataclass(frozen=True, eq=False)
class Setting:
    """What a method knows of the data before it trains.

    Attributes:
        class_counts: Training images of each class, shape ``(C,)``.
        class_names: Their names.
        objective: What validation measures.
        seed: For what a method draws.
        learns_features: Whether the whole network is trained, from images, and one of ours; not so
            where some of it is frozen, or it is a head on features, or the user's own.
        baseline: What the baseline's network gives for the validation split, where the method
            starts from it.
    """

    class_counts: np.ndarray
    class_names: tuple[str, ...]
    objective: Objective = "overall"
    seed: int = 0
    learns_features: bool = False
    baseline: Outputs | None = None


class Method(ABC):
    """A way to train, made of its options: ``Smote(neighbours=3)``.

    Derive from one of the kinds below, give it a ``name`` and a ``description``, and it can be
    passed to :func:`cosen.train` and :func:`cosen.compare`, or named on the command line as
    ``module:Class``.

    Attributes:
        name: What it is asked for by.
        description: One line.
        starts_from_baseline: Whether it needs a network that was trained plainly before.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    starts_from_baseline: ClassVar[bool] = False

    def check(self, setting: Setting) -> None:
        """Refuse data that it cannot work with, before anything is trained."""
        counts, names = setting.class_counts, setting.class_names
        present = [name for name, count in zip(names, counts, strict=True) if count]
        if len(present) < 2:
            raise DataError(
                f"method {self.name} needs training images of at least two classes, but has "
                + (f"one class only: {present[0]!r}" if present else "none")
            )
        for name, count in zip(names, counts, strict=True):
            if not count:
                raise DataError(
                    f"method {self.name} needs training images of every class, but class {name!r} "
                    f"has none: add some, or leave it out with --exclude {name}"
                )


class NetworkMethod(Method):
    """Trains the network itself: with another loss, another order, another output layer.

    What is not overridden is the baseline's.

    Attributes:
        retrains_output: Whether the baseline's network is kept up to its output layer, which is
            trained anew.
    """

    retrains_output: ClassVar[bool] = False

    def make_loss(self, setting: Setting) -> nn.Module:
        """The loss, called with logits and a target; a :class:`~cosen.AdaptiveCosts` learns."""
        return nn.CrossEntropyLoss()

    def cosine_scale(self, setting: Setting) -> float | None:
        """What cosines in the output layer are multiplied by; None keeps the linear layer."""
        return None

    def begin_epoch(self, loss: nn.Module, setting: Setting, progress: float) -> None:
        """Change the loss as training goes on.

        Args:
            loss: What :meth:`make_loss` gave.
            setting: What is known of the data.
            progress: The share of the epochs that is over.
        """

    def class_draws(self, setting: Setting) -> np.ndarray | None:
        """How often a sample of each class is drawn, against the others; None takes each once."""
        return None


class SamplingMethod(Method):
    """Changes the training samples in a space of features; a two-layer network learns them."""

    starts_from_baseline = True

    @abstractmethod
    def resample(self, features: np.ndarray, labels: np.ndarray, setting: Setting) -> Samples:
        """Other training samples in the place of these."""


class ClassifierMethod(Method):
    """Fits a classifier that is no network, on features. It leaves no model, only predictions."""

    starts_from_baseline = True

    @abstractmethod
    def fit(self, features: np.ndarray, labels: np.ndarray, setting: Setting) -> Scores:
        """A classifier of these training samples."""


class AdjustingMethod(Method):
    """Changes the output layer of a trained network; nothing is trained any more."""

    starts_from_baseline = True

    @abstractmethod
    def adjust(self, output: nn.Linear, setting: Setting) -> None:
        """Change weights and biases in place, given ``setting.baseline``."""
