"""Learned costs as in the paper: the outer step of Algorithm 1, for any training loop.

Create ``learner = CostLearner(class_counts)``, use ``learner(logits, target)`` as the loss, and
call ``learner.step(val_logits, val_target, val_features)`` after each epoch.
"""

import logging
import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from cosen import functional as F
from cosen.costs.learned import CostStep, LearnedCosts
from cosen.costs.objective import Objective, validation_rates
from cosen.errors import InputError
from cosen.functional.checks import (
    check_choice,
    check_gaussian,
    check_misclassification_costs,
    check_number,
    check_tensor,
)
from cosen.functional.costs import FLOOR, RelativeTo
from cosen.functional.reduction import classes_last
from cosen.losses import (
    CostSensitiveCrossEntropyLoss,
    CostSensitiveHingeLoss,
    CostSensitiveMSELoss,
    Numbers,
    as_numbers,
)

_log = logging.getLogger("cosen")

MATRICES = 6
"""Matrices during a step: the costs, and for a moment the frequencies, the errors, the target and
what it is computed from. Afterwards one is kept."""

Acceptance = Literal["shrink", "revert", "always"]
LossName = Literal["cross_entropy", "hinge", "mse"]
LOSSES = {
    "cross_entropy": CostSensitiveCrossEntropyLoss,
    "hinge": CostSensitiveHingeLoss,
    "mse": CostSensitiveMSELoss,
}


@dataclass(frozen=True, eq=False)
class PaperCostStep(CostStep):
    """Result of a step of :class:`CostLearner`."""

    cost_lr: float  # γ_ξ of the step
    cost_matrix: Tensor  # ξ after the step, shape (C, C)
    target_costs: Tensor  # T, shape (C, C)
    separability: Tensor | None  # S, shape (C, C); None if it is not used

    @property
    def costs(self) -> Tensor:
        return self.cost_matrix


class CostLearner(LearnedCosts):
    """Cost-sensitive loss with costs learned from frequencies, separability and errors.

    After each epoch :meth:`step` compares the validation error with the lowest one so far,
    computes the target T from the class frequencies H, the separability S and the errors R, and
    moves the costs towards T. Costs are used in training only.

    Args:
        class_counts: Training samples per class, shape ``(C,)``.
        loss: ``"cross_entropy"``, ``"hinge"`` or ``"mse"``.
        cost_lr: γ_ξ, the step size: 0 is no step, 1 goes to T.
        acceptance: What to do if the validation error rises above the lowest one so far:
            ``"shrink"`` multiplies γ_ξ by ``shrink`` (Algorithm 1), ``"revert"`` also undoes the
            last step (the paper's text), ``"always"`` does nothing.
        shrink: Factor for γ_ξ.
        objective: What the validation error measures; see :class:`~cosen.costs.Objective`.
        separability_mean: μ₁.
        separability_std: σ₁; infinite (the default) omits S, which saves time.
        confusion_mean: μ₂.
        confusion_std: σ₂; infinite omits R.
        separability_every: Steps between two computations of S.
        relative_to: Whether h is relative to the ``"total"`` or to the ``"largest"`` class.
        floor: Lower bound of the costs.
        misclassification_costs: ξ′, shape ``(C, C)``, to blend into T.
        misclassification_weight: Share of ξ′ in T, 0 to 1 (in log space).
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: As in the other losses.
        ignore_index: Class index of samples to ignore, in the loss and in :meth:`step`.

    Example:
        >>> learner = CostLearner([90, 10])
        >>> step = learner.step(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
        >>> step.val_error, learner.costs
        (0.5, tensor([[0.7517, 0.3378],
                      [0.7517, 0.0375]]))
    """

    state_names = ("cost_lr",)
    frequencies: Tensor
    previous_costs: Tensor | None  # only to revert a step
    separability: Tensor | None  # only if it is used
    misclassification_costs: Tensor | None

    def __init__(
        self,
        class_counts: Numbers,
        *,
        loss: LossName = "cross_entropy",
        cost_lr: float = 1.0,
        acceptance: Acceptance = "shrink",
        shrink: float = 0.01,
        objective: Objective | str | Numbers = "overall",
        separability_mean: float = 1.0,
        separability_std: float = math.inf,
        confusion_mean: float = 0.7,
        confusion_std: float = 0.5,
        separability_every: int = 10,
        relative_to: RelativeTo = "total",
        floor: float = FLOOR,
        misclassification_costs: Numbers | None = None,
        misclassification_weight: float = 0.5,
        reduction: F.Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
    ) -> None:
        check_choice(loss, LOSSES, name="loss")
        check_choice(acceptance, get_args(Acceptance), name="acceptance")
        for name, value in (
            ("cost_lr", cost_lr),
            ("shrink", shrink),
            ("misclassification_weight", misclassification_weight),
        ):
            check_number(value, name=name)
            if not 0 <= value <= 1:
                raise InputError(f"{name} must lie in [0, 1], but is {value}")
        check_number(separability_every, name="separability_every")
        if separability_every < 1:
            raise InputError(f"separability_every must be at least 1, but is {separability_every}")
        frequencies = F.class_frequencies(
            as_numbers(class_counts, name="class_counts"), relative_to=relative_to
        )
        classes = len(frequencies)
        super().__init__(
            classes,
            objective,
            reduction=reduction,
            label_smoothing=label_smoothing,
            ignore_index=ignore_index,
        )
        self.loss = LOSSES[loss].loss
        if classes > F.MANY_CLASSES:
            _log.warning(
                "costs of %d x %d pairs of classes need up to %.1f GB of memory: AdaptiveCosts "
                "need none of it",
                *(classes, classes, MATRICES * 4 * classes**2 / 2**30),
            )
        self.register_buffer("costs", torch.ones(classes, classes))
        given = None
        if misclassification_costs is not None:
            name = "misclassification_costs"
            given = as_numbers(misclassification_costs, name=name).float()
            check_misclassification_costs(given, num_classes=classes, name=name)
        self.register_buffer("misclassification_costs", given)
        self.register_buffer("frequencies", frequencies)
        for name, is_used in (
            ("previous_costs", acceptance == "revert"),
            ("separability", math.isfinite(separability_std)),
        ):
            self.register_buffer(name, torch.ones(classes, classes) if is_used else None)
        self.acceptance = acceptance
        self.shrink = shrink
        self.separability_mean, self.separability_std = separability_mean, separability_std
        self.confusion_mean, self.confusion_std = confusion_mean, confusion_std
        self.separability_every = separability_every
        self.floor = floor
        self.misclassification_weight = misclassification_weight
        self.cost_lr = cost_lr
        for name, mean, std in (
            ("separability", separability_mean, separability_std),
            ("confusion", confusion_mean, confusion_std),
        ):
            check_gaussian(mean, std, name=name)

    @property
    def needs_features(self) -> bool:
        """Whether S is used and :meth:`step` needs features."""
        return math.isfinite(self.separability_std)

    @torch.no_grad()
    def step(self, logits: Tensor, target: Tensor, features: Tensor | None = None) -> PaperCostStep:
        """Evaluate the last step by the validation error, and take the next one.

        Args:
            logits, target: As in :meth:`LearnedCosts.step`.
            features: Penultimate features, shape ``(V, D)`` or ``(V, D, d1, ...)``; needed only if
                S is used.
        """
        logits, target, kept = self._validation(logits, target)
        separability = None
        if self.needs_features and self.steps % self.separability_every == 0:
            separability = self._separability(features, target, kept)
        counts, error, accepted = self._evaluate(logits, target)
        samples = F.confusion_sums(counts).actual
        if not accepted and self.acceptance != "always":
            self.cost_lr *= self.shrink
        if not accepted and self.previous_costs is not None:
            self.costs.copy_(self.previous_costs)
        if separability is not None and self.separability is not None:
            self.separability.copy_(separability)
            self._warn_missing_classes(samples, least=2, what="separability")
        self._warn_missing_classes(samples, least=1, what="errors")
        confusion = validation_rates(counts.float().to_dense())
        goal = self._target_costs(confusion)
        if self.previous_costs is not None:
            self.previous_costs.copy_(self.costs)
        self.costs.copy_(F.step_costs(self.costs, goal, cost_lr=self.cost_lr, floor=self.floor))
        self.steps += 1
        return PaperCostStep(
            number=self.steps,
            val_error=error,
            best_error=self.best_error,
            accepted=accepted,
            confusion=confusion,
            cost_lr=self.cost_lr,
            cost_matrix=self.costs.clone(),
            target_costs=goal,
            separability=None if self.separability is None else self.separability.clone(),
        )

    def _separability(self, features: Tensor | None, target: Tensor, kept: Tensor) -> Tensor:
        if features is None:
            raise InputError("step() needs features because the separability is used")
        check_tensor(features, name="features")
        features = classes_last(features)
        if len(features) != len(kept):
            raise InputError(
                f"step() needs features of {len(kept)} samples, but was given {len(features)}"
            )
        features = features.to(self.device)[kept]
        return F.class_separability(features, target, num_classes=self.num_classes)

    def _target_costs(self, confusion: Tensor) -> Tensor:
        goal = F.target_costs(
            F.frequency_matrix(self.frequencies),
            self.separability,
            confusion,
            separability_mean=self.separability_mean,
            separability_std=self.separability_std,
            confusion_mean=self.confusion_mean,
            confusion_std=self.confusion_std,
            floor=self.floor,
        )
        if self.misclassification_costs is None:
            return goal
        given = F.costs_from_misclassification(self.misclassification_costs, floor=self.floor)
        blended = torch.lerp(goal.log(), given.log(), self.misclassification_weight).exp()
        return F.project_costs(blended, floor=self.floor)
