"""Errors by epoch, of every run that has epochs."""

import math
from typing import Any

from cosen.report.run_data import Shown

DIGITS = 6
"""More would only make the page larger."""


def curves(shown: Shown) -> list[dict[str, Any]]:
    """Training and validation errors; a run of a method that trains no network has none."""
    found = []
    for role, side in shown.sides():
        for seed, run in side.runs.items():
            if not (run.folder.path / "history.csv").exists():
                continue
            history = run.folder.history()
            found.append(
                {
                    "name": side.name,
                    "role": role,
                    "seed": seed,
                    "epochs": [int(line["epoch"]) for line in history],
                    "train_error": [finite(line["train_error"]) for line in history],
                    "val_error": [finite(line["val_error"]) for line in history],
                }
            )
    return found


def finite(text: str) -> float | None:
    """The number that a text writes; None for what JSON has no number for."""
    number = float(text)
    return float(f"{number:.{DIGITS}g}") if math.isfinite(number) else None
