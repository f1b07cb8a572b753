"""The leaderboard: metrics of each method over seeds, and changes against the baseline.

All methods of one seed have the same split, so their differences are computed sample by sample
(:mod:`cosen.comparing.bootstrap`).
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from cosen import functional as F
from cosen.comparing.bootstrap import LEVEL, Change, Spread, paired_change
from cosen.comparing.leaderboard_table import leaderboard_markdown
from cosen.costs import BALANCED, OVERALL, Objective
from cosen.errors import RunError
from cosen.files import spreadsheet_text
from cosen.training.records import Metrics, Record, RunRecord
from cosen.training.run_folder import RunFolder

PartName = Literal["val", "test"]

METRICS = (
    *("accuracy", "mean_recall", "g_mean", "macro_f1", "rare_recall"),
    *("paper_g_mean", "paper_f_measure"),
    "error",
)
"""Metrics of a leaderboard; ``error`` is that of the objective."""

GROUPS = ("many_recall", "medium_recall", "few_recall")
"""Mean recall of classes with many, medium and few training images, with many classes."""

GROUPED_FROM = 50
"""Number of classes from which groups say more than single classes."""

CHANGES = ("accuracy", "mean_recall", "objective")
"""Values that are compared with the baseline; a positive change is an improvement."""


@dataclass(frozen=True, eq=False)
class Part:
    """Predictions and metrics of a run on validation or test images.

    Attributes:
        names: Names of the images.
        target: True classes, shape ``(n,)``.
        predicted: Predicted classes, shape ``(n,)``.
        metrics: The metrics in the run folder.
    """

    names: tuple[str, ...]
    target: NDArray[np.int64]
    predicted: NDArray[np.int64]
    metrics: Metrics

    def error(self, objective: Objective) -> float:
        """Return the error that an objective measures, between 0 (perfect) and 1."""
        return objective.error(self.metrics.counts)


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """The parts of a run that a comparison uses."""

    path: Path
    record: RunRecord
    val: Part
    test: Part

    @classmethod
    def read(cls, folder: RunFolder) -> "FinishedRun":
        """Read a run folder."""
        metrics, outputs, names = folder.metrics(), folder.predictions(), folder.image_names()
        parts = {
            part: Part(
                names=getattr(names, part),
                target=found.target.numpy(),
                predicted=found.logits.argmax(1).numpy(),
                metrics=getattr(metrics, part),
            )
            for part, found in outputs.items()
        }
        return cls(folder.path, folder.record(), **parts)


Grid = Mapping[str, Mapping[int, FinishedRun]]
"""Finished runs by method and seed."""


def read_grid(runs: Mapping[str, Mapping[int, RunFolder]]) -> dict[str, dict[int, FinishedRun]]:
    """Read finished runs by method and seed, seeds in ascending order.

    Runs of the same seed must have the same split.
    """
    grid = {
        method: {seed: FinishedRun.read(by_seed[seed]) for seed in sorted(by_seed)}
        for method, by_seed in runs.items()
    }
    first_of_seed: dict[int, FinishedRun] = {}
    for by_seed in grid.values():
        for seed, run in by_seed.items():
            first = first_of_seed.setdefault(seed, run)
            if not (
                first.record.prepared.fingerprint == run.record.prepared.fingerprint
                and np.array_equal(first.val.target, run.val.target)
                and np.array_equal(first.test.target, run.test.target)
            ):
                raise RunError(
                    f"{first.path} and {run.path} have different splits: compare again in another "
                    "folder"
                )
    return grid


def compare_runs(
    first: Mapping[int, FinishedRun],
    second: Mapping[int, FinishedRun],
    *,
    part: PartName,
    objective: Objective,
) -> Change:
    """Compute how much better the first method is than the second, over the seeds of both."""
    seeds = sorted(set(first) & set(second))
    return paired_change(
        [getattr(first[seed], part) for seed in seeds],
        [getattr(second[seed], part) for seed in seeds],
        objective,
    )


class MethodRow(BaseModel):
    """One method of a leaderboard.

    Attributes:
        method: Its label, such as ``cosen`` or ``cosen(margin=4)``.
        seeds: The seeds with a finished run.
        failures: Why other seeds have no finished run.
        test: Each of ``METRICS`` on test images, as a share of 1; None if it is not defined. With
            many classes also each of ``GROUPS``. Empty without a finished run.
        val: The same on validation images.
        changes: Each of ``CHANGES`` on test images against the baseline, over the seeds of both.
            Empty if there is nothing to compare with.
        seconds: Mean training time; None if unknown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    seeds: tuple[int, ...]
    failures: dict[int, str]
    test: dict[str, Spread | None]
    val: dict[str, Spread | None]
    changes: dict[str, Change]
    seconds: float | None

    @property
    def has_failed(self) -> bool:
        """Whether no run has finished."""
        return not self.seeds


class Leaderboard(Record):
    """``leaderboard.json``: the methods compared on test images, the best first.

    Attributes:
        level: Share of bootstrap draws inside an interval.
        objective: The objective that methods are ordered by, see :class:`cosen.Objective`.
        largest_cost: The largest misclassification cost, or None without costs.
        baseline: The method that changes refer to; None if it has no finished run.
        seeds: All seeds of the comparison.
        rows: One row per method; methods without a finished run are last.
    """

    FILE = "leaderboard.json"

    level: float = LEVEL
    objective: Literal["overall", "balanced", "costs"]
    largest_cost: float | None
    baseline: str | None
    seeds: tuple[int, ...]
    rows: tuple[MethodRow, ...]

    def csv(self) -> str:
        """Return a CSV with one line per method, all metrics as shares of 1."""
        text = io.StringIO()
        lines = [_csv_line(row) for row in self.rows]
        writer = csv.DictWriter(text, list(lines[0]) if lines else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        return text.getvalue()

    def markdown(self) -> str:
        """Return a Markdown table, with notes below it."""
        return leaderboard_markdown(self)

    def __str__(self) -> str:
        return self.markdown()


def make_leaderboard(
    grid: Grid,
    failures: Mapping[str, Mapping[int, str]],
    *,
    objective: Objective,
    baseline: str = "baseline",
) -> Leaderboard:
    """Compare methods on test images.

    Args:
        grid: The finished runs, from :func:`read_grid`.
        failures: Why runs are missing, by method and seed; ignored for finished runs.
        objective: The objective that methods are ordered by.
        baseline: The method that the others are compared with, if it has a finished run.
    """
    reference = grid.get(baseline, {})
    rows = []
    for method in dict.fromkeys([*grid, *failures]):
        runs = grid.get(method, {})
        reasons = failures.get(method, {})
        seconds = [run.record.seconds for run in runs.values() if run.record.seconds is not None]
        rows.append(
            MethodRow(
                method=method,
                seeds=tuple(runs),
                failures={seed: reasons[seed] for seed in sorted(reasons) if seed not in runs},
                test=_means(list(runs.values()), "test", objective),
                val=_means(list(runs.values()), "val", objective),
                changes={} if method == baseline else _changes(runs, reference, objective),
                seconds=fmean(seconds) if seconds else None,
            )
        )
    return Leaderboard(
        objective=objective.name,
        largest_cost=objective.largest_cost,
        baseline=baseline if reference else None,
        seeds=tuple(sorted({seed for row in rows for seed in (*row.seeds, *row.failures)})),
        rows=tuple(sorted(rows, key=_test_error)),
    )


def _test_error(row: MethodRow) -> float:
    error = row.test.get("error")
    return math.inf if error is None else error.mean


def _means(
    runs: Sequence[FinishedRun], part_name: PartName, objective: Objective
) -> dict[str, Spread | None]:
    """Return each metric over seeds, without the seeds where it is not defined."""
    if not runs:
        return {}
    parts: list[Part] = [getattr(run, part_name) for run in runs]
    values = {name: [getattr(part.metrics, name) for part in parts] for name in METRICS}
    values["error"] = [part.error(objective) for part in parts]
    counts = [run.record.prepared.class_counts.train for run in runs]
    if len(counts[0]) >= GROUPED_FROM:
        pairs = zip(parts, counts, strict=True)
        groups = [group_recalls(part.metrics, own) for part, own in pairs]
        values |= {name: [one[name] for one in groups] for name in GROUPS}
    return {
        name: Spread.of([value for value in by_seed if value is not None])
        for name, by_seed in values.items()
    }


def group_recalls(metrics: Metrics, class_counts: Tensor) -> dict[str, float | None]:
    """Return ``GROUPS``, from the training images per class; None without such classes."""
    recall = np.array(metrics.class_recall, dtype=float)
    means: dict[str, float | None] = {}
    for name, mask in F.shot_groups(class_counts).items():
        known = recall[mask.numpy() & ~np.isnan(recall)]
        means[f"{name}_recall"] = float(known.mean()) if known.size else None
    return means


def _changes(
    runs: Mapping[int, FinishedRun], reference: Mapping[int, FinishedRun], objective: Objective
) -> dict[str, Change]:
    if not set(runs) & set(reference):
        return {}
    found = {
        each.name: compare_runs(runs, reference, part="test", objective=each)
        for each in {each.name: each for each in (OVERALL, BALANCED, objective)}.values()
    }
    changes = (found["overall"], found["balanced"], found[objective.name])
    return dict(zip(CHANGES, changes, strict=True))


def _csv_line(row: MethodRow) -> dict[str, Any]:
    method = spreadsheet_text(row.method)
    line: dict[str, Any] = {"method": method, "seeds": " ".join(map(str, row.seeds))}
    for part, means in (("test", row.test), ("val", row.val)):
        for name in (*METRICS, *GROUPS):
            spread = means.get(name)
            line[f"{part}_{name}"] = spread and spread.mean
            line[f"{part}_{name}_std"] = spread and spread.deviation
    for name in CHANGES:
        change = row.changes.get(name)
        line[f"change_{name}"] = change and change.mean
        line[f"change_{name}_low"] = change and change.low
        line[f"change_{name}_high"] = change and change.high
    reasons = "; ".join(f"seed {seed}: {reason}" for seed, reason in row.failures.items())
    return line | {"seconds": row.seconds, "failures": spreadsheet_text(reasons)}
