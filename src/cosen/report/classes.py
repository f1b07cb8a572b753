"""Class by class: how many images there are, how many are found, what they are taken for."""

from typing import Any

import numpy as np

from cosen.comparing.spread import Spread
from cosen.report.run_data import Shown, Side


def class_table(shown: Shown) -> list[dict[str, Any]]:
    """For each class its images and its recall, over seeds."""
    tested = np.mean([run.confusion.sum(1).numpy() for run in shown.chosen.runs.values()], axis=0)
    recalls = {role: _recalls(side) for role, side in shown.sides()}
    unknown: list[Spread | None] = [None] * len(tested)
    found = []
    for label, name in enumerate(shown.class_names):
        own = {role: recalls.get(role, unknown)[label] for role in ("baseline", "chosen")}
        found.append(
            {
                "name": name,
                "train": float(shown.train_counts[label]),
                "test": float(tested[label]),
                "recall": {role: figure and figure.mean for role, figure in own.items()},
                "spread": {role: figure and figure.deviation for role, figure in own.items()},
            }
        )
    return found


def by_rarity(shown: Shown) -> list[int]:
    """The classes, the rarest in training first."""
    return [int(label) for label in np.argsort(shown.train_counts, kind="stable")]


def confusions(shown: Shown) -> dict[str, list[list[int]] | None]:
    """Test counts over all seeds, row = true class."""
    return {"baseline": None} | {role: side.confusion.tolist() for role, side in shown.sides()}


def _recalls(side: Side) -> list[Spread | None]:
    """The recall of each class; a seed that did not test it is left out."""
    counts = [run.confusion.tolist() for run in side.runs.values()]
    return [
        Spread.of([own[label][label] / sum(own[label]) for own in counts if any(own[label])])
        for label in range(len(counts[0]))
    ]
