"""What tuning found: the candidates that matter, their differences, the sentence and the TOML."""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosen.methods.learned_costs import CosenPaper
from cosen.training.tuning.options import CostOptions, describe


@dataclass(frozen=True)
class Candidate:
    """Options of cosen-paper, and the error on each held-out fold."""

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
    """How much lower one error is than another, over the same folds.

    Attributes:
        mean: Positive where the first candidate is better.
        standard_error: With the correction for training sets that overlap (Nadeau and Bengio).
        beyond_noise: Whether it differs from 0 by a one-sided t-test at 5 %.
    """

    mean: float
    standard_error: float
    beyond_noise: bool

    def __str__(self) -> str:
        return f"{100 * self.mean:+.2f} ± {100 * self.standard_error:.2f}"


def compare(first: Candidate, second: Candidate, *, samples: int) -> Difference:
    """How much lower the first's error is, and whether that is more than noise.

    Args:
        first: A candidate.
        second: Another, judged on the same folds.
        samples: How many samples were judged in all: one more or less right is noise, too.

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
    """What tuning found.

    Attributes:
        chosen: What is written to ``tuned.toml``: the best, or the defaults if it is no better.
        best: The candidate of least error.
        defaults: The defaults of CostLearner, with what the user fixed.
        no_costs: Plain training.
        samples: Images that were held out, each once.
        finished: Candidates that were judged, in this run and before.
        pruned: How many of them were given up early.
        path: The file of settings.
    """

    chosen: Candidate
    best: Candidate
    defaults: Candidate
    no_costs: Candidate
    samples: int
    finished: int
    pruned: int
    path: Path

    def sentence(self) -> str:
        """What was chosen, and why."""
        gain = compare(self.best, self.defaults, samples=self.samples)
        folds = f"{len(self.chosen.errors)} folds"
        defaults = f"the defaults of {CosenPaper.name} ({describe(self.defaults.costs)})"
        trials = f"{self.finished} trials" if self.finished > 1 else "1 trial"
        if self.best.costs == self.defaults.costs:
            said = (
                f"Chose {defaults}: none of {trials} has a lower cross-validated error than their "
                f"{self.chosen} over {folds}"
            )
        elif not gain.beyond_noise:
            said = (
                f"Chose {defaults}: the best of {trials} "
                f"({describe(self.best.costs)}) has a cross-validated error of {self.best} against "
                f"their {self.defaults}, and {gain} over the same {folds} is within noise"
            )
        else:
            said = (
                f"Chose {describe(self.chosen.costs)} for {CosenPaper.name}: the best of {trials}, "
                f"its cross-validated error is {self.best} against {self.defaults} with the "
                f"defaults, and {gain} over the same {folds} is more than noise"
            )
        return f"{said}; no costs give {self.no_costs}, {self._against_no_costs()}."

    def _against_no_costs(self) -> str:
        gain = compare(self.chosen, self.no_costs, samples=self.samples)
        if not gain.beyond_noise:
            return "no different within noise"
        if gain.mean > 0:
            return "which is worse beyond noise"
        return "which is better beyond noise: consider --method baseline"

    def as_json(self) -> dict[str, Any]:
        """Plain numbers; JSON has no infinite ones, so such a deviation is written ``"inf"``."""
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


def as_toml(tuned: Tuned, *, objective: str, expert: str | None) -> str:
    """Settings for ``cosen train --config``: method, costs, and the objective they are for."""
    lines = [f"# {tuned.sentence()}", "", f"method = {_toml(CosenPaper.name)}"]
    lines.append(f"objective = {_toml(objective)}")
    if expert:
        lines.append(f"expert = {_toml(str(Path(expert).absolute()))}")
    lines += ["", "[options]"]
    lines += [f"{name} = {_toml(value)}" for name, value in tuned.chosen.costs.items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)  # a float's repr is TOML's, inf included
