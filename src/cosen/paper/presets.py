"""Presets: training settings for the paper's protocols, as in the paper or for two CPU cores.

A :class:`Preset` has the settings of each dataset. Split, imbalance and validation share come from
the protocol. The paper names no augmentation, so the default of the network is used.

All presets select the epoch and learn the costs by mean class recall (``objective="balanced"``).
The reduced protocols have balanced test images but imbalanced validation images, and accuracy on
the latter hardly depends on the rare classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cosen.errors import InputError, choices_hint
from cosen.paper.protocols import Protocol, protocol
from cosen.training.config import TrainConfig

WEIGHTS = "vgg16"
"""Pre-trained weights to download if no file is given."""

NEEDING_WEIGHTS = ("head", "paper")
"""Networks that start from VGG-16 or train on its features."""

TIMING_MINUTES = 2.0
"""Minutes of the timing comparison in the presets for two cores."""


@dataclass(frozen=True)
class Preset:
    """Training settings for every dataset of the paper."""

    name: str
    description: str
    settings: Mapping[str, Mapping[str, Any]] = field(hash=False)  # by dataset without variant
    timing: str  # protocol of the timing comparison
    timing_settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    run_minutes: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Minutes per run on two cores, with two runs at once; empty if unknown."""
    feature_minutes: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Minutes to compute features of a pretrained network, once for each dataset."""

    def config(
        self,
        record: Protocol,
        *,
        weights: str | None = None,
        data_root: str | None = None,
        epochs: int | None = None,
        **changes: Any,
    ) -> TrainConfig:
        """Settings for a protocol; ``weights`` is a file of VGG-16 weights.

        Example:
            >>> from cosen.paper.protocols import protocol
            >>> config = PRESETS["cpu"].config(protocol("caltech101/60-odd-10"))
            >>> config.network, config.finetune, config.split, config.imbalance
            ('tf_efficientnet_lite0', 'none', 'fraction:0.6', 'odd:0.1')
        """
        own = {**self.settings[_base(record)], **changes}
        if epochs is not None:
            own["epochs"] = epochs
        if own["network"] in NEEDING_WEIGHTS:
            own["weights"] = weights or WEIGHTS
        return TrainConfig(
            data=record.dataset,
            data_root=data_root,
            split=record.split,
            imbalance=record.imbalance,
            validation=record.validation,
            objective="balanced",
            **own,
        )

    def timing_config(self, **options: Any) -> TrainConfig:
        """Settings for the timing comparison; options as for :meth:`config`."""
        return self.config(protocol(self.timing), **options, **self.timing_settings)

    def method_options(self, record: Protocol) -> Mapping[str, Mapping[str, Any]]:
        """Options of methods whose defaults fail on a protocol.

        A tenth of a class of Caltech-101 can be two images: each then has one neighbour.
        """
        if _base(record) == "caltech101" and record.imbalance:
            return {name: {"neighbours": 1} for name in ("smote", "smote-rsb")}
        return {}

    def needs(self, record: Protocol) -> str:
        """Data and weights that a protocol needs."""
        has_weights = self.settings[_base(record)]["network"] in NEEDING_WEIGHTS
        return f"{record.dataset}, VGG-16" if has_weights else record.dataset

    def minutes(self, record: Protocol, *, runs: int) -> float | None:
        """Approximate minutes of a number of runs, without features; None if unknown."""
        return runs * self.run_minutes[_base(record)] if self.run_minutes else None


def find_preset(name: str) -> Preset:
    """The preset of this name."""
    if name not in PRESETS:
        raise InputError(f"there is no preset {name!r}{choices_hint(name, PRESETS)}")
    return PRESETS[name]


def _base(record: Protocol) -> str:
    """The dataset's name without its variant."""
    return record.dataset.partition(":")[0]


# 20 of 28 pixels: the digits are 20 pixels high, and training takes half the time
_MNIST: dict[str, Any] = {"network": "small-cnn", "size": 20, "epochs": 4}

_LITE = "tf_efficientnet_lite0"  # the default network; its module is slow to import
_FROZEN: dict[str, Any] = {"network": _LITE, "finetune": "none", "size": 224}
_LAST: dict[str, Any] = {"network": _LITE, "finetune": "last"}
_CPU: dict[str, Mapping[str, Any]] = {
    "mnist": _MNIST,
    "cifar100": _FROZEN | {"size": 128},
    "caltech101": _FROZEN,
    "mit67": _FROZEN,
    "mlc": _FROZEN,
    "dil": _LAST | {"size": 128},
    "ham10000": _LAST | {"size": 128},
    "rsmas": _LAST | {"size": 224},
}

_HEAD: dict[str, Any] = {"network": "head", "size": 128, "epochs": 30}
_VGG16: dict[str, Mapping[str, Any]] = {
    **dict.fromkeys(_CPU, _HEAD),
    "mnist": _MNIST,
    "ham10000": _HEAD | {"size": 96},
}

# The paper gives no epochs, learning rates or batch sizes, only "a relatively higher learning rate"
# after the pre-trained weights are loaded. These are usual for fine-tuning VGG-16: a tenth of its
# own rate, divided by ten at half and at three quarters, and batches that fit in 12 GB.
_FINE_TUNED: dict[str, Any] = {
    "network": "paper",
    "size": 224,
    "epochs": 20,
    "batch_size": 32,
    "optimizer": "sgd",
    "lr": 0.001,
    "momentum": 0.9,
    "schedule": "step",
}

_TIMED: dict[str, Any] = {"network": "resnet32", "finetune": "auto", "size": 32}

PRESETS = {
    "cpu": Preset(
        "cpu",
        "a small CNN for MNIST, EfficientNet-Lite0 elsewhere, fine-tuned or frozen; for 2 cores",
        _CPU,
        timing="cifar100/odd-10",
        timing_settings=_TIMED,
        # measured for MNIST, CIFAR-100, Caltech-101, HAM10000 and RSMAS; estimated by the number
        # of images for the others
        run_minutes={
            **{"mnist": 1.2, "cifar100": 1.0, "caltech101": 0.4, "mit67": 0.6},
            **{"dil": 0.6, "mlc": 8.0, "ham10000": 3.5, "rsmas": 0.8},
        },
        feature_minutes={"cifar100": 7, "caltech101": 7, "mit67": 12, "mlc": 200},
    ),
    "vgg16": Preset(
        "vgg16",
        "a small CNN for MNIST, a head on frozen VGG-16 features elsewhere; for 2 cores",
        _VGG16,
        timing="cifar100/odd-10",
        timing_settings=_TIMED,
        run_minutes={
            **{"mnist": 1.2, "cifar100": 0.5, "caltech101": 0.2, "mit67": 0.5},
            **{"dil": 0.2, "mlc": 5.0, "ham10000": 0.2, "rsmas": 0.05},
        },
        feature_minutes={
            **{"cifar100": 55, "caltech101": 11, "mit67": 19},
            **{"dil": 2, "mlc": 300, "ham10000": 7, "rsmas": 1},
        },
    ),
    "paper": Preset(
        "paper",
        "the 18-layer network, fine-tuned from VGG-16 at 224 pixels; for a GPU",
        dict.fromkeys(_CPU, _FINE_TUNED),
        timing="mit67/standard",
    ),
}
"""Presets by name."""
