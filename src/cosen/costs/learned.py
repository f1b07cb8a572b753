"""Base classes of learned costs: a loss whose costs change in a step after each epoch."""

import logging
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from cosen import functional as F
from cosen.costs.objective import Objective
from cosen.errors import InputError
from cosen.functional.checks import check_logit_values, check_tensor
from cosen.functional.reduction import prepare_batch
from cosen.losses import CostSensitiveLoss, Numbers

_log = logging.getLogger("cosen")

SHOWN_CLASSES = 10
"""Classes that a warning lists."""


@dataclass(frozen=True, eq=False)
class CostStep(ABC):
    """Result of one step of the costs.

    Attributes:
        number: Number of the step, from 1.
        val_error: E_val, the validation error before the step.
        best_error: Lowest validation error so far.
        accepted: Whether the error is not above the lowest earlier error.
        confusion: R, row rates on the validation split, shape ``(C, C)``; a sparse tensor if there
            are more than 1,000 classes.
    """

    number: int
    val_error: float
    best_error: float
    accepted: bool
    confusion: Tensor

    @property
    @abstractmethod
    def costs(self) -> Tensor:
        """ξ after the step, shape ``(C, C)``."""


class LearnedCosts(CostSensitiveLoss, ABC):
    """Base class: a cost-sensitive loss with a :meth:`step` of the costs after each epoch.

    Args:
        num_classes: Number of classes C.
        objective: What the validation error measures, see :class:`~cosen.costs.Objective`.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: As in the other losses.
        ignore_index: Class index of samples to ignore, in the loss and in :meth:`step`.
    """

    state_names: ClassVar[tuple[str, ...]]
    """Learned numbers that the state dict contains."""

    def __init__(
        self,
        num_classes: int,
        objective: Objective | str | Numbers,
        *,
        reduction: F.Reduction,
        label_smoothing: float,
        ignore_index: int,
    ) -> None:
        super().__init__(
            reduction=reduction, label_smoothing=label_smoothing, ignore_index=ignore_index
        )
        self.num_classes = num_classes
        self.objective = Objective.of(objective, num_classes=num_classes)
        self.best_error = math.inf
        self.steps = 0
        self._warned: set[str] = set()

    @property
    def device(self) -> torch.device:
        """The device of the costs."""
        return next(self.buffers()).device

    @property
    def needs_features(self) -> bool:
        """Whether :meth:`step` needs features."""
        return False

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        self._check_outputs(logits)
        return super().forward(logits, target)

    @abstractmethod
    def step(self, logits: Tensor, target: Tensor, features: Tensor | None = None) -> CostStep:
        """Evaluate the network on the validation split and change the costs.

        Args:
            logits: Network outputs for the validation split, shape ``(V, C)`` or
                ``(V, C, d1, ...)``.
            target: True classes, shape ``(V,)`` or ``(V, d1, ...)``.
            features: Penultimate features, shape ``(V, D)`` or ``(V, D, d1, ...)``, if
                :attr:`needs_features`.
        """

    def _validation(self, logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Check and flatten validation outputs, and remove the ignored ones.

        All checks run before any change, so a failed step can be repeated.

        Returns:
            Logits ``(K, C)`` and classes ``(K,)`` on the device of the costs, and a mask ``(N,)``
            of the samples or pixels that were kept.
        """
        check_tensor(logits, name="logits")
        check_tensor(target, name="target")
        self._check_outputs(logits)
        if logits.is_meta or target.is_meta or self.device.type == "meta":
            raise InputError("step() needs values, but a tensor is on the device meta")
        if target.is_floating_point():
            raise InputError(f"target of step() must be class indices, but is {target.dtype}")
        batch = prepare_batch(  # on the CPU, where values are checked too
            logits.detach().cpu(), target.cpu(), reduction="none", ignore_index=self.ignore_index
        )
        batch.check_values()
        check_logit_values(batch.given)
        kept = batch.target != self.ignore_index
        if not bool(kept.any()):
            raise InputError("the validation split has no samples: learned costs need some")
        outputs, classes, device = batch.logits, batch.target, self.device
        if not bool(kept.all()):  # a copy may be large
            outputs, classes = outputs[kept], classes[kept]
        return outputs.to(device), classes.to(device), kept.to(device)

    def _check_outputs(self, logits: Tensor) -> None:
        if isinstance(logits, Tensor) and logits.ndim:
            outputs = logits.shape[min(1, logits.ndim - 1)]
            if outputs != self.num_classes:
                raise InputError(
                    f"the network has {outputs} outputs, but there are costs for "
                    f"{self.num_classes} classes: pass as many class counts as the network has "
                    "outputs"
                )

    def _evaluate(self, logits: Tensor, target: Tensor) -> tuple[Tensor, float, bool]:
        """Return the confusion counts, the validation error, and whether it is accepted."""
        counts = F.confusion_matrix(
            target,
            logits.argmax(1),
            num_classes=self.num_classes,
            sparse=self.num_classes > F.MANY_CLASSES,
        )
        error = self.objective.error(counts)
        accepted = error <= self.best_error
        self.best_error = min(error, self.best_error)
        return counts, error, accepted

    def _warn_missing_classes(self, counts: Tensor, *, least: int, what: str) -> None:
        """Warn once about classes with fewer than ``least`` validation samples."""
        missing = (counts < least).nonzero().flatten().tolist()
        others = len(missing) - SHOWN_CLASSES
        if missing and what not in self._warned:
            self._warned.add(what)
            _log.warning(
                "validation has %s of class %s: averages are used for the %s",
                "no sample" if least == 1 else f"fewer than {least} samples",
                ", ".join(map(str, missing[:SHOWN_CLASSES]))
                + (f" and {others} others" if others > 0 else ""),
                what,
            )

    def get_extra_state(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*self.state_names, "best_error", "steps")}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        if state.keys() != self.get_extra_state().keys():
            raise InputError(
                f"the state is not that of {type(self).__name__}: load it into the class that "
                "saved it"
            )
        for name, value in state.items():
            setattr(self, name, value)

    def extra_repr(self) -> str:
        learned = [f"{name}={getattr(self, name):g}" for name in self.state_names]
        return ", ".join([*learned, f"steps={self.steps}", f"reduction={self.reduction!r}"])
