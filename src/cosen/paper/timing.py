"""Time of an epoch with learned costs and with plain cross-entropy on the same task.

On a shared machine, whole epochs vary by a tenth, far more than the time of learned costs. So the
runs alternate batch by batch, and medians are used. An epoch is the time of its batches and of
validation; with learned costs also the cost step, its file, and the separability divided by the
number of steps between two computations.
"""

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from cosen.costs import CostLearner, LearnedCosts
from cosen.data.batches import Batch
from cosen.errors import InputError
from cosen.functional import class_separability
from cosen.methods import NetworkMethod, make_method
from cosen.networks.network import Outputs
from cosen.paper.protocols import TIMING
from cosen.paper.summary import Record
from cosen.training.config import TrainConfig
from cosen.training.context import RunContext, make_setting
from cosen.training.finetuning import with_defaults
from cosen.training.loop import Callbacks, Loop
from cosen.training.run import make_fabric
from cosen.training.run_folder import RunFolder
from cosen.training.task import Task, make_task

FILE = "timing.json"

METHODS: Mapping[str, Mapping[str, Any]] = {"cosen-paper": {"separability_std": 1.0}, "cosen": {}}
"""Methods that learn costs, with their options: the paper's uses the separability."""

TURNS = 96  # timed batches of each run
KEPT = 16  # batches that are held in memory and reused
REPEATS = 9  # repetitions of steps done once per epoch; below ten: none computes S


class EpochSeconds(Record):
    """Seconds of one method."""

    method: str
    batch: float  # median
    quartiles: tuple[float, float]  # over batches
    step: float  # cost step without separability; 0 without learned costs
    file: float  # writing the cost step
    separability: float  # computing it once; 0 if it is not used
    separability_every: int  # cost steps between two computations
    epoch: float


class Overhead(Record):
    """Time of an epoch with and without learned costs."""

    settings: dict[str, Any]  # of the task, without folders
    batches: int  # per epoch
    validation: float  # seconds per epoch
    plain: EpochSeconds  # plain cross-entropy
    learned: tuple[EpochSeconds, ...]

    def ratio(self, method: EpochSeconds) -> float:
        """Epoch of a method divided by that of plain cross-entropy."""
        return method.epoch / self.plain.epoch

    def cells(self) -> list[list[str]]:
        """Method, seconds and ratio of ours, seconds and ratio of the paper, as text."""
        plain, with_costs = TIMING.without_costs, TIMING.with_costs
        paper = [f"{with_costs:.2f}", f"{with_costs / plain:.3f}"]
        return [
            ["without costs", f"{self.plain.epoch:.2f}", "1", f"{plain:.2f}", "1"],
            *([m.method, f"{m.epoch:.2f}", f"{self.ratio(m):.3f}", *paper] for m in self.learned),
        ]


def measure_overhead(
    config: TrainConfig,
    *,
    methods: Mapping[str, Mapping[str, Any]] = METHODS,
    turns: int = TURNS,
    progress: Callable[[int, int], None] | None = None,
) -> Overhead:
    """Time an epoch with learned costs and without, from ``turns`` batches of each method."""
    task = make_task(config, progress=progress)
    with tempfile.TemporaryDirectory() as folder:
        names = ["baseline", *methods]
        loops = [
            _make_loop(config, task, name, methods.get(name, {}), Path(folder)) for name in names
        ]
        in_epoch, times = _time_batches(config, loops, task, turns=turns, progress=progress)
        outputs = [_validate(loop) for loop in loops]
        validation = median(_seconds(_validate, loops[0]) for _ in range(REPEATS))
        plain, *learned = (
            _epoch(name, loop, found, own, Path(folder), rest=in_epoch * median(own) + validation)
            for name, loop, found, own in zip(names, loops, outputs, times, strict=True)
        )
    settings = asdict(config)
    for name in ("data_root", "weights", "method", "options"):
        del settings[name]
    return Overhead(
        settings=settings,
        batches=in_epoch,
        validation=validation,
        plain=plain,
        learned=tuple(learned),
    )


def _make_loop(
    config: TrainConfig, task: Task, name: str, options: Mapping[str, Any], folder: Path
) -> Loop:
    own = replace(config, method=name, options=dict(options))
    method = make_method(name, own.options)
    if not isinstance(method, NetworkMethod):
        raise InputError(f"method {name} does not train the network and has no epochs to time")
    run = RunFolder(folder / name)
    run.path.mkdir()
    own = with_defaults(own, task.mode)
    setting = make_setting(own, task)
    return RunContext(own, task, setting, run, make_fabric(own), Callbacks()).make_loop(method)


def _validate(loop: Loop) -> Outputs:
    assert loop.validate is not None
    return loop.validate(loop.evaluated)


def _time_batches(
    config: TrainConfig,
    loops: Sequence[Loop],
    task: Task,
    *,
    turns: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[int, list[list[float]]]:
    """Number of batches per epoch, and seconds of the timed batches of each run."""
    fabric = loops[0].fabric
    assert fabric is not None
    all_batches: Iterable[Batch] = task.batches(
        task.splits.train, batch_size=config.batch_size, device=fabric.device
    )
    in_epoch = len(all_batches)  # type: ignore[arg-type]
    kept = list(islice(all_batches, KEPT))
    for batch in kept[: KEPT // 2]:  # warm up
        for loop in loops:
            _train_batch(loop, batch, in_epoch)
    times: list[list[float]] = [[] for _ in loops]
    for turn in range(turns):
        batch = kept[turn % len(kept)]
        first = turn % len(loops) + turn // len(kept)  # runs take turns to be first
        for number in range(len(loops)):
            which = (first + number) % len(loops)
            times[which].append(_seconds(_train_batch, loops[which], batch, in_epoch))
        if progress is not None:
            progress(turn + 1, turns)
    return in_epoch, times


def _train_batch(loop: Loop, batch: Batch, in_epoch: int) -> None:
    loop.network.train()
    loop.train_batch(batch, 0, in_epoch)[0].item()  # waits for a GPU


def _epoch(
    name: str, loop: Loop, outputs: Outputs, times: list[float], folder: Path, *, rest: float
) -> EpochSeconds:
    """Seconds of a method; ``rest`` is the time of the batches and of validation."""
    step = file = separability = 0.0
    every = 1
    if isinstance(loop.loss, LearnedCosts):
        steps, files = _time_steps(RunFolder(folder / name), loop.loss, outputs)
        step, file = median(steps), median(files)
        if isinstance(loop.loss, CostLearner) and loop.loss.needs_features:
            every = loop.loss.separability_every
            compute = partial(class_separability, num_classes=outputs.logits.shape[1])
            separability = median(
                _seconds(compute, outputs.features, outputs.target) for _ in range(REPEATS)
            )
    low, high = np.percentile(times, [25, 75])
    return EpochSeconds(
        method=name,
        batch=median(times),
        quartiles=(float(low), float(high)),
        step=step,
        file=file,
        separability=separability,
        separability_every=every,
        epoch=rest + step + file + separability / every,
    )


def _time_steps(
    run: RunFolder, learner: LearnedCosts, outputs: Outputs
) -> tuple[list[float], list[float]]:
    """Seconds of cost steps and of writing them, without the first step, which computes S."""
    arguments = (outputs.logits, outputs.target, outputs.features)
    learner.step(*arguments)
    steps, files = [], []
    for _ in range(REPEATS):
        start = time.perf_counter()
        step = learner.step(*arguments)
        steps.append(time.perf_counter() - start)
        files.append(_seconds(run.write_cost_step, step))
    return steps, files


def _seconds(call: Callable[..., object], *arguments: Any) -> float:
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start
