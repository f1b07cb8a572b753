"""Presets: training settings for the paper's protocols, as in the paper or for two CPU cores.

A :class:`Preset` has the settings of each dataset. Split, imbalance and validation share come from
the protocol.

Both presets select the epoch and learn the costs by mean class recall (``objective="balanced"``).
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

RUN_MINUTES = {
    **{"mnist": 1.2, "cifar100": 0.5, "caltech101": 0.2, "mit67": 0.5},
    **{"dil": 0.2, "mlc": 5.0, "ham10000": 0.2, "rsmas": 0.05},
}
"""Minutes per run of the ``cpu`` preset on two cores, with two runs at once.

Measured for MNIST, CIFAR-100 (31,250 of its images), Caltech-101, HAM10000 and RSMAS; estimated by
the number of images for the others.
"""

FEATURE_MINUTES = {
    **{"cifar100": 55, "caltech101": 11, "mit67": 19},
    **{"dil": 2, "mlc": 300, "ham10000": 7, "rsmas": 1},
}
"""Minutes to compute VGG-16's features, once for each dataset."""

TIMING_MINUTES = 2.0
"""Minutes of the timing comparison in the ``cpu`` preset."""


@dataclass(frozen=True)
class Preset:
    """Training settings for every dataset of the paper."""

    name: str
    description: str
    settings: Mapping[str, Mapping[str, Any]] = field(hash=False)  # by dataset without variant
    timing: str  # protocol of the timing comparison
    timing_settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    measured: bool = False  # whether RUN_MINUTES applies

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
            >>> config.network, config.weights, config.split, config.imbalance
            ('head', 'vgg16', 'fraction:0.6', 'odd:0.1')
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
            augment=record.augmentation,
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
        """Approximate minutes of a number of runs, without VGG-16's features; None if unknown."""
        return runs * RUN_MINUTES[_base(record)] if self.measured else None


def find_preset(name: str) -> Preset:
    """The preset of this name."""
    if name not in PRESETS:
        raise InputError(f"there is no preset {name!r}{choices_hint(name, PRESETS)}")
    return PRESETS[name]


def _base(record: Protocol) -> str:
    """The dataset's name without its variant."""
    return record.dataset.partition(":")[0]


_HEAD: dict[str, Any] = {"network": "head", "size": 128, "epochs": 30}
_CPU: dict[str, Mapping[str, Any]] = {
    # 20 of 28 pixels: the digits are 20 pixels high, and training takes half the time
    "mnist": {"network": "small-cnn", "size": 20, "epochs": 4},
    "ham10000": {"network": "head", "size": 96, "epochs": 30},
    **dict.fromkeys(("cifar100", "caltech101", "mit67", "dil", "mlc", "rsmas"), _HEAD),
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

PRESETS = {
    "cpu": Preset(
        "cpu",
        "a small CNN for MNIST, a head on frozen VGG-16 features elsewhere; for 2 cores",
        _CPU,
        timing="cifar100/odd-10",
        timing_settings={"network": "resnet32", "size": 32},
        measured=True,
    ),
    "paper": Preset(
        "paper",
        "the 18-layer network, fine-tuned from VGG-16 at 224 pixels; for a GPU",
        dict.fromkeys(_CPU, _FINE_TUNED),
        timing="mit67/standard",
    ),
}
"""Presets by name."""
