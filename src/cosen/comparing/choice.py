"""Which method to take, in one sentence: chosen on validation, with what test says of it after.

Test takes no part in the choice, so what it says of the chosen method is not flattered by the
choosing. (Validation is: it also chose the epoch that each run kept.)
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from cosen.comparing.bootstrap import LEVEL, Change
from cosen.comparing.leaderboard import FinishedRun, PartName, Runs, compare_runs, read_grid
from cosen.comparing.leaderboard_table import Measure
from cosen.costs import Objective

MOST_NAMED = 3
"""Of more names than these the others are only counted."""

MANY = 10
"""Of more methods than these the reader is told that one may win by chance."""

SAME = 12
"""Decimals of an error that count in comparing: what is beyond is rounding."""

_ON_TEST = "On test, which had no part in the choice,"


@dataclass(frozen=True)
class Choice:
    """The method to take.

    Attributes:
        method: Its name; None where no run finished.
        sentence: The choice with its reason, then what test says.
        challenger: The method that was held against the baseline: the one chosen, or the best of
            the others where it is the baseline; None where there is nothing to compare.
        validation: How much better the challenger is than the baseline on validation.
        test: The same on test.
        within_noise: Other methods that validation cannot tell from the one chosen, best first.
        seeds: The seeds that all of this rests on.
        caveats: A sentence for each thing that the reader should know besides.
    """

    method: str | None
    sentence: str
    challenger: str | None = None
    validation: Change | None = None
    test: Change | None = None
    within_noise: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    caveats: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def choose(runs: Runs, *, objective: Objective, baseline: str = "baseline") -> Choice:
    """Choose a method by its validation samples, over all seeds.

    It is the one of least mean error among those that are better than the baseline beyond noise
    (their bootstrap interval lies above zero), and the baseline where there is none. Of equals the
    baseline is taken, else the one that the comparison names first. What counts are the seeds of
    the baseline, and the methods that have them all: errors on different splits cannot be compared.

    Args:
        runs: The finished runs of each method, by seed.
        objective: What is compared.
        baseline: The method to stay with unless another is better, if it is among them.
    """
    grid = {method: by_seed for method, by_seed in read_grid(runs).items() if by_seed}
    if not grid:
        return Choice(None, "No run finished, so there is nothing to choose from.")
    contest = _Contest(grid, objective, baseline)
    if len(contest.ranked) == 1:
        return _only_one(contest)
    return _against_baseline(contest) if baseline in grid else _without_baseline(contest)


class _Contest:
    """The methods that can be compared, and their numbers.

    Args:
        grid: The finished runs of each method, by seed; no method is without.
        objective: What is compared.
        baseline: The method to stay with, if it is among them.
    """

    def __init__(
        self, grid: dict[str, dict[int, FinishedRun]], objective: Objective, baseline: str
    ) -> None:
        with_most = max(grid.values(), key=len)
        self.seeds = tuple(grid.get(baseline, with_most))
        self.runs = {
            method: {seed: by_seed[seed] for seed in self.seeds}
            for method, by_seed in grid.items()
            if set(self.seeds) <= set(by_seed)
        }
        self.left_out = [method for method in grid if method not in self.runs]
        self.objective = objective
        self.baseline = baseline
        self.measure = Measure.of(objective)
        self.ranked = sorted(self.runs, key=self._rank)

    def error(self, method: str, part: PartName) -> float:
        """The mean over seeds."""
        runs = self.runs[method].values()
        return fmean(getattr(run, part).error(self.objective) for run in runs)

    def change(self, method: str, other: str, part: PartName) -> Change:
        """How much better the one is than the other."""
        return compare_runs(
            self.runs[method], self.runs[other], part=part, objective=self.objective
        )

    def near(self, chosen: str) -> tuple[str, ...]:
        """The others within noise of the one chosen, best first."""
        others = [method for method in self.ranked if method != chosen]
        return tuple(m for m in others if self.change(chosen, m, "val").within_noise)

    def classes_without_validation(self) -> list[str]:
        """Classes with no validation sample in any seed."""
        runs = list(self.runs[self.ranked[0]].values())
        present = {label for run in runs for label in run.val.target.tolist()}
        return [name for label, name in enumerate(runs[0].class_names) if label not in present]

    def _rank(self, method: str) -> tuple[float, bool]:
        return round(self.error(method, "val"), SAME), method != self.baseline


def _against_baseline(contest: _Contest) -> Choice:
    baseline = contest.baseline
    others = [method for method in contest.ranked if method != baseline]
    gains = {method: contest.change(method, baseline, "val") for method in others}
    better = [method for method in others if gains[method].low > 0]
    challenger = (better or others)[0]
    chosen = challenger if better else baseline
    near = contest.near(chosen)
    gain, test = gains[challenger], contest.change(challenger, baseline, "test")
    words = _Words(contest)
    named = words.called(baseline)
    goal = contest.measure.name
    if better:
        sentences = (
            f"For {goal} the choice is {chosen}: {words.a_figure(chosen, 'val')} on validation "
            f"against {words.number(baseline, 'val')} for {named} {words.interval(gain)}"
            f"{_said_of_near(near)}. {_ON_TEST} it has {words.a_figure(chosen, 'test')} against "
            f"{words.number(baseline, 'test')} {words.interval(test)}{_verdict(test)}."
        )
    elif contest.ranked[0] == baseline:
        sentences = (
            f"For {goal} the choice is {named}: no other method is better than its "
            f"{words.figure(baseline, 'val')} on validation{_said_of_near(near)}. "
            f"{_ON_TEST} it has {words.a_figure(baseline, 'test')}."
        )
    else:
        sentences = (
            f"No method is better than {named} beyond noise, so for {goal} the choice is {named}: "
            f"the best on validation, {challenger}, has {words.a_figure(challenger, 'val')} "
            f"against {words.number(baseline, 'val')} {words.interval(gain)}. {_ON_TEST} "
            f"{challenger} has {words.a_figure(challenger, 'test')} against "
            f"{words.number(baseline, 'test')} {words.interval(test)}"
            f"{_verdict(test) or ', which is better beyond noise'}."
        )
    return Choice(
        chosen,
        sentences,
        challenger=challenger,
        validation=gain,
        test=test,
        within_noise=near,
        seeds=contest.seeds,
        caveats=_caveats(contest),
    )


def _without_baseline(contest: _Contest) -> Choice:
    chosen = contest.ranked[0]
    near, words = contest.near(chosen), _Words(contest)
    return Choice(
        chosen,
        f"For {contest.measure.name} the choice is {chosen}, with no baseline to compare with: "
        f"{words.a_figure(chosen, 'val')} on validation, the best of {len(contest.ranked)} methods"
        f"{_said_of_near(near)}. {_ON_TEST} it has {words.a_figure(chosen, 'test')}.",
        within_noise=near,
        seeds=contest.seeds,
        caveats=_caveats(contest),
    )


def _only_one(contest: _Contest) -> Choice:
    (method,) = contest.ranked
    words = _Words(contest)
    named = words.called(method)
    alone = (
        f"No other method has finished runs of all seeds of {named}"
        if contest.left_out
        else f"Only {named} has a finished run"
    )
    return Choice(
        method,
        f"{alone}, so there is nothing to choose between: for {contest.measure.name} it has "
        f"{words.a_figure(method, 'val')} on validation and {words.number(method, 'test')} on "
        "test.",
        seeds=contest.seeds,
        caveats=_caveats(contest),
    )


class _Words:
    """The numbers of a contest as words: ``91.2 %``, or ``a mean cost of 0.42``."""

    def __init__(self, contest: _Contest) -> None:
        self._contest = contest
        self._measure = contest.measure

    def called(self, method: str) -> str:
        return "the baseline" if method == "baseline" else method

    def number(self, method: str, part: PartName) -> str:
        unit = " %" if self._measure.largest_cost is None else ""
        return self._measure.value(self._contest.error(method, part)) + unit

    def figure(self, method: str, part: PartName) -> str:
        cost = "" if self._measure.largest_cost is None else "mean cost of "
        return cost + self.number(method, part)

    def a_figure(self, method: str, part: PartName) -> str:
        article = "" if self._measure.largest_cost is None else "a "
        return article + self.figure(method, part)

    def interval(self, change: Change) -> str:
        mean, low, high = self._measure.change(change)
        return f"({mean}, {100 * LEVEL:.0f} % interval {low} to {high})"


def _verdict(test: Change) -> str:
    """What test says where it does not confirm; nothing where it does."""
    if test.within_noise:
        return ", which is within noise"
    return ", which is worse beyond noise" if test.high < 0 else ""


def _said_of_near(near: Sequence[str]) -> str:
    if not near:
        return ""
    return f"; {_listed(near)} {'is' if len(near) == 1 else 'are'} within noise of it"


def _caveats(contest: _Contest) -> tuple[str, ...]:
    caveats = []
    if len(contest.ranked) > MANY:
        caveats.append(
            f"With {len(contest.ranked)} methods compared, one may look better than noise by "
            "chance: the intervals are not corrected for that."
        )
    if len(contest.seeds) == 1 and len(contest.ranked) > 1:
        caveats.append("There is one seed: intervals do not cover how training itself varies.")
    if absent := contest.classes_without_validation():
        names = _listed([repr(name) for name in absent])
        caveats.append(f"Validation has no sample of {names}: the choice leaves such classes out.")
    if contest.left_out:
        caveats.append(
            f"{_listed(contest.left_out)} had no part in the choice: not all seeds have finished."
        )
    return tuple(caveats)


def _listed(names: Sequence[str]) -> str:
    """Names as in a sentence.

    Example:
        >>> _listed(["a", "b", "c"]), _listed(["a", "b", "c", "d", "e"])
        ('a, b and c', 'a, b, c and 2 others')
    """
    named, others = list(names[:MOST_NAMED]), len(names) - MOST_NAMED
    if others > 0:
        named.append("1 other" if others == 1 else f"{others} others")
    return " and ".join([", ".join(named[:-1])] * (len(named) > 1) + named[-1:])
