"""Fixed costs: those of the paper's comparison (H, S, M), or from a CSV."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from cosen import functional as F
from cosen.costs import validation_rates
from cosen.costs.cost_table import read_cost_table
from cosen.errors import InputError
from cosen.files import expand_user
from cosen.functional.costs import RelativeTo
from cosen.losses import CostSensitiveCrossEntropyLoss
from cosen.methods.method import NetworkMethod, Setting


@dataclass(frozen=True)
class FixedFrequencies(NetworkMethod):
    """ξ = H, costs from class frequencies.

    Attributes:
        relative_to: Whether frequencies are relative to the ``"total"`` or the ``"largest"`` class.
    """

    name = "fixed-h"
    description = "fixed costs from the class frequencies (H)"

    relative_to: RelativeTo = "total"

    def make_loss(self, setting: Setting) -> nn.Module:
        return CostSensitiveCrossEntropyLoss.from_class_counts(
            setting.class_counts, relative_to=self.relative_to
        )


@dataclass(frozen=True)
class _FixedStatistic(NetworkMethod):
    """Fixed costs from a statistic of the baseline on the validation split.

    The paper sets the costs equal to the statistic. This lowers the loss of every class for errors
    that it does not make. By default, the costs are the factor of the statistic in the target T, as
    in adaptive costs.

    Attributes:
        reading: ``"factor"`` (the factor in T) or ``"statistic"`` (the statistic itself).
        mean: μ of the factor.
        std: σ of the factor.
    """

    starts_from_baseline = True

    reading: Literal["factor", "statistic"] = "factor"
    mean: float = 1.0
    std: float = 0.5

    def __post_init__(self) -> None:
        if self.reading not in ("factor", "statistic"):
            raise InputError(f"reading must be factor or statistic, but is {self.reading!r}")
        if not (self.std > 0 and math.isfinite(self.mean)):
            raise InputError("mean must be finite and std positive")

    @abstractmethod
    def statistic(self, setting: Setting) -> Tensor:
        """Return the statistic, shape ``(C, C)``."""

    def make_loss(self, setting: Setting) -> nn.Module:
        statistic = self.statistic(setting)
        if self.reading == "statistic":
            return CostSensitiveCrossEntropyLoss(F.project_costs(statistic))
        costs = F.target_costs(
            torch.ones_like(statistic),
            None,
            statistic,
            separability_mean=0.0,
            separability_std=math.inf,
            confusion_mean=self.mean,
            confusion_std=self.std,
        )
        return CostSensitiveCrossEntropyLoss(costs)


class FixedSeparability(_FixedStatistic):
    """ξ from S, the separability of the classes in the baseline's features."""

    name = "fixed-s"
    description = "fixed costs from the class separability (S) of the baseline's features"

    def statistic(self, setting: Setting) -> Tensor:
        assert setting.baseline is not None
        outputs, classes = setting.baseline, len(setting.class_counts)
        return F.class_separability(outputs.features, outputs.target, num_classes=classes)


class FixedErrors(_FixedStatistic):
    """ξ from R, the baseline's confusion rates on the validation split (M in the paper's table)."""

    name = "fixed-m"
    description = "fixed costs from the baseline's validation errors (M)"

    def statistic(self, setting: Setting) -> Tensor:
        assert setting.baseline is not None
        return validation_rates(setting.baseline.confusion())


@dataclass(frozen=True)
class FixedCosts(NetworkMethod):
    """Fixed costs from a CSV.

    Attributes:
        costs: A CSV with the class names in its header and first column, row = true class.
    """

    name = "fixed-costs"
    description = "fixed costs from a CSV (--set options.costs=FILE)"

    costs: str = ""

    def __post_init__(self) -> None:
        if not self.costs:
            raise InputError(
                f"costs must be a CSV: set it with --set options.costs=FILE (in cosen compare, "
                f"{self.name}.costs=FILE)"
            )

    def check(self, setting: Setting) -> None:
        super().check(setting)
        self._read(setting)

    def make_loss(self, setting: Setting) -> nn.Module:
        return CostSensitiveCrossEntropyLoss(self._read(setting))

    def _read(self, setting: Setting) -> Tensor:
        names = setting.class_names
        try:
            costs = read_cost_table(expand_user(self.costs), names)
        except InputError as error:
            raise InputError(f"method {self.name}: {error}") from error
        wrong = ~((costs > 0) & (costs <= 1))
        if bool(wrong.any()):
            row, column = wrong.nonzero()[0].tolist()
            cost = float(costs[row, column])
            raise InputError(
                f"method {self.name}: costs must lie in (0, 1], but {self.costs} has {cost:g} for "
                f"true class {names[row]!r} and output {names[column]!r}"
            )
        return costs
