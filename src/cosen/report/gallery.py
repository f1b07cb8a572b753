"""Pictures of test images that one method gets right and the other wrong.

Runs keep thumbnails of their mistakes (:mod:`cosen.training.thumbnails`), so images that are gained
come from the baseline's thumbnails, and images that are lost from the chosen method's.
"""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cosen.report.run_data import ReportData, RunData
from cosen.training.thumbnails import Thumbnail, rarity_ranks, taken_in_turns

MAX_PICTURES = 60
"""Pictures of a group."""

AT_ONCE = 3
"""Pictures of a class in each turn."""

EXAMPLES_PER_CLASS, MAX_EXAMPLES = 2, 120
"""Pictures of classes that have none in another group."""

Entry = dict[str, Any]


def gallery(data: ReportData) -> dict[str, Any]:
    """The pictures of each group, rare classes first, and a note with their numbers.

    The groups are ``gained`` and ``lost``, or ``wrong`` if there is no baseline. ``examples`` are
    pictures of classes that have none in these groups.
    """
    groups = ("wrong",) if data.baseline is None else ("gained", "lost")
    totals = {
        group: sum(int(_members(data, seed)[group].sum()) for seed in data.seeds)
        for group in groups
    }
    ranks = rarity_ranks(data.class_counts.tolist())
    found: dict[str, list[Entry]] = {"gained": [], "lost": [], "wrong": []}
    for group in groups:
        mistaken = "baseline" if group == "gained" else "chosen"
        surest_first = sorted(_entries(data, group), key=lambda one: -one[mistaken]["score"])
        found[group] = _select(surest_first, ranks, most=MAX_PICTURES)
    pictured = {entry["label"] for entries in found.values() for entry in entries}
    others = [
        entry
        for group in ("gained", "lost", "wrong", "right")
        for entry in _entries(data, group)
        if entry["label"] not in pictured
    ]
    examples = _select(others, ranks, most=MAX_EXAMPLES, per_class=EXAMPLES_PER_CLASS)
    return {**found, "examples": examples, "note": _note(data, totals, found)}


def _members(data: ReportData, seed: int) -> dict[str, NDArray[np.bool_]]:
    """Whether each test image is in a group; both methods agree on ``wrong`` and ``right``."""
    chosen = data.chosen.runs[seed].correct
    baseline = chosen if data.baseline is None else data.baseline.runs[seed].correct
    return {
        "gained": chosen & ~baseline,
        "lost": ~chosen & baseline,
        "wrong": ~chosen & ~baseline,
        "right": chosen & baseline,
    }


def _entries(data: ReportData, group: str) -> Iterator[Entry]:
    """The test images of a group that have a thumbnail, over all seeds."""
    for seed in data.seeds:
        runs = {role: method.runs[seed] for role, method in data.methods.items()}
        thumbnails: dict[int, Thumbnail] = {}
        for run in runs.values():
            for row, found in (run.thumbnails or {}).items():
                if row not in thumbnails or found.map:  # that of the run that got it wrong
                    thumbnails[row] = found
        run = runs["chosen"]
        for row in np.flatnonzero(_members(data, seed)[group]).tolist():
            if row in thumbnails:
                yield {
                    "image": thumbnails[row].image,
                    "width": thumbnails[row].width,
                    "height": thumbnails[row].height,
                    "map": thumbnails[row].map,
                    "name": without_folder(run.names[row]),
                    "seed": seed,
                    "label": int(run.target[row]),
                    "baseline": None,
                    **{role: _prediction(own, row) for role, own in runs.items()},
                }


def _prediction(run: RunData, row: int) -> dict[str, Any]:
    label = int(run.predicted[row])
    return {"label": label, "score": round(float(run.probabilities[row, label]), 4)}


def without_folder(name: str) -> str:
    """A file name without private folders."""
    path = PurePath(name)
    return "/".join(("…", *path.parts[-2:])) if path.is_absolute() else name


def _select(
    entries: list[Entry], ranks: NDArray[Any], *, most: int, per_class: int | None = None
) -> list[Entry]:
    """Some of the entries, rare classes first; an image that several seeds test appears once."""
    distinct: dict[int, dict[str, Entry]] = {}
    for entry in entries:
        distinct.setdefault(entry["label"], {}).setdefault(entry["name"], entry)
    kept = [entry for by_name in distinct.values() for entry in [*by_name.values()][:per_class]]
    own_ranks = ranks[[entry["label"] for entry in kept]]
    return [kept[place] for place in taken_in_turns(own_ranks, most, at_once=AT_ONCE)]


def _note(data: ReportData, totals: dict[str, int], found: dict[str, list[Entry]]) -> str:
    counts = ", ".join(f"{totals[group]} {group} ({len(found[group])} shown)" for group in totals)
    over = f" over {len(data.seeds)} seeds" if len(data.seeds) > 1 else ""
    note = f"Test images{over}: {counts}. Rare classes come first."
    if any(entry["map"] for entries in found.values() for entry in entries):
        note += " The second picture shows where the network looked for its wrong decision."
    runs = [run for method in data.methods.values() for run in method.runs.values()]
    if any(run.thumbnails is None for run in runs):
        note += " Some runs have no pictures: train them again to see more."
    return note
