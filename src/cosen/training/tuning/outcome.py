"""The result of tuning: candidates, their differences, a summary and a TOML file."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from cosen.methods.learned_costs import CosenPaper

CostOptions = dict[str, Any]

FACTORS = ("confusion", "separability")


@dataclass(frozen=True)
class Candidate:
    """Options of cosen-paper, and the error on each fold."""

    costs: CostOptions
    errors: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.errors))

    @property
    def standard_error(self) -> float:
        return float(np.std(self.errors, ddof=1) / math.sqrt(len(self.errors)))

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} ± {100 * self.standard_error:.2f} %"


@dataclass(frozen=True)
class Difference:
    """The difference of two errors over the same folds."""

    mean: float  # positive if the first candidate is better
    standard_error: float  # corrected for overlapping training sets (Nadeau and Bengio)
    beyond_noise: bool  # whether it differs from 0 in a one-sided t-test at 5 %

    def __str__(self) -> str:
        return f"{100 * self.mean:+.2f} ± {100 * self.standard_error:.2f}"


def compare(first: Candidate, second: Candidate, *, samples: int) -> Difference:
    """Compare the errors of two candidates; a difference of one of ``samples`` is noise.

    Example:
        >>> first, second = Candidate({}, (0.10, 0.11, 0.12)), Candidate({}, (0.20, 0.21, 0.23))
        >>> compare(first, second, samples=1000).beyond_noise
        True
    """
    from scipy.stats import t  # type: ignore[import-untyped]

    gains = np.subtract(second.errors, first.errors)
    folds = len(gains)
    spread = np.std(gains, ddof=1) * math.sqrt(1 / folds + 1 / (folds - 1))
    error = max(float(spread), 1 / samples)
    mean = float(gains.mean())
    return Difference(mean, error, abs(mean) > float(t.ppf(0.95, folds - 1)) * error)


@dataclass(frozen=True)
class Tuned:
    """The result of tuning."""

    chosen: Candidate  # the best, or the defaults if it is not better beyond noise
    best: Candidate  # lowest error
    defaults: Candidate  # those of CostLearner, with the options that the user fixed
    no_costs: Candidate  # plain training
    samples: int  # held-out images
    finished: int  # evaluated candidates, including those of earlier runs
    pruned: int  # how many of them were stopped early
    path: Path  # of tuned.toml

    def sentence(self) -> str:
        """Describe the choice and the errors behind it."""
        gain = compare(self.best, self.defaults, samples=self.samples)
        plain = compare(self.chosen, self.no_costs, samples=self.samples)
        if not gain.beyond_noise:
            choice = f"Chose the defaults of {CosenPaper.name} ({describe(self.defaults.costs)})"
        else:
            choice = f"Chose {describe(self.chosen.costs)} for {CosenPaper.name}"
        text = (
            f"{choice}. Cross-validated error over {len(self.chosen.errors)} folds: defaults "
            f"{self.defaults}, best candidate {self.best} ({self.finished} tried; difference "
            f"{gain}, {_verdict(gain)}), no costs {self.no_costs} (difference {plain}, "
            f"{_verdict(plain)})."
        )
        if plain.beyond_noise and plain.mean < 0:
            text += " Consider --method baseline."
        return text

    def as_json(self) -> dict[str, Any]:
        """Return plain values; infinite numbers are written ``"inf"``."""
        found: dict[str, Any] = {"sentence": self.sentence(), "config": str(self.path)}
        for name in ("chosen", "best", "defaults", "no_costs"):
            candidate: Candidate = getattr(self, name)
            costs = {key: "inf" if v == math.inf else v for key, v in candidate.costs.items()}
            found[name] = {
                "costs": costs,
                "error": candidate.mean,
                "standard_error": candidate.standard_error,
                "fold_errors": candidate.errors,
            }
        for name, other in (("defaults", self.defaults), ("no_costs", self.no_costs)):
            found[f"gain_over_{name}"] = asdict(compare(self.chosen, other, samples=self.samples))
        return found | {"finished": self.finished, "pruned": self.pruned}


def _verdict(gain: Difference) -> str:
    if not gain.beyond_noise:
        return "within noise"
    return "better" if gain.mean > 0 else "worse"


def as_toml(tuned: Tuned, objective: str | None) -> str:
    """Return settings for ``cosen train --config``; an objective object cannot be written."""
    settings: dict[str, Any] = {"method": CosenPaper.name}
    if objective is not None:
        is_name = objective in ("overall", "balanced")
        settings["objective"] = objective if is_name else str(Path(objective).absolute())
    settings["options"] = tuned.chosen.costs
    return f"# {tuned.sentence()}\n\n{tomli_w.dumps(settings)}"


def describe(costs: CostOptions) -> str:
    """Describe options in a few words.

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
