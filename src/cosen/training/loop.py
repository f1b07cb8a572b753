"""The training loop: Algorithm 1 of the paper.

``cosen train``, ``cosen tune`` and ``CosenClassifier`` all train with :class:`Loop`. In each epoch
the network learns with fixed costs, the validation samples are evaluated, and learned costs take
a step.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from cosen import functional as F
from cosen.costs import CostStep, LearnedCosts, Objective
from cosen.data.batches import Batch
from cosen.errors import InputError, RunError
from cosen.networks.network import Outputs
from cosen.training.config import TrainConfig
from cosen.training.records import EpochRecord

if TYPE_CHECKING:
    from lightning_fabric import Fabric

_seeding = threading.Lock()

SHARED_WORK = 2**25
"""Multiplications of a step from which several threads are faster than one."""

WARMUP_START = 0.1
"""Share of the learning rate that a warm-up starts with."""


@dataclass(frozen=True)
class LoopSettings:
    """Settings of the loop; :class:`~cosen.training.config.TrainConfig` explains each."""

    epochs: int
    lr: float
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    warmup: float = 0.0
    accumulate: int = 1
    clip: float = 0.0
    ema: float = 0.0
    patience: int = 0

    @classmethod
    def of(cls, config: TrainConfig) -> Self:
        """Return the loop settings of a run."""
        return cls(**{field.name: getattr(config, field.name) for field in fields(cls)})


@dataclass(frozen=True)
class Callbacks:
    """Functions that are called while a run trains.

    Attributes:
        reading: Called while images are read, with the number done and the total.
        batch: Called after each batch, with the number done and the total of all epochs.
        epoch: Called after each epoch.
        phase: Called with a title when another phase starts: tuning, or training a baseline.
    """

    reading: Callable[[int, int], None] | None = None
    batch: Callable[[int, int], None] = lambda _, __: None
    epoch: Callable[[EpochRecord], None] = lambda _: None
    phase: Callable[[str], None] = lambda _: None


class Loop:
    """Trains a network with a loss whose costs may be learned.

    Args:
        network: Returns :class:`~cosen.networks.network.NetworkOutput`.
        loss: Called with logits and targets. :class:`~cosen.costs.LearnedCosts` take a step after
            each epoch. Losses per sample are averaged with the sample weights of the batch.
        optimizer: Updates the network.
        settings: Epochs, learning rate and other settings.
        batches: Returns the training batches of an epoch; they have a length.
        validate: Returns the outputs of a network for the validation samples; None if there are
            no validation samples.
        objective: What validation measures.
        class_counts: Training samples per class; they decide which classes are rare.
        fabric: Device, precision and processes; None to train in this process.
        begin_epoch: Called before each epoch with the share of finished epochs.
        end_epoch: Called after each epoch, before the callback, to save the state.
        callbacks: Called with progress.
        multiplications: About how many a step on features needs; None for images. Few of them are
            faster in one thread.

    Attributes:
        history: A record of each epoch.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: nn.Module,
        optimizer: Optimizer,
        settings: LoopSettings,
        *,
        batches: Callable[[], Iterable[Batch]],
        validate: Callable[[nn.Module], Outputs] | None,
        objective: Objective,
        class_counts: Tensor,
        fabric: "Fabric | None" = None,
        begin_epoch: Callable[[float], None] = lambda _: None,
        end_epoch: Callable[["Loop", CostStep | None], None] = lambda _, __: None,
        callbacks: Callbacks | None = None,
        multiplications: int | None = None,
    ) -> None:
        self.multiplications = SHARED_WORK if multiplications is None else multiplications
        self.bare_network = network
        if fabric is not None:
            network, optimizer = fabric.setup(network, optimizer)
        self.average: AveragedModel | None = None
        if settings.ema:
            decay = get_ema_multi_avg_fn(settings.ema)  # type: ignore[no-untyped-call]
            self.average = AveragedModel(self.bare_network, multi_avg_fn=decay, use_buffers=True)
        self.network, self.loss, self.optimizer = network, loss, optimizer
        self.settings, self.objective, self.fabric = settings, objective, fabric
        self.batches, self.validate = batches, validate
        self.begin_epoch, self.end_epoch = begin_epoch, end_epoch
        self.callbacks = callbacks or Callbacks()
        self.rare = rare_classes(class_counts)
        self.history: list[EpochRecord] = []
        self.best_error, self.best_epoch = math.inf, 0
        self.lr = settings.lr

    def fit(self) -> None:
        """Train until the last epoch, or until the validation error stops improving."""
        epochs = self.settings.epochs
        with few_threads(self.multiplications):
            while len(self.history) < epochs and not self._is_out_of_patience():
                start, done = time.perf_counter(), len(self.history)
                self.network.train()
                self.begin_epoch(done / epochs)
                batches = self.batches()
                count = len(batches)  # type: ignore[arg-type]
                sums: tuple[Any, Any, int] = 0.0, 0, 0  # of losses, wrong samples, and samples
                for number, batch in enumerate(batches):  # θ: the weights, with fixed costs
                    loss, wrong, samples = self.train_batch(batch, number, count)
                    sums = sums[0] + loss, sums[1] + wrong, sums[2] + samples
                    self.callbacks.batch(done * count + number + 1, epochs * count)
                trained = time.perf_counter() - start
                outputs = self.validate(self.evaluated) if self.validate else None
                step = None
                if outputs is not None and isinstance(self.loss, LearnedCosts):  # ξ: the costs
                    step = self.loss.step(outputs.logits, outputs.target, outputs.features)
                    self._share_costs(self.loss)
                seconds = time.perf_counter() - start
                self.history.append(self._record(sums, outputs, step, trained, seconds))
                self.end_epoch(self, step)
                self.callbacks.epoch(self.history[-1])

    def _share_costs(self, loss: LearnedCosts) -> None:
        """Use the costs of the first process: other processors may round differently."""
        if self.fabric is not None and self.fabric.world_size > 1:
            loss.load_state_dict(self.fabric.broadcast(loss.state_dict()))

    def train_batch(self, batch: Batch, number: int, count: int) -> tuple[Tensor, Tensor, int]:
        """Run one batch forward and backward, and step if enough gradients were summed.

        Returns:
            The summed loss, the number of wrong samples and the number of samples.
        """
        accumulate, epochs = self.settings.accumulate, self.settings.epochs
        is_last = (number + 1) % accumulate == 0 or number + 1 == count
        summed = min(accumulate, count - (number - number % accumulate))  # batches per step
        with self._synchronised(is_last):
            logits = self.network(batch.inputs).logits
            try:
                loss = self.loss(logits, batch.target)
            except InputError as error:
                raise self._diverged(str(error)) from error
            if loss.ndim:
                weight = batch.sample_weight
                loss = loss.mean() if weight is None else (loss * weight).sum() / weight.sum()
            self._backward(loss * (batch.weight / summed))
        if is_last:
            if self.settings.clip:
                self._clip_gradients()
            progress = (len(self.history) + number / count) / epochs
            self.lr = learning_rate(self.settings, progress)
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr * group.get("lr_factor", 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            if self.average is not None:
                self.average.update_parameters(self.bare_network)
        counted = len(batch.inputs) * (batch.weight > 0)
        classes = batch.target if batch.target.ndim == 1 else batch.target.argmax(1)
        wrong = (logits.detach().argmax(1) != classes).sum() * (batch.weight > 0)
        return loss.detach() * counted, wrong, counted

    @property
    def evaluated(self) -> nn.Module:
        """The network that is validated and saved: the average, if there is one."""
        return self.network if self.average is None else self.average

    @property
    def bare_evaluated(self) -> nn.Module:
        """The validated network without wrappers."""
        return self.bare_network if self.average is None else self.average.module

    def state(self) -> dict[str, Any]:
        """Return the state that :meth:`load_state` restores; the same in all processes."""
        return {
            "network": self.bare_network.state_dict(),
            "average": None if self.average is None else self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loss": self.loss.state_dict(),
            "history": [asdict(record) for record in self.history],
            "best_error": self.best_error,
            "best_epoch": self.best_epoch,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a state."""
        self.bare_network.load_state_dict(state["network"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.loss.load_state_dict(state["loss"])
        self.history = [EpochRecord(**record) for record in state["history"]]
        self.best_error, self.best_epoch = state["best_error"], state["best_epoch"]

    def _record(
        self,
        sums: tuple[Tensor, Tensor, int],
        outputs: Outputs | None,
        step: CostStep | None,
        trained: float,
        seconds: float,
    ) -> EpochRecord:
        totals = torch.stack([sums[0], sums[1], sums[1].new_tensor(sums[2])])
        if self.fabric is not None:
            totals = self.fabric.all_reduce(totals, reduce_op="sum")  # type: ignore[assignment]
        if not bool(totals.isfinite().all()):
            raise self._diverged("the loss is not finite")
        loss, wrong, samples = totals.tolist()
        epoch, best = len(self.history) + 1, True
        measured: dict[str, float | None] = dict.fromkeys(
            ("val_error", "val_accuracy", "mean_recall", "rare_recall")
        )
        if outputs is not None:
            confusion = outputs.confusion()
            error = self.objective.error(confusion)
            # if epochs differ only by noise, the later one is better: it trained longer
            best = error <= self.best_error + self.objective.noise(confusion)
            if error < self.best_error:
                self.best_error, self.best_epoch = error, epoch
            measured = {
                "val_error": error,
                "val_accuracy": float(F.overall_accuracy(confusion)),
                "mean_recall": float(F.mean_recall(confusion)),
                "rare_recall": float(F.class_recall(confusion)[self.rare].nanmean()),
            }
        return EpochRecord(
            epoch=epoch,
            lr=self.lr,
            train_loss=loss / samples,
            train_error=wrong / samples,
            seconds=seconds,
            images_per_second=samples / trained,
            cost_accepted=None if step is None else step.accepted,
            cost_lr=getattr(step, "cost_lr", None),
            best=best,
            **measured,
        )

    def _is_out_of_patience(self) -> bool:
        return 0 < self.settings.patience <= len(self.history) - self.best_epoch

    def _synchronised(self, is_last: bool) -> AbstractContextManager[Any]:
        """Exchange gradients between processes only with the last batch of a step."""
        if self.fabric is None:
            return nullcontext()
        return self.fabric.no_backward_sync(self.network, enabled=not is_last)  # type: ignore[arg-type]

    def _backward(self, loss: Tensor) -> None:
        if self.fabric is None:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self.fabric.backward(loss)

    def _clip_gradients(self) -> None:
        if self.fabric is None:
            nn.utils.clip_grad_norm_(self.network.parameters(), self.settings.clip)
        else:
            self.fabric.clip_gradients(self.network, self.optimizer, max_norm=self.settings.clip)

    def _diverged(self, reason: str) -> "Diverged":
        return Diverged(
            f"training diverged in epoch {len(self.history) + 1}: {reason}; use a lower learning "
            "rate (--lr) or clip gradients (--set clip=1)"
        )


class Diverged(RunError):
    """Training with a loss that is not finite."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw initial weights from a seed, and restore torch's global generator afterwards."""
    with _seeding, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def rare_classes(class_counts: Tensor) -> list[int]:
    """Return the rarest third of the classes, at least one."""
    order = class_counts.argsort(stable=True).tolist()
    return order[: max(1, len(order) // 3)]


def make_optimizer(
    network: nn.Module, config: TrainConfig, groups: list[dict[str, Any]] | None = None
) -> Optimizer:
    """Create SGD with momentum, or AdamW, for the parameters that are not frozen.

    ``groups`` of parameters may have their own learning rates and weight decays.
    """
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    assert config.lr is not None
    lr, decay = config.lr, config.weight_decay or 0.0
    if config.optimizer == "adamw":
        return AdamW(groups or trained, lr=lr, weight_decay=decay)
    return SGD(
        groups or trained,
        lr=lr,
        momentum=config.momentum,
        weight_decay=decay,
        nesterov=config.momentum > 0,
    )


def learning_rate(settings: LoopSettings, progress: float) -> float:
    """Return the learning rate at a share of the run between 0 and 1.

    Example:
        >>> [round(learning_rate(LoopSettings(epochs=1, lr=1.0), p), 2) for p in (0, 0.5, 1)]
        [1.0, 0.5, 0.0]
    """
    if progress < settings.warmup:
        return settings.lr * (WARMUP_START + (1 - WARMUP_START) * progress / settings.warmup)
    if settings.schedule == "cosine":
        return settings.lr * (1 + math.cos(math.pi * progress)) / 2
    if settings.schedule == "step":
        return settings.lr * 0.1 ** ((progress >= 0.5) + (progress >= 0.75))
    return settings.lr


_thread_lock = threading.Lock()
_threads, _fits = 1, 0


@contextmanager
def few_threads(multiplications: int) -> Iterator[None]:
    """Use one thread if a step is small, and restore the number of threads afterwards.

    On busy cores, several threads that synchronise in every step can be ten times slower.
    """
    global _threads, _fits
    if multiplications >= SHARED_WORK:
        yield
        return
    with _thread_lock:
        if _fits == 0:  # other fits may run at the same time, in threads
            _threads = torch.get_num_threads()
        _fits += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _thread_lock:
            _fits -= 1
            torch.set_num_threads(_threads)
