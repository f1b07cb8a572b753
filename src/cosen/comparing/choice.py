"""The choice of a method: made on validation images, then checked on test images.

Test images are not used to choose, so the test result of the chosen method is not biased by the
choice. The validation result is biased: validation images also choose the epoch that each run
keeps.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import numpy as np

from cosen.comparing.bootstrap import LEVEL, Change
from cosen.comparing.leaderboard import FinishedRun, Grid, PartName, compare_runs
from cosen.comparing.leaderboard_table import format_change, format_error
from cosen.costs import Objective
from cosen.training.records import Record

MAX_NAMES = 3
"""Largest number of names in a list; the rest is counted."""

MANY_METHODS = 10
"""With more methods, a caveat says that one may win by chance."""

FEW_IMAGES = 10
"""Validation images of the rarest class, over all seeds, below which a caveat says so."""

ERROR_DECIMALS = 12
"""Decimals of errors that are compared: the rest is rounding."""


class Choice(Record):
    """``choice.json``: the method to use.

    Attributes:
        method: Its label; None if no run has finished.
        sentence: The choice, the reason, and the test result, in a few sentences.
        challenger: The method that was compared with the baseline: the chosen one, or the best
            other method if the baseline was chosen. None if there is nothing to compare.
        validation: How much better the challenger is than the baseline on validation images.
        test: The same on test images.
        within_noise: Methods whose difference to the chosen one is within noise on validation
            images, the best first.
        seeds: The seeds that were compared.
        caveats: Limits of the result, one sentence each.
    """

    FILE = "choice.json"

    method: str | None
    sentence: str
    challenger: str | None = None
    validation: Change | None = None
    test: Change | None = None
    within_noise: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    caveats: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join([self.sentence, *self.caveats])


def choose(grid: Grid, *, objective: Objective, baseline: str = "baseline") -> Choice:
    """Choose a method by its validation results, over all seeds.

    The choice is the method with the lowest mean error among those that are better than the
    baseline beyond noise (the bootstrap interval is above zero), or the baseline if there is none.
    If errors are equal, the baseline comes first, then the order of the grid. Only the seeds of the
    baseline are used, and only methods that have all of them: errors on different splits cannot be
    compared.

    Args:
        grid: The finished runs, from :func:`cosen.comparing.leaderboard.read_grid`.
        objective: The objective to compare.
        baseline: The method to keep unless another is better, if it has a finished run.
    """
    finished = {method: by_seed for method, by_seed in grid.items() if by_seed}
    if not finished:
        return Choice(method=None, sentence="No run has finished, so there is no choice.")
    seeds = tuple(finished.get(baseline) or max(finished.values(), key=len))
    runs = {
        method: {seed: by_seed[seed] for seed in seeds}
        for method, by_seed in finished.items()
        if set(seeds) <= set(by_seed)
    }

    def rank(method: str) -> tuple[float, bool]:
        error = _mean_error(runs[method], "val", objective)
        return round(error, ERROR_DECIMALS), method != baseline

    def compare(method: str, other: str, part: PartName) -> Change:
        return compare_runs(runs[method], runs[other], part=part, objective=objective)

    ranked = sorted(runs, key=rank)
    others = [method for method in ranked if method != baseline]
    gains = {method: compare(method, baseline, "val") for method in others if baseline in runs}
    better = [method for method, gain in gains.items() if gain.low > 0]
    challenger = next(iter(better or gains), None)
    chosen = better[0] if better else baseline if baseline in runs else ranked[0]
    near = [
        method
        for method in ranked
        if method != chosen and compare(chosen, method, "val").within_noise
    ]
    test = compare(challenger, baseline, "test") if challenger else None

    def number(method: str, part: PartName) -> str:
        text = format_error(_mean_error(runs[method], part, objective), objective.largest_cost)
        return text if objective.largest_cost is not None else f"{text} %"

    def against_baseline(part: PartName, change: Change) -> str:
        mean, low, high = format_change(change, objective.largest_cost)
        return (
            f"{number(challenger or chosen, part)}, {baseline} {number(baseline, part)} "
            f"({mean}, {100 * LEVEL:.0f} % interval {low} to {high})"
        )

    sentence = f"Choice for {objective.label}: {chosen}."
    within = f" Within noise of it: {_listed(near)}." if near else ""
    on_test = "On test images, which were not used to choose:"
    if len(runs) == 1:
        sentence = (
            f"Only {chosen} has finished all seeds, so there is nothing to compare. "
            f"Its {objective.label}: {number(chosen, 'val')} on validation images, "
            f"{number(chosen, 'test')} on test images."
        )
    elif challenger is None or test is None:
        sentence += (
            f" It is the best of {len(runs)} methods on validation images: "
            f"{number(chosen, 'val')}.{within} There is no baseline to compare with. "
            f"{on_test} {number(chosen, 'test')}."
        )
    elif chosen == ranked[0] == baseline:
        sentence += (
            f" No other method is better on validation images: {number(chosen, 'val')}.{within} "
            f"{on_test} {number(chosen, 'test')}."
        )
    elif chosen == baseline:
        sentence += (
            f" No method is better beyond noise. The best on validation images is {challenger}: "
            f"{against_baseline('val', gains[challenger])}. "
            f"{on_test} {against_baseline('test', test)}. {_verdict(test)}"
        )
    else:
        sentence += (
            f" On validation images: {against_baseline('val', gains[challenger])}.{within} "
            f"{on_test} {against_baseline('test', test)}. {_verdict(test)}"
        )
    return Choice(
        method=chosen,
        sentence=sentence,
        challenger=challenger,
        validation=gains[challenger] if challenger else None,
        test=test,
        within_noise=tuple(near),
        seeds=seeds,
        caveats=_caveats(runs, seeds, [method for method in finished if method not in runs]),
    )


def _verdict(test: Change) -> str:
    if test.within_noise:
        return "This difference is within noise."
    return "This is better beyond noise." if test.low > 0 else "This is worse beyond noise."


def _caveats(runs: Grid, seeds: Sequence[int], excluded: Sequence[str]) -> tuple[str, ...]:
    caveats = []
    if len(runs) > MANY_METHODS:
        caveats.append(
            f"{len(runs)} methods were compared: one may look better by chance, because the "
            "intervals are not corrected for their number."
        )
    if len(seeds) == 1 and len(runs) > 1:
        caveats.append("There is one seed: the intervals ignore how much training runs vary.")
    of_one_method = list(next(iter(runs.values())).values())
    names = of_one_method[0].record.prepared.class_names
    targets = np.concatenate([run.val.target for run in of_one_method])
    counts = np.bincount(targets, minlength=len(names))
    rarest = int(counts[counts > 0].min())
    if len(runs) > 1 and rarest < FEW_IMAGES:
        caveats.append(
            f"Validation has {rarest} {'image' if rarest == 1 else 'images'} of the rarest class, "
            "over all seeds: it can miss real differences."
        )
    if absent := [repr(name) for name, count in zip(names, counts, strict=True) if not count]:
        caveats.append(f"Classes without validation images are ignored: {_listed(absent)}.")
    if excluded:
        caveats.append(f"Not considered, because seeds are missing: {_listed(excluded)}.")
    return tuple(caveats)


def _mean_error(runs: Mapping[int, FinishedRun], part: PartName, objective: Objective) -> float:
    return fmean(getattr(run, part).error(objective) for run in runs.values())


def _listed(names: Sequence[str]) -> str:
    """List a few names, and count the rest.

    Example:
        >>> _listed(["a", "b"]), _listed(["a", "b", "c", "d", "e"])
        ('a, b', 'a, b, c, 2 more')
    """
    rest = [f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    return ", ".join([*names[:MAX_NAMES], *rest])
