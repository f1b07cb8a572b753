"""A figure over seeds: its mean, and how far seeds are apart."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from cosen.comparing.bootstrap import LEVEL


@dataclass(frozen=True)
class Spread:
    """A mean over seeds.

    Attributes:
        mean: The mean.
        deviation: The standard deviation over seeds; None with one seed.
        count: How many seeds.
    """

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """The mean and the deviation of some values; None where there are none.

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
        """Half the mean's 95 % interval over seeds, by Student's t; None with one seed.

        With few seeds that is far more than two standard errors: 12.7 with two, 4.3 with three.
        """
        from scipy.stats import t  # type: ignore[import-untyped]

        if self.deviation is None:
            return None
        quantile = float(t.ppf((1 + LEVEL) / 2, self.count - 1))
        return quantile * self.deviation / math.sqrt(self.count)

    def against(self, number: float) -> Literal["below", "within", "above"] | None:
        """Where the mean lies beside a number, by its 95 % interval; None with one seed.

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
