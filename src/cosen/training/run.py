"""A whole run: from a configuration to a run folder with a model and its test results."""

import gc
import logging
import os
import platform
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

import cosen
from cosen.data.augmentation import check_names
from cosen.data.decoding import Progress
from cosen.data.imbalance import parse_imbalance
from cosen.data.named import NAMED
from cosen.errors import InputError, RunError
from cosen.methods import Method, make_method
from cosen.methods.baseline import Baseline
from cosen.networks import find_network
from cosen.networks.precision import resolve_precision
from cosen.training.config import TrainConfig, make_config
from cosen.training.execution import Execution, check_baseline, make_setting, needs_baseline
from cosen.training.loop import Watcher
from cosen.training.run_folder import EpochRecord, RunFolder
from cosen.training.task import Task, make_task, resolve_device
from cosen.training.tuned import check_trials, with_tuned_costs

VERSIONED = ("torch", "numpy", "pillow", "lightning-fabric", "kornia", "scikit-learn")


def train(
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    method: Method | None = None,
    network: Callable[[], nn.Module] | None = None,
    baseline: Path | None = None,
    watcher: Watcher | None = None,
    progress: Progress | None = None,
) -> RunFolder:
    """Train as the configuration says, and leave everything in a run folder.

    Args:
        config: The configuration.
        out: The run folder.
        resume: Go on with a run that was cut off; its own configuration counts then.
        method: One of your own, in place of a named one.
        network: Makes a module of your own, from images to logits, in place of a named network;
            its last linear layer is taken as the output. Hand it to ``load_model`` as well.
        baseline: A finished run of the baseline on the same split, for a method that starts from
            one; without it, one is trained first, in the run folder.
        watcher: Told of batches and epochs.
        progress: Told how far decoding and embedding are.
    """
    run = RunFolder(out)
    if method is not None:
        config = replace(config, method=method.name, options={})
    if resume:
        config = saved_config(RunFolder.existing(out))
        _check_data_is_there(out, config)
    elif run.has_run and _is_first_process():
        raise RunError(
            f"{out} holds a run already: go on with it (--resume {out}), or use another --out"
        )
    check_config(config, method=method)
    method = method or make_method(config.method, config.options)
    if baseline is not None and not method.starts_from_baseline:
        raise InputError(f"method {method.name} starts from nothing: leave the baseline out")
    if baseline is None and resume and run.about().get("starts_from"):
        baseline = Path(run.about()["starts_from"])
    with _held(run):
        if not resume and _is_first_process():
            from_run = {"starts_from": str(baseline.absolute())} if baseline else {}
            run.write_about(describe_start(config) | from_run)  # from now on it can be resumed
        fabric = make_fabric(config)
        fabric.launch()
        try:
            wish = _Wish(network, baseline, watcher or Watcher(), progress)
            config, method = with_tuned_costs(
                config, method, run, wish.watcher, own_network=network is not None
            )
            _train(config, method, run, fabric, wish)
        except Exception as error:
            if _is_first_process() and not run.has_checkpoint:
                run.forget()  # a mistake before anything was learned: the folder is free again
            is_other = fabric.world_size > 1 and not fabric.is_global_zero
            if is_other and isinstance(error, RuntimeError):
                raise RunError("another process of this run has failed") from error
            raise
        else:
            _leave_processes(fabric)
    return run


def _check_data_is_there(out: Path, config: TrainConfig) -> None:
    """Refuse to go on in another folder than that which the data was named from."""
    path = Path(config.data).expanduser()
    is_named = config.data.partition(":")[0] in NAMED
    if not (is_named or path.is_absolute() or path.exists()):
        raise RunError(
            f"{out} was trained on {config.data}, which is not there from {Path.cwd()}: go on in "
            "the folder where the run was started"
        )


def check_config(config: TrainConfig, *, method: Method | None = None) -> None:
    """Refuse what can be seen to be wrong before any image is read."""
    resolve_device(config.device)
    if config.imbalance:
        parse_imbalance(config.imbalance)
    if config.network != "auto":
        find_network(config.network)
    check_names(config.augment)
    check_trials(config, method or make_method(config.method, config.options))


def saved_config(run: RunFolder) -> TrainConfig:
    """The configuration that a run was started with."""
    return make_config(run.about()["config"])


def make_fabric(config: TrainConfig) -> Fabric:
    """Lightning Fabric for the configured device, precision and number of processes."""
    device = resolve_device(config.device)
    half = resolve_precision(config.precision, device) == torch.bfloat16
    devices, nodes = config.devices, 1
    if torch.distributed.is_torchelastic_launched():  # by torchrun, which decides
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    for name in ("lightning_fabric", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return Fabric(
        accelerator=device,
        devices=devices,
        num_nodes=nodes,
        strategy="ddp" if devices * nodes > 1 else "auto",
        precision="bf16-mixed" if half else "32-true",
    )


@dataclass(frozen=True)
class _Wish:
    """What the user brings besides a configuration, and wants to be told."""

    network: Callable[[], nn.Module] | None
    baseline: Path | None
    watcher: Watcher
    progress: Progress | None


def _train(
    config: TrainConfig, method: Method, run: RunFolder, fabric: Fabric, wish: _Wish
) -> None:
    about = run.about()
    task = make_task(
        config,
        progress=wish.progress if fabric.is_global_zero else None,
        expert=about.get("expert"),
        own_network=wish.network,
    )
    method.check(make_setting(config, task))
    if fabric.is_global_zero and not run.has_checkpoint:
        run.write_about(about | _facts(task))
    baseline = None
    if needs_baseline(method, task):
        baseline = _baseline(config, method, run, fabric, wish)
        check_baseline(baseline, config, task)
    with _Logs(run, fabric, wish.watcher) as logs:
        Execution(config, task, run, fabric, baseline).carry_out(method, lambda: logs.watcher)


def _baseline(
    config: TrainConfig, method: Method, run: RunFolder, fabric: Fabric, wish: _Wish
) -> RunFolder:
    """The baseline that the method starts from: the one given, or one trained in the run folder."""
    if wish.baseline is not None:
        return RunFolder.existing(wish.baseline)
    inner = RunFolder(run.path / "baseline")
    plain = replace(config, method=Baseline.name, options={})
    # looked at by one process, which may then remove it
    is_of_this_run = fabric.is_global_zero and inner.has_run and saved_config(inner) == plain
    if fabric.broadcast(is_of_this_run and inner.is_finished):
        return inner
    if fabric.is_global_zero and not is_of_this_run:
        shutil.rmtree(inner.path, ignore_errors=True)  # of an attempt with other settings
        inner.path.mkdir()
        inner.write_about(describe_start(plain))
    fabric.barrier()
    wish.watcher.phase(f"Training the baseline that {method.name} starts from")
    _train(plain, Baseline(), inner, fabric, wish)
    fabric.barrier()  # it is written
    wish.watcher.phase(f"Training {method.name}")
    return inner


def describe_start(config: TrainConfig) -> dict[str, Any]:
    """What is known of a run before its data is read."""
    return {
        "cosen": cosen.__version__,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": ["cosen", *sys.argv[1:]],
        "config": config.as_json(),
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in VERSIONED},
        "platform": platform.platform(),
    }


def _facts(task: Task) -> dict[str, Any]:
    """What is known once the data is read and split."""
    parts = {"train": task.splits.train, "val": task.splits.val, "test": task.splits.test}
    facts: dict[str, Any] = {
        "fingerprint": task.fingerprint,
        "class_names": task.facts.class_names,
        "class_counts": {name: part.class_counts.tolist() for name, part in parts.items()},
        "network": {"name": task.facts.network, "size": task.facts.preprocess.shape},
    }
    if isinstance(task.objective, Tensor):
        facts["expert"] = task.objective.tolist()
    return facts


def _is_first_process() -> bool:
    """Whether this is the process that writes; known before the processes have met."""
    return os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")) == "0"


def _held(run: RunFolder) -> AbstractContextManager[None]:
    """The first process holds the run folder; the others rely on it."""
    return run.in_use() if _is_first_process() else nullcontext()


class _Logs:
    """Writes the curves for TensorBoard beside telling the watcher."""

    def __init__(self, run: RunFolder, fabric: Fabric, watcher: Watcher) -> None:
        self._folder = run.path / "tensorboard" if fabric.is_global_zero else None
        self._watcher = watcher
        self._close: Callable[[], None] = lambda: None
        self.watcher = Watcher()

    def __enter__(self) -> "_Logs":
        if self._folder is None:
            return self
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(str(self._folder))
        self._close = writer.close

        def epoch(record: EpochRecord) -> None:
            for name in ("train_loss", "train_error", "val_error", "mean_recall", "rare_recall"):
                writer.add_scalar(name, getattr(record, name), record.epoch)
            writer.flush()
            self._watcher.epoch(record)

        self.watcher = replace(self._watcher, epoch=epoch)
        return self

    def __exit__(self, *problem: Any) -> None:
        self._close()


def _leave_processes(fabric: Fabric) -> None:
    """Leave the process group; on the CPU, what still holds on to it may abort the interpreter."""
    gc.collect()
    if fabric.world_size > 1 and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
