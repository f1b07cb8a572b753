"""The costs that a run learned at each step, and the statistics behind them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cosen import functional as F
from cosen.methods import METHODS
from cosen.report.packing import json_number, pack, packed_size
from cosen.report.run_data import CostSteps

MAX_CHARACTERS = 2_000_000
"""Largest size of all matrices in the page."""

MAX_STEPS = 200
"""Steps whose matrices are in the page."""

MATRICES = {"costs": True, "target_costs": True, "confusion": False, "separability": False}
"""The matrices of a step, and whether they span powers of ten."""

STRENGTHS = ("tau", "margin")
"""Numbers of the steps of :class:`~cosen.AdaptiveCosts`."""


def learned_costs(costs: CostSteps | None) -> dict[str, Any] | None:
    """The learned costs for the page; None if there are none.

    Matrices that are too large are None. Without them, only costs with strengths are included.
    """
    if costs is None:
        return None
    included = included_steps(len(costs.files), len(costs.class_counts))
    facts = costs.facts()
    strengths = _strengths(facts)
    if included is None and not strengths:
        return None
    steps = costs.matrices(included or ())
    matrices = {
        name: pack(np.stack([step[name] for step in steps]), log=log)
        if steps and all(name in step for step in steps)
        else None
        for name, log in MATRICES.items()
    }
    return {
        "method": costs.name,
        "seed": costs.config.seed,
        "epochs": [number + 1 for number in included or range(len(facts))],
        **matrices,
        "frequencies": None if strengths else pack(_frequency_matrix(costs), log=True),
        "steps": [
            {
                "epoch": number + 1,
                "accepted": one["accepted"] == "True",
                "val_error": json_number(one["val_error"]),
                "best_error": json_number(one["best_error"]),
                "cost_lr": json_number(one.get("cost_lr", "nan")),
            }
            for number, one in enumerate(facts)
        ],
        "strengths": strengths,
    }


def included_steps(steps: int, classes: int) -> list[int] | None:
    """The steps whose matrices fit into the page: all, or evenly spaced ones with both ends.

    Example:
        >>> included_steps(4, 10), included_steps(100, 200), included_steps(100, 1000)
        ([0, 1, 2, 3], [0, 33, 66, 99], None)
    """
    matrix = packed_size(classes**2)
    most = min(MAX_STEPS, (MAX_CHARACTERS - matrix) // (len(MATRICES) * matrix))
    if most < min(2, steps):
        return None
    return [int(n) for n in np.linspace(0, steps - 1, min(most, steps)).round()]


def _strengths(facts: Sequence[Mapping[str, str]]) -> dict[str, list[float | None]] | None:
    """τ and m at each step; None if the costs do not have them.

    Example:
        >>> _strengths([{"tau": "1.0", "margin": "2.5"}, {"tau": "1.2"}])
        {'tau': [1.0, 1.2], 'margin': [2.5, None]}
    """
    if not any(name in one for one in facts for name in STRENGTHS):
        return None
    return {name: [json_number(one.get(name, "nan")) for one in facts] for name in STRENGTHS}


def _frequency_matrix(costs: CostSteps) -> Any:
    """H of the run, shape ``(1, C, C)``."""
    options = getattr(METHODS.get(costs.config.method), "defaults", {}) | costs.config.options
    counts = costs.class_counts.clamp(min=1)
    frequencies = F.class_frequencies(counts, relative_to=options.get("relative_to", "total"))
    return F.frequency_matrix(frequencies)[None].numpy()
