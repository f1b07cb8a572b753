"""The contents of a report in plain values, computed from run and study folders alone."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from torch import Tensor

from cosen import functional as F
from cosen.comparing.bootstrap import Spread
from cosen.comparing.leaderboard import GROUPED_FROM, group_recalls
from cosen.comparing.leaderboard_table import cells_of, format_share, headings_of, notes_of
from cosen.report.cost_steps import learned_costs
from cosen.report.gallery import gallery
from cosen.report.label_section import label_section
from cosen.report.packing import json_number
from cosen.report.provenance import provenance
from cosen.report.run_data import MethodRuns, ReportData, RunData, read_report_data
from cosen.report.tradeoff import tradeoff
from cosen.report.verdict import caveats, verdict
from cosen.training.provenance import command, data_title
from cosen.training.records import METRIC_TITLES

MATRIX_UP_TO = 200
"""Classes up to which the page has confusion matrices."""

MAX_CELLS = 60_000
"""Cells of a larger confusion matrix in the page."""

BINS = 15
"""Bins of the reliability diagram."""


class Contents(TypedDict):
    """The JSON from which the page is rendered. Labels are indices of ``classes``, rates 0 to 1."""

    kind: Literal["study", "run"]
    title: str
    verdict: str  # the result in a few sentences
    caveats: list[str]  # the limits of the result
    leaderboard: dict[str, Any] | None  # the methods of a study
    figures: list[dict[str, str | None]]  # metrics on the whole test set, as text
    methods: dict[str, str | None]  # the names of the baseline (or None) and the chosen method
    seeds: list[int]
    classes: list[dict[str, Any]]  # images and recall of each class
    groups: list[dict[str, Any]] | None  # recall of classes with many and few images
    by_rarity: list[int]  # labels, the rarest first
    confusion: dict[str, Any]  # counts over all seeds: matrices, or cells with many classes
    costs: dict[str, Any] | None  # learned costs
    curves: list[dict[str, Any]]  # errors by epoch
    gallery: dict[str, Any]  # pictures
    labels: dict[str, Any]  # images whose label is probably wrong
    tradeoff: dict[str, Any] | None  # calibrated logits, to decide for other class shares
    reliability: dict[str, Any]  # confidence and accuracy in bins
    provenance: list[dict[str, str]]  # data, settings and versions
    command: str  # repeats the run or the study; may be empty


def read_contents(path: Path | str, *, against: Path | str | None = None) -> Contents:
    """Read a run, a run and another one with the same split to compare it with, or a study."""
    data = read_report_data(Path(path), None if against is None else Path(against))
    names = {role: method.name for role, method in data.methods.items()}
    title = data_title(data.start.config)
    if data.kind == "run":
        title += f", {' compared with '.join(names.values())}"
    costs, scores = learned_costs(data.costs), tradeoff(data)
    return {
        "kind": data.kind,
        "title": title,
        "verdict": verdict(data),
        "caveats": caveats(
            data,
            has_costs=costs is not None and costs["costs"] is not None,
            has_tradeoff=scores is not None,
        ),
        "leaderboard": _leaderboard(data),
        "figures": _figures(data),
        "methods": {"baseline": None, **names},
        "seeds": data.seeds,
        "classes": _classes(data),
        "groups": _groups(data),
        "by_rarity": [int(label) for label in np.argsort(data.class_counts, kind="stable")],
        "confusion": {"baseline": None}
        | {role: _confusion(method.confusion) for role, method in data.methods.items()},
        "costs": costs,
        "curves": _curves(data),
        "gallery": gallery(data),
        "labels": label_section(data),
        "tradeoff": scores,
        "reliability": _reliability(data),
        "provenance": provenance(data),
        "command": command(data.start),
    }


def _leaderboard(data: ReportData) -> dict[str, Any] | None:
    board, choice = data.leaderboard, data.choice
    if board is None or choice is None:
        return None
    roles = {data.chosen.name: "chosen" if data.chosen.name == choice.method else "challenger"}
    if data.baseline is not None:
        roles[data.baseline.name] = "baseline"
    return {
        "headings": headings_of(board),
        "rows": [
            {
                "method": row.method,
                "cells": [" ".join(cell) for cell in cells_of(board, row)[1:]],
                "role": roles.get(row.method),
            }
            for row in board.rows
        ],
        "notes": notes_of(board),
    }


def _figures(data: ReportData) -> list[dict[str, str | None]]:
    """Metrics on the whole test set: mean ± standard deviation over seeds, as text."""

    def figure(
        title: str,
        values: Callable[[RunData], float | None],
        text: Callable[[float], str],
        unit: str = "",
    ) -> dict[str, str | None]:
        found: dict[str, str | None] = {"name": title, "baseline": None}
        for role, method in data.methods.items():
            known = [value for run in method.runs.values() if (value := values(run)) is not None]
            spread = Spread.of(known)
            if spread is None:
                found[role] = "-"
            elif spread.deviation is None:
                found[role] = f"{text(spread.mean)}{unit}"
            else:
                found[role] = f"{text(spread.mean)} ± {text(spread.deviation)}{unit}"
        return found

    def metric(name: str) -> Callable[[RunData], float | None]:
        return lambda run: getattr(run.metrics, name)

    def percent(share: float) -> str:
        return f"{100 * share:.1f}"

    figures = [figure(title, metric(name), percent, " %") for name, title in METRIC_TITLES.items()]
    if data.objective.largest_cost is not None:
        cost = partial(format_share, largest_cost=data.objective.largest_cost)
        figures.insert(0, figure("mean cost", metric("error"), cost))
    return [
        *figures,
        figure("training time", lambda run: run.record.seconds, "{:.1f}".format, " s"),
    ]


def _classes(data: ReportData) -> list[dict[str, Any]]:
    """Images and recall of each class, over seeds."""
    seeds = data.chosen.runs.values()
    test_counts = np.mean(
        [run.target.bincount(minlength=len(data.class_names)) for run in seeds], 0
    )
    recalls = {role: _recalls(method) for role, method in data.methods.items()}
    unknown: list[Spread | None] = [None] * len(test_counts)
    found = []
    for label, name in enumerate(data.class_names):
        own = {role: recalls.get(role, unknown)[label] for role in ("baseline", "chosen")}
        found.append(
            {
                "name": name,
                "train": float(data.class_counts[label]),
                "test": float(test_counts[label]),
                "recall": {role: recall and recall.mean for role, recall in own.items()},
                "spread": {role: recall and recall.deviation for role, recall in own.items()},
            }
        )
    return found


def _recalls(method: MethodRuns) -> list[Spread | None]:
    """The recall of each class over the seeds that have test images of it."""
    recalls = [F.class_recall(run.confusion).tolist() for run in method.runs.values()]
    return [
        Spread.of([recall for recall in by_seed if recall == recall])  # NaN without test images
        for by_seed in zip(*recalls, strict=True)
    ]


def _groups(data: ReportData) -> list[dict[str, Any]] | None:
    """Classes, training images and mean recall of many, medium and few shot; many classes only."""
    if len(data.class_names) < GROUPED_FROM:
        return None
    found = []
    limits = (f"more than {F.MANY_SHOT}", f"{F.FEW_SHOT} to {F.MANY_SHOT}", f"below {F.FEW_SHOT}")
    masks = F.shot_groups(torch.from_numpy(data.class_counts))
    for (name, mask), limit in zip(masks.items(), limits, strict=True):
        recall: dict[str, Any] = {"baseline": None}
        for role, method in data.methods.items():
            runs = method.runs.values()
            own = [group_recalls(run.metrics, run.data.class_counts.train) for run in runs]
            means = [one[f"{name}_recall"] for one in own]
            spread = Spread.of([mean for mean in means if mean is not None])
            recall[role] = spread and {"mean": spread.mean, "deviation": spread.deviation}
        counts = data.class_counts[mask.numpy()]
        found.append(
            {
                "name": f"{name} shot",
                "limit": limit,
                "classes": len(counts),
                "train": float(counts.sum()),
                "recall": recall,
            }
        )
    return found


def _confusion(counts: Tensor) -> list[list[int]] | dict[str, Any]:
    """A matrix, or the most frequent cells, each row, column and count, if it is large."""
    if len(counts) <= MATRIX_UP_TO:
        return [list(map(int, row)) for row in counts.tolist()]
    cells = counts.to_sparse().coalesce()
    (rows, columns), values = cells.indices(), cells.values().long()
    # the diagonal first
    order = torch.where(rows == columns, values.max() + values, values).argsort(descending=True)
    kept = order[:MAX_CELLS]
    table = torch.stack([rows[kept], columns[kept], values[kept]], 1)
    left_out = int(values[order[MAX_CELLS:]].sum())
    return {"cells": table.flatten().tolist(), "left_out": left_out}


def _curves(data: ReportData) -> list[dict[str, Any]]:
    """Training and validation errors by epoch, of the runs that have epochs."""
    return [
        {
            "name": method.name,
            "role": role,
            "seed": seed,
            "epochs": [record.epoch for record in run.history],
            "train_error": [json_number(record.train_error) for record in run.history],
            "val_error": [json_number(record.val_error) for record in run.history],
        }
        for role, method in data.methods.items()
        for seed, run in method.runs.items()
        if run.history
    ]


def _reliability(data: ReportData) -> dict[str, Any]:
    """The chosen method's first seed on test, before and after calibration."""
    run = data.first
    shares = run.target.bincount(minlength=run.logits.shape[1])
    before = run.logits.softmax(1)
    after = run.record.calibration.probabilities(run.logits, shares).float()
    return {
        "method": data.chosen.name,
        "before": _bins(before, run.target),
        "after": _bins(after, run.target),
        "error_before": float(F.expected_calibration_error(before, run.target, bins=BINS)),
        "error_after": float(F.expected_calibration_error(after, run.target, bins=BINS)),
        "temperature": run.record.temperature or 1.0,
    }


def _bins(probabilities: Tensor, target: Tensor) -> list[dict[str, Any]]:
    bins = F.calibration_bins(probabilities, target, bins=BINS)
    columns = (bins.counts.tolist(), bins.confidence.tolist(), bins.accuracy.tolist())
    return [
        {
            "low": number / BINS,
            "high": (number + 1) / BINS,
            "confidence": confidence if count else None,
            "accuracy": accuracy if count else None,
            "count": count,
        }
        for number, (count, confidence, accuracy) in enumerate(zip(*columns, strict=True))
    ]
