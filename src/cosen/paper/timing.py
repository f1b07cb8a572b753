"""Seconds of an epoch with learned costs, beside plain cross-entropy on the same task.

On a shared machine whole epochs vary by a tenth, far more than the costs cost, so the runs take
turns batch by batch and the medians count. To the batches of an epoch are added validation, which
all do, and for learned costs their step, its file, and the share of the separability that falls to
an epoch: it is not computed in every one.
"""

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from cosen.costs import CostLearner, LearnedCosts
from cosen.data.batches import Batch
from cosen.errors import InputError, RunError
from cosen.functional import class_separability
from cosen.methods import NetworkMethod, make_method
from cosen.networks.output import Outputs
from cosen.training.config import TrainConfig
from cosen.training.execution import make_setting, with_output_layer
from cosen.training.loop import Training
from cosen.training.run import make_fabric
from cosen.training.run_folder import RunFolder
from cosen.training.task import Task, make_task

FILE = "timing.json"

METHODS: Mapping[str, Mapping[str, Any]] = {"cosen-paper": {"separability_std": 1.0}, "cosen": {}}
"""Methods that learn costs, and their options: the paper's has the separability switched on."""

TURNS = 96
"""Batches that are timed of each run."""

KEPT = 16
"""Batches that are held in memory and taken again and again."""

REPEATS = 9
"""How often what is done once an epoch is timed; below ten, so that no step computes S."""


@dataclass(frozen=True)
class EpochSeconds:
    """Seconds of one method.

    Attributes:
        method: Its name.
        batch: The median.
        quartiles: Of the batches.
        step: Of the costs, without their separability; 0 where none are learned.
        file: Writing the step.
        separability: Computing it once; 0 where it takes no part.
        separability_every: Steps between two computations.
        epoch: The whole.
    """

    method: str
    batch: float
    quartiles: tuple[float, float]
    step: float
    file: float
    separability: float
    separability_every: int
    epoch: float


@dataclass(frozen=True)
class Overhead:
    """What learning costs adds to an epoch.

    Attributes:
        settings: Those of the task, without folders.
        batches: In an epoch.
        validation: Seconds, in each epoch.
        plain: Of plain cross-entropy.
        learned: Of the methods that learn costs.
    """

    settings: Mapping[str, Any]
    batches: int
    validation: float
    plain: EpochSeconds
    learned: tuple[EpochSeconds, ...]

    def ratio(self, method: EpochSeconds) -> float:
        """A method's epoch over that of plain cross-entropy."""
        return method.epoch / self.plain.epoch

    @property
    def largest_ratio(self) -> float:
        return max(map(self.ratio, self.learned))

    def as_json(self) -> dict[str, Any]:
        """Plain numbers, to be read back by :meth:`from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Overhead":
        """What :meth:`as_json` gave, after a round through a JSON file or not."""
        plain, *learned = (
            EpochSeconds(**{**entry, "quartiles": tuple(entry["quartiles"])})
            for entry in (found["plain"], *found["learned"])
        )
        return cls(**{**found, "plain": plain, "learned": tuple(learned)})

    @classmethod
    def read(cls, path: Path) -> "Overhead":
        """What was kept in a file."""
        try:
            return cls.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise RunError(
                f"{path} is not a timing comparison ({error}): run cosen reproduce timing again"
            ) from error


def measure_overhead(
    config: TrainConfig,
    *,
    methods: Mapping[str, Mapping[str, Any]] = METHODS,
    turns: int = TURNS,
    progress: Callable[[int, int], None] | None = None,
) -> Overhead:
    """Time an epoch with learned costs and without.

    Args:
        config: The task, the network and the batch size.
        methods: Those that learn costs, with their options.
        turns: Batches that are timed of each run.
        progress: Told how many of them are done.
    """
    task = make_task(config, progress=progress)
    with tempfile.TemporaryDirectory() as folder:
        runs = [
            _training(config, task, name, options, Path(folder))
            for name, options in {"baseline": {}, **methods}.items()
        ]
        in_epoch, times = _time_batches(runs, task, turns=turns, progress=progress)
        validation = median(_seconds(runs[0].validate) for _ in range(REPEATS))
        outputs = [run.validate() for run in runs]
        plain, *learned = (
            _epoch(run, found, own, rest=in_epoch * median(own) + validation)
            for run, found, own in zip(runs, outputs, times, strict=True)
        )
    settings = config.as_json()
    for name in ("data_root", "weights", "method", "options"):
        del settings[name]
    return Overhead(settings, in_epoch, validation, plain, tuple(learned))


def _training(
    config: TrainConfig, task: Task, name: str, options: Mapping[str, Any], folder: Path
) -> Training:
    own = replace(config, method=name, options=dict(options))
    method = make_method(name, own.options)
    if not isinstance(method, NetworkMethod):
        raise InputError(f"method {name} does not train the network: its epochs cannot be compared")
    run = RunFolder(folder / name)
    run.path.mkdir()
    setting = make_setting(own, task)
    return Training(
        own, with_output_layer(task, method, setting), method, setting, run, make_fabric(own)
    )


def _time_batches(
    runs: Sequence[Training],
    task: Task,
    *,
    turns: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[int, list[list[float]]]:
    """How many batches an epoch has, and the seconds of some for each run, taking turns."""
    config, device = runs[0].config, runs[0].fabric.device
    all_batches: Iterable[Batch] = task.batches(
        task.splits.train, batch_size=config.batch_size, device=device
    )
    in_epoch = len(all_batches)  # type: ignore[arg-type]
    kept = list(islice(all_batches, KEPT))
    for batch in kept[: KEPT // 2]:  # warm up
        for run in runs:
            _train_batch(run, batch, in_epoch)
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(turns):
        batch = kept[turn % len(kept)]
        first = turn % len(runs) + turn // len(kept)  # none is always first
        for number in range(len(runs)):
            which = (first + number) % len(runs)
            times[which].append(_seconds(_train_batch, runs[which], batch, in_epoch))
        if progress is not None:
            progress(turn + 1, turns)
    return in_epoch, times


def _train_batch(run: Training, batch: Batch, in_epoch: int) -> None:
    run.network.train()
    run.train_batch(batch, 0, in_epoch, is_last=True).tolist()  # waits for a GPU


def _epoch(run: Training, outputs: Outputs, times: list[float], *, rest: float) -> EpochSeconds:
    """The seconds of a method; ``rest`` are those of the batches and of validation."""
    step = file = separability = 0.0
    every = 1
    if isinstance(run.loss, LearnedCosts):
        steps, files = _time_steps(run, run.loss, outputs)
        step, file = median(steps), median(files)
        if isinstance(run.loss, CostLearner) and run.loss.needs_features:
            every = run.loss.separability_every
            separability = median(
                _seconds(
                    class_separability,
                    outputs.features,
                    outputs.target,
                    num_classes=outputs.logits.shape[1],
                )
                for _ in range(REPEATS)
            )
    low, high = np.percentile(times, [25, 75])
    return EpochSeconds(
        method=run.config.method,
        batch=median(times),
        quartiles=(float(low), float(high)),
        step=step,
        file=file,
        separability=separability,
        separability_every=every,
        epoch=rest + step + file + separability / every,
    )


def _time_steps(
    run: Training, learner: LearnedCosts, outputs: Outputs
) -> tuple[list[float], list[float]]:
    """Seconds of steps of the costs and of writing them; the first, which computes S, apart."""
    arguments = (outputs.logits, outputs.target, outputs.features)
    learner.step(*arguments)
    steps, files = [], []
    for _ in range(REPEATS):
        start = time.perf_counter()
        step = learner.step(*arguments)
        steps.append(time.perf_counter() - start)
        files.append(_seconds(run.run.write_cost_step, step))
    return steps, files


def _seconds(call: Callable[..., object], *arguments: Any, **options: Any) -> float:
    start = time.perf_counter()
    call(*arguments, **options)
    return time.perf_counter() - start
