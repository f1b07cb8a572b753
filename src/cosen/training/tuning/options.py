"""The options of CostLearner that are searched: how far, from where, and how they are worded."""

import inspect
import math
from typing import Any, get_args

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from cosen.costs import Acceptance, CostLearner

CostOptions = dict[str, Any]

SEARCHED: dict[str, BaseDistribution] = {
    "cost_lr": FloatDistribution(0.01, 1.0, log=True),
    "acceptance": CategoricalDistribution(get_args(Acceptance)),
    "confusion_mean": FloatDistribution(0.0, 1.0),  # R are rates
    "confusion_std": FloatDistribution(0.1, 2.0, log=True),
    "separability_mean": FloatDistribution(0.0, 1.5),  # S is 1 where classes are mixed
    "separability_std": FloatDistribution(0.1, 2.0, log=True),
}
"""What is varied, and how far; each factor may also be switched off (an infinite deviation)."""

FACTORS = ("confusion", "separability")


def defaults_with(fixed: CostOptions) -> CostOptions:
    """The defaults of CostLearner, with what the user fixed."""
    known = inspect.signature(CostLearner).parameters
    return {name: known[name].default for name in SEARCHED} | fixed


def no_costs_with(fixed: CostOptions) -> CostOptions:
    """Plain training: costs that are never changed."""
    return defaults_with(fixed) | {"cost_lr": 0.0}


def suggest(trial: optuna.Trial, fixed: CostOptions) -> CostOptions:
    """The next candidate: what is fixed, and a value for the rest."""
    costs: CostOptions = {}

    def take(name: str) -> None:
        if name in fixed:
            costs[name] = fixed[name]
            return
        how = SEARCHED[name]
        if isinstance(how, CategoricalDistribution):
            costs[name] = trial.suggest_categorical(name, how.choices)
        elif isinstance(how, FloatDistribution):
            value = trial.suggest_float(name, how.low, how.high, log=how.log)
            costs[name] = float(f"{value:.3g}")  # judged as it will be written

    take("cost_lr")
    take("acceptance")
    for factor in FACTORS:
        mean, std = f"{factor}_mean", f"{factor}_std"
        if std not in fixed and not trial.suggest_categorical(factor, (True, False)):
            costs[std] = math.inf
        else:
            take(std)
        if math.isfinite(costs[std]):
            take(mean)
    return costs | fixed


def answers(costs: CostOptions) -> dict[str, Any]:
    """What optuna must answer for :func:`suggest` to come to these options.

    What is not asked for, like the deviation of a factor that is off, does no harm.
    """
    return costs | {factor: math.isfinite(costs[f"{factor}_std"]) for factor in FACTORS}


def describe(costs: CostOptions) -> str:
    """Options in a few words.

    Example:
        >>> describe({"cost_lr": 0.1, "separability_std": math.inf, "separability_mean": 1.0})
        'cost_lr 0.1, separability off'
    """
    words = []
    for name, value in costs.items():
        factor, _, number = name.rpartition("_")
        if factor in FACTORS and costs.get(f"{factor}_std") == math.inf:
            if number == "std":
                words.append(f"{factor} off")
            continue
        words.append(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")
    return ", ".join(words)
