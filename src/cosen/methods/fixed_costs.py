"""Fixed costs: the paper's Table comp_fixedcost (H, S, M), and costs of the user's own."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from cosen import functional as F
from cosen.costs import validation_rates
from cosen.errors import InputError
from cosen.functional.costs import RelativeTo
from cosen.losses import CostSensitiveCrossEntropyLoss
from cosen.methods.cost_table import read_cost_table
from cosen.methods.method import NetworkMethod, Setting

Reading = Literal["factor", "statistic"]


@dataclass(frozen=True)
class FixedFrequencies(NetworkMethod):
    """ξ = H, the costs of the class frequencies.

    Attributes:
        relative_to: Whether frequencies are relative to the ``"total"`` or the ``"largest"`` class.
    """

    name = "fixed-h"
    description = "fixed costs from the class frequencies (H)"

    relative_to: RelativeTo = "total"

    def make_loss(self, setting: Setting) -> nn.Module:
        return CostSensitiveCrossEntropyLoss.from_class_counts(
            torch.from_numpy(setting.class_counts), relative_to=self.relative_to
        )


@dataclass(frozen=True)
class _FixedStatistic(NetworkMethod):
    """A statistic of the baseline's network on the validation split as fixed costs.

    The paper says that the costs are "set equal to" the statistics. As it stands this lowers the
    loss of every class for the errors that it does not make; the default is the statistic's factor
    in the target T instead, the form in which it enters the adaptive costs.

    Attributes:
        reading: ``"factor"`` of T, or the bare ``"statistic"``.
        mean: μ of the factor.
        std: σ of the factor.
    """

    starts_from_baseline = True

    reading: Reading = "factor"
    mean: float = 1.0
    std: float = 0.5

    def __post_init__(self) -> None:
        if self.reading not in get_args(Reading):
            raise InputError(f"reading must be factor or statistic, but is {self.reading!r}")
        if not (self.std > 0 and math.isfinite(self.mean)):
            raise InputError("it needs a finite mean and a positive std")

    @abstractmethod
    def statistic(self, setting: Setting) -> Tensor:
        """The statistic, shape ``(C, C)``."""

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
        assert setting.baseline is not None  # it starts from the baseline
        outputs, classes = setting.baseline, len(setting.class_counts)
        return F.class_separability(outputs.features, outputs.target, num_classes=classes)


class FixedErrors(_FixedStatistic):
    """ξ from R, the baseline's confusion rates on the validation split (M in the paper's table)."""

    name = "fixed-m"
    description = "fixed costs from the baseline's validation errors (M)"

    def statistic(self, setting: Setting) -> Tensor:
        assert setting.baseline is not None  # it starts from the baseline
        return validation_rates(setting.baseline.confusion())


@dataclass(frozen=True)
class FixedCosts(NetworkMethod):
    """Costs of the user's own.

    Attributes:
        costs: A CSV with the class names in its header and first column, row = true class.
    """

    name = "fixed-costs"
    description = "fixed costs of your own, from a CSV (--set options.costs=FILE)"

    costs: str = ""

    def __post_init__(self) -> None:
        if not self.costs:
            raise InputError(
                "it needs a CSV of costs: name it with --set options.costs=FILE (in cosen compare, "
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
            costs = read_cost_table(Path(self.costs).expanduser(), names)
        except InputError as error:
            raise InputError(f"method {self.name}: {error}") from error
        wrong = ~((costs > 0) & (costs <= 1))
        if bool(wrong.any()):
            row, column = wrong.nonzero()[0].tolist()
            cost = float(costs[row, column])
            raise InputError(
                f"method {self.name}: costs must lie in (0, 1], but in {self.costs} that of true "
                f"class {names[row]!r} and output {names[column]!r} is {cost:g}"
            )
        return costs
