"""The context of a method: the data, the run folder, and the steps that methods share."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from cosen.data.augmentation import Augmentation
from cosen.data.batches import Batch, FeatureBatches, Share
from cosen.data.features import embed
from cosen.data.labelled import LabelledImages
from cosen.data.stores import printable
from cosen.errors import InputError, RunError
from cosen.methods import Method, NetworkMethod, Samples, Scores, Setting
from cosen.methods.learned_costs import COSINE_SCALE
from cosen.networks.freezing import freeze_but_output, frozen_but_output
from cosen.networks.network import OUTPUT_STD, Network, NetworkOutput, Outputs, PenultimateFeatures
from cosen.networks.pretrained import Joined
from cosen.training.calibration import Calibration, expected_offsets, fit_calibration
from cosen.training.checkpoint import Checkpoint
from cosen.training.config import TrainConfig
from cosen.training.evaluation import run_network, summarise
from cosen.training.finetuning import parameter_groups, start_at_class_means, with_defaults
from cosen.training.folds import training_pool
from cosen.training.head_search import Resample, choose_head, fit_head
from cosen.training.loop import Callbacks, Loop, LoopSettings, make_optimizer
from cosen.training.model_file import (
    ImageClassifier,
    load_model,
    save_model,
)
from cosen.training.records import HeadRecord, ImageNames, RunMetrics
from cosen.training.run_folder import RunFolder
from cosen.training.task import Task
from cosen.training.thumbnails import map_drawer, write_thumbnails

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SCORE_BATCH = 4096
"""Samples that a classifier scores at once."""

OUTPUT_TOLERANCE = 0.05
"""Largest relative difference between the logits and those of the output layer alone."""


@dataclass(frozen=True)
class RunContext:
    """The part of a run that a method uses."""

    config: TrainConfig
    task: Task  # the data and the network
    setting: Setting  # facts about the data
    run: RunFolder
    fabric: "Fabric"  # device, precision and processes
    callbacks: Callbacks
    baseline: RunFolder | None = None  # finished, if the method needs one

    @cached_property
    def setting_with_baseline(self) -> Setting:
        """The setting with the outputs of the baseline, if any, for the validation images."""
        if self.baseline is None:
            return self.setting
        network = self.baseline_classifier().network
        outputs = self._run_network(self.fabric.setup_module(network), self.task.splits.val)
        return replace(self.setting, baseline=outputs)

    @property
    def is_first_process(self) -> bool:
        """Whether this process writes the files."""
        return self.fabric.is_global_zero

    def make_loop(
        self,
        method: NetworkMethod,
        samples: Samples | None = None,
        *,
        resample: Resample | None = None,
    ) -> Loop:
        """Create the training loop of a method, resumed from a checkpoint if there is one.

        ``samples`` replace the training images; ``resample`` is the function that made them.
        """
        config, fabric = self.config, self.fabric
        setting = self.setting_with_baseline if method.starts_from_baseline else self.setting
        head: HeadRecord | None = None
        if self.task.pooled is not None:
            head = self._choose_head(method, setting, resample)
            setting = head.applied_to(setting)
        task = _with_output_layer(self.task, method, setting)
        torch.manual_seed(config.seed)  # the same weights in every process
        network = (
            self._retrained_network(method) if method.retrains_output else task.network(config)
        )
        is_image_network = task.features is None or task.mode == "last"
        if is_image_network and not self._augments(method) and frozen_but_output(network):
            # only the output layer learns: the features below it are computed once
            assert isinstance(network, Network)
            below = network if task.backbone is None else Joined(task.backbone, network)
            below_output = self._embed(PenultimateFeatures(below))
            task = replace(task, features=below_output, flipped=None)
            network = OutputOnly(network)
        elif is_image_network:
            network = network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if config.compile and is_image_network:
            network.compile()
        groups = None
        if head is not None:
            groups = parameter_groups(network, config, output_decay=head.weight_decay)
        loss = method.make_loss(setting).to(fabric.device)
        if head is not None and not method.retrains_output:
            whole = network.whole if isinstance(network, OutputOnly) else network
            assert isinstance(whole, Network)
            self._start_output_layer(method, whole, setting, head, samples)
            assert whole.output_layer is not None
            seen = self._pretrained("train")
            method.observe(loss, whole.output_layer, seen.inputs, seen.target, config.seed)
        order = torch.Generator().manual_seed(config.seed)
        noise = torch.Generator().manual_seed(config.seed * 1000 + fabric.global_rank)
        checkpoint = Checkpoint(self.run, task, fabric, order, noise)
        how: dict[str, Any] = {
            "batch_size": config.batch_size,
            "order": order,
            "device": fabric.device,
            "share": Share(fabric.global_rank, fabric.world_size),
        }
        augment, class_draws = self._augmentation(task, noise), method.class_draws(setting)

        def batches() -> Iterable[Batch]:
            if samples is not None:
                return FeatureBatches(*map(torch.from_numpy, samples), **how)
            return task.batches(
                task.splits.train, augment=augment, class_draws=class_draws, noise=noise, **how
            )

        loop = Loop(
            network,
            loss,
            make_optimizer(network, config, groups),
            LoopSettings.of(config),
            batches=batches,
            validate=lambda evaluated: run_network(
                fabric, evaluated, task, task.splits.val, batch_size=config.batch_size
            ),
            objective=task.objective,
            class_counts=task.model.class_counts,
            fabric=fabric,
            begin_epoch=lambda progress: method.begin_epoch(loss, setting, progress),
            end_epoch=checkpoint.save,
            callbacks=self.callbacks,
            multiplications=_multiplications(task, network, config),
        )
        torch.manual_seed(config.seed + 1 + fabric.global_rank)  # dropout differs by process
        checkpoint.restore(loop)
        return loop

    def on_features(self) -> "RunContext":
        """Return a context whose network is a head on features.

        They are the features of pretrained weights, or those of the baseline's network.
        """
        # these settings apply to the network that takes images
        config = replace(self.config, augment=(), freeze=None, weights=None)
        if self.task.has_features:
            return replace(self, config=config)
        classifier, lower = self.baseline_classifier(), self.task.backbone
        network = classifier.network
        assert isinstance(network, Network)
        backbone = PenultimateFeatures(network if lower is None else Joined(lower, network))
        backbone.eval().requires_grad_(False)
        features = self._embed(backbone)
        backbone.to("cpu")
        model = self.task.model
        joined = {} if lower is None else {"part": "joined"}
        is_pretrained = self.task.pretrained is not None
        model = model.changed(
            network="linear" if is_pretrained else "head",
            options={"in_features": features.shape[1]},
            features=model.network,
            feature_options=_without_output(model.options) | joined,
        )
        task = replace(
            self.task,
            features=features,
            model=model,
            backbone=backbone,
            mode="none" if is_pretrained else "scratch",
            flipped=None,
        )
        if is_pretrained:  # the settings are those of fine-tuning
            unset = dict.fromkeys(("epochs", "lr", "warmup", "clip"))
            config = with_defaults(replace(config, **unset), "none")  # type: ignore[arg-type]
        return replace(self, config=config, task=task)

    def samples(self, part: Literal["train", "val", "test"]) -> Samples:
        """Return the features and the classes of a split."""
        images: LabelledImages = getattr(self.task.splits, part)
        assert self.task.features is not None
        features: Tensor = self.task.features[self.task.feature_rows(images)]
        return features.numpy(), images.labels

    def baseline_classifier(self) -> ImageClassifier:
        """Load the model of the baseline."""
        assert self.baseline is not None
        return load_model(self.baseline.path, network=self.task.own_network)[0]

    def linear_output(self, method: Method, network: nn.Module) -> nn.Linear:
        """Return the output layer of the baseline's network, which a method changes."""
        layer = network.output_layer if isinstance(network, Network) else None
        if not isinstance(layer, nn.Linear):
            raise InputError(f"method {method.name} needs a network whose last layer is linear")
        outputs = self.setting_with_baseline.baseline
        assert outputs is not None
        with torch.no_grad():
            again = layer.cpu()(outputs.features)
        # the norm of all logits: in bfloat16 single logits may differ by more
        if (again - outputs.logits).norm() > OUTPUT_TOLERANCE * outputs.logits.norm():
            raise InputError(
                f"method {method.name} changes the output layer, but the network does more than "
                "that layer after its features: return the logits of the output layer unchanged"
            )
        return layer

    def save_model(self, classifier: ImageClassifier) -> None:
        """Write the model to the run folder."""
        if self.is_first_process:
            save_model(self.run.path, classifier, self.task.model)
        self.fabric.barrier()

    def finish(
        self, *, seconds: float, loss: nn.Module | None = None, draws: np.ndarray | None = None
    ) -> None:
        """Evaluate the best model on validation and test, and write the results.

        ``loss`` and ``draws``, the sampling rates of the classes, say what the outputs mean.
        """
        classifier, model = load_model(self.run.path, network=self.task.own_network)
        network = self.fabric.setup_module(classifier.network)
        val = self._run_network(network, self.task.splits.val)
        test = self._run_network(network, self.task.splits.test)
        if self.is_first_process:
            expected = None if loss is None else expected_offsets(loss, draws)
            classifier.to(self.fabric.device)
            maps = map_drawer(classifier, self.task.decoded.pixels, self.task.model.normalise)
            found = self._write_results(val, test, seconds, expected, maps)
            model.changed(
                temperature=found.temperature, offsets=tuple(found.offsets.tolist())
            ).write(self.run.path)
            self._write_metrics(val, test, found)

    def finish_scores(self, scores: Scores, *, seconds: float) -> None:
        """Write the results of a classifier that is not a network; there is no model file."""

        def outputs(part: Literal["val", "test"]) -> Outputs:
            features, labels = self.samples(part)
            starts = range(0, len(features), SCORE_BATCH)
            found = [scores(features[at : at + SCORE_BATCH]) for at in starts]
            logits = torch.from_numpy(np.concatenate(found)).float()
            return Outputs(logits, logits[:, :0], torch.from_numpy(labels))

        val, test = outputs("val"), outputs("test")
        self._write_metrics(val, test, self._write_results(val, test, seconds))

    def _write_results(
        self,
        val: Outputs,
        test: Outputs,
        seconds: float,
        expected: Tensor | None = None,
        maps: Callable[[np.ndarray], list[str]] | None = None,
    ) -> Calibration:
        """Write predictions, thumbnails and the calibration, and return it."""
        task, splits = self.task, self.task.splits
        parts = {"train": splits.train, "val": splits.val, "test": splits.test}
        names = ImageNames(
            **{part: tuple(map(printable, images.names)) for part, images in parts.items()}
        )
        self.run.write_predictions({"val": val, "test": test}, names)
        write_thumbnails(
            self.run,
            task.decoded.pixels,
            splits.test,
            predicted=test.logits.argmax(1).numpy(),
            class_counts=task.model.class_counts.tolist(),
            maps=maps,
        )
        record = self.run.record()
        if record.tuning is not None:
            seconds += record.tuning.seconds
        if record.head is not None:
            seconds += record.head.seconds
        if self.baseline is not None:
            seconds += self.baseline.record().seconds or 0.0
        counts = task.model.class_counts
        found = fit_calibration(val.logits, val.target, counts, expected=expected)
        record.changed(
            seconds=round(seconds, 3),
            temperature=found.temperature,
            offsets=tuple(found.offsets.tolist()),
        ).write(self.run.path)
        return found

    def _write_metrics(self, val: Outputs, test: Outputs, calibration: Calibration) -> None:
        """Write the metrics; they finish the run."""
        val_metrics, test_metrics = (
            summarise(outputs, objective=self.task.objective, calibration=calibration)
            for outputs in (val, test)
        )
        RunMetrics(val=val_metrics, test=test_metrics).write(self.run.path)

    def _run_network(self, network: nn.Module, part: LabelledImages) -> Outputs:
        return run_network(self.fabric, network, self.task, part, batch_size=self.config.batch_size)

    def _embed(self, backbone: nn.Module) -> Tensor:
        return embed(
            backbone,
            self.task.decoded,
            normalise=self.task.model.normalise,
            batch_size=self.config.batch_size,
            device=self.fabric.device,
            precision=self.config.precision,
        )

    def _retrained_network(self, method: Method) -> nn.Module:
        """The baseline's network with a new output layer; other layers are frozen."""
        network = self.baseline_classifier().network
        output = self.linear_output(method, network)
        assert isinstance(network, Network)
        nn.init.normal_(output.weight, std=OUTPUT_STD)
        if output.bias is not None:
            nn.init.zeros_(output.bias)
        freeze_but_output(network)
        return network

    def _choose_head(
        self, method: NetworkMethod, setting: Setting, resample: Resample | None
    ) -> HeadRecord:
        """Return the form and the decay of the output layer; chosen once, and kept in run.json."""
        head: HeadRecord | None = None
        if self.is_first_process:
            record = self.run.record() if self.run.has_run else None
            head = record.head if record is not None else None
            if head is None:
                head = self._search_head(method, setting, resample)
                if record is not None:
                    record.changed(head=head).write(self.run.path)
                if head.errors:
                    self.callbacks.phase(head.sentence())
        head = self.fabric.broadcast(head)
        assert head is not None
        return head

    def _search_head(
        self, method: NetworkMethod, setting: Setting, resample: Resample | None
    ) -> HeadRecord:
        """Cross-validate on features that have seen no label of these images."""
        train, val = self.task.splits.train, self.task.splits.val
        pool = training_pool(train, val)
        assert self.task.pooled is not None
        features = self.task.pooled[self.task.feature_rows(pool)]
        return choose_head(
            method,
            *(features, pool, setting, self.config),
            is_validation=np.arange(len(pool)) >= len(train),
            resample=resample,
            device=self.fabric.device,
        )

    def _start_output_layer(
        self,
        method: NetworkMethod,
        network: Network,
        setting: Setting,
        head: HeadRecord,
        samples: Samples | None,
    ) -> None:
        """Start at class means, or at an output layer that was trained on frozen features."""
        assert network.output_layer is not None
        if self.task.mode == "none":
            if head.output == "cosine":
                features, labels = self.samples("train") if samples is None else samples
                means = torch.from_numpy(features), torch.from_numpy(labels)
                start_at_class_means(network.output_layer, *means)
            return
        config = replace(
            with_defaults(replace(self.config, epochs=None), "none"),
            weight_decay=head.weight_decay,
        )
        probe = fit_head(
            method,
            *(self._pretrained("train"), self._pretrained("val"), setting, config),
            output=head.output,
            device=self.fabric.device,
        )
        assert probe.output_layer is not None
        network.output_layer.load_state_dict(probe.cpu().output_layer.state_dict())  # type: ignore[union-attr]

    def _pretrained(self, part: Literal["train", "val"]) -> Batch:
        """Return the features of a split before training, and its classes."""
        images = getattr(self.task.splits, part)
        assert self.task.pooled is not None
        features = self.task.pooled[self.task.feature_rows(images)]
        return Batch(features, torch.from_numpy(images.labels))

    def _augments(self, method: NetworkMethod) -> bool:
        return bool(self.config.augment) and not method.retrains_output

    def _augmentation(self, task: Task, noise: torch.Generator) -> Augmentation | None:
        if not self.config.augment or task.flipped is not None:
            return None  # mirrored activations are chosen with the batches
        if task.features is not None:
            if task.mode == "last":
                return None  # the output layer alone is trained
            raise InputError("features cannot be augmented: remove --augment")
        preprocess = task.model.preprocess
        return Augmentation(
            self.config.augment,
            size=(preprocess.height, preprocess.width),
            channels=preprocess.channels,
            num_classes=len(task.model.class_names),
            generator=noise,
        )


def _multiplications(task: Task, network: nn.Module, config: TrainConfig) -> int | None:
    """Return about how many multiplications a step on features needs; None for other inputs."""
    if task.features is None or task.features.ndim > 2:
        return None
    trained = sum(p.numel() for p in network.parameters() if p.requires_grad)
    return config.batch_size * trained


class OutputOnly(nn.Module):
    """The part of a network after its penultimate features; ``whole`` is the whole network."""

    def __init__(self, whole: Network) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, features: Tensor) -> NetworkOutput:
        assert self.whole.output_layer is not None  # frozen_but_output has checked it
        return NetworkOutput(self.whole.output_layer(features), features)


def make_setting(config: TrainConfig, task: Task) -> Setting:
    """Return the facts about the data that a method knows."""
    return Setting(
        class_counts=task.splits.train.class_counts,
        class_names=task.model.class_names,
        objective=task.objective,
        seed=config.seed,
        learns_features=(
            task.features is None
            and task.own_network is None
            and task.pretrained is None
            and not config.freeze
        ),
    )


def _with_output_layer(task: Task, method: NetworkMethod, setting: Setting) -> Task:
    """Return the task with the output layer that a method needs."""
    scale = method.cosine_scale(setting)
    if scale is None and setting.has_cosine_output:
        scale = COSINE_SCALE
    if scale is None:
        return task
    if "output" in task.model.options:
        raise InputError(
            f"method {method.name} has its own output layer: remove network_options.output"
        )
    options = task.model.options | {"output": "cosine", "output_scale": scale}
    return replace(task, model=task.model.changed(options=options))


def _without_output(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if not name.startswith("output")}


def check_baseline(baseline: RunFolder, config: TrainConfig, task: Task) -> None:
    """Raise an error if a method cannot start from this run."""
    if not baseline.is_finished:
        raise RunError(f"{baseline.path} is not finished: resume it first (--resume)")
    record = baseline.record()
    trained, data, problem = record.config, record.prepared, None
    if trained.method != "baseline":
        problem = f"was trained with {trained.method}: use a run of the baseline"
    elif data.fingerprint != task.fingerprint:
        problem = (
            "was trained on other data or another split: use the same --seed, --split, "
            "--imbalance and --objective"
        )
    elif data.network != task.network_name:
        problem = f"is a {data.network}, not a {task.network_name}: use the same --network"
    elif trained.finetune != config.finetune:
        problem = f"was trained with --finetune {trained.finetune}: use the same"
    elif trained.network_options != config.network_options:
        problem = f"has other network_options ({trained.network_options}): use the same"
    if problem is not None:
        raise RunError(f"{baseline.path} {problem}")
