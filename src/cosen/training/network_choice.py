"""Choose the network of a run, load its weights, and refuse settings that do not fit it."""

import math
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn

from cosen.data.batches import GREY, IMAGENET, Normalise
from cosen.data.decoding import Preprocess
from cosen.data.labelled import LabelledImages
from cosen.errors import BrokenImageError, CosenError, InputError
from cosen.files import expand_user
from cosen.networks import Network, build_network, find_network
from cosen.networks.pretrained import (
    EMBEDDED,
    check_size,
    check_split,
    load_pretrained,
    pretrained_input,
)
from cosen.networks.vgg import VGG16Features
from cosen.networks.weights import fetch_weights, load_weights, read_weights
from cosen.training.config import TrainConfig
from cosen.training.finetuning import Mode
from cosen.training.model_file import OWN, make_network

SMALL = 64
"""Largest image side for which the small network does not shrink images."""

TINY = 32
"""Smallest side of colour images for which a pretrained network is the default."""

ENLARGED = 128
"""Size of small colour images in a pretrained network. Its own size would take three times as
long, and these images have no finer detail."""

FEATURE_SIZE = 128
"""Default image size for features of VGG-16."""


def choose_network(
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
    return weights == "vgg16" or "features.0.weight" in read_weights(weights_file(weights))


def weights_file(weights: str) -> Path:
    """Return the file of ``--weights``; ``vgg16`` is downloaded once."""
    path = expand_user(weights)
    return fetch_weights(weights) if weights == "vgg16" and not path.exists() else path


def try_network(network: Callable[[], nn.Module], preprocess: Preprocess, classes: int) -> None:
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


def check_unused(config: TrainConfig, network: str) -> None:
    """Raise an error if a setting for pretrained networks is given with another network."""
    given = [("--finetune", config.finetune != "auto"), ("head", config.head != "auto")]
    for setting, is_given in [*given, ("pretrained_lr", config.pretrained_lr not in (None, 1.0))]:
        if is_given:
            raise InputError(
                f"{setting} is for pretrained networks, but the network is {network}: remove "
                f"{setting}, or choose a network such as {EMBEDDED}"
            )


def check_mode(
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
    if sys.platform != "win32" and "SC_PHYS_PAGES" in os.sysconf_names:
        memory: float = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        memory = math.inf
    available = memory / 2**30
    if needed > available / 2:
        raise InputError(
            f"--finetune last needs {needed:.0f} GB for activations of {images} images, but this "
            f"machine has {available:.0f} GB: use --finetune none, or a smaller --size"
        )


def load_whole(name: str, config: TrainConfig, preprocess: Preprocess, classes: int) -> Network:
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


def vgg_backbone(config: TrainConfig) -> nn.Module:
    if not config.weights:
        raise InputError(
            "network 'head' needs VGG-16's weights: give a file with --weights FILE, download it "
            "with --weights vgg16, or use --network small-cnn"
        )
    backbone = VGG16Features()
    loaded = load_weights(backbone, weights_file(config.weights))
    if loaded.random:
        raise InputError(f"{config.weights} lacks {', '.join(loaded.random[:3])}")
    return backbone.eval().requires_grad_(False)
