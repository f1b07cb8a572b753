"""What a server answers: classes, probabilities and decisions, from the outputs of its models."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

import cosen
from cosen.errors import InputError
from cosen.functional.checks import check_finite_matrix
from cosen.inference.decisions import MostProbable, PredictionSets, Rule, parse_rule
from cosen.inference.predict import FittedRule, Models, Prior, parse_prior
from cosen.report.tradeoff import trained_place
from cosen.serving.engine import Answer

OUTPUTS, NO_COSTS = "outputs", "none"
"""In a request: ignore the class shares or the costs of the server."""

COVERAGE = 0.9
"""Probability with which prediction sets contain the true class."""


@dataclass(frozen=True)
class Options:
    """How images are decided, as text: the options of ``cosen predict``.

    Attributes:
        prior: Class shares; ``outputs`` to use the outputs as they are. Empty for the shares of
            training if there are costs, otherwise for the outputs.
        decide: The rule.
        costs: Misclassification costs as JSON, row = true class; empty for none.
        top: Number of most probable classes to list.
        details: Whether to add activation maps and outputs.
    """

    prior: str = ""
    decide: str = MostProbable.kind
    costs: str = ""
    top: int = 5
    details: bool = False


class Service:
    """Models, and how they decide.

    Args:
        models: The models.
        name: Their name.
        options: Used where a request gives none.
    """

    def __init__(self, models: Models, *, name: str, options: Options) -> None:
        self.models, self.name, self.options = models, name, options
        if self._prior(options) == "estimate":
            raise InputError("estimate needs images: give prior=estimate with a request")
        self._fitted = lru_cache(16)(self._fit)
        self.check(options)
        known = models.validation(models.shares("train"))
        self._sets = None if known is None else PredictionSets(COVERAGE).fit(known)

    def options_of(self, given: Mapping[str, Any]) -> Options:
        """Return the options of a request: the given ones, and those of the server for the rest.

        A rule replaces the costs of the server, and costs replace its rule.
        """
        replaced: dict[str, Any] = {}
        if "decide" in given:
            replaced["costs"] = ""
        elif given.get("costs", NO_COSTS) != NO_COSTS:
            replaced["decide"] = MostProbable.kind
        found = replace(self.options, **(replaced | dict(given)))
        return replace(found, costs="") if found.costs == NO_COSTS else found

    def check(self, options: Options) -> None:
        """Raise an error unless options can be used."""
        if options.top < 1:
            raise InputError(f"top must be at least 1, but is {options.top}")
        self._fitted(options.prior, options.decide, options.costs)

    def describe(self) -> dict[str, Any]:
        """Return what is served, in plain values."""
        models, info, options = self.models, self.models.infos[0], self.options
        shares = models.shares(self._prior(options))
        return {
            "name": self.name,
            "classes": list(models.class_names),
            "class_counts": info.class_counts.tolist(),
            "network": info.features or info.network,
            "image_size": list(info.preprocess.shape[:2]),
            "shares": None if shares is None else (shares / shares.sum()).tolist(),
            "costs": json.loads(options.costs) if options.costs else None,
            "decide": options.decide,
            "rule": self._fitted(options.prior, options.decide, options.costs).sentence,
            "coverage": None if self._sets is None else COVERAGE,
            "in_every_set": self._in_every_set(),
            "trained_place": trained_place(models.calibrations[0]),
            "models": [
                {
                    "temperature": one.temperature,
                    "offsets": one.offsets.tolist(),
                    "training_shares": one.training_shares.tolist(),
                }
                for one in models.calibrations
            ],
            "cosen_version": cosen.__version__,
        }

    def results(
        self, names: Sequence[str], answers: Sequence[Answer], options: Options
    ) -> list[dict[str, Any]]:
        """Return the class, the probabilities and the prediction set of each image."""
        if not answers:
            return []
        models, prior = self.models, self._prior(options)
        logits = list(torch.stack([one.logits for one in answers], 1))  # of each model, (B, C)
        shares = models.shares(prior, logits)
        if prior == "estimate":
            rule = models.fitted(self._rule(options), shares).rule
        else:
            rule = self._fitted(options.prior, options.decide, options.costs).rule
        found = models.predictions(names, logits, shares, rule, top=options.top)
        if self._sets is not None and found[0].classes is None:
            # these sets hold for each class, so for any class shares
            trained = models.shares("train")
            usual = models.predictions(names, logits, trained, self._sets, top=1)
            pairs = zip(found, usual, strict=True)
            found = [replace(own, classes=other.classes) for own, other in pairs]
        return [
            one.as_json() | (self._details(answer) if options.details else {})
            for one, answer in zip(found, answers, strict=True)
        ]

    def _details(self, answer: Answer) -> dict[str, Any]:
        """Return what the page needs to decide again, and the activation map."""
        scaled = zip(self.models.calibrations, answer.logits, strict=True)
        drawn = None
        if answer.map is not None:
            label = int(answer.logits[0].argmax())  # of the first model
            drawn = asdict(answer.map) | {"class": self.models.class_names[label]}
        return {"outputs": [one.logits(own).tolist() for one, own in scaled], "map": drawn}

    def _in_every_set(self) -> list[str]:
        """Return the classes with too few validation images."""
        if self._sets is None:
            return []
        labels = (self._sets.thresholds == 0).nonzero().flatten()
        return [self.models.class_names[label] for label in labels]

    def _prior(self, options: Options) -> Prior | None:
        usual = "train" if options.costs else OUTPUTS  # costs need real shares
        text = options.prior.strip() or usual
        return None if text == OUTPUTS else parse_prior(text)

    def _rule(self, options: Options) -> Rule:
        return parse_rule(options.decide, self._cost_table(options.costs))

    def _fit(self, prior: str, decide: str, costs: str) -> FittedRule:
        options = Options(prior, decide, costs)
        return self.models.fitted(self._rule(options), self.models.shares(self._prior(options)))

    def _cost_table(self, text: str) -> Tensor | None:
        if not text:
            return None
        try:
            table = torch.tensor(json.loads(text), dtype=torch.float64)
        except (ValueError, TypeError, RecursionError, RuntimeError) as error:
            raise InputError(
                "costs must be a JSON list with a row of numbers for each true class"
            ) from error
        size = len(self.models.class_names)
        check_finite_matrix(table, num_classes=size, name="costs")
        return table
