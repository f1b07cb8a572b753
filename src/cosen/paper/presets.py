"""How the paper's protocols are trained: as the paper did, or so that two cores finish.

A :class:`Preset` holds the settings of each dataset; the split, the imbalance and the share held
out for validation are the protocol's.

Both presets keep the epoch, and learn the costs, by mean class recall (``objective="balanced"``):
the test sets of the reduced protocols are balanced, while their training and validation images are
not, so that accuracy on validation would hardly notice the classes that the test is about.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cosen.data.splits import CountSplit, FoldSplit, FractionSplit, OfficialSplit, Split
from cosen.errors import InputError
from cosen.paper.protocols import Protocol, protocol
from cosen.training.config import TrainConfig

WEIGHTS = "vgg16"
"""What networks start from, and features come from, unless a file is named."""

MNIST_EPOCHS = 4
MNIST_SIZE = 20  # of 28 pixels: the digits themselves are 20 high, and it takes half the time
HEAD_EPOCHS = 30
PAPER_EPOCHS = 20


@dataclass(frozen=True)
class Preset:
    """A way to train on every dataset of the paper.

    Attributes:
        name: What it is asked for by.
        description: What it does, in one line.
        settings: Those of each dataset, by its name without a variant.
        timing: The name of the protocol that the timing comparison is made on.
        timing_settings: Its settings, where they differ from those of the dataset.
        measured: Whether :data:`TIMES` holds for it.
    """

    name: str
    description: str
    settings: Mapping[str, Mapping[str, Any]] = field(hash=False)
    timing: str
    timing_settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    measured: bool = False

    def config(
        self,
        record: Protocol,
        *,
        weights: str | None = None,
        data_root: str | None = None,
        epochs: int | None = None,
    ) -> TrainConfig:
        """The settings for a protocol.

        Args:
            record: The protocol.
            weights: A file of VGG-16's weights; :data:`WEIGHTS`, which is downloaded, if not given.
            data_root: Where datasets are.
            epochs: In place of the preset's.

        Example:
            >>> from cosen.paper.protocols import protocol
            >>> config = PRESETS["cpu"].config(protocol("caltech101/60-odd-10"))
            >>> config.network, config.weights, config.split, config.imbalance
            ('head', 'vgg16', 'fraction:0.6', 'odd:0.1')
        """
        own = dict(self.settings[_base(record.dataset)])
        if epochs is not None:
            own["epochs"] = epochs
        if own["network"] in NEEDING_WEIGHTS:
            own["weights"] = weights or WEIGHTS
        return TrainConfig(
            data=record.dataset,
            data_root=data_root,
            split=split_text(record.split),
            imbalance=record.imbalance,
            validation=record.validation,
            augment=record.augmentation,
            objective="balanced",
            **own,
        )

    def timing_config(
        self, *, weights: str | None = None, data_root: str | None = None
    ) -> TrainConfig:
        """The settings for the timing comparison."""
        dataset = _base(protocol(self.timing).dataset)
        own = {dataset: {**self.settings[dataset], **self.timing_settings}}
        preset = Preset(self.name, self.description, own, self.timing)
        return preset.config(protocol(self.timing), weights=weights, data_root=data_root)

    def method_options(self, record: Protocol) -> Mapping[str, Mapping[str, Any]]:
        """Options that methods need on a protocol, where their defaults cannot work.

        A tenth of a class of Caltech-101 is as few as two images, which have one neighbour.
        """
        if _base(record.dataset) == "caltech101" and record.imbalance:
            return {name: {"neighbours": 1} for name in ("smote", "smote-rsb")}
        return {}

    def needs(self, record: Protocol) -> str:
        """What must be there before a protocol can be run, in a few words."""
        has_weights = self.settings[_base(record.dataset)]["network"] in NEEDING_WEIGHTS
        return f"{record.dataset}, VGG-16" if has_weights else record.dataset


NEEDING_WEIGHTS = ("head", "paper")
"""Networks that start from VGG-16, or train on its features."""


def find_preset(name: str) -> Preset:
    """The preset of this name; an unknown one lists the choices."""
    if name not in PRESETS:
        raise InputError(f"there is no preset {name!r}: choose of {', '.join(PRESETS)}")
    return PRESETS[name]


def split_text(split: Split) -> str:
    """A split as settings write it; folds are taken in turn by the seeds.

    Example:
        >>> split_text(CountSplit(15, test=50)), split_text(FoldSplit(3))
        ('count:15/50', 'fold:seed/3')
    """
    match split:
        case OfficialSplit():
            return "official"
        case FractionSplit(share):
            return f"fraction:{share}"
        case CountSplit(train, test):
            return f"count:{train}" if test is None else f"count:{train}/{test}"
        case FoldSplit(folds):
            return f"fold:seed/{folds}"


def _base(dataset: str) -> str:
    """The dataset's name without its variant."""
    return dataset.partition(":")[0]


# The small CNN is trained from scratch; of the others a head, on VGG-16's features.
_HEAD: dict[str, Any] = {"network": "head", "size": 128, "epochs": HEAD_EPOCHS}
_CPU: dict[str, Mapping[str, Any]] = {
    "mnist": {"network": "small-cnn", "size": MNIST_SIZE, "epochs": MNIST_EPOCHS},
    "ham10000": {"network": "head", "size": 96, "epochs": HEAD_EPOCHS},
    **dict.fromkeys(("cifar100", "caltech101", "mit67", "dil", "mlc", "rsmas"), _HEAD),
}

# The paper gives no epochs, rates or batch sizes, but for "a relatively higher learning rate" once
# the pre-trained weights are in. These are usual for fine-tuning VGG-16: a rate that is a tenth of
# its own, cut to a tenth at half and at three quarters, and batches that fit in 12 GB.
_FINE_TUNED: dict[str, Any] = {
    "network": "paper",
    "size": 224,
    "epochs": PAPER_EPOCHS,
    "batch_size": 32,
    "optimizer": "sgd",
    "lr": 0.001,
    "momentum": 0.9,
    "schedule": "step",
}

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        preset.name: preset
        for preset in (
            Preset(
                "cpu",
                "a small CNN for MNIST, a head on frozen VGG-16 features elsewhere; for 2 cores",
                _CPU,
                timing="cifar100/odd-10",
                timing_settings={"network": "resnet32", "size": 32},
                measured=True,
            ),
            Preset(
                "paper",
                "the 18-layer network, fine-tuned from VGG-16 at 224 pixels; for a GPU",
                dict.fromkeys(_CPU, _FINE_TUNED),
                timing="mit67/standard",
            ),
        )
    }
)
"""Every preset by name."""


@dataclass(frozen=True)
class Minutes:
    """How long the ``cpu`` preset takes on two cores.

    Attributes:
        run: The time of a whole comparison by its number of runs, two of them at once.
        features: Of VGG-16 for all images, computed once for a dataset and then kept.
    """

    run: float
    features: float = 0.0


# TIMES: measured on two cores for MNIST, CIFAR-100 (31,250 of its images), Caltech-101, HAM10000
# and RSMAS, and worked out from the number of images for the others; change them where the settings
# above change.
TIMES: Mapping[str, Minutes] = MappingProxyType(
    {
        "mnist": Minutes(run=1.2),
        "cifar100": Minutes(run=0.5, features=55),
        "caltech101": Minutes(run=0.2, features=11),
        "mit67": Minutes(run=0.5, features=19),
        "dil": Minutes(run=0.2, features=2),
        "mlc": Minutes(run=5.0, features=300),
        "ham10000": Minutes(run=0.2, features=7),
        "rsmas": Minutes(run=0.05, features=1),
    }
)
"""Minutes by dataset."""

TIMING_MINUTES = 2.0
"""Of the timing comparison in the ``cpu`` preset."""


def minutes_of(preset: Preset, record: Protocol, *, runs: int) -> float | None:
    """About how long so many runs take; None where it was not measured.

    Features are not among them: they are computed once for all protocols of a dataset.
    """
    return runs * TIMES[_base(record.dataset)].run if preset.measured else None
