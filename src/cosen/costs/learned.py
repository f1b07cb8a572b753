"""What all learned costs share: a loss with costs in it, and a step once an epoch."""

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from cosen import functional as F
from cosen.costs.objective import Objective, checked_objective, validation_error
from cosen.errors import InputError
from cosen.functional.checks import check_class_indices, check_logits, check_tensor
from cosen.losses import CostSensitiveLoss, Numbers

_log = logging.getLogger("cosen")


@dataclass(frozen=True, eq=False)
class CostStep:
    """One step of the costs, and all that led to it.

    Attributes:
        number: Counted from 1.
        val_error: E_val of the network as it came out of the epoch before.
        best_error: The least E_val so far.
        accepted: Whether the error did not rise above the least so far; the first step always is.
        cost_lr: γ_ξ that the step was taken with.
        costs: ξ after the step, shape ``(C, C)``.
        target_costs: T.
        confusion: R, row rates on the validation split.
        separability: S, or None where its factor is switched off.
        strengths: The few numbers behind the costs, by name, where there are any.
    """

    number: int
    val_error: float
    best_error: float
    accepted: bool
    cost_lr: float
    costs: Tensor
    target_costs: Tensor
    confusion: Tensor
    separability: Tensor | None
    strengths: Mapping[str, float] = field(default_factory=dict)


class LearnedCosts(torch.nn.Module, ABC):
    """A cost-sensitive loss whose costs take a :meth:`step` after each epoch.

    Args:
        criterion: The loss, with the costs to start from.
        objective: What validation measures, see :func:`~cosen.costs.validation_error`.
    """

    def __init__(self, criterion: CostSensitiveLoss, objective: Objective | Numbers) -> None:
        super().__init__()
        self.criterion = criterion
        self.objective = checked_objective(objective, num_classes=len(self.costs))
        self.best_error = math.inf
        self.steps = 0
        self._said: set[str] = set()

    @property
    def costs(self) -> Tensor:
        """ξ, shape ``(C, C)``."""
        return self.criterion.costs

    @property
    def needs_features(self) -> bool:
        """Whether :meth:`step` needs features."""
        return False

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The cost-sensitive loss with the present costs."""
        self._check_outputs(logits)
        loss: Tensor = self.criterion(logits, target)
        return loss

    @abstractmethod
    def step(self, logits: Tensor, target: Tensor, features: Tensor | None = None) -> CostStep:
        """Judge the network by the validation split, and change the costs.

        Args:
            logits: What the network gives for the validation split, shape ``(V, C)``.
            target: Its classes, shape ``(V,)``.
            features: Its penultimate features, shape ``(V, D)``, where they are needed.
        """

    def _checked_validation(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Both on the device of the costs; what nothing can be learned from is refused.

        All checks come before any change, so that a step that fails can be taken again.
        """
        check_tensor(logits, name="logits")
        check_logits(logits.detach().cpu())  # once an epoch its values may be read anywhere
        self._check_outputs(logits)
        if len(logits) == 0:
            raise InputError("validation has no samples: costs cannot be learned without any")
        check_tensor(target, name="target")
        is_whole = not target.is_floating_point() and not target.is_complex()
        if is_whole and bool((target < 0).any()):
            raise InputError(
                f"target of step() must be classes, but has {int(target.min())}: leave samples to "
                "be ignored out of it, and out of the logits"
            )
        check_class_indices(target, samples=len(logits), num_classes=len(self.costs), name="target")
        device = self.costs.device
        return logits.to(device), target.to(device)

    def _check_outputs(self, logits: Tensor) -> None:
        classes = len(self.costs)
        if isinstance(logits, Tensor) and logits.ndim == 2 and logits.shape[1] != classes:
            raise InputError(
                f"the network has {logits.shape[1]} outputs, but there are costs for {classes} "
                "classes: give the counts of as many classes as it has outputs"
            )

    def _judge(self, logits: Tensor, target: Tensor) -> tuple[Tensor, float, bool]:
        """The validation counts, their error, and whether that is no more than the least so far."""
        counts = F.confusion_matrix(target, logits.argmax(1), num_classes=len(self.costs))
        error = validation_error(counts, self.objective)
        accepted = error <= self.best_error
        self.best_error = min(error, self.best_error)
        return counts, error, accepted

    def _check_state(self, state: Mapping[str, object], *, like: str) -> None:
        if like not in state:
            raise InputError(
                f"this state is not that of {type(self).__name__}, but of another way to learn "
                "costs: load it into the kind that it was saved from"
            )

    def _say_which_classes_lack(self, counts: Tensor, *, least: int, what: str) -> None:
        """Say once of which classes there is too little to learn from."""
        lacking = (counts < least).nonzero().flatten().tolist()
        if lacking and what not in self._said:
            self._said.add(what)
            _log.warning(
                "validation has %s of class %s: averages stand in for the %s",
                "no sample" if least == 1 else f"fewer than {least} samples",
                ", ".join(map(str, lacking)),
                what,
            )
