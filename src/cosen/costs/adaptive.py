"""Costs with few strengths, each learned from the whole validation split.

log ξ[p, n] = −τ log w_n − m (n_min / n_p)^¼ [n = p] + κ log g(R[p, n])

w_n is the importance of class n for the objective: with every class of the same weight it is 1/h_n,
so that the first term is τ log h_n. A matrix of C² costs cannot be learned from the few validation
samples of a rare class, but τ and m can: every sample has a say in them.
"""

import math
from typing import Any

import torch
from torch import Tensor

from cosen.costs.learned import CostStep, LearnedCosts
from cosen.costs.objective import (
    Objective,
    class_importance,
    validation_rates,
)
from cosen.errors import InputError
from cosen.functional.checks import (
    check_class_vector,
    check_finite,
    check_not_negative,
)
from cosen.functional.costs import FLOOR
from cosen.losses import CostSensitiveCrossEntropyLoss, Numbers, as_numbers

CERTAINTY = 2.0
"""Standard errors by which predictions must lean to one side before τ is changed."""

STRONGEST = 3.0
"""The largest τ."""

WIDEST = 8.0
"""The largest learned m: half of 16, which cosines are multiplied by. A margin that no features can
win would only bend them."""

PSEUDO_SAMPLES = 4.0
"""What the validation errors of a class are shrunk by towards the average over classes."""


class AdaptiveCosts(LearnedCosts):
    """Cross-entropy with costs from class frequencies, whose strengths validation errors teach.

    A network that is trained with these costs and used without them favours no class for being
    frequent, and keeps a distance between classes, the more the rarer they are. After each epoch
    :meth:`step` learns

    - the strength τ of the frequencies: where predictions on the validation split lean towards
      frequent classes, or away from them, by more than noise, it is moved until they would not;
    - the margin m: the log-odds of being right on the validation split, with one more sample on
      either side. A network that is right 9800 times in 10,000 can afford to ask for a margin of
      log(9801 / 201) = 3.9, one that is right every other time can afford none.

    Args:
        class_counts: Training samples of each class, shape ``(C,)``.
        objective: What validation measures, see :func:`~cosen.costs.validation_error`; it says
            how important a class is. With ``"overall"`` frequencies play no part.
        frequency: τ to start from.
        learn_frequency: Whether τ is learned.
        margin: A fixed m; None learns it.
        margin_scale: What a learned m is the log-odds times. Where logits have no bound, the
            network grows them until it has its margin, and a wider one gains nothing; where they
            are cosines times 16 (:class:`~cosen.networks.CosineOutput`) it takes 3.
        errors: κ, the strength of the pairwise errors R as the paper weighs them; 0 leaves
            them out.
        rate: The share of the way that a step of τ goes.
        label_smoothing: As in the losses.

    Example:
        >>> costs = AdaptiveCosts([90, 10])
        >>> costs.costs
        tensor([[1.0000, 0.1111],
                [1.0000, 0.1111]])
        >>> step = costs.step(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
        >>> step.val_error, {name: round(value, 2) for name, value in step.strengths.items()}
        (0.0, {'frequency': 1.0, 'margin': 1.1})
    """

    leaning: Tensor
    rarity: Tensor

    def __init__(
        self,
        class_counts: Numbers,
        *,
        objective: Objective | Numbers = "balanced",
        frequency: float = 1.0,
        learn_frequency: bool = True,
        margin: float | None = None,
        margin_scale: float = 1.0,
        errors: float = 0.0,
        rate: float = 0.3,
        label_smoothing: float = 0.0,
    ) -> None:
        for name, value in (
            ("frequency", frequency),
            ("errors", errors),
            ("margin", margin or 0),
            ("margin_scale", margin_scale),
        ):
            check_finite(value, name=name)
            check_not_negative(value, name=name)
        if frequency > STRONGEST:
            raise InputError(f"frequency must be at most {STRONGEST:g}, but is {frequency:g}")
        if not isinstance(learn_frequency, bool):
            raise InputError(f"learn_frequency must be true or false, but is {learn_frequency!r}")
        if not 0 <= rate <= 1:
            raise InputError(f"rate must lie in [0, 1], but is {rate}")
        counts = as_numbers(class_counts, name="class_counts").float()
        check_class_vector(counts, name="class_counts")
        classes = len(counts)
        super().__init__(
            CostSensitiveCrossEntropyLoss(
                torch.ones(classes, classes), label_smoothing=label_smoothing
            ),
            objective,
        )
        importance = class_importance(counts, self.objective).log()
        self.register_buffer("leaning", importance.mean() - importance, persistent=False)
        self.register_buffer("rarity", (counts.min() / counts) ** 0.25, persistent=False)
        self.frequency, self.learn_frequency = frequency, learn_frequency
        self.learn_margin, self.margin = margin is None, margin or 0.0
        self.margin_scale = margin_scale
        self.errors = errors
        self.rate = rate
        self._set_costs(None)

    @torch.no_grad()
    def step(
        self,
        logits: Tensor,
        target: Tensor,
        features: Tensor | None = None,  # noqa: ARG002
    ) -> CostStep:
        """Learn the strengths from the validation split, and set the costs.

        Args:
            logits: What the network gives for the validation split, shape ``(V, C)``.
            target: Its classes, shape ``(V,)``.
            features: Not needed.
        """
        logits, target = self._checked_validation(logits, target)
        logits = logits.float()
        counts, error, accepted = self._judge(logits, target)
        weights = self._sample_weights(counts.sum(1), target)
        if self.learn_frequency:
            change = self._imbalance_left(logits, target, weights)
            self.frequency = min(STRONGEST, max(0.0, self.frequency + self.rate * change))
        if self.learn_margin:
            right = float((weights * (logits.argmax(1) == target)).sum())
            odds = max(0.0, _log_odds(right, len(target)))
            self.margin = min(WIDEST, self.margin_scale * odds)
        confusion = validation_rates(counts)
        self._set_costs(counts if self.errors else None)
        self.steps += 1
        return CostStep(
            number=self.steps,
            val_error=error,
            best_error=self.best_error,
            accepted=accepted,
            cost_lr=self.rate,
            costs=self.costs.clone(),
            target_costs=self.costs.clone(),
            confusion=confusion,
            separability=None,
            strengths={"frequency": self.frequency, "margin": self.margin},
        )

    def _sample_weights(self, counts: Tensor, target: Tensor) -> Tensor:
        """The weight of each validation sample in the objective, shape ``(V,)``; they add to 1."""
        weights = class_importance(counts.clamp(min=1), self.objective)[target]
        return weights / weights.sum()

    def _imbalance_left(self, logits: Tensor, target: Tensor, weights: Tensor) -> float:
        """By how much more τ would keep predictions from leaning to frequent classes.

        Within noise it is 0: what a prediction leans is compared with its standard error.
        """
        leaning = self.leaning

        def leans(change: float) -> Tensor:
            return leaning[(logits - change * leaning).argmax(1)] - leaning[target]

        now = leans(0.0)
        mean = (weights * now).sum()
        noise = (weights.square() * (now - mean).square()).sum().sqrt()
        if float(mean.abs()) <= CERTAINTY * float(noise):
            return 0.0
        changes = (float(mean.sign()) * torch.linspace(0, 1, 21)).tolist()
        left = [float((weights * leans(change)).sum().abs()) for change in changes]
        if len(set(left)) == 1:  # so far off that nothing changes yet
            return float(changes[-1])
        return float(changes[left.index(min(left))])

    def _set_costs(self, counts: Tensor | None) -> None:
        """ξ of the present strengths, each row relative to its largest cost."""
        classes = len(self.costs)
        log_costs = (self.frequency * self.leaning).expand(classes, classes)
        log_costs = log_costs - torch.diag(self.margin * self.rarity)
        if counts is not None:
            log_costs = log_costs - self.errors * 2 * (_shrunk_rates(counts) - 1).square()
        log_costs = log_costs - log_costs.amax(1, keepdim=True)
        self.costs.copy_(log_costs.exp().clamp(min=FLOOR**2))

    def get_extra_state(self) -> dict[str, Any]:
        return {
            "frequency": self.frequency,
            "margin": self.margin,
            "best_error": self.best_error,
            "steps": self.steps,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self._check_state(state, like="frequency")
        self.frequency, self.margin = float(state["frequency"]), float(state["margin"])
        self.best_error = float(state["best_error"])
        self.steps = int(state["steps"])

    def extra_repr(self) -> str:
        return f"frequency={self.frequency:g}, margin={self.margin:g}, steps={self.steps}"


def _log_odds(share: float, samples: int) -> float:
    """The log-odds of a share that was seen on some samples, with one more on either side.

    Example:
        >>> round(_log_odds(0.98, 5000), 2), round(_log_odds(1.0, 18), 2)
        (3.88, 2.94)
    """
    smoothed = (share * samples + 1) / (samples + 2)
    return math.log(smoothed / (1 - smoothed))


def _shrunk_rates(counts: Tensor) -> Tensor:
    """Row rates of validation counts, shrunk towards the average class by their size."""
    classes = len(counts)
    recall = float(counts.diagonal().sum() / counts.sum())
    average = torch.full_like(counts, (1 - recall) / max(1, classes - 1), dtype=torch.float32)
    average.fill_diagonal_(recall)
    return (counts + PSEUDO_SAMPLES * average) / (counts.sum(1, keepdim=True) + PSEUDO_SAMPLES)
