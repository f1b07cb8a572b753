"""Operating points: decide by a required recall, a review budget, or as sets of classes.

A rule is fitted to the validation images of a run, and says what it costs there.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Self

import torch
from torch import Tensor

from cosen.data.labelled import unknown_class
from cosen.errors import InputError
from cosen.functional.costs import bayes_decision

CONFIDENCE = 0.95
"""Confidence that a required recall is kept."""

ROUNDING = 1e-9

EXAMPLES = "probability, recall:NAME=0.95, review:0.1 or sets:0.9"


@dataclass(frozen=True, eq=False)
class Known:
    """Images of known classes.

    Attributes:
        probabilities: Of each class, shape ``(B, C)``.
        target: True classes, shape ``(B,)``.
        names: The names of the classes.
    """

    probabilities: Tensor
    target: Tensor
    names: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Decisions:
    """What a rule decides for images.

    Attributes:
        classes: The predicted class of each, shape ``(B,)``.
        review: Whether a person should check it, shape ``(B,)``; None if the rule asks no one.
        sets: Whether each class is in its prediction set, shape ``(B, C)``; None without sets.
    """

    classes: Tensor
    review: Tensor | None = None
    sets: Tensor | None = None


class Rule(ABC):
    """A way to decide, from probabilities ``(B, C)``."""

    kind: ClassVar[str]

    def fit(self, known: Known) -> Self:  # noqa: ARG002
        """Return the rule with thresholds from validation images."""
        return self

    @abstractmethod
    def decide(self, probabilities: Tensor) -> Decisions:
        """Decide for images."""

    @abstractmethod
    def describe(self, known: Known) -> str:
        """Say in one sentence what the decisions give."""


@dataclass(frozen=True, eq=False)
class MostProbable(Rule):
    """Decide for the most probable class."""

    kind = "probability"

    def decide(self, probabilities: Tensor) -> Decisions:
        return Decisions(probabilities.argmax(1))

    def describe(self, known: Known) -> str:
        return f"accuracy {_percent(known.probabilities.argmax(1) == known.target)}"


@dataclass(frozen=True, eq=False)
class LowestCost(Rule):
    """Decide for the class with the lowest expected misclassification cost.

    Attributes:
        costs: ξ′, row = true class, shape ``(C, C)``.
    """

    kind = "costs"
    costs: Tensor

    def decide(self, probabilities: Tensor) -> Decisions:
        return Decisions(bayes_decision(probabilities, self.costs.cpu()))

    def describe(self, known: Known) -> str:
        probabilities, target = known.probabilities, known.target
        cost = float(self.costs[target, self.decide(probabilities).classes].double().mean())
        usual = float(self.costs[target, probabilities.argmax(1)].double().mean())
        return f"mean cost {cost:.4g}, {usual:.4g} by probability"


@dataclass(frozen=True, eq=False)
class RequiredRecall(Rule):
    """Decide for a class whenever its probability reaches a threshold that keeps its recall.

    Attributes:
        name: The class.
        recall: The recall to keep, with 95 % confidence.
        label: The number of the class, and
        threshold: the least probability, once fitted.
    """

    kind = "recall"
    name: str
    recall: float
    label: int = -1
    threshold: float = math.nan

    def fit(self, known: Known) -> Self:
        probabilities, target = known.probabilities, known.target
        if self.name not in known.names:
            raise InputError(unknown_class(self.name, known.names, "the model"))
        label = known.names.index(self.name)
        own = probabilities[target == label, label].sort(descending=True).values
        least = _least_correct(len(own), self.recall)
        if least is None:
            needed = math.ceil(math.log(1 - CONFIDENCE) / math.log(self.recall))
            possible = math.floor(100 * (1 - CONFIDENCE) ** (1 / max(1, len(own))))
            raise InputError(
                f"a recall of {100 * self.recall:g} % for {self.name!r} cannot be promised: it has "
                f"{len(own)} validation images, and {needed} are needed; use more validation "
                f"images, or ask for at most {possible / 100 if len(own) else 0:g}"
            )
        return type(self)(self.name, self.recall, label, float(own[least - 1]))

    def decide(self, probabilities: Tensor) -> Decisions:
        others = probabilities.clone()
        others[:, self.label] = -1
        is_own = probabilities[:, self.label] >= self.threshold
        return Decisions(torch.where(is_own, self.label, others.argmax(1)))

    def describe(self, known: Known) -> str:
        probabilities, target = known.probabilities, known.target
        classes, own = self.decide(probabilities).classes, target == self.label
        usual = probabilities.argmax(1)
        return (
            f"recall of {self.name!r} {_percent(classes[own] == self.label)} at a probability of "
            f"{self.threshold:.3g} ({_percent(usual[own] == self.label)} by probability), "
            f"{_percent(classes == self.label)} of all images are called {self.name!r} "
            f"({_percent(usual == self.label)}), accuracy {_percent(classes == target)} "
            f"({_percent(usual == target)})"
        )


@dataclass(frozen=True, eq=False)
class ReviewBudget(Rule):
    """Let a person check the images of which the model is least certain.

    Attributes:
        share: The share of images that can be checked.
        threshold: The probability below which an image is checked, once fitted.
    """

    kind = "review"
    share: float
    threshold: float = math.nan

    def fit(self, known: Known) -> Self:
        probabilities, target = known.probabilities, known.target
        if not len(target):
            raise InputError("a review budget needs validation images")
        certainty = probabilities.amax(1)
        return type(self)(self.share, float(certainty.quantile(self.share)))

    def decide(self, probabilities: Tensor) -> Decisions:
        certainty, classes = probabilities.max(1)
        return Decisions(classes, review=certainty < self.threshold)

    def describe(self, known: Known) -> str:
        probabilities, target = known.probabilities, known.target
        found = self.decide(probabilities)
        assert found.review is not None
        correct = found.classes == target
        return (
            f"{_percent(found.review)} of the images are to be checked (probability below "
            f"{self.threshold:.3g}); accuracy of the others {_percent(correct[~found.review])}, of "
            f"all {_percent(correct)}, and {_percent(correct | found.review)} if each check "
            "finds the class"
        )


@dataclass(frozen=True, eq=False)
class PredictionSets(Rule):
    """Predict sets that contain the true class with a probability, for each class (conformal).

    Attributes:
        coverage: The probability.
        thresholds: The least probability of each class in a set, shape ``(C,)``, once fitted. It is
            0 for a class with too few validation images: such a class is in every set.
    """

    kind = "sets"
    coverage: float
    thresholds: Tensor = field(default_factory=lambda: torch.empty(0))

    def fit(self, known: Known) -> Self:
        probabilities, target = known.probabilities, known.target
        thresholds = torch.zeros(len(known.names), dtype=probabilities.dtype)
        for label in range(len(known.names)):
            own = probabilities[target == label, label].sort(descending=True).values
            place = math.ceil((len(own) + 1) * self.coverage - ROUNDING)
            if place <= len(own):
                thresholds[label] = own[place - 1]
        return type(self)(self.coverage, thresholds)

    def decide(self, probabilities: Tensor) -> Decisions:
        return Decisions(probabilities.argmax(1), sets=probabilities >= self.thresholds)

    def describe(self, known: Known) -> str:
        probabilities, target = known.probabilities, known.target
        sets = self.decide(probabilities).sets
        assert sets is not None
        covered = sets[torch.arange(len(target)), target].double()
        by_class = [covered[target == label].mean() for label in set(target.tolist())]
        always = [
            name for name, one in zip(known.names, self.thresholds.tolist(), strict=True) if not one
        ]
        text = (
            f"the true class is in {_percent(covered)} of the sets (lowest class "
            f"{100 * float(min(by_class)):.1f} %), with {float(sets.sum(1).double().mean()):.2f} "
            "classes on average"
        )
        if always:
            needed = math.ceil(self.coverage / (1 - self.coverage) - ROUNDING)
            text += (
                f"; too few validation images ({needed} are needed), so in every set: "
                f"{', '.join(map(repr, always))}"
            )
        return text


def parse_rule(text: str, costs: Tensor | None = None) -> Rule:
    """Parse ``probability``, ``recall:NAME=0.95``, ``review:0.1`` or ``sets:0.9``.

    Args:
        text: The rule. With ``costs`` it must be ``probability``.
        costs: Misclassification costs, to decide by them.

    Example:
        >>> parse_rule("recall:melanoma=0.95").recall
        0.95
    """
    kind, _, value = text.strip().partition(":")
    if costs is not None:
        if text.strip() != MostProbable.kind:
            raise InputError(f"decide either by costs or by {text!r}, not by both")
        return LowestCost(costs)
    if text.strip() == MostProbable.kind:
        return MostProbable()
    name, _, number = value.rpartition("=")
    try:
        share = float(number)
    except ValueError:
        share = math.nan
    if 0 < share < 1 and bool(name) == (kind == RequiredRecall.kind):
        if kind == RequiredRecall.kind:
            return RequiredRecall(name, share)
        if kind == ReviewBudget.kind:
            return ReviewBudget(share)
        if kind == PredictionSets.kind:
            return PredictionSets(share)
    hint = f": did you mean {share / 100:g}?" if 1 < share < 100 else ""
    raise InputError(
        f"decide must be {EXAMPLES}, with a share between 0 and 1, but is {text!r}{hint}"
    )


def _least_correct(samples: int, recall: float) -> int | None:
    """Return how many of the samples must be found to promise a recall; None if all are too few.

    It is the least number whose one-sided Clopper-Pearson bound reaches the recall.

    Example:
        >>> _least_correct(58, 0.95), _least_correct(59, 0.95), _least_correct(200, 0.9)
        (None, 59, 188)
    """
    tail, found = 0.0, None
    for correct in range(samples, 0, -1):
        wrong = samples - correct
        ways = math.lgamma(samples + 1) - math.lgamma(correct + 1) - math.lgamma(wrong + 1)
        tail += math.exp(ways + correct * math.log(recall) + wrong * math.log1p(-recall))
        if tail > 1 - CONFIDENCE:
            break
        found = correct
    return found


def _percent(hits: Tensor) -> str:
    return f"{100 * float(hits.double().mean()):.1f} %" if hits.numel() else "-"
