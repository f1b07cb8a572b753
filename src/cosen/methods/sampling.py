"""Changing how often each class is seen: SMOTE, under-sampling and SMOTE-RSB* on feature vectors.

Features are float ``(n, d)``, labels are integers from 0 on, ``(n,)``. The features keep their
type, the same seed gives the same result, and NumPy's global random state is left alone.
"""

from collections.abc import Sequence
from shlex import quote

import numpy as np

from cosen.errors import DataError, InputError

MOST_SIMILARITY = 0.9
"""The last threshold that SMOTE-RSB* tries."""

ROUNDING = 1e-6
"""A similarity this close to a threshold is at the threshold: float32 features round."""


def smote(
    features: np.ndarray, labels: np.ndarray, *, neighbours: int = 5, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """SMOTE: every class is brought up to the largest by samples made between its own.

    A synthetic sample lies at a random place between a sample and one of its nearest neighbours
    (Euclidean) of the same class; imbalanced-learn makes them. Chawla, Bowyer, Hall, Kegelmeyer,
    "SMOTE: synthetic minority over-sampling technique", JAIR 16, 2002.

    Args:
        features: Shape ``(n, d)``.
        labels: Shape ``(n,)``, of two classes or more.
        neighbours: How many nearest neighbours to choose from; a class that is over-sampled has
            more samples than that.
        seed: Decides the synthetic samples.

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
            f"class, but class {smallest} has {counts[smallest]}: ask for fewer neighbours"
        )
    sampler = SMOTE(k_neighbors=neighbours, random_state=seed)
    more, more_labels = sampler.fit_resample(features, labels)
    return more, more_labels


def under_sample(
    features: np.ndarray, labels: np.ndarray, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Every class is brought down to the smallest by leaving samples out at random.

    imbalanced-learn draws which; no sample is drawn twice.

    Args:
        features: Shape ``(n, d)``.
        labels: Shape ``(n,)``, of two classes or more.
        seed: Decides which samples are left.

    Returns:
        Features and labels that are left, in their old order.

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
    most_similarity: float = MOST_SIMILARITY,
    similarity_step: float = 0.05,
) -> tuple[np.ndarray, np.ndarray]:
    r"""SMOTE-RSB*: SMOTE, of which only samples unlike those of every other class are kept.

    Ramentol, Caballero, Bello, Herrera, "SMOTE-RSB*: a hybrid preprocessing approach based on
    oversampling and undersampling for high imbalanced data-sets using SMOTE and rough sets
    theory", Knowledge and Information Systems 33(2), 2012, pp. 245-265. A synthetic sample is kept
    if it is in the lower approximation of its class: nothing that is similar to it belongs to
    another class. Two samples are as similar as

    .. math:: s(x, y) = \frac{1}{d} \sum_{i=1}^{d} (1 - \frac{|x_i - y_i|}{\max_i - \min_i})

    and they are similar if that reaches a threshold. The threshold starts at ``similarity`` and is
    raised in steps while it leaves a class no synthetic sample, ``most_similarity`` being the last;
    if that one leaves none either, all are kept, as in SMOTE.

    How the paper is read here, by its implementations and second-hand accounts of it (its text was
    not at hand), and where they differ:

    * *Similar* is :math:`s \ge` threshold, as in KEEL, which is the first author's program. In
      smote_variants, SOUL and a summary of the paper's pseudocode it is :math:`s >` threshold;
      only exact ties tell them apart.
    * *The ranges* :math:`\max_i - \min_i` are those of the given samples. KEEL adds the synthetic
      ones, which changes nothing, as they lie between given ones; smote_variants takes the
      synthetic ones alone, SOUL those and the other class. A constant feature counts as equal
      (KEEL), and the weights of the features are all one.
    * *The first threshold* that leaves any is the last to be tried. The paper's loop is
      said to run while nothing is kept; smote_variants goes on until the classes are balanced,
      SOUL gathers over all thresholds, KEEL makes new SMOTE samples on top of those kept.
    * *The last threshold*, 0.9, is tried; a sum of steps in floating point would miss it.
    * *More than two classes* are in none of them: a synthetic sample is compared with the given
      samples of all other classes, not with synthetic ones, and each class has its own threshold.
    * *SMOTE* is that of :func:`smote`: one random place on the line for all features of a sample,
      where KEEL draws one for each feature.

    The time is that of all distances between synthetic and given samples; the memory grows with
    the samples, not with the pairs. With many features the similarities lie close together, so
    that a class may keep very few synthetic samples, or all.

    Args:
        features: Shape ``(n, d)``.
        labels: Shape ``(n,)``, of two classes or more.
        neighbours: As in :func:`smote`.
        seed: Decides the synthetic samples; the same ones as in :func:`smote`.
        similarity: The first threshold.
        most_similarity: The last threshold.
        similarity_step: By how much a threshold is raised.

    Returns:
        Features and labels: the given samples in their order, then the synthetic ones kept.
    """
    more, more_labels = smote(features, labels, neighbours=neighbours, seed=seed)
    kept = np.ones(len(more), dtype=bool)
    kept[len(features) :] = in_lower_approximation(
        more[len(features) :],
        more_labels[len(features) :],
        features,
        labels,
        similarity=similarity,
        most_similarity=most_similarity,
        similarity_step=similarity_step,
    )
    return more[kept], more_labels[kept]


def in_lower_approximation(
    synthetic: np.ndarray,
    synthetic_labels: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
    *,
    similarity: float = 0.4,
    most_similarity: float = MOST_SIMILARITY,
    similarity_step: float = 0.05,
) -> np.ndarray:
    """Which synthetic samples SMOTE-RSB* keeps; :func:`smote_rsb` says by which rule.

    Args:
        synthetic: Shape ``(m, d)``.
        synthetic_labels: Shape ``(m,)``.
        features: The given samples, shape ``(n, d)``.
        labels: Shape ``(n,)``.
        similarity: The first threshold.
        most_similarity: The last threshold.
        similarity_step: By how much a threshold is raised.

    Returns:
        Booleans, shape ``(m,)``.

    Example:
        Class 0 is at 0, class 1 at 4 and 10, so samples at 5 and 7 are 0.5 and 0.3 like class 0.

        >>> features, labels = np.array([[0.0], [4.0], [10.0]]), np.array([0, 1, 1])
        >>> in_lower_approximation(np.array([[5.0], [7.0]]), np.array([1, 1]), features, labels)
        array([False,  True])
    """
    thresholds = _thresholds(similarity, most_similarity, similarity_step)
    low, spread = features.min(axis=0), np.ptp(features, axis=0)
    spread[spread == 0] = np.inf  # so that a constant feature adds no distance
    scaled = (features - low) / spread

    kept = np.ones(len(synthetic), dtype=bool)
    for label in np.unique(synthetic_labels):
        own = synthetic_labels == label
        nearest = _greatest_similarity((synthetic[own] - low) / spread, scaled[labels != label])
        for threshold in thresholds:
            unlike_others = nearest < threshold - ROUNDING
            if unlike_others.any():
                kept[own] = unlike_others
                break
    return kept


def check_features(
    features: np.ndarray,
    labels: np.ndarray,
    *,
    method: str,
    class_names: Sequence[str],
    neighbours: int | None = None,
) -> None:
    """Refuse training features that a method cannot work with.

    Args:
        features: Shape ``(n, d)``.
        labels: Shape ``(n,)``.
        method: What the method is asked for by.
        class_names: The classes, in the order of the labels.
        neighbours: How many neighbours of a sample SMOTE is to choose from, if the method uses it.

    Raises:
        DataError: A feature is NaN or infinite, a class has no sample, there are fewer than two
            classes, or a class is too small for its neighbours.
    """
    broken = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(broken):
        raise DataError(
            f"method {method} needs finite features, but {len(broken)} of {len(features)} training "
            f"samples have NaN or infinite ones, the first of class "
            f"{class_names[labels[broken[0]]]!r}: mend these samples, or take the features from a "
            "network whose training has not diverged"
        )
    counts = np.bincount(labels, minlength=len(class_names))
    present = np.flatnonzero(counts)
    if len(present) < 2:
        found = (
            f"all are of class {class_names[present[0]]!r}" if len(present) else "there are none"
        )
        raise DataError(
            f"method {method} needs training samples of at least two classes, but {found}: add "
            "samples of another class"
        )
    if (counts == 0).any():
        name = class_names[int(np.argmin(counts))]
        raise DataError(
            f"method {method} needs training samples of every class, but class {name!r} has none: "
            f"add some, or leave the class out with --exclude {quote(name)}"
        )
    if neighbours is not None:
        check_neighbours(counts, method=method, class_names=class_names, neighbours=neighbours)


def check_neighbours(
    class_counts: np.ndarray, *, method: str, class_names: Sequence[str], neighbours: int
) -> None:
    """Refuse a class that SMOTE adds to and that is too small for it; empty ones are passed over.

    Args:
        class_counts: Training samples of each class.
        method: What the method is asked for by.
        class_names: The classes, in the order of their counts.
        neighbours: How many neighbours of a sample SMOTE is to choose from.

    Raises:
        DataError: Names the smallest class, so that what it advises suits the others too.
    """
    smallest = _smallest_to_smote(class_counts)
    if smallest is None or class_counts[smallest] > neighbours:
        return
    name, count = class_names[smallest], class_counts[smallest]
    if count == 1:
        raise DataError(
            f"method {method} makes samples between those of a class, but class {name!r} has only "
            f"one: add another, or leave the class out with --exclude {quote(name)}"
        )
    raise DataError(
        f"method {method} needs at least {neighbours + 1} training samples of a class for its "
        f"{neighbours} neighbours, but class {name!r} has {count}: lower them with --set "
        f"options.neighbours={count - 1} (in cosen compare, {method}.neighbours={count - 1}), or "
        f"leave the class out with --exclude {quote(name)}"
    )


def _smallest_to_smote(counts: np.ndarray) -> int | None:
    """The smallest class of those that SMOTE adds to; none where all are equally large."""
    to_smote = np.flatnonzero((counts > 0) & (counts < counts.max()))
    return int(to_smote[np.argmin(counts[to_smote])]) if len(to_smote) else None


def _thresholds(first: float, last: float, step: float) -> np.ndarray:
    if not (0 <= first <= last <= 1 and step > 0):
        raise InputError(
            "SMOTE-RSB* needs 0 <= similarity <= most_similarity <= 1 and similarity_step above 0, "
            f"but they are {first}, {last} and {step}"
        )
    steps = int((last - first) / step + ROUNDING)
    thresholds: np.ndarray = first + step * np.arange(steps + 1)
    return thresholds


def _greatest_similarity(samples: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Of each sample to any of the others, all scaled to ranges of 1; shape ``(samples,)``."""
    from sklearn.metrics import pairwise_distances_argmin_min

    # Works in chunks: the distances of all pairs are never in memory at once.
    _, nearest = pairwise_distances_argmin_min(samples, others, metric="manhattan")
    similarity: np.ndarray = 1 - nearest / samples.shape[1]
    return similarity
