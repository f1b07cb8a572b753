"""Costs with two learned numbers, τ and m, each learned from the whole validation split.

log ξ[p, n] = −τ (1 − ω) log w_n − b_n − m (n_min / n_p)^¼ [n = p]
              + κ log g(R[p, n]) + σ D[p, n] / √n_p

w_n is the importance of class n for the objective. If all classes are equally important, w_n is
1/h_n and the first term is τ log h_n. C² costs cannot be learned from the few validation samples of
a rare class, but τ and m can, because every sample contributes to them. The offsets b_n, if given,
come from all training samples: see :mod:`cosen.costs.offsets`. With ω > 0, samples also have the
weight w_p^ω: with ω = 1 importance is a weight instead of a cost. If features are observed, D[p, n]
is half the variance of the difference between outputs n and p within a class: pairs of classes that
are hard to separate get a higher cost, above all if the true class has few samples.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from cosen import functional as F
from cosen.costs.learned import CostStep, LearnedCosts
from cosen.costs.objective import Objective, validation_rates
from cosen.errors import InputError
from cosen.functional.checks import (
    check_class_vector,
    check_not_negative,
    check_number,
    check_same_device,
)
from cosen.functional.costs import FLOOR
from cosen.functional.margins import SMALL, Margins, margin_cross_entropy
from cosen.functional.reduction import Batch
from cosen.losses import Numbers, as_numbers

SIGNIFICANT = 2.0
"""Standard errors by which predictions must be biased before τ changes."""

MAX_TAU = 3.0

MAX_MARGIN = 8.0
"""Largest learned m by default, and largest margin of separability: half of 16, the scale of cosine
outputs. Features cannot reach a wider one."""

SEPARABILITY = 6.0
"""Strength of separability by default, for unbounded logits."""

LOWEST = 2 * math.log(FLOOR)
"""Smallest log ξ relative to the most frequent class."""

DIRECTIONS = 64
"""Principal directions of the spread of features within classes that are used."""

CHUNK = 2**20
"""Logits of the validation split that are changed at a time."""

PSEUDO_SAMPLES = 4.0
"""Samples of the average class that are added to the validation errors of each class."""


@dataclass(frozen=True, eq=False)
class AdaptiveCostStep(CostStep):
    """Result of a step of :class:`AdaptiveCosts`."""

    tau: float  # τ after the step
    margin: float  # m after the step
    row: Tensor  # log ξ of each output, shape (C,)
    diagonal: Tensor  # added to log ξ of the true class, shape (C,)
    pair_term: Tensor | None  # added to log ξ of each pair, shape (C, C); None if there is none

    @property
    def costs(self) -> Tensor:
        return costs_of(self.row, self.diagonal, self.pair_term)


class AdaptiveCosts(LearnedCosts):
    """Cross-entropy with costs from class frequencies and a margin, both learned on validation.

    A network that is trained with these costs and used without them does not favour frequent
    classes, and keeps a wider margin for rarer classes. After each epoch :meth:`step` learns

    - τ, the strength of the class frequencies. If predictions on the validation split are biased
      towards or against frequent classes by more than noise, τ moves to remove the bias.
    - m, the margin: the log-odds of a correct prediction on the validation split, with one sample
      added on either side. With 9800 of 10,000 correct, m = log(9801 / 201) = 3.9; with half of
      them correct, m = 0.

    Args:
        class_counts: Training samples per class, shape ``(C,)``.
        objective: What the validation error measures, see :class:`~cosen.costs.Objective`.
            It sets the importance of each class. With ``"overall"`` frequencies have no effect.
        tau: Initial τ, 0 to 3.
        learn_tau: Whether τ is learned. None learns it if no offsets are given.
        offsets: What held-out outputs of each class lack, b, shape ``(C,)``.
        weighting: ω, the share of the importance that is a weight of the sample instead of a cost,
            0 to 1.
        margin: Fixed m; None learns it.
        margin_scale: Factor for a learned m. Use 1 for unbounded logits, which can grow to reach
            any margin, and 3 for cosines times 16 (:class:`~cosen.networks.CosineOutput`).
        max_margin: Largest learned m.
        errors: κ, the strength of the pairwise errors R, weighted as in the paper; 0 omits them.
        separability: σ, the strength of the pairwise separability D. It has an effect after
            :meth:`observe`. Use 6 for unbounded logits, and 20 for cosines times 16. No cost of
            separability raises a margin by more than 8.
        cost_lr: Step size of τ: 0 is no step, 1 removes the bias at once.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: As in the other losses.
        ignore_index: Class index of samples to ignore, in the loss and in :meth:`step`.

    Example:
        >>> costs = AdaptiveCosts([90, 10])
        >>> costs.costs
        tensor([[1.0000, 0.1111],
                [1.0000, 0.1111]])
        >>> step = costs.step(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]))
        >>> step.val_error, step.tau, round(step.margin, 2)
        (0.0, 1.0, 1.1)
    """

    state_names = ("tau", "margin")
    frequency_term: Tensor
    offsets: Tensor | None
    weight: Tensor | None
    rarity: Tensor
    error_term: Tensor | None
    spread: Tensor | None

    def __init__(
        self,
        class_counts: Numbers,
        *,
        objective: Objective | str | Numbers = "balanced",
        tau: float = 1.0,
        learn_tau: bool | None = None,
        offsets: Numbers | None = None,
        weighting: float = 0.0,
        margin: float | None = None,
        margin_scale: float = 1.0,
        max_margin: float = MAX_MARGIN,
        errors: float = 0.0,
        separability: float = SEPARABILITY,
        cost_lr: float = 0.3,
        reduction: F.Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
    ) -> None:
        check_not_negative(tau, name="tau")
        check_not_negative(errors, name="errors")
        check_not_negative(separability, name="separability")
        check_not_negative(0 if margin is None else margin, name="margin")
        check_not_negative(margin_scale, name="margin_scale")
        check_not_negative(max_margin, name="max_margin")
        if tau > MAX_TAU:
            raise InputError(f"tau must be at most {MAX_TAU:g}, but is {tau:g}")
        if not isinstance(learn_tau, bool | None):
            raise InputError(f"learn_tau must be true or false, but is {learn_tau!r}")
        for name, share in (("cost_lr", cost_lr), ("weighting", weighting)):
            check_number(share, name=name)
            if not 0 <= share <= 1:
                raise InputError(f"{name} must lie in [0, 1], but is {share}")
        counts = as_numbers(class_counts, name="class_counts").float()
        check_class_vector(counts, name="class_counts")
        super().__init__(
            len(counts),
            objective,
            reduction=reduction,
            label_smoothing=label_smoothing,
            ignore_index=ignore_index,
        )
        importance = self.objective.class_importance(counts).log()
        self.register_buffer("frequency_term", (1 - weighting) * (importance.mean() - importance))
        weight = (weighting * (importance - importance.mean())).exp() if weighting else None
        self.register_buffer("weight", weight)
        self.register_buffer("offsets", _checked_offsets(offsets, len(counts)))
        self.register_buffer("rarity", (counts.min() / counts) ** 0.25)
        self.tau = tau
        self.learn_tau = offsets is None if learn_tau is None else learn_tau
        self.learn_margin, self.margin = margin is None, margin or 0.0
        self.margin_scale, self.max_margin = margin_scale, max_margin
        self.errors = errors
        self.cost_lr = cost_lr
        pairs = torch.zeros(len(counts), len(counts)) if errors else None
        self.register_buffer("error_term", pairs)
        self.separability = separability
        self.register_buffer("spread", None)
        self._fewest = float(counts.min())
        self._weight: Callable[[], Tensor] | None = None

    def observe(
        self,
        weight: Callable[[], Tensor],
        features: Tensor,
        target: Tensor,
        *,
        generator: torch.Generator | None = None,
    ) -> None:
        """Use the separability of classes in these features, which should change little afterwards.

        Args:
            weight: Returns the weights of the outputs, shape ``(C, D)``, with their graph.
            features: What the weights are multiplied by, for training samples, shape ``(N, D)``.
            target: Their classes, shape ``(N,)``.
            generator: Source of randomness; default: torch's global one.

        Example:
            >>> output, costs = torch.nn.Linear(8, 2), AdaptiveCosts([10, 10])
            >>> costs.observe(lambda: output.weight, torch.randn(20, 8), torch.arange(20) % 2)
        """
        found = F.within_class_spread(features, target, size=DIRECTIONS, generator=generator)
        self.spread, self._weight = found.to(self.device), weight

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_weight": None}  # belongs to the network

    @property
    def costs(self) -> Tensor:  # type: ignore[override]
        """ξ, each row relative to its largest cost, shape ``(C, C)``; computed on each access."""
        return costs_of(*self._row_and_diagonal(), self._pair_term())

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        batch, buffers = self._batch(logits, target), self._buffers  # faster than attributes
        source = buffers["frequency_term" if buffers["error_term"] is None else "error_term"]
        assert source is not None
        margins = self._unless_changed(
            "costs", source, batch, self._margins, self.tau, self.margin, other=buffers["offsets"]
        )
        return margin_cross_entropy(
            batch if buffers["spread"] is None else self._separated(batch),
            margins,
            weight=buffers["weight"],
            label_smoothing=self.label_smoothing,
        )

    def _separated(self, batch: Batch) -> Batch:
        """Add to the logits what costs of separability add."""
        target = batch.target
        if not target.is_floating_point():
            target = target.clamp(0, self.num_classes - 1)  # an ignored sample has no class
        margins = self._separability_margins(target)
        return batch if margins is None else batch._replace(logits=batch.logits + margins)

    def _separability_margins(self, target: Tensor) -> Tensor | None:
        """σ D[p, n] / √n_p for true classes ``(B,)`` or probabilities ``(B, C)``, if any."""
        if self.spread is None or self._weight is None or not self.separability:
            return None
        strengths = self.separability / math.sqrt(self._fewest) * self.rarity.square()
        own = target.to(strengths) @ strengths if target.is_floating_point() else strengths[target]
        variances = F.spread_margins(self._weight(), self.spread, target)
        return (own[:, None] * variances).clamp(max=MAX_MARGIN)

    def _margins(self, batch: Batch) -> Margins:
        self._check_outputs(batch.given)
        check_same_device(self.frequency_term, batch.given, name="costs", other="logits")
        row, diagonal = self._row_and_diagonal()
        if self.error_term is not None or len(row) <= SMALL:
            costs = costs_of(row, diagonal, self.error_term)
            return Margins(matrix=costs.log()) if len(row) <= SMALL else Margins(costs=costs)
        row = (row - row.max()).clamp(min=LOWEST)
        return Margins(row=row, diagonal=(row + diagonal).clamp(min=LOWEST) - row)

    def _row_and_diagonal(self) -> tuple[Tensor, Tensor]:
        """Return log ξ of each output, and what is added for the true class."""
        row = self.tau * self.frequency_term
        if self.offsets is not None:
            row = row - self.offsets
        return row, -self.margin * self.rarity

    @torch.no_grad()
    def _pair_term(self, *, with_separability: bool = True) -> Tensor | None:
        """Return what is added to log ξ for errors and separability, shape ``(C, C)``."""
        every = torch.arange(self.num_classes, device=self.device)
        apart = self._separability_margins(every) if with_separability else None
        if apart is None or self.error_term is None:
            return apart if self.error_term is None else self.error_term.clone()
        return apart + self.error_term

    @torch.no_grad()
    def step(
        self,
        logits: Tensor,
        target: Tensor,
        features: Tensor | None = None,  # noqa: ARG002
    ) -> AdaptiveCostStep:
        """Learn τ and m from the validation split, and update the costs.

        Args:
            logits, target: As in :meth:`LearnedCosts.step`.
            features: Not used.
        """
        logits, target, _ = self._validation(logits, target)
        logits = logits.float()
        counts, error, accepted = self._evaluate(logits, target)
        samples = target.bincount(minlength=self.num_classes)
        weights = self.objective.class_importance(samples.clamp(min=1))[target]
        weights = weights / weights.sum()  # of each sample in the objective, shape (V,)
        if self.learn_tau:
            change = self._tau_change(logits, target, weights)
            self.tau = min(MAX_TAU, max(0.0, self.tau + self.cost_lr * change))
        if self.learn_margin:
            correct = float((weights * (logits.argmax(1) == target)).sum())
            odds = max(0.0, _log_odds(correct, len(target)))
            self.margin = min(self.max_margin, self.margin_scale * odds)
        if self.error_term is not None:
            rates = _shrunk_rates(counts.to_dense())
            self.error_term.copy_(-self.errors * 2 * (rates - 1).square())
        self.steps += 1
        row, diagonal = self._row_and_diagonal()
        return AdaptiveCostStep(
            number=self.steps,
            val_error=error,
            best_error=self.best_error,
            accepted=accepted,
            confusion=validation_rates(counts),
            tau=self.tau,
            margin=self.margin,
            row=row,
            diagonal=diagonal,
            # with many classes, a matrix of separability in each epoch would fill the disk
            pair_term=self._pair_term(with_separability=self.num_classes <= SMALL),
        )

    def _tau_change(self, logits: Tensor, target: Tensor, weights: Tensor) -> float:
        """Return the change of τ that removes the bias towards frequent classes; 0 within noise."""
        term = self.frequency_term
        rows = max(1, CHUNK // len(term))
        # new memory for each part would not always be reused
        shifted, predicted = logits.new_empty(min(rows, len(logits)), len(term)), target.clone()

        def bias(change: float) -> Tensor:
            parts = zip(torch.split(logits, rows), torch.split(predicted, rows), strict=True)
            for part, found in parts:
                moved = torch.sub(part, change * term, out=shifted[: len(part)])
                torch.argmax(moved, 1, out=found)
            return term[predicted] - term[target]

        now = bias(0.0)
        mean = (weights * now).sum()
        noise = (weights.square() * (now - mean).square()).sum().sqrt()
        if float(mean.abs()) <= SIGNIFICANT * float(noise):
            return 0.0
        changes = (float(mean.sign()) * torch.linspace(0, 1, 21)).tolist()
        left = [float((weights * bias(change)).sum().abs()) for change in changes]
        if len(set(left)) == 1:  # the bias is so strong that no change has an effect yet
            return float(changes[-1])
        return float(changes[left.index(min(left))])


def _checked_offsets(offsets: Numbers | None, classes: int) -> Tensor | None:
    if offsets is None:
        return None
    found = as_numbers(offsets, name="offsets").float()
    if found.shape != (classes,) or not bool(found.isfinite().all()):
        raise InputError(f"offsets must be {classes} finite numbers, one for each class")
    return found


def costs_of(row: Tensor, diagonal: Tensor, pair_term: Tensor | None = None) -> Tensor:
    """Return ξ, each row relative to its largest cost, shape ``(C, C)``.

    Example:
        >>> costs_of(torch.tensor([0.0, -1.0]), torch.tensor([0.0, -1.0]))
        tensor([[1.0000, 0.3679],
                [1.0000, 0.1353]])
    """
    log_costs = row + torch.diag(diagonal)
    if pair_term is not None:
        log_costs += pair_term
    log_costs -= log_costs.amax(1, keepdim=True)
    return log_costs.exp_().clamp_(min=FLOOR**2)


def _log_odds(share: float, samples: int) -> float:
    """Log-odds of a share of samples, with one sample added on either side.

    Example:
        >>> round(_log_odds(0.98, 5000), 2), round(_log_odds(1.0, 18), 2)
        (3.88, 2.94)
    """
    smoothed = (share * samples + 1) / (samples + 2)
    return math.log(smoothed / (1 - smoothed))


def _shrunk_rates(counts: Tensor) -> Tensor:
    """Row rates of validation counts, shrunk towards the average class."""
    classes = len(counts)
    recall = float(counts.diagonal().sum() / counts.sum())
    average = torch.full_like(counts, (1 - recall) / max(1, classes - 1), dtype=torch.float32)
    average.fill_diagonal_(recall)
    return (counts + PSEUDO_SAMPLES * average) / (counts.sum(1, keepdim=True) + PSEUDO_SAMPLES)
