"""The costs that a run has learned, step by step, and what they were made of."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from cosen import functional as F
from cosen.errors import RunError
from cosen.methods import METHODS
from cosen.report.curves import finite
from cosen.report.packing import pack, packed_size
from cosen.training.run_folder import RunFolder

ROOM = 2_000_000
"""Characters that all matrices together may take in the page."""

MOST_STEPS = 200
"""Steps whose matrices are shown; a slider with more places tells no more."""

LOGARITHMIC = {"costs": True, "target_costs": True, "confusion": False, "separability": False}
"""Which matrices span powers of ten."""

STRENGTHS = ("frequency", "margin")
"""τ and m, as steps of :class:`~cosen.AdaptiveCosts` keep them."""


def learned_costs(
    runs: Iterable[tuple[str, int, RunFolder]],
) -> tuple[dict[str, Any] | None, str | None]:
    """The costs of the first of some runs that learned any, each with its method and seed.

    Returns:
        What the page shows, or None; and why there is nothing although costs were learned.
    """
    for method, seed, run in runs:
        steps = sorted((run.path / "costs").glob("*.safetensors"))
        if not steps:
            continue
        about = run.about()
        classes = len(about["class_names"])
        chosen = shown_steps(len(steps), classes)
        if chosen is None:
            return None, (
                f"{method} learned costs, but the matrices of {classes} classes are too large to "
                "be shown."
            )
        facts = [_facts(path) for path in steps]
        found = {
            "method": method,
            "seed": seed,
            "epochs": [number + 1 for number in chosen],
            **_matrices([steps[number] for number in chosen]),
            "frequencies": pack(_frequency_matrix(about), log=True),
            "steps": [_step(one, number + 1) for number, one in enumerate(facts)],
            "strengths": _strengths(facts),
        }
        if found["strengths"]:  # then ξ is not moved towards T, and H plays no part
            found |= {"target_costs": None, "frequencies": None}
        return found, None
    return None, None


def shown_steps(steps: int, classes: int) -> list[int] | None:
    """Which steps' matrices fit into the page: all, or some at even distances with both ends.

    Example:
        >>> shown_steps(4, 10), shown_steps(100, 200), shown_steps(100, 1000)
        ([0, 1, 2, 3], [0, 33, 66, 99], None)
    """
    matrix = packed_size(classes**2)
    most = min(MOST_STEPS, (ROOM - matrix) // (len(LOGARITHMIC) * matrix))
    if most < min(2, steps):
        return None
    return [int(n) for n in np.linspace(0, steps - 1, min(most, steps)).round()]


def _matrices(paths: list[Path]) -> dict[str, Any]:
    """Each kind of matrix over steps, packed; None for one that takes no part."""
    found: dict[str, list[Any]] = {name: [] for name in LOGARITHMIC}
    for path in paths:
        with _opened(path) as file:
            for name in found.keys() & file.keys():
                found[name].append(file.get_tensor(name).double().numpy())
    return {
        name: pack(np.stack(matrices), log=LOGARITHMIC[name])
        if len(matrices) == len(paths)
        else None
        for name, matrices in found.items()
    }


def _facts(path: Path) -> dict[str, str]:
    with _opened(path) as file:
        return dict(file.metadata())


def _step(facts: Mapping[str, str], epoch: int) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "accepted": facts["accepted"] == "True",
        "val_error": finite(facts["val_error"]),
        "best_error": finite(facts["best_error"]),
        "cost_lr": finite(facts["cost_lr"]),
    }


def _strengths(facts: Sequence[Mapping[str, str]]) -> dict[str, list[float | None]] | None:
    """The few numbers behind the costs, each step by step; None where there are none.

    Example:
        >>> _strengths([{"frequency": "1.0", "margin": "2.5"}, {"frequency": "1.2"}])
        {'frequency': [1.0, 1.2], 'margin': [2.5, None]}
    """
    if not any(name in one for one in facts for name in STRENGTHS):
        return None
    return {
        name: [finite(one[name]) if name in one else None for one in facts] for name in STRENGTHS
    }


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise RunError(f"{path} is damaged: {error}") from error


def _frequency_matrix(about: dict[str, Any]) -> Any:
    """H as the run had it, shape ``(1, C, C)``."""
    config = about["config"]
    options = getattr(METHODS.get(config["method"]), "defaults", {}) | config["options"]
    counts = torch.tensor(about["class_counts"]["train"]).clamp(min=1)
    frequencies = F.class_frequencies(counts, relative_to=options.get("relative_to", "total"))
    return F.frequency_matrix(frequencies)[None].numpy()
