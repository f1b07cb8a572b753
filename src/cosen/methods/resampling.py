"""Methods that resample training features: SMOTE, random under-sampling, SMOTE-RSB*.

Features are float ``(n, d)``, labels are integers from 0, ``(n,)``. The functions keep the type of
the features and do not use NumPy's global random state; the same seed gives the same result.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote

import numpy as np

from cosen.errors import DataError, InputError
from cosen.methods.method import Samples, SamplingMethod, Setting

MOST_SIMILARITY = 0.9
"""The last threshold that SMOTE-RSB* tries."""

SIMILARITY_STEP = 0.05
"""Step of the threshold of SMOTE-RSB*."""

ROUNDING = 1e-6
"""Tolerance for similarities at a threshold, because float32 features are rounded."""


@dataclass(frozen=True)
class Smote(SamplingMethod):
    """Over-samples every class to the size of the largest, on features.

    Attributes:
        neighbours: Number of neighbours that a sample is mixed with.
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
            setting.class_counts.numpy(),
            method=self.name,
            class_names=setting.class_names,
            neighbours=self.neighbours,
        )

    def resample(self, features: np.ndarray, labels: np.ndarray, setting: Setting) -> Samples:
        return smote(features, labels, neighbours=self.neighbours, seed=setting.seed)


@dataclass(frozen=True)
class UnderSampling(SamplingMethod):
    """Random under-sampling to the size of the rarest class, on features."""

    name = "rus"
    description = "random under-sampling on deep features, to the size of the rarest class"

    def resample(self, features: np.ndarray, labels: np.ndarray, setting: Setting) -> Samples:
        return under_sample(features, labels, seed=setting.seed)


@dataclass(frozen=True)
class SmoteRSB(Smote):
    """SMOTE-RSB*: keeps synthetic samples that resemble no sample of another class.

    Attributes:
        neighbours: Number of neighbours that a sample is mixed with.
        similarity: The first similarity threshold.
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
        return smote_rsb(
            features,
            labels,
            neighbours=self.neighbours,
            similarity=self.similarity,
            seed=setting.seed,
        )


def smote(
    features: np.ndarray, labels: np.ndarray, *, neighbours: int = 5, seed: int = 0
) -> Samples:
    """SMOTE: over-sample every class to the size of the largest with synthetic samples.

    A synthetic sample is at a random point between a sample and one of its nearest neighbours
    (Euclidean) of the same class; imbalanced-learn generates them. Chawla, Bowyer, Hall,
    Kegelmeyer, "SMOTE: synthetic minority over-sampling technique", JAIR 16, 2002.

    Args:
        features: Shape ``(n, d)``.
        labels: Shape ``(n,)``, of two classes or more.
        neighbours: Nearest neighbours to choose from; an over-sampled class needs more
            samples than that.
        seed: Seed of the synthetic samples.

    Returns:
        Features and labels: the given samples in their order, then the synthetic ones.

    Example:
        >>> features, labels = np.array([[0.0], [1], [5], [6], [7]]), np.array([0, 0, 1, 1, 1])
        >>> more, more_labels = smote(features, labels, neighbours=1)
        >>> more_labels
        array([0, 0, 1, 1, 1, 0])
        >>> bool(0 <= more[-1, 0] <= 1)
        True
    """
    from imblearn.over_sampling import SMOTE

    counts = np.bincount(labels)
    smallest = _smallest_to_smote(counts)
    if smallest is not None and counts[smallest] <= neighbours:
        raise InputError(
            f"SMOTE with {neighbours} neighbours needs at least {neighbours + 1} samples of a "
            f"class, but class {smallest} has {counts[smallest]}: use fewer neighbours"
        )
    sampler = SMOTE(k_neighbors=neighbours, random_state=seed)
    more, more_labels = sampler.fit_resample(features, labels)
    return more, more_labels


def under_sample(features: np.ndarray, labels: np.ndarray, *, seed: int = 0) -> Samples:
    """Under-sample every class to the size of the smallest at random, without replacement.

    Args:
        features: Shape ``(n, d)``.
        labels: Shape ``(n,)``, of two classes or more.
        seed: Seed of the selection.

    Returns:
        The remaining features and labels, in their order.

    Example:
        >>> features, labels = np.array([[0.0], [1], [5], [6], [7]]), np.array([0, 0, 1, 1, 1])
        >>> under_sample(features, labels)[1]
        array([0, 0, 1, 1])
    """
    from imblearn.under_sampling import RandomUnderSampler

    sampler = RandomUnderSampler(random_state=seed)
    sampler.fit_resample(np.arange(len(labels))[:, None], labels)
    left = np.sort(sampler.sample_indices_)
    return features[left], labels[left]


def smote_rsb(
    features: np.ndarray,
    labels: np.ndarray,
    *,
    neighbours: int = 5,
    seed: int = 0,
    similarity: float = 0.4,
) -> Samples:
    r"""SMOTE-RSB*: SMOTE that keeps only samples unlike those of every other class.

    Ramentol, Caballero, Bello, Herrera, "SMOTE-RSB*: a hybrid preprocessing approach based on
    oversampling and undersampling for high imbalanced data-sets using SMOTE and rough sets
    theory", Knowledge and Information Systems 33(2), 2012, pp. 245-265. A synthetic sample is kept
    if no sample similar to it belongs to another class. The similarity of two samples is

    .. math:: s(x, y) = \frac{1}{d} \sum_{i=1}^{d} (1 - \frac{|x_i - y_i|}{\max_i - \min_i})

    They are similar if it reaches a threshold. The threshold starts at ``similarity`` and is raised
    in steps of 0.05, up to 0.9, until some synthetic samples of the class are kept. If no threshold
    keeps any, all are kept, as in SMOTE.

    This follows other implementations, because the text of the paper was not available. Their
    differences:

    * Similar is :math:`s \ge` threshold, as in KEEL, the first author's program; smote_variants
      and SOUL use :math:`s >` threshold.
    * The ranges are those of the given samples, and a constant feature counts as equal, as in KEEL.
      smote_variants uses the synthetic samples, SOUL those and the other class.
    * The search ends with the first threshold that keeps any sample. smote_variants continues until
      the classes are balanced, SOUL joins all thresholds, KEEL makes new SMOTE samples.
    * With more than two classes, which none of them support, a synthetic sample is compared with
      the given samples of all other classes, and each class has its own threshold.
    * SMOTE draws one random position for all features of a sample; KEEL draws one for each feature.

    With many features the similarities are close to each other: a class may keep very few synthetic
    samples, or all.

    Args:
        features: Shape ``(n, d)``.
        labels: Shape ``(n,)``, of two classes or more.
        neighbours: As in :func:`smote`.
        seed: Seed of the synthetic samples; the same ones as in :func:`smote`.
        similarity: The first threshold.

    Returns:
        Features and labels: the given samples in their order, then the synthetic ones kept.
    """
    more, more_labels = smote(features, labels, neighbours=neighbours, seed=seed)
    given = len(features)
    kept = np.ones(len(more), dtype=bool)
    kept[given:] = in_lower_approximation(
        more[given:], more_labels[given:], features, labels, similarity=similarity
    )
    return more[kept], more_labels[kept]


def in_lower_approximation(
    synthetic: np.ndarray,
    synthetic_labels: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    *,
    similarity: float = 0.4,
) -> np.ndarray:
    """Return which of m synthetic samples SMOTE-RSB* keeps, shape ``(m,)``; see :func:`smote_rsb`.

    Example:
        Class 0 is at 0, class 1 at 4 and 10, so samples at 5 and 7 have the similarities 0.5 and
        0.3 to class 0.

        >>> features, labels = np.array([[0.0], [4.0], [10.0]]), np.array([0, 1, 1])
        >>> in_lower_approximation(np.array([[5.0], [7.0]]), np.array([1, 1]), features, labels)
        array([False,  True])
    """
    from sklearn.metrics import pairwise_distances_argmin_min

    steps = int((MOST_SIMILARITY - similarity) / SIMILARITY_STEP + ROUNDING)
    thresholds = similarity + SIMILARITY_STEP * np.arange(steps + 1)
    low, spread = features.min(axis=0), np.ptp(features, axis=0)
    spread[spread == 0] = np.inf  # a constant feature adds no distance
    scaled, scaled_synthetic = (features - low) / spread, (synthetic - low) / spread
    kept = np.ones(len(synthetic), dtype=bool)
    for label in np.unique(synthetic_labels):
        own = synthetic_labels == label
        # works in chunks: the distances of all pairs are never in memory at once
        _, distance = pairwise_distances_argmin_min(
            scaled_synthetic[own], scaled[labels != label], metric="manhattan"
        )
        greatest_similarity = 1 - distance / features.shape[1]
        for threshold in thresholds:
            unlike_others = greatest_similarity < threshold - ROUNDING
            if unlike_others.any():
                kept[own] = unlike_others
                break
    return kept


def check_neighbours(
    class_counts: np.ndarray, *, method: str, class_names: Sequence[str], neighbours: int
) -> None:
    """Raise an error for a class that is too small for SMOTE; empty classes are ignored.

    The message names the smallest class: what helps it also helps the others.
    """
    smallest = _smallest_to_smote(class_counts)
    if smallest is None or class_counts[smallest] > neighbours:
        return
    name, count = class_names[smallest], class_counts[smallest]
    if count == 1:
        raise DataError(
            f"method {method} interpolates between samples of a class, but class {name!r} has only "
            f"one: add another, or remove the class with --exclude {quote(name)}"
        )
    raise DataError(
        f"method {method} needs at least {neighbours + 1} training samples of a class for its "
        f"{neighbours} neighbours, but class {name!r} has {count}: lower them with --set "
        f"options.neighbours={count - 1} (in cosen compare, {method}.neighbours={count - 1}), or "
        f"remove the class with --exclude {quote(name)}"
    )


def _smallest_to_smote(counts: np.ndarray) -> int | None:
    """Return the smallest class that SMOTE over-samples; None if all have the same size."""
    to_smote = np.flatnonzero((counts > 0) & (counts < counts.max()))
    return int(to_smote[np.argmin(counts[to_smote])]) if len(to_smote) else None
