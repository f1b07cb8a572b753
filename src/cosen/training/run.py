"""A whole run: from settings to a run folder with a model and its results."""

import gc
import logging
import os
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from cosen.costs import Objective
from cosen.data.augmentation import check_names
from cosen.data.imbalance import parse_imbalance
from cosen.data.labelled import LabelledImages
from cosen.data.named import NAMED
from cosen.errors import OUT_OF_MEMORY, InputError, RunError, is_out_of_memory
from cosen.files import expand_user
from cosen.methods import Method, make_method
from cosen.methods.learned_costs import CosenPaper
from cosen.methods.reweighting import Baseline
from cosen.networks import find_network
from cosen.networks.device import resolve_device, resolve_precision
from cosen.training.config import TrainConfig
from cosen.training.context import RunContext, check_baseline, make_setting
from cosen.training.finetuning import with_defaults
from cosen.training.loop import Callbacks, Diverged
from cosen.training.records import DataRecord, EpochRecord, ModelInfo, RunRecord, SplitCounts
from cosen.training.run_folder import RunFolder
from cosen.training.task import Task, make_task

if TYPE_CHECKING:
    from lightning_fabric import Fabric

OTHER_FAILED = "another process of this run has failed"


@dataclass(frozen=True)
class Inputs:
    """Objects that a user can pass in addition to settings.

    A method that starts from a baseline uses the finished run in ``baseline``, on the same split.
    Without it, a baseline is trained first, in the run folder.
    """

    data: LabelledImages | None = None  # instead of config.data
    method: Method | None = None  # instead of config.method
    network: Callable[[], nn.Module] | None = None  # instead of config.network
    baseline: Path | None = None
    objective: Objective | None = None  # instead of config.objective
    model: ModelInfo | None = None  # chosen earlier, for the same data and settings
    named: str | None = None  # the method that the user named, to resume a run with it
    named_network: str | None = None  # the same for the network

    def objects(self) -> tuple[str, ...]:
        """Return which of the inputs that replace settings are objects."""
        names = ("data", "method", "network", "objective")
        return tuple(name for name in names if getattr(self, name) is not None)


def train_run(
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    inputs: Inputs | None = None,
    callbacks: Callbacks | None = None,
) -> RunFolder:
    """Train, and write everything to a run folder.

    Args:
        config: The settings.
        out: The run folder.
        resume: Resume a run that was stopped, with its own settings.
        inputs: Data, method, network or baseline as objects.
        callbacks: Called with progress.
    """
    run, inputs, callbacks = RunFolder(out), inputs or Inputs(), callbacks or Callbacks()
    if resume:
        record = RunFolder.existing(out).record()
        config = record.config
        _check_objects(out, record, inputs)
        _check_code(out, record, inputs)
        _check_data_exists(out, config, inputs)
    elif is_first_process():
        check_free(out)
    if inputs.method is not None:
        config = replace(config, method=inputs.method.name, options={})
    method = inputs.method or make_method(config.method, config.options)
    check_config(config, method)
    if inputs.baseline is not None and not method.starts_from_baseline:
        raise InputError(f"method {method.name} does not use a baseline: remove --baseline")
    with torch.random.fork_rng(devices=[]), _session(config, run, inputs, resume) as fabric:
        if isinstance(method, CosenPaper) and method.trials:
            from cosen.training.tuning import tune_in_run  # slow to import, and rarely needed

            config, method = tune_in_run(config, method, run, inputs, callbacks)
        with _tensorboard(run, fabric, callbacks) as watched:
            method.run(_prepare(config, method, run, fabric, inputs, watched))
    return run


def check_config(config: TrainConfig, method: Method) -> None:
    """Raise an error for settings that are wrong for any data."""
    resolve_device(config.device)
    if config.imbalance:
        parse_imbalance(config.imbalance)
    if config.network != "auto" and ":" not in config.network:
        find_network(config.network)
    check_names(config.augment or ())
    processes = config.devices
    if torch.distributed.is_torchelastic_launched():  # torchrun decides
        processes = int(os.environ["WORLD_SIZE"])
    if isinstance(method, CosenPaper) and method.trials and processes > 1:
        raise InputError(
            f"trials need a run in one process, but this one has {processes}: choose the options "
            "with cosen tune first, then train with --config tuned.toml"
        )


def check_free(out: Path) -> None:
    """Raise an error if a folder already holds a run."""
    if RunFolder(out).has_run:
        raise RunError(
            f"{out} already holds a run: resume it (--resume {out}), or use another --out"
        )


def _check_objects(out: Path, record: RunRecord, inputs: Inputs) -> None:
    """Raise an error if a run that was started with objects is resumed without them."""
    given = inputs.objects()
    for name in ("data", "method", "network"):
        if name in record.objects and name not in given:
            raise RunError(
                f"{out} was started with a {name} object: pass it again, "
                f"cosen.train(resume=..., {name}=...)"
            )
        is_named = name == "network" and ":" in record.config.network
        if name in given and name not in record.objects and not is_named:
            raise RunError(f"{out} was not started with a {name} object: remove {name}")
    if "objective" in record.objects and record.data is None:  # the costs are stored with the data
        raise RunError(f"{out} was stopped before it read its data: start it in another folder")


def _check_code(out: Path, record: RunRecord, inputs: Inputs) -> None:
    """Raise an error if a run needs code that the user has not named.

    A run folder may come from someone else, so its record alone must not make cosen import code.
    """
    method = record.config.method
    if ":" in method and inputs.method is None and inputs.named is None:
        raise RunError(
            f"{out} was trained with the code {method}: if you trust it, name it again "
            f"(--method {method})"
        )
    network = record.config.network
    if ":" in network and inputs.network is None:
        raise RunError(
            f"{out} was trained with the code {network}: if you trust it, name it again "
            f"(--network {network})"
        )
    if inputs.named_network not in (None, network):
        raise RunError(
            f"{out} was trained with {network}, not with {inputs.named_network}: remove --network"
        )
    if inputs.named not in (None, method):
        raise RunError(f"{out} was trained with {method}, not with {inputs.named}: remove --method")


def _check_data_exists(out: Path, config: TrainConfig, inputs: Inputs) -> None:
    """Raise an error if a relative path to the data does not exist from here."""
    path = expand_user(config.data)
    is_named = config.data.partition(":")[0] in NAMED
    if inputs.data is None and not (is_named or path.is_absolute() or path.exists()):
        raise RunError(
            f"{out} was trained on {config.data}, which does not exist in {Path.cwd()}: resume it "
            "from the folder where it was started"
        )


@contextmanager
def _session(
    config: TrainConfig, run: RunFolder, inputs: Inputs, resume: bool
) -> "Iterator[Fabric]":
    """Lock the folder, start the processes, and clean up after an error."""
    first = is_first_process()
    with run.in_use() if first else nullcontext():
        if first and not resume:
            baseline = str(inputs.baseline.absolute()) if inputs.baseline else None
            objects = inputs.objects()
            if ":" in config.network:  # it has a name
                objects = tuple(name for name in objects if name != "network")
            record = RunRecord.now(config, baseline=baseline, objects=objects)
            record.write(run.path)  # can be resumed now
        fabric = make_fabric(config)
        fabric.launch()
        try:
            yield fabric
        except Exception as error:
            if first and not resume and not run.has_checkpoint:
                run.remove_early_files()  # nothing was learned yet: free the folder
            is_lost = any(name in str(error).lower() for name in ("gloo", "nccl"))
            if isinstance(error, RuntimeError) and (fabric.global_rank or is_lost):
                again = f"; resume with --resume {run.path}" if run.has_checkpoint else ""
                raise RunError(OTHER_FAILED + again) from error
            if is_out_of_memory(error):
                raise RunError(OUT_OF_MEMORY) from error
            if isinstance(error, Diverged) and run.has_checkpoint:
                epochs = len(run.history())
                raise RunError(f"{error}; epochs 1 to {epochs} are kept in {run.path}") from error
            raise
        if fabric.world_size > 1 and torch.distributed.is_initialized():
            gc.collect()  # remaining references to the process group may abort the interpreter
            torch.distributed.barrier()
            torch.distributed.destroy_process_group()


def make_fabric(config: TrainConfig) -> "Fabric":
    """Create Lightning Fabric for the device, the precision and the number of processes."""
    from lightning_fabric import Fabric  # takes a second: only processes that train import it

    device = resolve_device(config.device)
    half = resolve_precision(config.precision, device) == torch.bfloat16
    devices, nodes = config.devices, 1
    if torch.distributed.is_torchelastic_launched():  # torchrun decides
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*all_gather is deprecated")  # Fabric uses it
    return Fabric(
        accelerator=device,
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if devices * nodes > 1 else "auto",
        precision="bf16-mixed" if half else "32-true",
    )


def _prepare(
    config: TrainConfig,
    method: Method,
    run: RunFolder,
    fabric: "Fabric",
    inputs: Inputs,
    callbacks: Callbacks,
) -> RunContext:
    """Read the data, check the method on it, and train the baseline that the method needs."""
    record = run.record()
    known = record.data is not None and record.data.misclassification_costs is not None
    task = make_task(
        config,
        data=inputs.data,
        network=inputs.network,
        model=inputs.model,
        objective=record.objective if known else inputs.objective,
        progress=callbacks.reading if fabric.is_global_zero else None,
        announce=callbacks.phase if fabric.is_global_zero else None,
    )
    config = with_defaults(config, task.mode)
    context = RunContext(config, task, make_setting(config, task), run, fabric, callbacks)
    method.check(context.setting)
    if fabric.is_global_zero and not run.has_checkpoint:
        record.changed(config=config, data=_data_record(task)).write(run.path)
    if not method.needs_baseline(has_features=task.has_features):
        return context
    given = inputs.baseline or (Path(record.baseline) if record.baseline else None)
    baseline = RunFolder.existing(given) if given else _train_baseline(context, method)
    check_baseline(baseline, config, task)
    return replace(context, baseline=baseline)


def _train_baseline(context: RunContext, method: Method) -> RunFolder:
    """Train the baseline in the run folder, unless it exists."""
    run, fabric, callbacks = context.run, context.fabric, context.callbacks
    inner = RunFolder(run.path / "baseline")
    config = replace(context.config, method=Baseline.name, options={})
    # only one process checks it, because it may remove the folder
    is_same = fabric.is_global_zero and inner.has_run and inner.record().config == config
    if fabric.broadcast(is_same and inner.is_finished):
        return inner
    if fabric.is_global_zero and not is_same:
        shutil.rmtree(inner.path, ignore_errors=True)  # an attempt with other settings
        inner.path.mkdir()
        RunRecord.now(config, data=_data_record(context.task)).write(inner.path)
    fabric.barrier()
    callbacks.phase(f"Training the baseline that {method.name} starts from")
    with _tensorboard(inner, fabric, callbacks) as watched:
        Baseline().run(replace(context, config=config, run=inner, callbacks=watched))
    fabric.barrier()  # it is written
    callbacks.phase(f"Training {method.name}")
    return inner


def _data_record(task: Task) -> DataRecord:
    costs, splits = task.objective.misclassification_costs, task.splits
    train, val, test = (part.class_counts for part in (splits.train, splits.val, splits.test))
    return DataRecord(
        fingerprint=task.fingerprint,
        class_names=task.model.class_names,
        class_counts=SplitCounts(train=train, val=val, test=test),
        network=task.network_name,
        size=task.model.preprocess.shape,
        misclassification_costs=None if costs is None else tuple(map(tuple, costs.tolist())),
    )


def is_first_process() -> bool:
    """Whether this process writes the files; works before the process group exists."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


@contextmanager
def _tensorboard(run: RunFolder, fabric: "Fabric", callbacks: Callbacks) -> Iterator[Callbacks]:
    """Write the curves for TensorBoard; only the first process reports progress."""
    if not fabric.is_global_zero:
        yield Callbacks()
        return
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(run.path / "tensorboard"))

    def epoch(record: EpochRecord) -> None:
        for name in ("train_loss", "train_error", "val_error", "mean_recall", "rare_recall"):
            value = getattr(record, name)
            if value is not None:
                writer.add_scalar(name, value, record.epoch)
        writer.flush()
        callbacks.epoch(record)

    try:
        yield replace(callbacks, epoch=epoch)
    finally:
        writer.close()
