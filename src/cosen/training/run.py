"""A whole run: from a configuration to a run folder with a model and its test results."""

import gc
import logging
import os
import platform
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

import cosen
from cosen.data.augmentation import check_names
from cosen.data.decoding import Progress
from cosen.data.imbalance import parse_imbalance
from cosen.data.stores import printable
from cosen.errors import CosenError, RunError
from cosen.methods import make_loss
from cosen.networks import find_network
from cosen.networks.precision import resolve_precision
from cosen.training.config import TrainConfig, make_config
from cosen.training.evaluation import run_network, summarise
from cosen.training.expert import read_expert
from cosen.training.loop import Training, Watcher
from cosen.training.model_file import (
    calibrated_temperature,
    load_model,
    save_facts,
    with_temperature,
)
from cosen.training.run_folder import EpochRecord, RunFolder
from cosen.training.task import Task, make_task, resolve_device

VERSIONED = ("torch", "numpy", "pillow", "lightning-fabric", "kornia", "scikit-learn")


def train(
    config: TrainConfig,
    out: Path,
    *,
    resume: bool = False,
    network: Callable[[], nn.Module] | None = None,
    watcher: Watcher | None = None,
    progress: Progress | None = None,
) -> RunFolder:
    """Train as the configuration says, and leave everything in a run folder.

    Args:
        config: The configuration.
        out: The run folder.
        resume: Go on with a run that was cut off; its own configuration counts then.
        network: Makes a module of your own, from images to logits, in place of a named network;
            its last linear layer is taken as the output. Hand it to ``load_model`` as well.
        watcher: Told of batches and epochs.
        progress: Told how far decoding and embedding are.
    """
    run = RunFolder(out)
    if resume:
        config = saved_config(RunFolder.existing(out))
    elif run.has_run and _is_first_process():
        raise RunError(
            f"{out} holds a run already: go on with it (--resume {out}), or use another --out"
        )
    check_config(config)
    with _held(run):
        if not resume and _is_first_process():
            run.write_about(_start(config))  # from now on it can be resumed
        fabric = make_fabric(config)
        fabric.launch()
        try:
            _train(config, run, fabric, network, watcher or Watcher(), progress)
        except CosenError:
            if _is_first_process() and run.checkpoint() is None:
                run.forget()  # a mistake before anything was learned: the folder is free again
            raise
        except RuntimeError as error:
            if fabric.world_size > 1 and not fabric.is_global_zero:
                raise RunError("another process of this run has failed") from error
            raise
        else:
            _leave_processes(fabric)
    return run


def check_config(config: TrainConfig) -> None:
    """Refuse what can be seen to be wrong before any image is read."""
    resolve_device(config.device)
    if config.imbalance:
        parse_imbalance(config.imbalance)
    if config.network != "auto":
        find_network(config.network)
    check_names(config.augment)
    options = {key: value for key, value in config.costs.items() if key != "expert"}
    make_loss(config.method, np.ones(2), objective=config.objective, options=options)


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


def _train(
    config: TrainConfig,
    run: RunFolder,
    fabric: Fabric,
    network: Callable[[], nn.Module] | None,
    watcher: Watcher,
    progress: Progress | None,
) -> None:
    about = run.about()
    task = make_task(
        config,
        progress=progress if fabric.is_global_zero else None,
        expert=about.get("expert"),
        own_network=network,
    )
    loss = make_loss(
        config.method,
        task.splits.train.class_counts,
        objective=task.objective,
        options=_cost_options(config, task),
    )
    training = Training(config, task, loss, run, fabric)
    state = run.checkpoint()
    fabric.barrier()  # all have looked before the first writes
    if state is not None:
        training.resume(state)
    elif fabric.is_global_zero:
        run.write_about(about | _facts(task))
    with _Logs(run, fabric, watcher) as logs:
        training.fit(logs.watcher)
    _finish(config, task, run, fabric)


def _cost_options(config: TrainConfig, task: Task) -> dict[str, Any]:
    """The options of the method, an expert's matrix read from its CSV."""
    options = dict(config.costs)
    if isinstance(options.get("expert"), str):
        path = Path(options["expert"]).expanduser()
        options["expert"] = read_expert(path, task.facts.class_names)
    return options


def _finish(config: TrainConfig, task: Task, run: RunFolder, fabric: Fabric) -> None:
    """Run the best network over validation and test, and write what it says."""
    classifier, facts = load_model(run.path, network=task.own_network)
    network = fabric.setup_module(classifier.network)
    parts = {"val": task.splits.val, "test": task.splits.test}
    outputs = {
        name: run_network(fabric, network, task, part, batch_size=config.batch_size)
        for name, part in parts.items()
    }
    if not fabric.is_global_zero:
        return
    facts = with_temperature(
        facts, calibrated_temperature(outputs["val"].logits, outputs["val"].target)
    )
    save_facts(run.path, facts)
    tensors, names = {}, {}
    for name, part in parts.items():
        tensors[f"{name}_logits"] = outputs[name].logits
        tensors[f"{name}_target"] = outputs[name].target
        names[name] = [printable(image) for image in part.names]
    run.write_predictions(tensors, names)
    run.write_metrics(
        {
            name: summarise(
                outputs[name],
                class_counts=facts.class_counts,
                objective=task.objective,
                temperature=facts.temperature,
            )
            for name in parts
        }
    )


def _start(config: TrainConfig) -> dict[str, Any]:
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

        self.watcher = Watcher(batch=self._watcher.batch, epoch=epoch)
        return self

    def __exit__(self, *problem: Any) -> None:
        self._close()


def _leave_processes(fabric: Fabric) -> None:
    """Leave the process group; on the CPU, what still holds on to it may abort the interpreter."""
    gc.collect()
    if fabric.world_size > 1 and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
