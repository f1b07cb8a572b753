"""The configuration of a run: from flags, from a TOML file, or from code."""

import math
import tomllib
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cosen.data.splits import VALIDATION_SHARE
from cosen.errors import InputError, choices_hint

TABLES = ("options", "network_options")
"""Settings that hold settings of their own: ``options.cost_lr``, or a table in TOML."""


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a run gives.

    Attributes:
        data: A folder, a CSV, or a dataset's name.
        data_root: Where named datasets are.
        exclude: Classes to leave out.
        skip_broken: Leave out images that do not decode.
        split: ``auto`` (official, with a fifth of the training part where there is no test
            part; else ``fraction:0.8``), ``official``, ``fraction:0.6``,
            ``count:30``, ``count:30/50`` (training / most testing), ``fold:1/3``, or
            ``fold:seed/3``, where seeds walk through the folds.
        imbalance: What to leave of the training set, such as ``odd:0.1``.
        validation: The share of the training set held out for validation.
        seed: Fixes the split, the weights and the order.
        method: How to train.
        options: Options of the method, such as ``cost_lr``.
        objective: What validation measures: ``balanced``, where each class counts the same, or
            ``overall``, where each image does.
        expert: A CSV of misclassification costs that validation measures instead.
        network: ``auto``, or a network's name.
        network_options: Options of the network, such as the paper's ``reading``.
        weights: A file of pre-trained weights, or ``vgg16`` to download it.
        freeze: The layer up to which weights stay as they are.
        size: Pixels of a side; 0 takes the network's usual one.
        augment: Augmentations.
        epochs: Passes over the training set.
        batch_size: Images in a batch, over all processes.
        accumulate: Batches whose gradients are added up before a step.
        optimizer: ``sgd`` or ``adamw``.
        lr: The learning rate γ_θ.
        momentum: Of SGD.
        weight_decay: Of either optimizer.
        schedule: ``cosine``, ``step`` (a tenth at half and at three quarters) or ``constant``.
        clip: The largest norm of a gradient; 0 does not clip.
        ema: The decay of an average of the weights, such as 0.999; 0 keeps none.
        patience: Epochs without a lower validation error before it stops; 0 goes to the end.
        precision: ``auto``, ``float32`` or ``bfloat16``.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        devices: Processes, one for each device.
    """

    data: str = "digits"
    data_root: str | None = None
    exclude: tuple[str, ...] = ()
    skip_broken: bool = False
    split: str = "auto"
    imbalance: str | None = None
    validation: float = VALIDATION_SHARE
    seed: int = 0
    method: str = "cosen"
    options: dict[str, Any] = field(default_factory=dict)
    objective: Literal["overall", "balanced"] = "balanced"
    expert: str | None = None
    network: str = "auto"
    network_options: dict[str, Any] = field(default_factory=dict)
    weights: str | None = None
    freeze: str | None = None
    size: int = 0
    augment: tuple[str, ...] = ()
    epochs: int = 30
    batch_size: int = 64
    accumulate: int = 1
    optimizer: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 5e-4
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    clip: float = 0.0
    ema: float = 0.0
    patience: int = 0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: int = 1

    def __post_init__(self) -> None:
        for name, least in (
            ("epochs", 1),
            ("batch_size", 1),
            ("accumulate", 1),
            ("devices", 1),
            ("size", 0),
            ("patience", 0),
            ("lr", 0),
            ("clip", 0),
            ("weight_decay", 0),
        ):
            if getattr(self, name) < least:
                raise InputError(f"{name} must be at least {least}, but is {getattr(self, name)}")
        for name in ("ema", "momentum", "validation"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must lie in [0, 1), but is {getattr(self, name)}")
        for name in ("lr", "weight_decay", "clip"):
            if not math.isfinite(getattr(self, name)):
                raise InputError(f"{name} must be a finite number, but is {getattr(self, name)}")
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed must lie in 0..{2**32 - 1}, but is {self.seed}")

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def make_config(values: dict[str, Any], *, base: TrainConfig | None = None) -> TrainConfig:
    """A configuration with these values in place of the defaults (or of another's).

    Texts are converted to what a field holds, so that they may come from a command line. An
    unknown name is refused, with the nearest.

    Example:
        >>> make_config({"epochs": "5", "options.cost_lr": "0.2"}).options
        {'cost_lr': 0.2}
    """
    kinds = get_type_hints(TrainConfig)
    known = [entry.name for entry in fields(TrainConfig)]
    config = base or TrainConfig()
    converted: dict[str, Any] = {}
    tables: dict[str, Any] = {name: dict(getattr(config, name)) for name in TABLES}
    for name, value in values.items():
        table, _, key = name.partition(".")
        if table in TABLES and key:
            tables[table][key] = plain_value(value)
        elif table in TABLES and isinstance(value, dict):
            tables[table].update({key: plain_value(entry) for key, entry in value.items()})
        elif name not in known:
            raise InputError(f"there is no setting {name!r}{choices_hint(name, known)}")
        else:
            converted[name] = _converted(name, value, kinds[name])
    return replace(config, **converted, **tables)


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"there is no configuration {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _converted(name: str, value: Any, kind: Any) -> Any:
    """The value as a field of this kind holds it."""
    if get_origin(kind) in (Union, UnionType):
        if value is None:
            return None
        kind = next(option for option in get_args(kind) if option is not type(None))
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise InputError(f"{name} must be one of {', '.join(get_args(kind))}, but is {value!r}")
        return value
    if get_origin(kind) is tuple:
        return tuple(value.split(",")) if isinstance(value, str) else tuple(map(str, value))
    if kind is bool and isinstance(value, str):
        if value.lower() not in ("true", "false"):
            raise InputError(f"{name} must be true or false, but is {value!r}")
        return value.lower() == "true"
    try:
        if kind is int and isinstance(value, float):
            raise ValueError
        return kind(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be of type {kind.__name__}, but is {value!r}") from error


def plain_value(value: Any) -> Any:
    """A text as the number that it writes, or as true or false, if it writes one of them.

    Example:
        >>> plain_value("3"), plain_value("0.5"), plain_value("false"), plain_value("revert")
        (3, 0.5, False, 'revert')
    """
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value
