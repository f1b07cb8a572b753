"""What the finished runs of several methods say, method by method, with what is mere noise.

All methods of one seed were trained and tested on the same split, so their differences are taken
sample by sample (:mod:`cosen.comparing.bootstrap`).
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosen import functional as F
from cosen.comparing.bootstrap import LEVEL, Change, make_pair, paired_change
from cosen.comparing.leaderboard_table import Measure, markdown_table
from cosen.comparing.spread import Spread
from cosen.costs import Objective, validation_error
from cosen.errors import RunError
from cosen.training.run_folder import RunFolder

Runs = Mapping[str, Mapping[int, RunFolder]]
"""Finished runs by method and seed."""

PartName = Literal["val", "test"]

METRICS = (
    *("accuracy", "mean_recall", "g_mean", "macro_f1", "rare_recall"),
    *("paper_g_mean", "paper_f_measure"),
    "error",
)
"""What is kept of each run; ``error`` is that of the objective."""

CHANGES = ("accuracy", "mean_recall", "objective")
"""What is compared with the baseline; a positive change is for the better in each."""


@dataclass(frozen=True)
class MethodRow:
    """What the runs of one method say.

    Attributes:
        method: Its name.
        seeds: The seeds that the figures rest on.
        failures: Why there is no run, for the other seeds.
        test: Each of ``METRICS`` on test, as shares of 1; None where it is undefined, and empty
            where no run finished.
        val: The same on validation, which choices rest on.
        changes: Each of ``CHANGES`` on test against the baseline, over the seeds that both have;
            empty where there is nothing to compare with.
        seconds: Of training, the mean over seeds; None where runs do not say.
    """

    method: str
    seeds: tuple[int, ...]
    failures: dict[int, str]
    test: dict[str, Spread | None]
    val: dict[str, Spread | None]
    changes: dict[str, Change]
    seconds: float | None

    @property
    def has_failed(self) -> bool:
        """Whether no run finished, so that there are no figures at all."""
        return not self.seeds


@dataclass(frozen=True)
class Leaderboard:
    """Methods side by side on the test set, the best first.

    Attributes:
        measure: What they are ordered by.
        baseline: What changes are against; None where it has no finished run.
        seeds: All seeds of the comparison.
        rows: A row for each method; those without a finished run are last.
    """

    measure: Measure
    baseline: str | None
    seeds: tuple[int, ...]
    rows: tuple[MethodRow, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain numbers, to be read back by :meth:`from_json`."""
        return {"level": LEVEL, **asdict(self)}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Leaderboard":
        """What :meth:`as_json` gave, after a round through a JSON file or not."""
        return cls(
            measure=Measure(**found["measure"]),
            baseline=found["baseline"],
            seeds=tuple(found["seeds"]),
            rows=tuple(_row_from_json(row) for row in found["rows"]),
        )

    def csv(self) -> str:
        """A line for each method, all figures as shares of 1."""
        text = io.StringIO()
        lines = [_csv_line(row) for row in self.rows]
        writer = csv.DictWriter(text, list(lines[0]) if lines else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)
        return text.getvalue()

    def markdown(self) -> str:
        """A table for a report, with notes below it."""
        return markdown_table(self)


def make_leaderboard(
    runs: Runs,
    failures: Mapping[str, Mapping[int, str]],
    *,
    objective: Objective,
    baseline: str = "baseline",
) -> Leaderboard:
    """Put methods side by side.

    Args:
        runs: The finished runs of each method, by seed.
        failures: Why there is no finished run, by method and seed; ignored where there is one.
        objective: What methods are ordered by.
        baseline: The method that the others are compared with, if it is among them.
    """
    grid = read_grid(runs)
    reference = grid.get(baseline, {})
    rows = []
    for method in dict.fromkeys([*runs, *failures]):
        own = grid.get(method, {})
        reasons = failures.get(method, {})
        seconds = [run.seconds for run in own.values() if run.seconds is not None]
        rows.append(
            MethodRow(
                method=method,
                seeds=tuple(own),
                failures={seed: reasons[seed] for seed in sorted(reasons) if seed not in own},
                test=_figures([run.test for run in own.values()], objective),
                val=_figures([run.val for run in own.values()], objective),
                changes={} if method == baseline else _changes(own, reference, objective),
                seconds=fmean(seconds) if seconds else None,
            )
        )
    return Leaderboard(
        measure=Measure.of(objective),
        baseline=baseline if reference else None,
        seeds=tuple(sorted({seed for row in rows for seed in (*row.seeds, *row.failures)})),
        rows=tuple(sorted(rows, key=_test_error)),
    )


def _test_error(row: MethodRow) -> float:
    error = row.test.get("error")
    return math.inf if error is None else error.mean


def _figures(parts: Sequence["Part"], objective: Objective) -> dict[str, Spread | None]:
    """Each metric over seeds; a seed where it is undefined is left out of it."""
    if not parts:
        return {}
    values = {name: [part.metrics[name] for part in parts] for name in METRICS if name != "error"}
    values["error"] = [part.error(objective) for part in parts]
    return {
        name: Spread.of([value for value in by_seed if value is not None])
        for name, by_seed in values.items()
    }


def _changes(
    own: Mapping[int, "FinishedRun"], reference: Mapping[int, "FinishedRun"], objective: Objective
) -> dict[str, Change]:
    if not set(own) & set(reference):
        return {}
    overall = compare_runs(own, reference, part="test", objective="overall")
    balanced = compare_runs(own, reference, part="test", objective="balanced")
    if isinstance(objective, Tensor):
        judged = compare_runs(own, reference, part="test", objective=objective)
    else:
        judged = overall if objective == "overall" else balanced
    return dict(zip(CHANGES, (overall, balanced, judged), strict=True))


@dataclass(frozen=True, eq=False)
class Part:
    """What a run gave for one part of the data.

    Attributes:
        target: True classes, shape ``(n,)``.
        predicted: The classes that it gave, shape ``(n,)``.
        num_classes: How many classes there are.
        names: The name of each sample.
        metrics: As stored with the run.
    """

    target: NDArray[np.int64]
    predicted: NDArray[np.int64]
    num_classes: int
    names: list[str]
    metrics: dict[str, Any]

    def error(self, objective: Objective) -> float:
        """What the objective measures, 0 (perfect) to 1."""
        target, predicted = torch.from_numpy(self.target), torch.from_numpy(self.predicted)
        confusion = F.confusion_matrix(target, predicted, num_classes=self.num_classes)
        return validation_error(confusion, objective)


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """What a comparison needs of a run.

    Attributes:
        path: Its folder.
        fingerprint: Of its data and split.
        class_names: The names of the classes.
        val: On validation.
        test: On test.
        seconds: Of training, where the run says.
    """

    path: Path
    fingerprint: str | None
    class_names: tuple[str, ...]
    val: Part
    test: Part
    seconds: float | None


def read_grid(runs: Runs) -> dict[str, dict[int, FinishedRun]]:
    """Read finished runs, seeds in ascending order; those of one seed must share the split."""
    grid = {
        method: {seed: _read_run(by_seed[seed]) for seed in sorted(by_seed)}
        for method, by_seed in runs.items()
    }
    first_of_seed: dict[int, FinishedRun] = {}
    for by_seed in grid.values():
        for seed, run in by_seed.items():
            _check_same_split(first_of_seed.setdefault(seed, run), run)
    return grid


def compare_runs(
    first: Mapping[int, FinishedRun],
    second: Mapping[int, FinishedRun],
    *,
    part: PartName,
    objective: Objective,
) -> Change:
    """How much better the first method is than the second, over the seeds that both have."""
    seeds = sorted(set(first) & set(second))
    scored = objective.double().cpu().numpy() if isinstance(objective, Tensor) else objective
    parts: list[tuple[Part, Part]] = [
        (getattr(first[seed], part), getattr(second[seed], part)) for seed in seeds
    ]
    return paired_change(
        [make_pair(one.target, one.predicted, other.predicted, scored) for one, other in parts],
        same_samples=all(one.names == parts[0][0].names for one, _ in parts),
    )


def _read_run(folder: RunFolder) -> FinishedRun:
    about, metrics = folder.about(), folder.metrics()
    tensors, names = folder.predictions()
    val, test = (
        Part(
            target=tensors[f"{name}_target"].long().numpy(),
            predicted=tensors[f"{name}_logits"].argmax(1).numpy(),
            num_classes=tensors[f"{name}_logits"].shape[1],
            names=names[name],
            metrics=metrics[name],
        )
        for name in ("val", "test")
    )
    return FinishedRun(
        path=folder.path,
        fingerprint=about.get("fingerprint"),
        class_names=tuple(about["class_names"]),
        val=val,
        test=test,
        seconds=about.get("seconds"),
    )


def _check_same_split(first: FinishedRun, second: FinishedRun) -> None:
    same = (
        first.fingerprint == second.fingerprint
        and np.array_equal(first.val.target, second.val.target)
        and np.array_equal(first.test.target, second.test.target)
    )
    if not same:
        raise RunError(
            f"{first.path} and {second.path} were not made on the same split: "
            "start the study anew in another folder"
        )


def _row_from_json(found: Mapping[str, Any]) -> MethodRow:
    def figures(part: str) -> dict[str, Spread | None]:
        return {name: figure and Spread(**figure) for name, figure in found[part].items()}

    return MethodRow(
        method=found["method"],
        seeds=tuple(found["seeds"]),
        failures={int(seed): reason for seed, reason in found["failures"].items()},
        test=figures("test"),
        val=figures("val"),
        changes={name: Change(**change) for name, change in found["changes"].items()},
        seconds=found["seconds"],
    )


def _csv_line(row: MethodRow) -> dict[str, Any]:
    line: dict[str, Any] = {"method": row.method, "seeds": " ".join(map(str, row.seeds))}
    for part, figures in (("test", row.test), ("val", row.val)):
        for name in METRICS:
            figure = figures.get(name)
            line[f"{part}_{name}"] = figure and figure.mean
            line[f"{part}_{name}_std"] = figure and figure.deviation
    for name in CHANGES:
        change = row.changes.get(name)
        line[f"change_{name}"] = change and change.mean
        line[f"change_{name}_low"] = change and change.low
        line[f"change_{name}_high"] = change and change.high
    reasons = "; ".join(f"seed {seed}: {reason}" for seed, reason in row.failures.items())
    return line | {"seconds": row.seconds, "failures": reasons}
