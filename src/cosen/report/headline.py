"""The figures of the whole test set, as words."""

from collections.abc import Callable

from cosen.comparing.leaderboard_table import Measure
from cosen.comparing.spread import Spread
from cosen.costs import Objective
from cosen.report.run_data import Shown, ShownRun

SHARES = {
    "accuracy": "overall accuracy",
    "mean_recall": "mean class recall",
    "rare_recall": "recall of the rarest third",
    "g_mean": "G-mean",
    "macro_f1": "macro F1",
    "auc": "area under the ROC curves",
}
"""Metrics that are shares of 1."""

Words = Callable[[float], str]


def headline(shown: Shown, objective: Objective) -> list[dict[str, str | None]]:
    """What the whole test set says of either side; a mean ± standard deviation over seeds."""
    measure = Measure.of(objective)
    cost = [] if measure.largest_cost is None else [("error", "mean cost")]
    return [
        *(_line(shown, title, name, measure.value, measure.spread) for name, title in cost),
        *(_line(shown, title, name, _per_cent, _per_cent, " %") for name, title in SHARES.items()),
        _line(shown, "time to train", "seconds", _seconds, _seconds, " s"),
    ]


def _line(
    shown: Shown, title: str, name: str, value: Words, spread: Words, unit: str = ""
) -> dict[str, str | None]:
    found: dict[str, str | None] = {"name": title, "baseline": None}
    for role, side in shown.sides():
        values = [_value(run, name) for run in side.runs.values()]
        figure = Spread.of([value for value in values if value is not None])
        if figure is None:
            found[role] = "-"
        elif figure.deviation is None:
            found[role] = f"{value(figure.mean)}{unit}"
        else:
            found[role] = f"{value(figure.mean)} ± {spread(figure.deviation)}{unit}"
    return found


def _value(run: ShownRun, name: str) -> float | None:
    found: float | None = (run.about if name == "seconds" else run.metrics).get(name)
    return found


def _per_cent(share: float) -> str:
    return f"{100 * share:.1f}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}"
