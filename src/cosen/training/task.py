"""Prepare a run: splits, inputs and network, together in a task."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cosen.costs import OVERALL, Objective
from cosen.data.augmentation import Augmentation
from cosen.data.batches import Batch, Batches, FeatureBatches, Share
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
from cosen.errors import DataError, InputError
from cosen.files import expand_user
from cosen.networks import NETWORKS, Network
from cosen.networks.device import resolve_device
from cosen.networks.freezing import freeze
from cosen.networks.network import PenultimateFeatures
from cosen.networks.pretrained import (
    load_body,
    split,
)
from cosen.networks.weights import load_weights
from cosen.training.config import TrainConfig
from cosen.training.finetuning import Mode, choose_mode, describe_plan, prepare, with_defaults
from cosen.training.model_file import OWN, make_network
from cosen.training.network_choice import (
    check_mode,
    check_unused,
    choose_network,
    load_whole,
    try_network,
    vgg_backbone,
    weights_file,
)
from cosen.training.records import ModelInfo

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
        is_whole = self.pretrained is None or not self.model.features
        return self.model.network if is_whole else self.model.features

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
            loaded = load_weights(network, weights_file(config.weights))
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
        name, preprocess, normalise = choose_network(config, data, is_own=network is not None)
    else:
        is_whole = model.has_vgg_features or not model.features
        known = model.network if is_whole else model.features
        name, preprocess, normalise = known, model.preprocess, model.normalise
    if network is not None:
        name = OWN
        try_network(network, preprocess, len(data.class_names))
    is_pretrained = name != OWN and name not in NETWORKS
    if not is_pretrained and not frozen:
        check_unused(config, "your own" if name == OWN else name)
    device = resolve_device(config.device)
    mode: Mode = "scratch"
    if is_pretrained:
        if config.network_options:
            names = ", ".join(config.network_options)
            raise InputError(f"{name} has no network_options: remove {names}")
        pixels = len(data) * preprocess.height * preprocess.width
        mode = "none" if frozen else choose_mode(config, device, name=name, pixels=pixels)
    whole = load_whole(name, config, preprocess, len(data.class_names)) if is_pretrained else None
    if whole is not None:
        config = with_defaults(config, mode)
        check_mode(whole, config, mode, preprocess, images=len(data))
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
        backbone = vgg_backbone(config)
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
