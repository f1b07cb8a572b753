"""Statistics over seeds: means, and the difference of two methods on the same samples.

Every objective is a weighted mean of the scores of single samples. Two methods that were tested on
the same samples are compared sample by sample: samples that are hard for both cancel out.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # torch is slow to import, and a list of tables does not need it
    from torch import Tensor

    from cosen.costs import Objective

DRAWS = 2000
"""Number of bootstrap draws."""

LEVEL = 0.95
"""Share of the draws inside an interval."""

SMALL_CLASS = 5
"""Classes with fewer samples are resampled together: alone they would show no variation."""


@dataclass(frozen=True)
class Spread:
    """A mean over seeds.

    Attributes:
        mean: The mean.
        deviation: The standard deviation over seeds; None with one seed.
        count: The number of seeds.
    """

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """Compute the mean and the standard deviation; None if there are no values.

        Example:
            >>> Spread.of([0.25, 0.75])
            Spread(mean=0.5, deviation=0.3535..., count=2)
        """
        found = list(values)
        if not found:
            return None
        return cls(fmean(found), stdev(found) if len(found) > 1 else None, len(found))

    @property
    def half_interval(self) -> float | None:
        """Half the 95 % interval of the mean by Student's t; None with one seed.

        It is much wider than two standard errors if seeds are few: 12.7 with two, 4.3 with three.
        """
        from scipy.stats import t  # type: ignore[import-untyped]

        if self.deviation is None:
            return None
        quantile = float(t.ppf((1 + LEVEL) / 2, self.count - 1))
        return quantile * self.deviation / math.sqrt(self.count)

    def against(self, number: float) -> Literal["below", "within", "above"] | None:
        """Compare the 95 % interval of the mean with a number; None with one seed.

        Example:
            >>> Spread.of([1.0, 2.0, 3.0]).against(4.4)  # 2 ± 2.48
            'within'
            >>> Spread.of([1.0, 2.0, 3.0]).against(4.5)
            'below'
        """
        half = self.half_interval
        if half is None:
            return None
        if abs(self.mean - number) <= half + 1e-9:
            return "within"
        return "above" if self.mean > number else "below"


@dataclass(frozen=True)
class Change:
    """The mean score of one method minus that of another.

    Attributes:
        mean: The measured difference.
        low: The lower end of its interval.
        high: The upper end of its interval.
    """

    mean: float
    low: float
    high: float

    @property
    def within_noise(self) -> bool:
        """Whether zero is inside the interval: there may be no difference."""
        return self.low <= 0 <= self.high


class Predictions(Protocol):
    """The predictions of one run: names of the samples, true and predicted classes ``(n,)``."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def target(self) -> "NDArray[np.int64] | Tensor": ...
    @property
    def predicted(self) -> "NDArray[np.int64] | Tensor": ...


def paired_change(
    first: Sequence[Predictions], second: Sequence[Predictions], objective: "Objective"
) -> Change:
    """Compute how much better the first method is, with a 95 % bootstrap interval.

    Each draw resamples seeds with replacement. For each seed it draws samples with replacement
    within each class, the same for both methods. The draw is the difference of the weighted mean
    scores, averaged over the drawn seeds. Classes with fewer than ``SMALL_CLASS`` samples are
    resampled together (collapsed strata). If all seeds have the same samples (an official test
    set), each draw uses the same samples in every seed, because the effect of the samples then does
    not average out over seeds.

    The interval covers the choice of test samples, given the size of each class, and the choice of
    seeds (splits, initial weights, orders). It does not cover:

    - Few seeds: if three seeds vary more than their samples, a 95 % interval contains the true
      value about 70 % of the time. With one seed it covers the samples only.
    - Dependent samples, such as images of one patient, or samples in the test sets of some but not
      all seeds. They are treated as independent.
    - Several methods: there is no correction. Of 20 methods that are equal to the baseline, one is
      expected to look better or worse.

    Args:
        first: The predictions of the first method, for each seed.
        second: The predictions of the second method, for the same seeds and samples.
        objective: The objective. The score of a sample is 1 or 0; with misclassification costs
            it is minus its share of the largest cost.
    """
    classes = [np.asarray(run.target) for run in first]
    terms = [
        sample_weights(target, objective)
        * (
            sample_scores(target, np.asarray(one.predicted), objective)
            - sample_scores(target, np.asarray(other.predicted), objective)
        )
        for target, one, other in zip(classes, first, second, strict=True)
    ]
    generator = np.random.default_rng(0)
    seeds = len(first)
    if all(run.names == first[0].names for run in first):
        drawn_seeds = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=DRAWS) / seeds
        sums = _resample(np.stack(terms, axis=1), classes[0], DRAWS, generator)  # (seeds, draws)
        drawn = (sums.T * drawn_seeds).sum(1)
    else:
        numbers = generator.integers(seeds, size=(DRAWS, seeds))
        differences = np.empty(numbers.shape)
        for number in range(seeds):
            here = numbers == number
            own = _resample(terms[number][:, None], classes[number], here.sum(), generator)
            differences[here] = own[0]
        drawn = differences.mean(1)
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Change(float(np.mean([own.sum() for own in terms])), float(low), float(high))


def sample_scores(
    target: NDArray[np.int64], predicted: NDArray[np.int64], objective: "Objective"
) -> NDArray[np.float64]:
    """Score each sample, shape ``(n,)``: 1 or 0, or minus its share of the largest cost.

    With E of :meth:`cosen.costs.Objective.error`, the weighted mean is 1 - E for ``"overall"`` and
    ``"balanced"``, and -E for misclassification costs.

    Example:
        >>> import torch
        >>> from cosen.costs import Objective
        >>> target, predicted = np.array([0, 0, 1]), np.array([0, 1, 0])
        >>> sample_scores(target, predicted, Objective.of([[0, 1], [4, 0]]))
        array([-0.  , -0.25, -1.  ])
    """
    if objective.misclassification_costs is not None:
        costs = objective.misclassification_costs.double().numpy()
        return np.asarray(-costs[target, predicted] / costs.max())
    return np.asarray(target == predicted, dtype=np.float64)


def sample_weights(target: NDArray[np.int64], objective: "Objective") -> NDArray[np.float64]:
    """Return the weight of each sample, shape ``(n,)``, with a sum of 1.

    Under ``"balanced"`` all classes in ``target`` have the same weight, else all samples.

    Example:
        >>> from cosen.costs import Objective
        >>> sample_weights(np.array([0, 0, 2]), Objective.of("balanced"))
        array([0.25, 0.25, 0.5 ])
    """
    if objective.name == "balanced":
        present, place, counts = np.unique(target, return_inverse=True, return_counts=True)
        return np.asarray(1.0 / (len(present) * counts[place]))
    return np.full(len(target), 1 / len(target))


def _resample(
    terms: NDArray[np.float64],
    classes: NDArray[np.int64],
    draws: int,
    generator: np.random.Generator,
) -> NDArray[np.float64]:
    """Sum the terms of resampled samples, from ``(n, seeds)`` to ``(seeds, draws)``.

    Most samples of a stratum have equal terms. So this draws how many samples have each distinct
    term, instead of single samples.
    """
    sums = np.zeros((terms.shape[1], draws))
    for rows in _strata(classes):
        distinct, first, counts = np.unique(
            terms[rows], axis=0, return_index=True, return_counts=True
        )
        if len(distinct) == 1:
            sums += len(rows) * distinct.T
            continue
        # Not sorted by sign: swapped methods get the same draws. Rare terms are fastest.
        order = np.lexsort((first, counts))
        distinct, counts = distinct[order], counts[order]
        drawn = generator.multinomial(len(rows), counts / len(rows), size=draws)
        sums += distinct.T @ drawn.T  # (seeds, distinct) @ (distinct, draws)
    return sums


def _strata(classes: NDArray[np.int64]) -> list[NDArray[np.intp]]:
    """Return the samples of each class; small classes form one stratum together."""
    _, place, counts = np.unique(classes, return_inverse=True, return_counts=True)
    small = counts < SMALL_CLASS
    if 0 < counts[small].sum() < SMALL_CLASS and not small.all():
        small[np.argmin(np.where(small, counts.max() + 1, counts))] = True
    stratum = np.where(small, -1, np.arange(len(counts)))[place]
    return [np.flatnonzero(stratum == label) for label in np.unique(stratum)]
