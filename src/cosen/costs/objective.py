"""The objective: what the validation error measures, and how certain it is."""

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from cosen import functional as F
from cosen.costs.cost_table import read_misclassification_costs
from cosen.errors import InputError
from cosen.files import expand_user
from cosen.functional.checks import check_misclassification_costs
from cosen.losses import Numbers, as_numbers


@dataclass(frozen=True, eq=False)
class Objective:
    """The measure of a network's quality: one of three weighted means of errors.

    Attributes:
        name: ``"overall"`` is the share of samples that are wrong, ``"balanced"`` the mean over
            classes of that share, ``"costs"`` the mean misclassification cost divided by the
            largest one.
        misclassification_costs: ξ′, row = true class, shape ``(C, C)``; only with ``"costs"``.
    """

    name: Literal["overall", "balanced", "costs"]
    misclassification_costs: Tensor | None = None

    LABELS: ClassVar[dict[str, str]] = {
        "overall": "overall accuracy",
        "balanced": "mean class recall",
        "costs": "mean misclassification cost",
    }

    @classmethod
    def of(cls, value: "Objective | str | Numbers", *, num_classes: int | None = None) -> Self:
        """Create an objective from its name or from a matrix of misclassification costs.

        Args:
            value: ``"overall"``, ``"balanced"``, a matrix ξ′, or an objective.
            num_classes: The size that a matrix must have, if known.

        Example:
            >>> Objective.of("balanced").label, Objective.of([[0, 1], [5, 0]]).largest_cost
            ('mean class recall', 5.0)
        """
        if isinstance(value, Objective):
            value = value.name if value.misclassification_costs is None else value.matrix
        if isinstance(value, str) and value in ("overall", "balanced"):
            return cls(value)  # type: ignore[arg-type]
        if isinstance(value, str) or value is None:
            raise InputError(
                f"objective must be 'overall', 'balanced' or a matrix of costs, but is {value!r}"
            )
        matrix = as_numbers(value, name="objective").float()
        classes = len(matrix) if num_classes is None and matrix.ndim else num_classes
        check_misclassification_costs(matrix, num_classes=classes, name="objective")
        if not bool(matrix.any()):
            raise InputError("the costs in objective are all zero: give at least one above zero")
        return cls("costs", matrix)

    @classmethod
    def read(cls, text: str, class_names: tuple[str, ...]) -> Self:
        """Create an objective from a setting: ``overall``, ``balanced`` or the path of a CSV."""
        if text in ("overall", "balanced"):
            return cls.of(text)
        if not text.lower().endswith(".csv"):
            raise InputError(
                f"objective must be overall, balanced or a CSV of misclassification costs, but is "
                f"{text!r}"
            )
        return cls.of(read_misclassification_costs(expand_user(text), class_names))

    @property
    def matrix(self) -> Tensor:
        """The misclassification costs; only for ``"costs"``."""
        assert self.misclassification_costs is not None
        return self.misclassification_costs

    @property
    def label(self) -> str:
        """Description of what it measures."""
        return self.LABELS[self.name]

    @property
    def largest_cost(self) -> float | None:
        """The largest misclassification cost, which errors are divided by; else None."""
        return None if self.misclassification_costs is None else float(self.matrix.max())

    def error(self, confusion: Tensor) -> float:
        """Return E_val of a confusion matrix of counts, between 0 (perfect) and 1.

        Args:
            confusion: Counts, row = true class, shape ``(C, C)``; may be sparse.

        Example:
            >>> Objective.of("balanced").error(torch.tensor([[9, 1], [1, 1]]))
            0.3...
        """
        if self.name == "overall":
            return 1 - float(F.overall_accuracy(confusion.double()))
        if self.name == "balanced":
            return 1 - float(F.mean_recall(confusion.double()))
        costs, counts = self._costs_and_counts(confusion)
        return float((counts * costs).sum() / counts.sum() / self.matrix.max())

    def _costs_and_counts(self, confusion: Tensor) -> tuple[Tensor, Tensor]:
        """Return the costs and the counts of pairs of classes, the occurring ones if sparse."""
        costs = self.matrix.to(confusion.device, torch.float64)
        if not confusion.is_sparse:
            return costs, confusion.double()
        rows, columns = confusion.indices()
        return costs[rows, columns], confusion.values().double()

    def noise(self, confusion: Tensor) -> float:
        """Return the standard error of :meth:`error` over samples.

        Args:
            confusion: Counts, row = true class, shape ``(C, C)``; may be sparse.

        Example:
            >>> round(Objective.of("balanced").noise(torch.tensor([[9, 1], [1, 1]])), 2)
            0.18
        """
        right, totals, _ = F.confusion_sums(confusion.double())
        if self.name == "balanced":
            present = totals > 0
            right, samples = right[present], totals[present]
            recall = (right + 0.5) / (samples + 1)  # a class with one sample is uncertain
            variances = recall * (1 - recall) / samples
            return float(variances.sum().sqrt() / present.sum())
        if self.name == "costs":
            costs, counts = self._costs_and_counts(confusion)
            costs = costs / self.matrix.max()
            mean = (counts * costs).sum() / totals.sum()
            variance = (counts * (costs - mean).square()).sum() / totals.sum()
        else:
            right_share = right.sum() / totals.sum()
            variance = right_share * (1 - right_share)
        return float((variance / totals.sum()).sqrt())

    def class_importance(self, class_counts: Tensor) -> Tensor:
        """Return the weight of an error on a sample of each class, shape ``(C,)``.

        With misclassification costs it is the mean cost of a class's errors.

        Args:
            class_counts: Samples of each class, shape ``(C,)``.

        Example:
            >>> Objective.of("balanced").class_importance(torch.tensor([90, 10]))
            tensor([ 1.1111, 10.0000])
        """
        counts = class_counts.to(torch.float32)
        if self.name == "overall":
            return torch.ones_like(counts)
        if self.name == "balanced":
            return counts.sum() / counts
        costs = self.matrix.to(counts.device, torch.float32)
        mean = (costs.sum(1) - costs.diagonal()) / max(1, len(costs) - 1)
        return mean.clamp(min=1e-3 * float(costs.max()))  # for a class whose errors cost nothing


OVERALL = Objective("overall")
BALANCED = Objective("balanced")


def validation_rates(counts: Tensor) -> Tensor:
    """Return R, the row rates of a confusion matrix of counts, shape ``(C, C)``.

    A class without validation samples gets the mean recall and error rate of the others, unless the
    counts are sparse.
    """
    rates = F.confusion_rates(counts)
    if rates.is_sparse:
        return rates
    is_absent = counts.sum(1) == 0
    if not bool(is_absent.all()):
        recall = rates.diagonal()[~is_absent].mean()
        absent = is_absent.nonzero().squeeze(1)
        rates[absent] = (1 - recall) / max(1, len(counts) - 1)
        rates[absent, absent] = recall
    return rates
