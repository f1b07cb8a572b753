"""How far one method is from another on the same samples, and how sure that is.

Every objective is a weighted mean of scores of single samples, so two methods that were tested on
the same samples can be compared sample by sample: what is hard for both cancels out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cosen.errors import InputError

Objective = Literal["overall", "balanced"] | NDArray[np.floating[Any]]
"""As ``cosen.costs.Objective``, in NumPy: an array is an expert's misclassification costs ξ′."""

DRAWS = 2000
LEVEL = 0.95

LEAST = 5
"""Classes with fewer samples are drawn from together: alone they would show no variation."""


@dataclass(frozen=True)
class Change:
    """How much higher the mean score of one method is than that of another.

    Attributes:
        mean: As measured.
        low: The lower end of the interval.
        high: The upper end.
    """

    mean: float
    low: float
    high: float

    @property
    def within_noise(self) -> bool:
        """Whether zero is inside the interval, so that there may be no difference at all."""
        return self.low <= 0 <= self.high


@dataclass(frozen=True, eq=False)
class Pair:
    """What two methods score on the same samples, in the same order.

    Attributes:
        first: The scores of the one, higher is better, shape ``(n,)``.
        second: The scores of the other, shape ``(n,)``.
        classes: The true classes, shape ``(n,)``.
        weights: What each sample counts, in all 1, shape ``(n,)``.
    """

    first: NDArray[np.float64]
    second: NDArray[np.float64]
    classes: NDArray[np.int64]
    weights: NDArray[np.float64]

    def __post_init__(self) -> None:
        shapes = {array.shape for array in (self.first, self.second, self.classes, self.weights)}
        if len(shapes) > 1 or self.first.ndim != 1 or not len(self.first):
            raise InputError(
                "a pair needs scores, classes and weights of the same samples, at least one, "
                f"but has the shapes {', '.join(map(str, sorted(shapes)))}"
            )
        if not np.isclose(self.weights.sum(), 1):
            raise InputError(f"weights must sum to 1, but sum to {self.weights.sum():g}")

    @property
    def terms(self) -> NDArray[np.float64]:
        """What each sample adds to the difference, shape ``(n,)``."""
        return self.weights * (self.first - self.second)


def make_pair(
    target: NDArray[np.int64],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    objective: Objective,
) -> Pair:
    """The scores of two methods under an objective.

    Args:
        target: True classes, shape ``(n,)``.
        first: The classes that the one method gives, shape ``(n,)``.
        second: The classes that the other gives, shape ``(n,)``.
        objective: What is scored.
    """
    return Pair(
        first=sample_scores(target, first, objective),
        second=sample_scores(target, second, objective),
        classes=target,
        weights=sample_weights(target, objective),
    )


def sample_scores(
    target: NDArray[np.int64], predicted: NDArray[np.int64], objective: Objective
) -> NDArray[np.float64]:
    """What each sample scores, shape ``(n,)``: 1 or 0, or minus its share of the largest cost.

    The weighted mean is 1 - E for ``"overall"`` and ``"balanced"`` and -E for an expert's costs,
    with E of :func:`cosen.costs.validation_error`.

    Example:
        >>> target, predicted = np.array([0, 0, 1]), np.array([0, 1, 0])
        >>> sample_scores(target, predicted, np.array([[0.0, 1.0], [4.0, 0.0]]))
        array([-0.  , -0.25, -1.  ])
    """
    if isinstance(objective, np.ndarray):
        costs = objective.astype(np.float64)
        return np.asarray(-costs[target, predicted] / costs.max())
    if objective not in ("overall", "balanced"):
        raise InputError(
            f"objective must be 'overall', 'balanced' or a matrix of costs, but is {objective!r}"
        )
    return np.asarray(target == predicted, dtype=np.float64)


def sample_weights(target: NDArray[np.int64], objective: Objective) -> NDArray[np.float64]:
    """What each sample counts, in all 1, shape ``(n,)``.

    Samples count the same; under ``"balanced"`` the classes that are present do.

    Example:
        >>> sample_weights(np.array([0, 0, 2]), "balanced")
        array([0.25, 0.25, 0.5 ])
    """
    if isinstance(objective, str) and objective == "balanced":
        present, place, counts = np.unique(target, return_inverse=True, return_counts=True)
        return np.asarray(1.0 / (len(present) * counts[place]))
    return np.full(len(target), 1 / len(target))


def paired_change(
    pairs: Sequence[Pair],
    *,
    draws: int = DRAWS,
    level: float = LEVEL,
    seed: int = 0,
    same_samples: bool = False,
) -> Change:
    """How much higher the first method scores, with its bootstrap interval (percentiles).

    In each draw seeds are drawn with replacement, in each of them samples are drawn with
    replacement within each class, the same for both methods, and the differences of the weighted
    means are averaged over the drawn seeds. Classes with fewer than ``LEAST`` samples are drawn
    from together (collapsed strata): a class of one sample would always give the same.

    The interval covers which samples happened to be tested on, given how many there are of each
    class, and which seeds (splits, weights, orders) the runs happened to have. It does not cover:

    - seeds well, where they are few: of three that differ more than their samples do, 95 %
      intervals hold the truth some seven times in ten; one seed covers the samples alone;
    - samples that hang together (images of one patient), or that are in the test sets of some but
      not all seeds: they count as independent;
    - that several methods are compared: there is no correction, so of 20 methods that are no
      better than another, one is expected to look better or worse.

    Args:
        pairs: For each seed the scores of both methods.
        draws: How often to draw.
        level: The share of the draws that the interval holds.
        seed: Of the draws; the same seed gives the same interval.
        same_samples: Whether the samples of all seeds are the same in the same order, as those of
            an official test set. Then the same are drawn in every seed, as luck with them does
            not average out over seeds.

    Example:
        >>> right, wrong = np.ones(50), np.repeat([0.0, 1.0], [10, 40])
        >>> pair = Pair(right, wrong, np.zeros(50, int), np.full(50, 0.02))
        >>> change = paired_change([pair])
        >>> f"{change.mean:.2f}, {change.low:.2f} to {change.high:.2f}", change.within_noise
        ('0.20, 0.08 to 0.32', False)
    """
    if not pairs:
        raise InputError("paired_change needs the scores of at least one seed")
    if draws < 1 or not 0 < level < 1:
        raise InputError(
            f"draws must be at least 1 and level between 0 and 1, but are {draws} and {level}"
        )
    generator = np.random.default_rng(seed)
    if same_samples:
        drawn = _draw_same_samples(pairs, draws, generator)
    else:
        drawn = _draw_own_samples(pairs, draws, generator)
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    mean = np.mean([pair.terms.sum() for pair in pairs])
    return Change(float(mean), float(low), float(high))


def _draw_own_samples(
    pairs: Sequence[Pair], draws: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """A mean difference for each draw, ``(draws,)``, every drawn seed with samples of its own."""
    seeds = generator.integers(len(pairs), size=(draws, len(pairs)))
    differences = np.empty(seeds.shape)
    for number, pair in enumerate(pairs):
        here = seeds == number
        differences[here] = _resample(pair.terms[:, None], pair.classes, here.sum(), generator)[0]
    return np.asarray(differences.mean(1))


def _draw_same_samples(
    pairs: Sequence[Pair], draws: int, generator: np.random.Generator
) -> NDArray[np.float64]:
    """A mean difference for each draw, ``(draws,)``, all drawn seeds with the same samples."""
    if any(not np.array_equal(pair.classes, pairs[0].classes) for pair in pairs):
        raise InputError("same_samples needs the same samples for all seeds, but classes differ")
    terms = np.stack([pair.terms for pair in pairs], axis=1)  # (n, seeds)
    share = np.full(len(pairs), 1 / len(pairs))
    seeds = generator.multinomial(len(pairs), share, size=draws) / len(pairs)  # (draws, seeds)
    return np.asarray((_resample(terms, pairs[0].classes, draws, generator).T * seeds).sum(1))


def _resample(
    terms: NDArray[np.float64],
    classes: NDArray[np.int64],
    draws: int,
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """The sums of the terms of drawn samples, from ``(n, seeds)`` to ``(seeds, draws)``.

    Few samples of a stratum differ in their terms, so instead of samples the numbers of samples
    with each term are drawn.
    """
    sums = np.zeros((terms.shape[1], draws))
    for rows in _strata(classes):
        distinct, first, counts = np.unique(
            terms[rows], axis=0, return_index=True, return_counts=True
        )
        if len(distinct) == 1:
            sums += len(rows) * distinct.T
            continue
        # whatever their signs, so that swapped methods have the same draws; rare ones are fastest
        order = np.lexsort((first, counts))
        distinct, counts = distinct[order], counts[order]
        drawn = generator.multinomial(len(rows), counts / len(rows), size=draws)
        sums += distinct.T @ drawn.T  # (seeds, distinct) @ (distinct, draws)
    return sums


def _strata(classes: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """The samples of each class; those of classes with fewer than ``LEAST`` are put together."""
    _, place, counts = np.unique(classes, return_inverse=True, return_counts=True)
    small = counts < LEAST
    if 0 < counts[small].sum() < LEAST and not small.all():
        small[np.argmin(np.where(small, counts.max() + 1, counts))] = True
    stratum = np.where(small, -1, np.arange(len(counts)))[place]
    return [np.flatnonzero(stratum == label) for label in np.unique(stratum)]
