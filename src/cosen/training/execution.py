"""How a method of each kind is carried out, from the task to results in the run folder."""

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from cosen.data.features import embed
from cosen.data.labelled import LabelledImages
from cosen.errors import InputError, RunError
from cosen.methods import (
    AdjustingMethod,
    ClassifierMethod,
    Method,
    NetworkMethod,
    SamplingMethod,
    Setting,
)
from cosen.methods.baseline import Baseline
from cosen.networks.freezing import freeze_but_output
from cosen.networks.initialisation import OUTPUT_STD
from cosen.networks.output import Network, Outputs
from cosen.networks.penultimate import PenultimateFeatures
from cosen.training.config import TrainConfig
from cosen.training.evaluation import run_network
from cosen.training.loop import Training, Watcher
from cosen.training.model_file import (
    ImageClassifier,
    calibrated_temperature,
    load_model,
    save_facts,
    save_model,
)
from cosen.training.results import Results, write_results
from cosen.training.run_folder import RunFolder
from cosen.training.task import Task

PREDICTED_AT_ONCE = 4096
"""Samples that a classifier scores at once."""

OUTPUT_TOLERANCE = 0.05
"""How far logits may be, as a share, from those that the output layer alone gives."""


def needs_baseline(method: Method, task: Task) -> bool:
    """Whether a baseline must be trained before; features of pre-trained weights do without."""
    if isinstance(method, SamplingMethod | ClassifierMethod) and task.features is not None:
        return False
    return method.starts_from_baseline


class Execution:
    """One method on one task, writing to one run folder.

    Args:
        config: The configuration.
        task: What there is to train.
        run: The run folder.
        fabric: The device, the precision and the processes.
        baseline: The finished run of the baseline, where the method needs it.
    """

    def __init__(
        self,
        config: TrainConfig,
        task: Task,
        run: RunFolder,
        fabric: Fabric,
        baseline: RunFolder | None,
    ) -> None:
        self.config, self.task, self.run, self.fabric = config, task, run, fabric
        self.baseline = baseline

    def carry_out(self, method: Method, watching: Callable[[], Watcher]) -> None:
        """Train, adjust or fit as the method's kind asks for, and write the results."""
        setting = make_setting(self.config, self.task)
        if self.baseline is not None and isinstance(method, NetworkMethod | AdjustingMethod):
            network = self._baseline_classifier().network
            outputs = self._run(self.fabric.setup_module(network), self.task.splits.val)
            if isinstance(method, AdjustingMethod) or method.retrains_output:
                _check_output_layer(method, network, outputs)
            setting = replace(setting, baseline=outputs)
        if isinstance(method, NetworkMethod):
            self._train(method, setting, watching())
        elif isinstance(method, SamplingMethod):
            self._train_resampled(method, setting, watching())
        elif isinstance(method, AdjustingMethod):
            self._adjust(method, setting)
        elif isinstance(method, ClassifierMethod):
            self._fit(method, setting)
        else:
            raise InputError(
                f"method {method.name} is of no known kind: derive it from NetworkMethod, "
                "SamplingMethod, ClassifierMethod or AdjustingMethod"
            )

    # The four kinds

    def _train(
        self, method: NetworkMethod, setting: Setting, watcher: Watcher, *, seconds: float = 0.0
    ) -> None:
        self.task = with_output_layer(self.task, method, setting)
        network = self._retrained_network if method.retrains_output else None
        training = Training(
            self.config, self.task, method, setting, self.run, self.fabric, network=network
        )
        state = self.run.checkpoint()
        self.fabric.barrier()  # all have looked before the first writes
        if state is not None:
            training.resume(state)
        training.fit(watcher)
        seconds += sum(record.seconds for record in training.history)
        self._finish_network(seconds)

    def _train_resampled(self, method: SamplingMethod, setting: Setting, watcher: Watcher) -> None:
        start = time.perf_counter()
        self._use_features()
        features, labels = method.resample(*self._samples(self.task.splits.train), setting)
        resampled = torch.from_numpy(features), torch.from_numpy(labels)
        self.task = replace(self.task, resampled=resampled)
        # what these settings say, they say of the network that takes images
        self.config = replace(self.config, augment=(), freeze=None, weights=None)
        seconds = time.perf_counter() - start
        self._train(Baseline(), setting, watcher, seconds=seconds)

    def _adjust(self, method: AdjustingMethod, setting: Setting) -> None:
        start = time.perf_counter()
        classifier = self._baseline_classifier()
        output = _output_layer(classifier.network)
        if not isinstance(output, nn.Linear) or output.bias is None:
            raise InputError(
                f"method {method.name} changes a linear output layer with a bias, which "
                f"{self.task.facts.network} does not have"
            )
        method.adjust(output, setting)
        if self.fabric.is_global_zero:
            save_model(self.run.path, classifier, self.task.facts)
        self.fabric.barrier()
        self._finish_network(time.perf_counter() - start)

    def _fit(self, method: ClassifierMethod, setting: Setting) -> None:
        start = time.perf_counter()
        self._use_features()
        if not self.fabric.is_global_zero:
            return
        scores = method.fit(*self._samples(self.task.splits.train), setting)
        seconds = time.perf_counter() - start + self._seconds_before()

        def outputs(part: str) -> Outputs:
            features, labels = self._samples(getattr(self.task.splits, part))
            starts = range(0, len(features), PREDICTED_AT_ONCE)
            found = [scores(features[at : at + PREDICTED_AT_ONCE]) for at in starts]
            logits = torch.from_numpy(np.concatenate(found)).float()
            return Outputs(logits, logits[:, :0], torch.from_numpy(labels))

        results = Results(outputs("val"), outputs("test"), seconds)
        temperature = calibrated_temperature(results.val.logits, results.val.target)
        write_results(self.run, self.task, results, temperature=temperature)

    # What they share

    def _finish_network(self, seconds: float) -> None:
        """Run the network that was kept over validation and test, and write what it says."""
        classifier, facts = load_model(self.run.path, network=self.task.own_network)
        network = self.fabric.setup_module(classifier.network)
        val = self._run(network, self.task.splits.val)
        test = self._run(network, self.task.splits.test)
        if self.fabric.is_global_zero:
            results = Results(val, test, seconds + self._seconds_before())
            temperature = calibrated_temperature(val.logits, val.target)
            save_facts(self.run.path, replace(facts, temperature=temperature))
            write_results(self.run, self.task, results, temperature=temperature)

    def _run(self, network: nn.Module, part: LabelledImages) -> Outputs:
        return run_network(self.fabric, network, self.task, part, batch_size=self.config.batch_size)

    def _seconds_before(self) -> float:
        """What the baseline took, where the method starts from it, or choosing its options."""
        tuning: float = self.run.about().get("tuned", {}).get("seconds", 0.0)
        return tuning + (0.0 if self.baseline is None else self.baseline.seconds or 0.0)

    def _baseline_classifier(self) -> ImageClassifier:
        assert self.baseline is not None  # needs_baseline has seen to it
        return load_model(self.baseline.path, network=self.task.own_network)[0]

    def _retrained_network(self) -> nn.Module:
        """The baseline's network with a new output layer, all else frozen."""
        network = self._baseline_classifier().network
        output = _output_layer(network)
        if not isinstance(output, nn.Linear):
            raise InputError("only a linear output layer can be trained anew")
        nn.init.normal_(output.weight, std=OUTPUT_STD)
        if output.bias is not None:
            nn.init.zeros_(output.bias)
        assert isinstance(network, Network)
        freeze_but_output(network)
        return network

    def _use_features(self) -> None:
        """Turn a task of images into one of the baseline's penultimate features."""
        if self.task.features is not None:
            return
        backbone = PenultimateFeatures(self._baseline_classifier().network)
        backbone.eval().requires_grad_(False)
        features = embed(
            backbone,
            self.task.decoded,
            normalise=self.task.facts.normalise,
            batch_size=self.config.batch_size,
            device=self.fabric.device,
            precision=self.config.precision,
        )
        facts = self.task.facts
        facts = replace(
            facts,
            network="head",
            options={"in_features": features.shape[1]},
            features=facts.network,
            feature_options=facts.options,
        )
        backbone.to("cpu")
        self.task = replace(self.task, features=features, facts=facts, backbone=backbone)

    def _samples(self, part: LabelledImages) -> tuple[np.ndarray, np.ndarray]:
        """The features and classes of a part."""
        assert self.task.features is not None
        features: Tensor = self.task.features[self.task.feature_rows(part)]
        return features.numpy(), part.labels


def make_setting(config: TrainConfig, task: Task) -> Setting:
    """What a method knows of the data."""
    return Setting(
        class_counts=task.splits.train.class_counts,
        class_names=task.facts.class_names,
        objective=task.objective,
        seed=config.seed,
        learns_features=task.features is None and task.own_network is None and not config.freeze,
    )


def with_output_layer(task: Task, method: NetworkMethod, setting: Setting) -> Task:
    """The task with the output layer that a method asks for."""
    scale = method.cosine_scale(setting)
    if scale is None:
        return task
    if "output" in task.facts.options:
        raise InputError(
            f"method {method.name} brings an output layer of its own: leave network_options.output "
            "out"
        )
    options = task.facts.options | {"output": "cosine", "output_scale": scale}
    return replace(task, facts=replace(task.facts, options=options))


def check_baseline(baseline: RunFolder, config: TrainConfig, task: Task) -> None:
    """Refuse a run that a method cannot start from."""
    about = baseline.about()
    if not baseline.is_finished:
        raise RunError(f"{baseline.path} is not finished: go on with it first (--resume)")
    if about["config"]["method"] != Baseline.name:
        raise RunError(
            f"{baseline.path} was trained with {about['config']['method']}: methods start from a "
            "baseline"
        )
    if about.get("fingerprint") != task.fingerprint:
        raise RunError(
            f"{baseline.path} was trained on other data or another split: use the same --seed, "
            "--split, --imbalance and --objective"
        )
    if about["network"]["name"] != task.facts.network:
        raise RunError(
            f"{baseline.path} is a {about['network']['name']}, not a {task.facts.network}: use the "
            "same --network"
        )
    if about["config"]["network_options"] != config.network_options:
        raise RunError(
            f"{baseline.path} has other network_options ({about['config']['network_options']}): "
            "use the same"
        )


def _check_output_layer(method: Method, network: nn.Module, outputs: Outputs) -> None:
    """Refuse a network of the user's that does more than its output layer after the features."""
    layer = _output_layer(network)
    if not isinstance(layer, nn.Linear):
        raise InputError(f"method {method.name} needs a network whose last layer is linear")
    with torch.no_grad():
        again = layer.cpu()(outputs.features)
    # in bfloat16 single logits may be off by more than the whole is
    if (again - outputs.logits).norm() > OUTPUT_TOLERANCE * outputs.logits.norm():
        raise InputError(
            f"method {method.name} changes the output layer, but the network does more than that "
            "layer after its features: return the output layer's logits as they are"
        )


def _output_layer(network: nn.Module) -> nn.Module | None:
    return network.output_layer if isinstance(network, Network) else None
