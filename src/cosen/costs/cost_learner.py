"""The paper's way to learn costs: the outer step of Algorithm 1, usable in any training loop.

Make ``learner = CostLearner(class_counts)``, use ``learner(logits, target)`` as the loss, and call
``learner.step(val_logits, val_target, val_features)`` once an epoch.
"""

import math
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from cosen import functional as F
from cosen.costs.learned import CostStep, LearnedCosts
from cosen.costs.objective import Objective, validation_rates
from cosen.errors import InputError
from cosen.functional.checks import check_costs, check_misclassification_costs, check_tensor
from cosen.functional.costs import FLOOR, RelativeTo
from cosen.losses import (
    CostSensitiveCrossEntropyLoss,
    CostSensitiveHingeLoss,
    CostSensitiveMSELoss,
    Numbers,
    as_numbers,
)

Acceptance = Literal["shrink", "revert", "always"]
LossName = Literal["cross_entropy", "hinge", "mse"]
LOSSES = {
    "cross_entropy": CostSensitiveCrossEntropyLoss,
    "hinge": CostSensitiveHingeLoss,
    "mse": CostSensitiveMSELoss,
}


class CostLearner(LearnedCosts):
    """A cost-sensitive loss whose costs are learned from frequencies, separability and errors.

    After each epoch :meth:`step` compares the validation error with the least so far, works out
    the target T from the class frequencies H, the separability S and the errors R, and moves the
    costs towards it. The costs matter in training only; the network is used as it is afterwards.

    Args:
        class_counts: Training samples of each class, shape ``(C,)``.
        loss: ``"cross_entropy"``, ``"hinge"`` or ``"mse"``.
        cost_lr: γ_ξ, the share of the way to T that a step goes.
        acceptance: What to do when the validation error has risen above the least so far:
            ``"shrink"`` multiplies γ_ξ by ``shrink`` (Algorithm 1), ``"revert"`` also undoes the
            step before (the paper's text), ``"always"`` goes on.
        shrink: The factor for γ_ξ.
        objective: What the validation error measures; see :func:`validation_error`.
        separability_mean: μ₁.
        separability_std: σ₁; infinite (the default) leaves S out, and then it costs no time.
        confusion_mean: μ₂.
        confusion_std: σ₂; infinite leaves R out.
        separability_every: Steps between two computations of S.
        relative_to: Whether h is relative to the ``"total"`` or to the ``"largest"`` class.
        floor: The least cost.
        expert: An expert's misclassification costs ξ′, shape ``(C, C)``, to blend into T.
        expert_weight: The share of the expert in T, 0 to 1 (in log space).
        label_smoothing: As in the losses.

    Example:
        >>> learner = CostLearner([90, 10])
        >>> step = learner.step(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
        >>> step.val_error, learner.costs
        (0.5, tensor([[0.7517, 0.3378],
                      [0.7517, 0.0375]]))
    """

    frequency_matrix: Tensor
    previous_costs: Tensor
    separability: Tensor
    expert_costs: Tensor | None

    def __init__(
        self,
        class_counts: Numbers,
        *,
        loss: LossName = "cross_entropy",
        cost_lr: float = 1.0,
        acceptance: Acceptance = "shrink",
        shrink: float = 0.01,
        objective: Objective | Numbers = "overall",
        separability_mean: float = 1.0,
        separability_std: float = math.inf,
        confusion_mean: float = 0.7,
        confusion_std: float = 0.5,
        separability_every: int = 10,
        relative_to: RelativeTo = "total",
        floor: float = FLOOR,
        expert: Numbers | None = None,
        expert_weight: float = 0.5,
        label_smoothing: float = 0.0,
    ) -> None:
        _check_choice("loss", loss, LOSSES)
        _check_choice("acceptance", acceptance, get_args(Acceptance))
        for name, value, low, high in (
            ("cost_lr", cost_lr, 0.0, 1.0),
            ("shrink", shrink, 0.0, 1.0),
            ("expert_weight", expert_weight, 0.0, 1.0),
        ):
            if not low <= value <= high:
                raise InputError(f"{name} must lie in [{low:g}, {high:g}], but is {value}")
        if separability_every < 1:
            raise InputError(f"separability_every must be at least 1, but is {separability_every}")
        frequencies = F.class_frequencies(
            as_numbers(class_counts, name="class_counts"), relative_to=relative_to
        )
        classes = len(frequencies)
        ones = torch.ones(classes, classes)
        super().__init__(LOSSES[loss](ones, label_smoothing=label_smoothing), objective)
        self.register_buffer("frequency_matrix", F.frequency_matrix(frequencies))
        self.register_buffer("previous_costs", ones.clone())
        self.register_buffer("separability", ones.clone())
        self.register_buffer("expert_costs", _expert_costs(expert, classes, floor))
        self.acceptance = acceptance
        self.shrink = shrink
        self.separability_mean, self.separability_std = separability_mean, separability_std
        self.confusion_mean, self.confusion_std = confusion_mean, confusion_std
        self.separability_every = separability_every
        self.floor = floor
        self.expert_weight = expert_weight
        self.cost_lr = cost_lr
        self._target_costs(ones / classes)  # refuses bad means and deviations now

    @property
    def needs_features(self) -> bool:
        """Whether S takes part, so that :meth:`step` needs features."""
        return math.isfinite(self.separability_std)

    @torch.no_grad()
    def step(self, logits: Tensor, target: Tensor, features: Tensor | None = None) -> CostStep:
        """Judge the last step by the validation error, and take the next.

        Args:
            logits: What the network gives for the validation split, shape ``(V, C)``.
            target: Its classes, shape ``(V,)``.
            features: Its penultimate features, shape ``(V, D)``; needed only where S takes part.
        """
        logits, target = self._checked_validation(logits, target)
        if self.needs_features and self.steps % self.separability_every == 0:
            if features is None:
                raise InputError("the separability takes part: give step() the features too")
            check_tensor(features, name="features")
            if len(features) != len(target):
                raise InputError(
                    f"step() was given features of {len(features)} samples, but {len(target)} "
                    "classes"
                )
            separability = F.class_separability(
                features.to(self.costs.device), target, num_classes=len(self.costs)
            )
        else:
            separability = None
        counts, error, accepted = self._judge(logits, target)
        if not accepted:
            self._answer_a_rise()
        if separability is not None:
            self.separability.copy_(separability)
            self._say_which_classes_lack(counts.sum(1), least=2, what="separability")
        self._say_which_classes_lack(counts.sum(1), least=1, what="errors")
        confusion = validation_rates(counts)
        goal = self._target_costs(confusion)
        self.previous_costs.copy_(self.costs)
        self.costs.copy_(F.step_costs(self.costs, goal, cost_lr=self.cost_lr, floor=self.floor))
        self.steps += 1
        return CostStep(
            number=self.steps,
            val_error=error,
            best_error=self.best_error,
            accepted=accepted,
            cost_lr=self.cost_lr,
            costs=self.costs.clone(),
            target_costs=goal,
            confusion=confusion,
            separability=self.separability.clone() if self.needs_features else None,
        )

    def _answer_a_rise(self) -> None:
        """Do what ``acceptance`` asks for where the error rose."""
        if self.acceptance != "always":
            self.cost_lr *= self.shrink
        if self.acceptance == "revert":
            self.costs.copy_(self.previous_costs)

    def _target_costs(self, confusion: Tensor) -> Tensor:
        goal = F.target_costs(
            self.frequency_matrix,
            self.separability if self.needs_features else None,
            confusion,
            separability_mean=self.separability_mean,
            separability_std=self.separability_std,
            confusion_mean=self.confusion_mean,
            confusion_std=self.confusion_std,
            floor=self.floor,
        )
        if self.expert_costs is None:
            return goal
        blended = torch.lerp(goal.log(), self.expert_costs.log(), self.expert_weight).exp()
        return F.project_costs(blended, floor=self.floor)

    def get_extra_state(self) -> dict[str, Any]:
        return {"cost_lr": self.cost_lr, "best_error": self.best_error, "steps": self.steps}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._check_state(state, like="cost_lr")
        self.cost_lr = float(state["cost_lr"])
        self.best_error = float(state["best_error"])
        self.steps = int(state["steps"])

    def extra_repr(self) -> str:
        return f"cost_lr={self.cost_lr:g}, acceptance={self.acceptance!r}, steps={self.steps}"


def _expert_costs(expert: Numbers | None, classes: int, floor: float) -> Tensor | None:
    if expert is None:
        return None
    matrix = as_numbers(expert, name="expert").float()
    check_misclassification_costs(matrix, num_classes=classes, name="expert")
    costs = F.costs_from_misclassification(matrix, floor=floor)
    check_costs(costs)
    return costs


def _check_choice(name: str, value: object, choices: Any) -> None:
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, but is {value!r}")
