"""The loop: Algorithm 1, epoch by epoch, in one process or several, and resumable at any moment.

In each epoch the network is trained with the present costs, the validation split is run through it,
and the costs take a step. Then everything that the next epoch depends on is written to disk.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from lightning_fabric import Fabric
from lightning_fabric.wrappers import _FabricModule
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from cosen import functional as F
from cosen.costs import CostStep, LearnedCosts, validation_error, validation_noise
from cosen.data.augmentation import Augmentation
from cosen.data.batches import Batch, Share
from cosen.errors import InputError, RunError
from cosen.methods import NetworkMethod, Setting
from cosen.networks.output import Outputs
from cosen.training.config import TrainConfig
from cosen.training.evaluation import all_processes, rare_classes, run_network
from cosen.training.frozen import use_cached_features, whole_network
from cosen.training.model_file import save_model
from cosen.training.run_folder import EpochRecord, RunFolder
from cosen.training.schedule import learning_rate, make_optimizer
from cosen.training.task import Task


@dataclass(frozen=True)
class Watcher:
    """Who is told how training goes.

    Attributes:
        batch: Told the batches done and the batches in all epochs.
        epoch: Told the record of an epoch that is over.
        phase: Told what is trained, where that is more than one thing.
    """

    batch: Callable[[int, int], None] = lambda _, __: None
    epoch: Callable[[EpochRecord], None] = lambda _: None
    phase: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class EpochTimes:
    """Seconds of an epoch: training alone, and with validation and the step of the costs."""

    trained: float
    whole: float


class Training:
    """All that changes while a run goes on.

    Args:
        config: The configuration.
        task: What there is to train.
        method: How: its loss may learn.
        setting: What the method knows of the data.
        run: Where everything is written, by the first process only.
        fabric: The device, the precision and the processes.
        network: Makes the network to train; one of the task's if not given.
    """

    def __init__(
        self,
        config: TrainConfig,
        task: Task,
        method: NetworkMethod,
        setting: Setting,
        run: RunFolder,
        fabric: Fabric,
        *,
        network: Callable[[], nn.Module] | None = None,
    ) -> None:
        torch.manual_seed(config.seed)  # the same weights in every process
        made = task.network(config) if network is None else network()
        trained, task = use_cached_features(made, task, config, fabric)
        self.config, self.task, self.run, self.fabric = config, task, run, fabric
        if task.features is None:
            trained = trained.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.method, self.setting = method, setting
        self.loss = method.make_loss(setting).to(fabric.device)
        self.class_draws = method.class_draws(setting)
        optimizer = make_optimizer(config, trained.parameters())
        self.network, self.optimizer = _set_up(fabric, trained, optimizer)
        self.average: AveragedModel | None = None
        if config.ema:
            decay = get_ema_multi_avg_fn(config.ema)  # type: ignore[no-untyped-call]
            self.average = AveragedModel(trained, multi_avg_fn=decay, use_buffers=True)
        torch.manual_seed(config.seed + 1 + fabric.global_rank)  # dropout differs by process
        self.order = torch.Generator().manual_seed(config.seed)
        self.noise = torch.Generator().manual_seed(config.seed * 1000 + fabric.global_rank)
        self.augment = self._augmentation()
        self.history: list[EpochRecord] = []
        self.best_error = math.inf
        self.last_best = 0

    def fit(self, watcher: Watcher) -> None:
        """Train to the last epoch, or until validation has not improved for long enough."""
        while len(self.history) < self.config.epochs and not self._out_of_patience():
            watcher.epoch(self.run_epoch(watcher))

    def run_epoch(self, watcher: Watcher | None = None) -> EpochRecord:
        """Train for an epoch, validate, let the costs take a step, and save."""
        start = time.perf_counter()
        loss, error = self._train_epoch(watcher or Watcher())
        trained = time.perf_counter() - start
        outputs = self.validate()
        step = self._step_costs(outputs)
        times = EpochTimes(trained=trained, whole=time.perf_counter() - start)
        record = self._record(loss, error, outputs, step, times)
        self.history.append(record)
        self._keep(record, step)
        return record

    @property
    def judged(self) -> nn.Module:
        """The network that validation looks at and that is kept: the average, if there is one."""
        return self.average if self.average is not None else self.network

    def validate(self) -> Outputs:
        return run_network(
            self.fabric,
            self.judged,
            self.task,
            self.task.splits.val,
            batch_size=self.config.batch_size,
        )

    # One epoch

    def _train_epoch(self, watcher: Watcher) -> tuple[float, float]:
        """The mean loss and the share of samples that were wrong, over all processes."""
        self.network.train()
        self.method.begin_epoch(self.loss, self.setting, len(self.history) / self.config.epochs)
        batches = self.task.train_batches(
            batch_size=self.config.batch_size,
            order=self.order,
            class_draws=self.class_draws,
            augment=self.augment,
            device=self.fabric.device,
            share=Share(self.fabric.global_rank, self.fabric.world_size),
        )
        total = len(batches)  # type: ignore[arg-type]
        sums = torch.zeros(3, device=self.fabric.device)  # loss, wrong, samples
        for number, batch in enumerate(batches):
            last = (number + 1) % self.config.accumulate == 0 or number + 1 == total
            sums += self.train_batch(batch, number, total, is_last=last)
            watcher.batch(len(self.history) * total + number + 1, self.config.epochs * total)
        sums = self.fabric.all_reduce(sums, reduce_op="sum")  # type: ignore[assignment]
        if not bool(sums.isfinite().all()):
            raise self._diverged("the loss is not a number any more")
        return float(sums[0] / sums[2]), float(sums[1] / sums[2])

    def train_batch(self, batch: Batch, number: int, total: int, *, is_last: bool) -> Tensor:
        """One forward and backward pass, and where enough gradients are there, a step."""
        with self.fabric.no_backward_sync(self.network, enabled=not is_last):  # type: ignore[arg-type]
            output = self.network(batch.inputs)
            try:
                loss = self.loss(output.logits, batch.target)
            except InputError as error:
                raise self._diverged(str(error)) from error
            self.fabric.backward(loss * batch.weight / self._accumulated(number, total))
        if is_last:
            if self.config.clip:
                self.fabric.clip_gradients(self.network, self.optimizer, max_norm=self.config.clip)
            progress = (len(self.history) + number / total) / self.config.epochs
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(self.config, progress)
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.average is not None:
                self.average.update_parameters(_bare(self.network))
        counted = len(batch.inputs) * (batch.weight > 0)
        classes = batch.target if batch.target.ndim == 1 else batch.target.argmax(1)
        wrong = (output.logits.detach().argmax(1) != classes).sum() * (batch.weight > 0)
        return torch.stack([loss.detach() * counted, wrong, wrong.new_tensor(counted)])

    def _accumulated(self, number: int, total: int) -> int:
        """Over how many batches the gradients of this step are added up."""
        first = number - number % self.config.accumulate
        return min(self.config.accumulate, total - first)

    def _step_costs(self, outputs: Outputs) -> CostStep | None:
        """The outer step of Algorithm 1; the same in every process, which all have all outputs."""
        if not isinstance(self.loss, LearnedCosts):
            return None
        return self.loss.step(outputs.logits, outputs.target, outputs.features)

    def _record(
        self,
        loss: float,
        error: float,
        outputs: Outputs,
        step: CostStep | None,
        times: EpochTimes,
    ) -> EpochRecord:
        confusion = outputs.confusion()
        val_error = validation_error(confusion, self.task.objective)
        # of epochs that cannot be told apart the later, which was trained for longer
        best = val_error <= self.best_error + validation_noise(confusion, self.task.objective)
        if val_error < self.best_error:
            self.best_error, self.last_best = val_error, len(self.history) + 1
        rare = rare_classes(self.task.facts.class_counts)
        return EpochRecord(
            epoch=len(self.history) + 1,
            lr=self.optimizer.param_groups[0]["lr"],
            train_loss=loss,
            train_error=error,
            val_error=val_error,
            val_accuracy=float(F.overall_accuracy(confusion)),
            mean_recall=float(F.mean_recall(confusion)),
            rare_recall=float(F.class_recall(confusion)[rare].nanmean()),
            seconds=times.whole,
            images_per_second=self.task.train_size / times.trained,
            cost_accepted=None if step is None else step.accepted,
            cost_lr=None if step is None else step.cost_lr,
            best=best,
        )

    def _out_of_patience(self) -> bool:
        waited = len(self.history) - self.last_best
        return 0 < self.config.patience <= waited

    # What survives

    def _keep(self, record: EpochRecord, step: CostStep | None) -> None:
        """Write what a killed run goes on from; the checkpoint last, so that all of it is there."""
        states = _gather_states(self.fabric, self._own_state())
        if self.fabric.is_global_zero:
            if step is not None:
                self.run.write_cost_step(step)
            if record.best:
                network = whole_network(_bare(self.judged))
                save_model(self.run.path, self.task.classifier(network), self.task.facts)
            self.run.write_checkpoint(self._state() | {"processes": states})
            self.run.write_history(self.history)
        self.fabric.barrier()

    def _state(self) -> dict[str, Any]:
        """What is the same in every process."""
        return {
            "network": _bare(self.network).state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loss": self.loss.state_dict(),
            "order": self.order.get_state(),
            "history": [asdict(record) for record in self.history],
            "best_error": self.best_error,
            "last_best": self.last_best,
            "fingerprint": self.task.fingerprint,
        }

    def _own_state(self) -> dict[str, Tensor]:
        """What differs between processes: the states of the random generators."""
        state = {"noise": self.noise.get_state(), "torch": torch.get_rng_state()}
        if self.fabric.device.type == "cuda":
            state["cuda"] = torch.cuda.get_rng_state(self.fabric.device)
        return state

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        if state["fingerprint"] != self.task.fingerprint:
            raise RunError(
                f"the data has changed since {self.run.path} was started: images, labels or split "
                "differ; start anew in another folder"
            )
        if len(state["processes"]) != self.fabric.world_size:
            raise RunError(
                f"{self.run.path} was started with {len(state['processes'])} processes: "
                "go on with as many (--devices)"
            )
        try:
            _bare(self.network).load_state_dict(state["network"])
        except RuntimeError as error:
            raise RunError(
                f"{self.run.path} was started with another version of cosen, whose network "
                "differs: start anew in another folder"
            ) from error
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loss.load_state_dict(state["loss"])
        self.order.set_state(state["order"])
        self.history = [EpochRecord(**record) for record in state["history"]]
        if self.fabric.is_global_zero:  # a kill may have come between the checkpoint and this
            self.run.write_history(self.history)
        self.best_error, self.last_best = state["best_error"], state["last_best"]
        own = state["processes"][self.fabric.global_rank]
        self.noise.set_state(own["noise"])
        torch.set_rng_state(own["torch"])
        if "cuda" in own:
            torch.cuda.set_rng_state(own["cuda"], self.fabric.device)

    def _augmentation(self) -> Augmentation | None:
        if not self.config.augment:
            return None
        if self.task.features is not None:
            raise InputError("features cannot be augmented: leave --augment out")
        preprocess = self.task.facts.preprocess
        return Augmentation(
            self.config.augment,
            size=(preprocess.height, preprocess.width),
            channels=preprocess.channels,
            num_classes=self.task.num_classes,
            generator=self.noise,
        )

    def _diverged(self, reason: str) -> RunError:
        epoch = len(self.history) + 1
        kept = f"epochs 1 to {epoch - 1} are kept in {self.run.path}" if epoch > 1 else ""
        return RunError(
            f"training diverged in epoch {epoch}: {reason}; use a lower --lr or --set clip=1"
            + (f"; {kept}" if kept else "")
        )


def _set_up(
    fabric: Fabric, network: nn.Module, optimizer: Optimizer
) -> tuple[nn.Module, Optimizer]:
    network_and_optimizer: tuple[nn.Module, Optimizer] = fabric.setup(network, optimizer)
    return network_and_optimizer


def _bare(network: nn.Module) -> nn.Module:
    """The network itself, without what Fabric or averaging put around it."""
    if isinstance(network, AveragedModel | _FabricModule):
        return network.module
    return network


def _gather_states(fabric: Fabric, own: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """The random states of all processes, in their order."""
    if fabric.world_size == 1:
        return [own]
    gathered = {name: all_processes(state.to(fabric.device), fabric) for name, state in own.items()}
    return [
        {name: states[rank].cpu().clone() for name, states in gathered.items()}
        for rank in range(fabric.world_size)
    ]
