"""Fine-tuning of pretrained networks: the modes, their defaults, and what each mode trains.

| mode | trained | inputs of the trained part |
|---|---|---|
| ``none`` | the output layer | cached features |
| ``light`` | also norms and biases | images |
| ``last`` | the last quarter of the stages | cached activations of the frozen stages |
| ``all`` | everything | images |

A network without pretrained weights is trained from scratch.
"""

import time
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from cosen.networks import Network
from cosen.networks.pretrained import EMBEDDED, stage_count, title
from cosen.training.config import TrainConfig

Mode = Literal["scratch", "none", "light", "last", "all"]

FINETUNED: dict[str, Any] = {"lr": 0.02, "warmup": 0.1, "clip": 10.0}

DEFAULTS: dict[Mode, dict[str, Any]] = {
    "scratch": {"epochs": 30, "lr": 0.05, "weight_decay": 5e-4},
    "none": {"epochs": 30, "lr": 0.1},
    "light": FINETUNED | {"epochs": 8, "pretrained_lr": 0.5, "augment": ("flip",)},
    "last": FINETUNED | {"epochs": 12, "pretrained_lr": 0.05, "augment": ("flip",)},
    "all": FINETUNED | {"epochs": 8, "pretrained_lr": 0.05, "augment": ("crop", "flip")},
}
"""Settings of each mode, if the user does not give them; see also :data:`COMMON`."""

PRETRAINED_DECAY = 1e-4
"""Weight decay of pretrained layers."""

COMMON: dict[str, Any] = {
    "optimizer": "sgd",
    "pretrained_lr": 1.0,
    "warmup": 0.0,
    "clip": 0.0,
    "augment": (),
}

ADAMW_LR = 1e-3
"""Learning rate with AdamW."""


def with_defaults(config: TrainConfig, mode: Mode) -> TrainConfig:
    """Return the settings with the defaults of a mode where the user gave none."""
    defaults = COMMON | DEFAULTS[mode]
    if config.optimizer == "adamw":
        defaults = defaults | {"lr": ADAMW_LR}
    missing = {name: value for name, value in defaults.items() if getattr(config, name) is None}
    finetune = config.finetune if mode == "scratch" else mode
    return replace(config, finetune=finetune, **missing)


QUICK_PIXELS = 2000 * 224 * 224
"""Pixels of all images up to which the last stages are trained by default on a CPU: they take a
few minutes."""


def choose_mode(config: TrainConfig, device: str, *, name: str, pixels: int) -> Mode:
    """Return the mode of a pretrained network: the given one, or a default.

    On a GPU everything is trained. On a CPU the last stages of the embedded network are, if the
    images have few enough ``pixels`` together; otherwise only the output layer.
    """
    if config.finetune != "auto":
        return config.finetune
    if device != "cpu":
        return "all"
    return "last" if name == EMBEDDED and pixels <= QUICK_PIXELS else "none"


TRAINED = {
    "none": "the output layer is trained on frozen features",
    "light": "norms, biases and the output layer are trained",
    "last": "the last {stages} are trained on cached activations",
    "all": "all layers are trained",
}


def describe_plan(
    name: str,
    network: Network,
    config: TrainConfig,
    mode: Mode,
    shape: tuple[int, int, int],
    images: int,
    *,
    device: str,
) -> str:
    """Return one line: the network, what is trained and, on a CPU, the minutes of a run."""
    height, width, channels = shape
    stages = stage_count(network)
    trained = TRAINED[mode].format(stages=f"{stages} stages" if stages > 1 else "stage")
    plan = f"{title(name, config.weights)}, {height} pixels; {trained}"
    if device != "cpu":
        return plan
    batch = torch.zeros(8, channels, height, width)
    with torch.inference_mode():
        tries = []
        for _ in range(4):  # the first ones are slower
            start = time.process_time()  # other programs on the machine do not count
            network(batch)
            tries.append(time.process_time() - start)
        seconds = min(tries) / torch.get_num_threads() / len(batch)  # of a forward pass
    epochs = DEFAULTS["last"]["epochs"] if mode == "none" else (config.epochs or 0)
    passes = {"none": 1.1, "light": 1 + 3 * epochs, "last": 3 + 0.4 * epochs, "all": 1 + 3 * epochs}

    def about(mode: Mode) -> str:
        minutes = max(1, round(passes[mode] * seconds * images / 60))
        unit = "minute" if minutes == 1 else "minutes"
        # later runs find features and activations in the cache
        each = "for the first run" if mode in ("none", "last") else "a run"
        return f"about {minutes} {unit} {each} on this machine"

    plan = f"{plan}; {about(mode)}"
    if mode == "none":
        plan += f" (--finetune last is often better: {about('last')})"
    return plan


def prepare(network: Network, mode: Mode) -> None:
    """Freeze what a mode does not train. Batch statistics of pretrained layers stay as they are."""
    output = network.output_layer
    assert output is not None
    own = {id(parameter) for parameter in output.parameters()}
    for parameter in network.parameters():
        is_light = parameter.ndim <= 1  # norms and biases
        parameter.requires_grad_(id(parameter) in own or mode != "light" or is_light)
    network.frozen_modules |= {
        name
        for name, module in network.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm)
    }
    network.train(network.training)


def parameter_groups(
    network: nn.Module, config: TrainConfig, *, output_decay: float
) -> list[dict[str, Any]]:
    """Return groups for an optimizer: pretrained layers learn slower, and only their weights decay.

    ``lr_factor`` of a group multiplies the learning rate of the schedule. ``output_decay`` is the
    weight decay of the output layer.
    """
    inner = getattr(network, "whole", network)
    output = inner.output_layer if isinstance(inner, Network) else None
    own = set() if output is None else {id(parameter) for parameter in output.parameters()}
    groups: dict[tuple[bool, bool], list[Tensor]] = {}
    for parameter in network.parameters():
        if parameter.requires_grad:
            is_own = id(parameter) in own
            groups.setdefault((is_own, parameter.ndim > 1 or is_own), []).append(parameter)
    assert config.lr is not None
    assert config.pretrained_lr is not None
    factor = config.pretrained_lr
    decay = PRETRAINED_DECAY if config.weight_decay is None else config.weight_decay
    return [
        {
            "params": parameters,
            "lr": config.lr * (1.0 if is_own else factor),
            "lr_factor": 1.0 if is_own else factor,
            "weight_decay": (output_decay if is_own else decay) if is_decayed else 0.0,
        }
        for (is_own, is_decayed), parameters in groups.items()
    ]


@torch.no_grad()
def start_at_class_means(output: nn.Module, features: Tensor, labels: Tensor) -> None:
    """Set the weights of a cosine output layer to the mean directions of the classes."""
    weight = output.get_parameter("weight")
    directions = nn.functional.normalize(features.float(), dim=1)
    sums = torch.zeros_like(weight).index_add_(0, labels, directions.to(weight))
    present = labels.bincount(minlength=len(weight)) > 0
    weight[present] = nn.functional.normalize(sums[present], dim=1)
