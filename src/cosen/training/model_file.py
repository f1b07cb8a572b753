"""A trained model in two files, safetensors and JSON. Loading them runs no code."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor, nn

from cosen.errors import CosenError, InputError, RunError
from cosen.networks import as_network, build_network
from cosen.networks.network import PenultimateFeatures
from cosen.networks.output_layers import SCALE, use_cosine_output
from cosen.networks.pretrained import LowerPart
from cosen.networks.vgg import VGG16Features
from cosen.networks.weights import read_weights
from cosen.training import checksums
from cosen.training.records import ModelInfo

WEIGHTS = "model.safetensors"

OWN = "own"
"""The name of a custom network."""


class ImageClassifier(nn.Module):
    """Maps images to logits: an optional frozen backbone, then a network."""

    def __init__(self, network: nn.Module, backbone: nn.Module | None = None) -> None:
        super().__init__()
        self.network = network
        self.backbone = backbone

    def forward(self, images: Tensor) -> Tensor:
        inputs = images if self.backbone is None else self.backbone(images)
        logits: Tensor = self.network(inputs).logits
        return logits


def save_model(folder: Path, classifier: ImageClassifier, info: ModelInfo) -> None:
    """Write ``model.safetensors`` and ``model.json``."""
    weights = {name: t.detach().cpu().contiguous() for name, t in classifier.state_dict().items()}
    checksums.write_checked(folder / WEIGHTS, lambda path: save_file(weights, path))
    info.write(folder)


def load_info(folder: Path) -> ModelInfo:
    """Read ``model.json``."""
    missing = "there is no model yet"
    if (folder / "metrics.json").exists():
        missing = "its method fits a classifier that is not a network, which is not stored"
    info = ModelInfo.read(folder, missing=missing)
    channels = info.preprocess.channels
    if not (
        1e-6 < info.temperature < 1e6
        and len(set(info.class_names)) == len(info.class_names) > 0
        and len(info.class_counts) == len(info.class_names)
        and len(info.offsets) in (0, len(info.class_names))
        and len(info.normalise.mean) == len(info.normalise.std) == channels
    ):
        raise RunError(f"{folder / ModelInfo.FILE} is damaged: its entries contradict each other")
    return info


def build_classifier(
    info: ModelInfo, network: Callable[[], nn.Module] | None = None
) -> ImageClassifier:
    """Build the classifier that ``model.json`` describes, with random weights."""
    classes = len(info.class_names)
    backbone: nn.Module | None = None
    if info.has_vgg_features:
        backbone = VGG16Features()
    elif info.features:
        below = make_network(info.features, classes, info.feature_options, own=network)
        backbone = below if isinstance(below, LowerPart) else PenultimateFeatures(below)
    return ImageClassifier(make_network(info.network, classes, info.options, own=network), backbone)


def make_network(
    name: str,
    num_classes: int,
    options: dict[str, Any],
    *,
    own: Callable[..., nn.Module] | None = None,
) -> nn.Module:
    """Create a network with random weights, by its name or with the user's function ``own``."""
    if name != OWN:
        return build_network(name, num_classes=num_classes, **options)
    if own is None:
        raise RunError(
            "the run trained a custom network: name it again (--network my_module:make), or use "
            "cosen.load(folder, network=...)"
        )
    takes_classes = "num_classes" in inspect.signature(own).parameters
    try:
        made = own(num_classes=num_classes) if takes_classes else own()
    except CosenError:
        raise
    except Exception as error:
        raise InputError(
            f"your function that makes the network failed: {type(error).__name__}: {error}"
        ) from error
    network = as_network(made)
    if options.get("output") != "cosine":
        return network
    return use_cosine_output(network, scale=options.get("output_scale", SCALE))


def load_model(
    folder: Path, *, network: Callable[[], nn.Module] | None = None
) -> tuple[ImageClassifier, ModelInfo]:
    """Load the classifier of a run, in evaluation mode on the CPU, and its ``model.json``.

    ``network`` creates the network, if the run trained a custom one.
    """
    info = load_info(folder)
    classifier = build_classifier(info, network)
    path = folder / WEIGHTS
    if path.is_file():  # else read_weights raises the error
        checksums.check(path)
    weights = read_weights(path)
    of_timm = {f"network.module.{name}": weight for name, weight in weights.items()}
    if of_timm.keys() == classifier.state_dict().keys():  # a folder for the hub
        weights = of_timm
    try:
        classifier.load_state_dict(weights)
    except RuntimeError as error:
        raise RunError(f"{path} does not fit model.json: {error}") from error
    return classifier.eval(), info
