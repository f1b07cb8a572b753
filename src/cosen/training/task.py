"""Prepare a run: splits, inputs, and a suitable network."""

import logging
import math
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from cosen.costs import OVERALL, Objective
from cosen.data.augmentation import Augmentation
from cosen.data.batches import GREY, IMAGENET, Batch, Batches, FeatureBatches, Normalise, Share
from cosen.data.cache_folder import key_of
from cosen.data.decoding import Preprocess, Progress
from cosen.data.features import embed
from cosen.data.image_cache import DecodedImages, decode_images
from cosen.data.imbalance import parse_imbalance
from cosen.data.labelled import LabelledImages
from cosen.data.sources import open_data
from cosen.data.splits import (
    CountSplit,
    FoldSplit,
    FractionSplit,
    OfficialSplit,
    Split,
    Splits,
    split_images,
)
from cosen.errors import BrokenImageError, CosenError, DataError, InputError
from cosen.files import expand_user
from cosen.networks import NETWORKS, Network, build_network, find_network
from cosen.networks.freezing import freeze
from cosen.networks.network import PenultimateFeatures
from cosen.networks.pretrained import (
    EMBEDDED,
    check_size,
    check_split,
    load_body,
    load_pretrained,
    pretrained_input,
    split,
)
from cosen.networks.vgg import VGG16Features
from cosen.networks.weights import fetch_weights, load_weights, read_weights
from cosen.training.config import TrainConfig
from cosen.training.finetuning import Mode, choose_mode, describe_plan, prepare, with_defaults
from cosen.training.model_file import OWN, make_network
from cosen.training.records import ModelInfo

SMALL = 64
"""Largest image side for which the small network does not shrink images."""

TINY = 32
"""Smallest side of colour images for which a pretrained network is the default."""

ENLARGED = 128
"""Size of small colour images in a pretrained network. Its own size would take three times as
long, and these images have no finer detail."""

FEATURE_SIZE = 128
"""Default image size for features of VGG-16."""

_log = logging.getLogger("cosen")


@dataclass(frozen=True)
class Task:
    """The data and the network of a run."""

    splits: Splits
    model: ModelInfo
    fingerprint: str  # changes with any image, label or split
    decoded: DecodedImages  # the pixels of all images
    features: Tensor | None = None  # of all images, if the network takes features or activations
    backbone: nn.Module | None = None  # the network that computed them
    objective: Objective = OVERALL  # what validation measures
    own_network: Callable[[], nn.Module] | None = None  # makes the user's network
    mode: Mode = "scratch"  # how a pretrained network is trained
    pretrained: Network | None = None  # the whole network, with pretrained weights
    pooled: Tensor | None = None  # its features of all images
    flipped: Tensor | None = None  # as features, for mirrored images

    @property
    def network_name(self) -> str:
        """The name of the network, also if only a part of it is trained."""
        is_named = self.model.features not in ("", "vgg16")
        return (
            self.model.features if self.pretrained is not None and is_named else self.model.network
        )

    @property
    def has_features(self) -> bool:
        """Whether there are features of pretrained weights that stay as they are."""
        return self.features is not None and self.mode in ("scratch", "none")

    def batches(
        self,
        part: LabelledImages,
        *,
        batch_size: int,
        order: torch.Generator | None = None,
        augment: Augmentation | None = None,
        device: torch.device | str = "cpu",
        share: Share | None = None,
        class_draws: np.ndarray | None = None,
        noise: torch.Generator | None = None,
    ) -> Iterable[Batch]:
        """Return the batches of a split, as images or features; see :class:`Batches`.

        ``class_draws`` is the relative sampling rate of each class, shape ``(C,)``; None uses each
        sample once. ``noise`` draws which samples of :attr:`flipped` are used.
        """
        chances = None if class_draws is None else torch.from_numpy(class_draws[part.labels])
        if self.features is None:
            return Batches(
                self.decoded,
                part,
                batch_size=batch_size,
                normalise=self.model.normalise,
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
            flipped=self.flipped,
            noise=noise,
            batch_size=batch_size,
            order=order,
            device=device,
            share=share,
            chances=chances,
        )

    def feature_rows(self, part: LabelledImages) -> Tensor:
        """Return the rows of a split in :attr:`features`."""
        # features are in the order of the decoded data, which is sorted by row
        return torch.from_numpy(np.searchsorted(self.decoded.data.rows, part.rows))

    def network(self, config: TrainConfig) -> nn.Module:
        """Create the network, with random or pretrained weights."""
        model, classes = self.model, len(self.model.class_names)
        network = make_network(model.network, classes, model.options, own=self.own_network)
        if self.pretrained is not None:
            if self.mode != "none":
                assert isinstance(network, Network)
                source = split(self.pretrained)[1] if self.mode == "last" else self.pretrained
                load_body(network, source)
                prepare(network, self.mode)
        elif config.weights and self.backbone is None:
            loaded = load_weights(network, _weights_file(config.weights))
            if loaded.random:
                _log.warning(
                    "layers that are not in the weights file start at random: %s",
                    ", ".join(loaded.random),
                )
        if config.freeze:
            freeze(network, config.freeze)
        return network


def make_task(
    config: TrainConfig,
    *,
    data: LabelledImages | None = None,
    network: Callable[[], nn.Module] | None = None,
    model: ModelInfo | None = None,
    objective: Objective | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], None] | None = None,
    frozen: bool = False,
) -> Task:
    """Read, decode and split the data, and choose the network.

    Args:
        config: The settings.
        data: The data, if ``config.data`` does not name it.
        network: Creates a custom network, instead of ``config.network``.
        model: Network and preprocessing, if they were chosen earlier for the same data.
        objective: The objective, if misclassification costs were read earlier.
        progress: Callback for progress.
        announce: Called with one line about a pretrained network, before it is used.
        frozen: Use features of a pretrained network as it is, whatever ``config.finetune`` says.
    """
    if data is None:
        root = expand_user(config.data_root) if config.data_root else None
        data = open_data(config.data, root=root, exclude=config.exclude)
    how = parse_split(config.split, data)
    if model is None:
        name, preprocess, normalise = _choose_network(config, data, is_own=network is not None)
    else:
        known = model.features if model.features not in ("", "vgg16") else model.network
        name, preprocess, normalise = known, model.preprocess, model.normalise
    if network is not None:
        name = OWN
        _try_network(network, preprocess, len(data.class_names))
    is_pretrained = name != OWN and name not in NETWORKS
    if not is_pretrained and not frozen:
        _check_unused(config, "your own" if name == OWN else name)
    device = resolve_device(config.device)
    mode: Mode = "scratch"
    if is_pretrained:
        if config.network_options:
            names = ", ".join(config.network_options)
            raise InputError(f"{name} has no network_options: remove {names}")
        pixels = len(data) * preprocess.height * preprocess.width
        mode = "none" if frozen else choose_mode(config, device, name=name, pixels=pixels)
    whole = _load_whole(name, config, preprocess, len(data.class_names)) if is_pretrained else None
    if whole is not None:
        config = with_defaults(config, mode)
        _check_mode(whole, config, mode, preprocess, images=len(data))
        if announce is not None:
            plan = (name, whole, config, mode, preprocess.shape, len(data))
            announce(describe_plan(*plan, device=device))
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
        raise DataError(f"{data.source}: there are no validation images, because {why}")
    found = _Features()
    options: dict[str, Any] = {"channels": preprocess.channels, **config.network_options}

    def compute(network: nn.Module, *, flip: bool = False) -> Tensor:
        features = embed(
            network,
            decoded,
            normalise=normalise,
            device=device,
            precision=config.precision,
            flip=flip,
            progress=progress,
        )
        network.to("cpu")
        return features

    if whole is not None:
        found, options = _pretrained_features(whole, mode, config, preprocess, compute)
    elif name == "head":
        backbone = _backbone(config)
        found = _Features(compute(backbone), backbone)
        assert found.features is not None
        width = found.features.shape[1]
        options = {"in_features": width, "normalise": True, **config.network_options}
    size = {"size": list(preprocess.shape[:2])}
    lower = {"part": "lower"} if mode == "last" else {}
    model = ModelInfo(
        network="linear" if mode == "none" else name,
        options=options,
        class_names=data.class_names,
        class_counts=splits.train.class_counts,
        preprocess=preprocess,
        normalise=normalise,
        features=name if mode in ("none", "last") else "vgg16" if name == "head" else "",
        feature_options=size | lower if mode in ("none", "last") else {},
    )
    objective = objective or Objective.read(config.objective, data.class_names)
    objective = Objective.of(objective, num_classes=len(data.class_names))
    costs = objective.misclassification_costs
    parts = (splits.train, splits.val, splits.test)
    fingerprint = key_of(
        decoded.key,
        data.class_names,
        objective.name if costs is None else costs.numpy().tobytes(),
        *(array.tobytes() for part in parts for array in (part.rows, part.labels)),
    )
    return Task(
        splits,
        model,
        fingerprint,
        decoded,
        features=found.features,
        backbone=found.backbone,
        objective=objective,
        own_network=network,
        mode=mode,
        pretrained=whole,
        pooled=found.pooled,
        flipped=found.flipped,
    )


@dataclass(frozen=True)
class _Features:
    """Cached outputs of a frozen network; see :class:`Task`."""

    features: Tensor | None = None
    backbone: nn.Module | None = None
    pooled: Tensor | None = None
    flipped: Tensor | None = None


def _try_network(network: Callable[[], nn.Module], preprocess: Preprocess, classes: int) -> None:
    """Raise an error unless the user's network maps images to one output per class."""
    with torch.random.fork_rng(devices=[]):
        made = make_network(OWN, classes, {}, own=network).eval()
    shape = (1, preprocess.channels, preprocess.height, preprocess.width)
    try:
        with torch.no_grad():
            logits = made(torch.zeros(shape)).logits
    except CosenError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"your network failed on images of the shape {shape}: {reason}") from error
    if logits.shape != (1, classes):
        raise InputError(
            f"your network must map a batch of {shape} to (1, {classes}), one output per class, "
            f"but returned {tuple(logits.shape)}"
        )


def _check_unused(config: TrainConfig, network: str) -> None:
    """Raise an error if a setting for pretrained networks is given with another network."""
    given = [("--finetune", config.finetune != "auto"), ("head", config.head != "auto")]
    for setting, is_given in [*given, ("pretrained_lr", config.pretrained_lr not in (None, 1.0))]:
        if is_given:
            raise InputError(
                f"{setting} is for pretrained networks, but the network is {network}: remove "
                f"{setting}, or choose a network such as {EMBEDDED}"
            )


def _check_mode(
    whole: Network, config: TrainConfig, mode: Mode, preprocess: Preprocess, *, images: int
) -> None:
    """Raise an error if a mode cannot be used, before any image is read."""
    augment = set(config.augment or ())
    if mode == "none" and augment:
        raise InputError(
            "with --finetune none, features are computed once: remove --augment, or use "
            "--finetune last or all"
        )
    if mode != "last":
        return
    if augment - {"flip"}:
        raise InputError(
            f"with --finetune last, images can only be mirrored: use --augment flip instead of "
            f"{','.join(sorted(augment))}, or --finetune all"
        )
    numbers = check_split(whole, preprocess.shape[:2])
    needed = 2 * numbers * images * (1 + len(augment)) / 2**30  # in half precision
    has_sizes = "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {})  # not on Windows
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if has_sizes else math.inf
    available = memory / 2**30
    if needed > available / 2:
        raise InputError(
            f"--finetune last needs {needed:.0f} GB for activations of {images} images, but this "
            f"machine has {available:.0f} GB: use --finetune none, or a smaller --size"
        )


def _load_whole(name: str, config: TrainConfig, preprocess: Preprocess, classes: int) -> Network:
    """Build a pretrained network and load its weights."""
    size = preprocess.shape[:2]
    network = build_network(name, num_classes=classes, size=size)
    weights = expand_user(config.weights) if config.weights else None
    load_pretrained(network, name, weights, size=size)
    assert network.output_layer is not None
    for parameter in network.output_layer.parameters():
        nn.init.zeros_(parameter)  # it is not used; features are cached by all weights
    network.eval()
    check_size(network, name, size)
    return network


def _pretrained_features(
    whole: Network,
    mode: Mode,
    config: TrainConfig,
    preprocess: Preprocess,
    compute: Callable[..., Tensor],
) -> tuple[_Features, dict[str, Any]]:
    """Return the cached outputs that a mode trains on, and the options of its network."""
    backbone = PenultimateFeatures(whole)
    pooled = compute(backbone)
    size = {"size": list(preprocess.shape[:2])}
    if mode == "none":
        return _Features(pooled, backbone, pooled), {"in_features": pooled.shape[1]}
    if mode != "last":
        return _Features(pooled=pooled), size
    lower = split(whole)[0]
    flipped = compute(lower, flip=True) if config.augment else None
    return _Features(compute(lower), lower, pooled, flipped), size | {"part": "upper"}


def parse_split(text: str, data: LabelledImages) -> Split:
    """Parse a split such as ``fraction:0.6`` or ``fold:1/3``.

    Folds are numbered from 1. With ``fold:seed/3`` the seed selects the fold: three seeds are one
    cross-validation.
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
        f"split {text!r} is unknown: use auto, official, fraction:0.6, count:30, count:30/50, "
        "fold:1/3 or fold:seed/3"
    )


def resolve_device(device: str) -> str:
    """Resolve ``auto``: the accelerator of this machine, if it has one."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(device, True):
        raise InputError(f"this machine has no {device} device: use --device cpu or auto")
    if device != "auto":
        return device
    return next((name for name, is_here in available.items() if is_here), "cpu")


def _choose_network(
    config: TrainConfig, data: LabelledImages, *, is_own: bool
) -> tuple[str, Preprocess, Normalise]:
    """Return the network, the image size, and the normalisation.

    ``is_own`` is whether the user gives the network; then only the others are chosen.
    """
    sample = []
    for row in data.rows[:: max(1, len(data) // 20)][:20]:
        with suppress(BrokenImageError):  # reported when all images are decoded
            sample.append(data.images.open(int(row)))
    side = int(np.median([max(image.size) for image in sample])) if sample else SMALL
    grey = bool(sample) and all(image.mode == "L" for image in sample)
    channels: Literal[1, 3] = 1 if grey else 3
    name = config.network
    if name == "auto" or is_own:
        name = "small-cnn"
        is_photograph = side > SMALL or (side >= TINY and not grey)
        if sample and is_photograph and not is_own:
            name = "head" if config.weights and _is_vgg(config.weights) else EMBEDDED
    entry = find_network(name)
    if entry.is_pretrained:
        size = config.size or (ENLARGED if config.network == "auto" and side <= SMALL else 0)
        return name, *_pretrained_preprocess(name, size)
    usual = entry.image_size
    if name in ("small-cnn", "resnet32"):
        usual = min(side, SMALL)
    if name in ("head", "paper"):
        channels = 3  # VGG-16's convolutions are for RGB
    size = config.size or usual or FEATURE_SIZE
    preprocess = Preprocess(size, size, channels=channels)
    return name, preprocess, IMAGENET if channels == 3 else GREY


def _pretrained_preprocess(name: str, size: int) -> tuple[Preprocess, Normalise]:
    """Return what a pretrained network expects, at another size if one is given."""
    found = pretrained_input(name)
    height, width = (size, size) if size else found.size
    preprocess = Preprocess(
        height,
        width,
        fit="stretch" if found.is_squashed else "crop",
        interpolation="bicubic" if found.interpolation == "bicubic" else "bilinear",
        share=1.0 if found.is_squashed else found.crop,
    )
    return preprocess, Normalise(found.mean, found.std)


def _is_vgg(weights: str) -> bool:
    """Whether weights are those of VGG-16, with torchvision's names."""
    return weights == "vgg16" or "features.0.weight" in read_weights(_weights_file(weights))


def _weights_file(weights: str) -> Path:
    """Return the file of ``--weights``; ``vgg16`` is downloaded once."""
    path = expand_user(weights)
    return fetch_weights(weights) if weights == "vgg16" and not path.exists() else path


def _backbone(config: TrainConfig) -> nn.Module:
    if not config.weights:
        raise InputError(
            "network 'head' needs VGG-16's weights: give a file with --weights FILE, download it "
            "with --weights vgg16, or use --network small-cnn"
        )
    backbone = VGG16Features()
    loaded = load_weights(backbone, _weights_file(config.weights))
    if loaded.random:
        raise InputError(f"{config.weights} lacks {', '.join(loaded.random[:3])}")
    return backbone.eval().requires_grad_(False)
