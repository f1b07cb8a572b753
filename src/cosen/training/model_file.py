"""A trained model as two files: weights as safetensors, the rest as JSON. Loading runs no code."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cosen.data.batches import Normalise
from cosen.data.preprocess import Preprocess
from cosen.errors import CosenError, RunError
from cosen.networks import Network, as_network, build_network
from cosen.networks.cosine import SCALE, use_cosine_output
from cosen.networks.penultimate import PenultimateFeatures
from cosen.networks.vgg import VGG16Features
from cosen.networks.weights import read_weights
from cosen.training.files import write_text, write_with

FORMAT = 1

OWN = "own"
"""The name of a network that is the user's own module."""


@dataclass(frozen=True)
class ModelFacts:
    """What is needed besides weights to use a network.

    Attributes:
        network: Its name.
        options: What it was built with, besides the number of classes.
        class_names: What its outputs mean.
        class_counts: The training images of each class.
        preprocess: How images are brought to size.
        normalise: Shift and scale of the channels.
        features: ``""`` where the network takes images; ``"vgg16"`` where it takes the features of
            VGG-16's convolutions, or the name of a network whose penultimate features it takes.
            What computes them then is part of the weights.
        feature_options: What that network was built with.
        temperature: Divides the logits for calibrated probabilities.
    """

    network: str
    options: dict[str, Any]
    class_names: tuple[str, ...]
    class_counts: tuple[int, ...]
    preprocess: Preprocess
    normalise: Normalise
    features: str = ""
    feature_options: dict[str, Any] = field(default_factory=dict)
    temperature: float = 1.0


class ImageClassifier(nn.Module):
    """Images to logits: a network, with the frozen features below it where it has some.

    Args:
        network: Gives :class:`~cosen.networks.output.NetworkOutput`.
        backbone: Maps images to what the network takes, or None.
    """

    def __init__(self, network: nn.Module, backbone: nn.Module | None = None) -> None:
        super().__init__()
        self.network = network
        self.backbone = backbone

    def forward(self, images: Tensor) -> Tensor:
        inputs = images if self.backbone is None else self.backbone(images)
        logits: Tensor = self.network(inputs).logits
        return logits


def save_model(folder: Path, classifier: ImageClassifier, facts: ModelFacts) -> None:
    """Write ``model.safetensors`` and ``model.json``, each whole or not at all."""
    weights = {name: t.detach().cpu().contiguous() for name, t in classifier.state_dict().items()}
    write_with(folder / "model.safetensors", lambda path: save_file(weights, path))
    save_facts(folder, facts)


def save_facts(folder: Path, facts: ModelFacts) -> None:
    """Write ``model.json`` alone."""
    plain = {"format": FORMAT, **asdict(facts)}
    write_text(folder / "model.json", json.dumps(plain, indent=2, ensure_ascii=False))


def load_facts(folder: Path) -> ModelFacts:
    """Read ``model.json``."""
    path = folder / "model.json"
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        if plain.pop("format") != FORMAT:
            raise RunError(f"{path} was written by another version of cosen")
        facts = ModelFacts(
            **plain
            | {
                "class_names": tuple(plain["class_names"]),
                "class_counts": tuple(plain["class_counts"]),
                "preprocess": Preprocess(**plain["preprocess"]),
                "normalise": Normalise(**{k: tuple(v) for k, v in plain["normalise"].items()}),
            }
        )
        if not (
            isinstance(facts.options, dict)
            and 0 < facts.temperature < float("inf")
            and len(facts.class_counts) == len(facts.class_names)
            and len(facts.normalise.mean) == len(facts.normalise.std) == facts.preprocess.channels
        ):
            raise RunError(f"{path} is damaged: its entries do not fit each other")
        return facts
    except FileNotFoundError as error:
        if (folder / "metrics.json").exists():
            raise RunError(
                f"{folder} has predictions but no model: its method fits a classifier that is no "
                "network, for comparison only"
            ) from error
        raise RunError(f"{folder} has no model yet: there is no model.json in it") from error
    except CosenError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def build_classifier(
    facts: ModelFacts, network: Callable[[], nn.Module] | None = None
) -> ImageClassifier:
    """The classifier that the facts describe, with random weights."""
    classes = len(facts.class_names)
    backbone: nn.Module | None = None
    if facts.features == "vgg16":
        backbone = VGG16Features()
    elif facts.features:
        below = make_network(facts.features, classes, facts.feature_options, own=network)
        backbone = PenultimateFeatures(below)
    return ImageClassifier(
        make_network(facts.network, classes, facts.options, own=network), backbone
    )


def make_network(
    name: str,
    num_classes: int,
    options: dict[str, Any],
    *,
    own: Callable[[], nn.Module] | None = None,
) -> Network:
    """A network by its name with random weights; ``own`` makes the user's.

    Args:
        name: One of :data:`cosen.networks.NETWORKS`, or :data:`OWN`.
        num_classes: How many logits.
        options: What it is built with.
        own: Makes the module of the user's own.
    """
    if name != OWN:
        return build_network(name, num_classes=num_classes, **options)
    if own is None:
        raise RunError(
            "the model is a module of your own: load it from Python, with "
            "load_model(folder, network=...)"
        )
    network = as_network(own())
    if options.get("output") != "cosine":
        return network
    return use_cosine_output(network, scale=options.get("output_scale", SCALE))


def load_model(
    folder: Path, *, network: Callable[[], nn.Module] | None = None
) -> tuple[ImageClassifier, ModelFacts]:
    """The trained classifier in a run folder, in evaluation mode on the CPU, and its facts.

    Args:
        folder: The run folder.
        network: Makes the module, where the run trained one of the user's own.
    """
    facts = load_facts(folder)
    classifier = build_classifier(facts, network)
    weights = read_weights(folder / "model.safetensors")
    try:
        classifier.load_state_dict(weights)
    except RuntimeError as error:
        raise RunError(
            f"{folder / 'model.safetensors'} does not fit model.json: {error}"
        ) from error
    return classifier.eval(), facts


def calibrated_temperature(logits: Tensor, target: Tensor) -> float:
    """The temperature with the least cross-entropy on validation, drawn a little towards 1.

    The pull is that of ten samples, so that a handful of them decides little. Without a single
    error confidence is never raised: the least cross-entropy would then ask for certainty.
    """
    if not len(target):
        return 1.0
    log_temperature = torch.zeros((), dtype=torch.float64, requires_grad=True)
    logits = logits.double()
    optimizer = torch.optim.LBFGS([log_temperature], max_iter=50, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(logits / log_temperature.exp(), target)
        loss = loss + 10 * log_temperature.square() / 2 / len(target)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    temperature = float(log_temperature.detach().clamp(-3, 3).exp())
    has_errors = bool((logits.argmax(1) != target).any())
    return temperature if has_errors else max(1.0, temperature)
