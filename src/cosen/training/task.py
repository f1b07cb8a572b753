"""From a configuration to what is trained on: splits, inputs, and the network that fits them."""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from cosen.costs import Objective
from cosen.data.augmentation import Augmentation
from cosen.data.batches import (
    GREY,
    IMAGENET,
    Batch,
    Batches,
    FeatureBatches,
    Normalise,
    Share,
)
from cosen.data.cache_folder import key_of
from cosen.data.decoding import Progress
from cosen.data.features import embed
from cosen.data.image_cache import DecodedImages, decode_images
from cosen.data.imbalance import parse_imbalance
from cosen.data.labelled import LabelledImages
from cosen.data.open import open_data
from cosen.data.preprocess import Preprocess
from cosen.data.splits import (
    CountSplit,
    FoldSplit,
    FractionSplit,
    OfficialSplit,
    Split,
    Splits,
    split_images,
)
from cosen.errors import BrokenImageError, DataError, InputError
from cosen.methods.cost_table import read_misclassification_costs
from cosen.networks import NETWORKS, find_network
from cosen.networks.freezing import freeze
from cosen.networks.vgg import VGG16Features
from cosen.networks.weights import fetch_weights, load_weights
from cosen.training.config import TrainConfig
from cosen.training.model_file import OWN, ImageClassifier, ModelFacts, make_network

SMALL = 64
"""Images up to this side go to the small network as they are."""

DOWNLOADABLE = ("vgg16",)
"""Weights that can be asked for by name."""

FEATURE_SIZE = 128
"""The side of images whose features are computed by VGG-16, unless told otherwise."""

_log = logging.getLogger("cosen")


@dataclass(frozen=True)
class Task:
    """What there is to train.

    Attributes:
        splits: The data, taken apart.
        facts: What is known of the model before it is trained.
        fingerprint: Changes with any image, label or place in the splits.
        decoded: The pixels.
        features: The features of all images, where the network takes features.
        backbone: What computed them.
        objective: What validation measures.
        own_network: Makes the user's own network, where it is not one of ours.
        resampled: Features and classes to train on in place of those of the training split.
    """

    splits: Splits
    facts: ModelFacts
    fingerprint: str
    decoded: DecodedImages
    features: Tensor | None = None
    backbone: nn.Module | None = None
    objective: Objective = "overall"
    own_network: Callable[[], nn.Module] | None = None
    resampled: tuple[Tensor, Tensor] | None = None

    @property
    def num_classes(self) -> int:
        return len(self.facts.class_names)

    def batches(
        self,
        part: LabelledImages,
        *,
        batch_size: int,
        order: torch.Generator | None = None,
        augment: Augmentation | None = None,
        device: torch.device | str = "cpu",
        share: Share | None = None,
        chances: Tensor | None = None,
    ) -> Iterable[Batch]:
        """A pass over a part of the data, images or features as the network takes them."""
        if self.features is None:
            return Batches(
                self.decoded,
                part,
                batch_size=batch_size,
                normalise=self.facts.normalise,
                order=order,
                augment=augment,
                device=device,
                share=share,
                chances=chances,
            )
        return FeatureBatches(
            self.features,
            torch.from_numpy(part.labels),
            rows=self.feature_rows(part),
            batch_size=batch_size,
            order=order,
            device=device,
            share=share,
            chances=chances,
        )

    def train_batches(
        self,
        *,
        batch_size: int,
        order: torch.Generator,
        class_draws: np.ndarray | None = None,
        augment: Augmentation | None = None,
        device: torch.device | str = "cpu",
        share: Share | None = None,
    ) -> Iterable[Batch]:
        """A pass over what is trained on, in random order.

        Args:
            batch_size: Samples in a batch, over all processes.
            order: Draws the order.
            class_draws: How often a sample of each class is drawn, against the others, shape
                ``(C,)``; None takes each once.
            augment: Changes images, or None.
            device: Where the tensors go.
            share: Which of several processes this is.
        """
        labels = self.splits.train.labels
        if self.resampled is not None:
            features, target = self.resampled
            return FeatureBatches(
                features, target, batch_size=batch_size, order=order, device=device, share=share
            )
        chances = None if class_draws is None else torch.from_numpy(class_draws[labels])
        return self.batches(
            self.splits.train,
            batch_size=batch_size,
            order=order,
            augment=augment,
            device=device,
            share=share,
            chances=chances,
        )

    @property
    def train_size(self) -> int:
        """Samples in a pass over what is trained on."""
        return len(self.splits.train if self.resampled is None else self.resampled[1])

    def feature_rows(self, part: LabelledImages) -> Tensor:
        """Where the features of a part stand in :attr:`features`."""
        # they are in the order of the decoded data, whose rows ascend
        return torch.from_numpy(np.searchsorted(self.decoded.data.rows, part.rows))

    def network(self, config: TrainConfig) -> nn.Module:
        """A new network for this task, its weights drawn from torch's generator or loaded."""
        network = make_network(
            self.facts.network, self.num_classes, self.facts.options, own=self.own_network
        )
        if config.weights and self.backbone is None:
            loaded = load_weights(network, _weights_file(config.weights))
            if loaded.random:
                _log.warning("drawn at random, not in the file: %s", ", ".join(loaded.random))
        if config.freeze:
            freeze(network, config.freeze)
        return network

    def classifier(self, network: nn.Module) -> ImageClassifier:
        """From images to logits, whatever the network takes."""
        return ImageClassifier(network, self.backbone)


def make_task(
    config: TrainConfig,
    *,
    progress: Progress | None = None,
    expert: list[list[float]] | None = None,
    own_network: Callable[[], nn.Module] | None = None,
) -> Task:
    """Read, decode and split the data, and choose the network, as the configuration says.

    Args:
        config: The configuration.
        progress: Told how far it is.
        expert: Misclassification costs that were read before, in place of ``config.expert``.
        own_network: Makes the user's own network, in place of a named one.
    """
    root = Path(config.data_root).expanduser() if config.data_root else None
    data = open_data(config.data, root=root, exclude=config.exclude)
    how = parse_split(config.split, data)
    name, preprocess, normalise = _choose_network(config, data)
    if own_network is not None:
        name = OWN
    decoded = decode_images(data, preprocess, skip_broken=config.skip_broken, progress=progress)
    splits = split_images(
        decoded.data,
        how,
        seed=config.seed,
        imbalance=parse_imbalance(config.imbalance) if config.imbalance else None,
        validation=config.validation,
    )
    if not len(splits.val):
        why = "every class has fewer than three training images: add some"
        if not config.validation:
            why = "validation is 0: set it to a share such as 0.05"
        raise DataError(f"{data.source}: nothing is left to validate on, as {why}")
    backbone, features = None, None
    options: dict[str, Any] = {"channels": preprocess.channels, **config.network_options}
    if name == "head":
        backbone = _backbone(config)
        features = embed(
            backbone,
            decoded,
            normalise=normalise,
            device=resolve_device(config.device),
            precision=config.precision,
            progress=progress,
        )
        backbone.to("cpu")
        options = {"in_features": features.shape[1], "normalise": True, **config.network_options}
    facts = ModelFacts(
        network=name,
        options=options,
        class_names=data.class_names,
        class_counts=tuple(splits.train.class_counts.tolist()),
        preprocess=preprocess,
        normalise=normalise,
        features="vgg16" if backbone is not None else "",
    )
    parts = (splits.train, splits.val, splits.test)
    objective: Objective = config.objective
    if expert is not None:
        objective = torch.tensor(expert)
    elif config.expert:
        objective = read_misclassification_costs(Path(config.expert).expanduser(), data.class_names)
    fingerprint = key_of(
        decoded.key,
        data.class_names,
        objective.numpy().tobytes() if isinstance(objective, Tensor) else objective,
        *(array.tobytes() for part in parts for array in (part.rows, part.labels)),
    )
    return Task(splits, facts, fingerprint, decoded, features, backbone, objective, own_network)


def parse_split(text: str, data: LabelledImages) -> Split:
    """The kind of split that a text such as ``fraction:0.6`` or ``fold:1/3`` asks for.

    Folds are counted from 1. ``fold:seed/3`` takes them in turn by the seed of the run, so that
    three seeds are one whole cross-validation.
    """
    kind, _, value = text.partition(":")
    try:
        match kind:
            case "auto":
                if len(data.part("test")) or len(data.part("val")):
                    return OfficialSplit(test=0.2)
                return FractionSplit(0.8)
            case "official":
                return OfficialSplit()
            case "fraction":
                return FractionSplit(float(value))
            case "count":
                train, _, test = value.partition("/")
                return CountSplit(int(train), int(test) if test else None)
            case "fold":
                fold, _, folds = value.partition("/")
                return FoldSplit(int(folds), None if fold == "seed" else int(fold) - 1)
    except ValueError:
        pass
    raise InputError(
        f"split {text!r} is not known: write auto, official, fraction:0.6, count:30, count:30/50, "
        "fold:1/3 or fold:seed/3"
    )


def resolve_device(device: str) -> str:
    """``auto`` is the accelerator of this machine if it has one."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(device, True):
        raise InputError(f"there is no {device} device here: use --device cpu or auto")
    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def _choose_network(config: TrainConfig, data: LabelledImages) -> tuple[str, Preprocess, Normalise]:
    """The network, the size it sees, and the scale of its channels."""
    sample = _sample_images(data)
    side = int(np.median([max(image.size) for image in sample])) if sample else SMALL
    grey = bool(sample) and all(image.mode == "L" for image in sample)
    channels: Literal[1, 3] = 1 if grey else 3
    name = config.network
    if name == "auto":
        name = "small-cnn"
        if side > SMALL and config.weights:
            name = "head"
        elif side > SMALL:
            _log.warning(
                "images are large and there are no pre-trained weights: a small network sees them "
                "at %d pixels; VGG-16's weights (--weights FILE) would do better",
                config.size or SMALL,
            )
    if name not in NETWORKS:
        find_network(name)  # raises the error that lists the choices
    usual = NETWORKS[name].image_size
    if name in ("small-cnn", "resnet32"):
        usual = min(side, SMALL)
    if name in ("head", "paper"):
        channels = 3  # VGG-16's convolutions are for RGB
    size = config.size or usual or FEATURE_SIZE
    preprocess = Preprocess(size, size, channels=channels)
    return name, preprocess, IMAGENET if channels == 3 else GREY


def _sample_images(data: LabelledImages) -> list[Image.Image]:
    """Some images of the data; broken ones are passed over here and named when all are decoded."""
    sample = []
    for row in data.rows[:: max(1, len(data) // 20)][:20]:
        with suppress(BrokenImageError):
            sample.append(data.images.open(int(row)))
    return sample


def _weights_file(weights: str) -> Path:
    """The file that ``--weights`` names; ``vgg16`` is downloaded once."""
    path = Path(weights).expanduser()
    return fetch_weights(weights) if weights in DOWNLOADABLE and not path.exists() else path


def _backbone(config: TrainConfig) -> nn.Module:
    if not config.weights:
        raise InputError(
            "network 'head' trains on features of VGG-16: name a file of its weights with "
            "--weights (or --weights vgg16 to download it), or take --network small-cnn"
        )
    backbone = VGG16Features()
    loaded = load_weights(backbone, _weights_file(config.weights))
    if loaded.random:
        raise InputError(f"{config.weights} lacks {', '.join(loaded.random[:3])}")
    return backbone.eval().requires_grad_(False)
