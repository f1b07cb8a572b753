"""The result of a report in a few fixed sentences, and its limits."""

from collections.abc import Sequence

from cosen.comparing.bootstrap import LEVEL
from cosen.comparing.leaderboard_table import format_change, format_error
from cosen.report.provenance import different_settings
from cosen.report.run_data import MethodRuns, ReportData

MAX_NAMES = 3
"""Largest number of classes that a sentence names; the others are counted."""

MAX_LENGTH = 40
"""Longer names of classes are cut in sentences."""


def verdict(data: ReportData) -> str:
    """The sentence of the study's choice, or the result of a run."""
    if data.choice is not None:
        return data.choice.sentence
    return _alone(data) if data.baseline is None else _compared(data, data.baseline)


def caveats(data: ReportData, *, has_costs: bool, has_tradeoff: bool) -> list[str]:
    """One sentence per limit of the result."""
    classes = len(data.class_names)
    found = [] if data.choice is None else list(data.choice.caveats)
    if data.choice is not None and data.chosen.name != data.choice.method:
        found.append(
            f"The choice is the baseline. It is compared here with {data.chosen.name}, the best "
            "other method on validation."
        )
    if data.choice is None and data.baseline is not None:
        found.append(
            "There is only one seed: the interval does not include the variation between runs."
        )
        if different := different_settings(data):
            found.append(
                f"{data.baseline.name} has other settings, which may cause the difference: "
                f"{different}."
            )
    tested = data.chosen.sums.actual.tolist()
    if untested := [
        quoted(name) for name, count in zip(data.class_names, tested, strict=True) if not count
    ]:
        found.append(f"No test images, so no recall: {_list(untested)}.")
    if data.costs is not None and not has_costs:
        found.append(f"The cost matrices of {classes} classes are too large for the page.")
    if not has_tradeoff:
        found.append(f"The trade-off of {classes} classes is too large for the page.")
    return found


def quoted(name: str) -> str:
    r"""The name of a class on one line, in quotes, cut if it is long.

    Example:
        >>> print(quoted("golden\n retriever"))
        'golden retriever'
    """
    line = " ".join(name.split())
    return f"'{line if len(line) <= MAX_LENGTH else line[: MAX_LENGTH - 1] + '…'}'"


def _alone(data: ReportData) -> str:
    sums = data.chosen.sums
    correct, counts = sums.right.long().tolist(), sums.actual.long().tolist()
    worst = min(
        (label for label, count in enumerate(counts) if count),
        key=lambda label: (correct[label] / counts[label], data.class_counts[label]),
    )
    name, value = _objective(data, data.chosen)
    sentence = f"{name} is {value} with {data.chosen.name} on {sum(counts)} test images."
    if sum(correct) == sum(counts):
        return f"{sentence} All are correct."
    mistakes = data.chosen.confusion[worst].to_dense().clone()
    mistakes[worst] = 0
    return (
        f"{sentence} Lowest recall: {quoted(data.class_names[worst])}, {correct[worst]} of "
        f"{counts[worst]} correct, {int(mistakes.max())} predicted as "
        f"{quoted(data.class_names[int(mistakes.argmax())])}."
    )


def _compared(data: ReportData, baseline: MethodRuns) -> str:
    change = data.change(baseline)
    mean, low, high = format_change(change, data.objective.largest_cost)
    outcome = "better beyond noise" if change.mean > 0 else "worse beyond noise"
    gains = (data.chosen.sums.right - baseline.sums.right).long().tolist()
    by_size = sorted(range(len(gains)), key=lambda label: -abs(gains[label]))
    named = [f"{quoted(data.class_names[label])} ({gains[label]:+d})" for label in by_size]
    more = [name for name, label in zip(named, by_size, strict=True) if gains[label] > 0]
    fewer = [name for name, label in zip(named, by_size, strict=True) if gains[label] < 0]
    name, value = _objective(data, data.chosen)
    return (
        f"{name} is {value} with {data.chosen.name} and {_objective(data, baseline)[1]} with "
        f"{baseline.name} ({mean}, {100 * LEVEL:.0f} % interval {low} to {high}): "
        f"{'within noise' if change.within_noise else outcome}. Classes with more correct test "
        f"images: {_list(more)}. Classes with fewer: {_list(fewer)}."
    )


def _objective(data: ReportData, method: MethodRuns) -> tuple[str, str]:
    """The name and the value of the objective, such as "Mean class recall" and "91.2 %"."""
    value = format_error(data.error(method), data.objective.largest_cost)
    if data.objective.largest_cost is not None:
        return "Mean cost", value
    return data.objective.label.capitalize(), f"{value} %"


def _list(names: Sequence[str]) -> str:
    """At most three names and the number of the others.

    Example:
        >>> _list(["a", "b", "c", "d", "e"]), _list([])
        ('a, b, c and 2 more', 'none')
    """
    others = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + others if names else "none"
