"""What a run says in one sentence, alone or against another. (A study has its own sentence.)"""

from torch import Tensor

from cosen.comparing.bootstrap import LEVEL, Change
from cosen.comparing.leaderboard_table import Measure
from cosen.costs import Objective, validation_error
from cosen.report.provenance import settings_apart
from cosen.report.run_data import Shown, Side

LONGEST_NAME = 40
"""Longer names of classes are cut in sentences."""


def verdict(shown: Shown, objective: Objective) -> str:
    """How good the run is, or what it makes better and worse than the other."""
    return _alone(shown) if shown.baseline is None else _against(shown, shown.baseline, objective)


def caveats(shown: Shown) -> list[str]:
    """A sentence for each thing that the reader should know besides."""
    found = []
    if shown.baseline is not None and len(shown.seeds) == 1:
        found.append("There is one seed: the interval does not cover how training itself varies.")
    return found + _unequal(shown) + untested(shown)


def _unequal(shown: Shown) -> list[str]:
    """What the other run was set otherwise than this one, as a sentence."""
    differing = settings_apart(shown)
    if not differing:
        return []
    return [
        f"They were not trained alike, and that may be the difference: the other had {differing}."
    ]


def untested(shown: Shown) -> list[str]:
    """Which classes have no test image, as a sentence; nothing where all have some."""
    counts = shown.chosen.confusion.sum(1).tolist()
    names = [quoted(n) for n, count in zip(shown.class_names, counts, strict=True) if not count]
    if not names:
        return []
    several = f" and {len(names) - 3} others" if len(names) > 3 else ""
    return [f"There is no test image of {', '.join(names[:3])}{several}: recall is unknown there."]


def quoted(name: str) -> str:
    r"""The name of a class as it stands in a sentence.

    Example:
        >>> print(quoted("golden\n retriever"))
        'golden retriever'
    """
    plain = " ".join(name.split())
    return f"'{plain if len(plain) <= LONGEST_NAME else plain[: LONGEST_NAME - 1] + '…'}'"


# A run alone


def _alone(shown: Shown) -> str:
    run, confusion = shown.first, shown.chosen.confusion
    total, right = int(confusion.sum()), int(confusion.diagonal().sum())
    rare = run.metrics["rare_recall"]
    of_rare = "" if rare is None else f" and {_per_cent(rare)} of the rarest third"
    told = (
        f"{shown.chosen.name} finds {_per_cent(run.metrics['mean_recall'])} of a class on average"
        f"{of_rare} (overall accuracy {_per_cent(right / total)} on {total} test images)"
    )
    if right == total:
        return f"{told}: not one is wrong."
    return f"{told}; {_worst_class(shown, confusion)}."


def _worst_class(shown: Shown, confusion: Tensor) -> str:
    """The class of the least recall, of equals the rarest, and what it is taken for."""
    counts = confusion.sum(1)
    tested = [label for label, count in enumerate(counts.tolist()) if count]
    worst = min(
        tested,
        key=lambda label: (
            float(confusion[label, label] / counts[label]),
            shown.train_counts[label],
        ),
    )
    row = confusion[worst].clone()
    found, of = int(row[worst]), int(row.sum())
    row[worst] = 0
    other = int(row.argmax())
    names = [quoted(name) for name in shown.class_names]
    return (
        f"the worst is {names[worst]}, of which it finds {found} of {of} and takes "
        f"{int(row[other])} for {names[other]}"
    )


# Against another run


def _against(shown: Shown, baseline: Side, objective: Objective) -> str:
    gains = (shown.chosen.confusion.diagonal() - baseline.confusion.diagonal()).tolist()
    change, measure = shown.change(objective), Measure.of(objective)
    mean, low, high = measure.change(change)
    error, other = (
        validation_error(side.confusion, objective) for side in (shown.chosen, baseline)
    )
    unit = "" if measure.largest_cost is not None else " %"
    what = measure.name if measure.largest_cost is None else "the mean cost"
    return (
        f"Against {baseline.name}, {shown.chosen.name} {_better_and_worse(shown, gains)}; {what} "
        f"is {measure.value(error)}{unit} against {measure.value(other)}{unit} ({mean}, "
        f"{100 * LEVEL:.0f} % interval {low} to {high}), {_judged(change)}."
    )


def _better_and_worse(shown: Shown, gains: list[int]) -> str:
    better, worse = [g for g in gains if g > 0], [g for g in gains if g < 0]
    if not better and not worse:
        return "gets no class better or worse"
    told = [
        _counted(shown, group, word, gains.index(most))
        for word, group, most in (("better", better, max(gains)), ("worse", worse, min(gains)))
    ]
    return f"gets {' and '.join(told)}"


def _counted(shown: Shown, group: list[int], word: str, most: int) -> str:
    """How many classes changed for the better or the worse, by how much, and which most.

    Args:
        shown: The runs.
        group: The test images by which each changed.
        word: For the better or the worse.
        most: The class that changed most.
    """
    if not group:
        return f"no class {word}"
    classes = f"{len(group)} class{'es' * (len(group) > 1)} {word}"
    name, farthest = quoted(shown.class_names[most]), max(group, key=abs)
    if len(group) == 1:
        return f"{classes} ({name}, {farthest:+d} test image{'s' * (abs(farthest) > 1)})"
    return f"{classes} ({sum(group):+d} test images in all, {farthest:+d} of {name})"


def _judged(change: Change) -> str:
    if change.within_noise:
        return "which is within noise"
    return f"which is {'better' if change.mean > 0 else 'worse'} beyond noise"


def _per_cent(share: float) -> str:
    return f"{100 * share:.1f} %"
