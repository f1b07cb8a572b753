"""The settings of a run: from command-line options, a TOML file, or keywords."""

import tomllib
from collections.abc import Mapping
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from cosen.data.decoding import MAX_SIDE
from cosen.data.splits import VALIDATION_SHARE
from cosen.errors import InputError, choices_hint
from cosen.files import read_regular

TABLES = ("options", "network_options")
"""Settings with nested settings: ``options.cost_lr``, or a table in TOML."""


def _number(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


def _names(value: Any) -> Any:
    return tuple(value.split(",")) if isinstance(value, str) else value


def _objective(value: Any) -> Any:
    if value in ("overall", "balanced") or str(value).lower().endswith(".csv"):
        return str(value)
    raise ValueError("must be overall, balanced or a CSV of misclassification costs")


Whole = Annotated[int, BeforeValidator(_number)]
Real = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class TrainConfig:
    """All settings that affect the result of a run.

    Attributes:
        data: A folder, a CSV, or the name of a dataset.
        data_root: The folder of named datasets.
        exclude: Classes to exclude.
        skip_broken: Skip images that cannot be decoded.
        split: ``auto`` (official splits if the data has them, else ``fraction:0.8``),
            ``official``, ``fraction:0.6``, ``count:30``, ``count:30/50`` (training images / largest
            number of test images), ``fold:1/3``, or ``fold:seed/3`` (the seed selects the fold).
        imbalance: Which part of the training set to keep, such as ``odd:0.1``.
        validation: The share of the training set held out for validation.
        seed: Fixes the split, the initial weights and the order of images.
        method: The name of a method.
        options: Options of the method, such as ``cost_lr``.
        objective: What validation measures: ``balanced`` (classes have equal weight), ``overall``
            (images have equal weight), or a CSV of misclassification costs.
        network: ``auto``, or the name of a network.
        network_options: Options of the network, such as ``reading`` of the paper's network.
        weights: A file of pretrained weights, or ``vgg16`` to download them.
        finetune: What to train of a pretrained network: ``none`` (the output layer), ``light``
            (also norms and biases), ``last`` (the last stages), ``all``, or ``auto``.
        head: The output layer on pretrained features: ``linear``, ``cosine``, or ``auto``, which
            cross-validates its form and its weight decay on the training images.
        freeze: The layer up to which weights are frozen.
        size: Image size in pixels; 0 uses the default of the network.
        augment: Augmentations. None, here and below, is the default of the network and of
            ``finetune``.
        epochs: Passes over the training set.
        batch_size: Images per batch, over all processes.
        accumulate: Batches whose gradients are summed before a step.
        optimizer: ``sgd`` or ``adamw``.
        lr: Learning rate γ_θ.
        pretrained_lr: Factor of the learning rate for pretrained layers.
        warmup: Share of the training in which the learning rate rises from 0.
        momentum: Momentum of SGD.
        weight_decay: Weight decay of either optimizer.
        schedule: ``cosine``, ``step`` (a tenth at half and at three quarters) or ``constant``.
        clip: Largest gradient norm; 0 does not clip.
        ema: Decay of an average of the weights, such as 0.999; 0 keeps no average.
        patience: Epochs without a lower validation error before training stops; 0 never stops.
        precision: ``auto``, ``float32`` or ``bfloat16``.
        compile: Compile the network with ``torch.compile``.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        devices: Number of processes, one per device.
    """

    data: str = "digits"
    data_root: str | None = None
    exclude: Names = ()
    skip_broken: bool = False
    split: str = "auto"
    imbalance: str | None = None
    validation: Annotated[Real, Field(ge=0, lt=1)] = VALIDATION_SHARE
    seed: Annotated[Whole, Field(ge=0, lt=2**32)] = 0
    method: str = "cosen"
    options: dict[str, Any] = Field(default_factory=dict)
    objective: Annotated[str, BeforeValidator(_objective)] = "balanced"
    network: str = "auto"
    network_options: dict[str, Any] = Field(default_factory=dict)
    weights: str | None = None
    finetune: Literal["auto", "none", "light", "last", "all"] = "auto"
    head: Literal["auto", "linear", "cosine"] = "auto"
    freeze: str | None = None
    size: Annotated[Whole, Field(ge=0, le=MAX_SIDE)] = 0
    augment: Names | None = None
    epochs: Annotated[Whole, Field(ge=1)] | None = None
    batch_size: Annotated[Whole, Field(ge=1)] = 64
    accumulate: Annotated[Whole, Field(ge=1)] = 1
    optimizer: Literal["sgd", "adamw"] | None = None
    lr: Annotated[Real, Field(gt=0)] | None = None
    pretrained_lr: Annotated[Real, Field(ge=0)] | None = None
    warmup: Annotated[Real, Field(ge=0, lt=1)] | None = None
    momentum: Annotated[Real, Field(ge=0, lt=1)] = 0.9
    weight_decay: Annotated[Real, Field(ge=0)] | None = None
    schedule: Literal["cosine", "step", "constant"] = "cosine"
    clip: Annotated[Real, Field(ge=0)] | None = None
    ema: Annotated[Real, Field(ge=0, lt=1)] = 0.0
    patience: Annotated[Whole, Field(ge=0)] = 0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    compile: bool = False
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    devices: Annotated[Whole, Field(ge=1)] = 1


_init = TrainConfig.__init__


@wraps(_init)
def _init_with_plain_errors(self: TrainConfig, *args: Any, **values: Any) -> None:
    try:
        _init(self, *args, **values)
    except ValidationError as error:
        raise InputError(explain(error)) from None


TrainConfig.__init__ = _init_with_plain_errors  # type: ignore[method-assign]


def make_config(values: Mapping[str, Any], *, base: TrainConfig | None = None) -> TrainConfig:
    """Return a configuration with these values instead of the defaults (or those of ``base``).

    Strings are converted to the type of the setting, so they may come from a command line. An
    unknown name raises an error that suggests the closest one.

    Example:
        >>> make_config({"epochs": "5", "options.cost_lr": "0.2"}).options
        {'cost_lr': 0.2}
        >>> make_config({"method": "cosen(margin=4)"}).options
        {'margin': 4}
    """
    from cosen.methods import parse_method, plain_value  # slow to import

    config = base or TrainConfig()
    known = [field.name for field in fields(TrainConfig)]
    changes: dict[str, Any] = {name: dict(getattr(config, name)) for name in TABLES}
    for name, value in values.items():
        table, _, key = name.partition(".")
        if table in TABLES and key:
            changes[table][key] = plain_value(value)
        elif table in TABLES and isinstance(value, dict):
            changes[table].update({key: plain_value(entry) for key, entry in value.items()})
        elif name == "method" and isinstance(value, str):
            changes["method"], options = parse_method(value)
            changes["options"].update(options)
        elif name not in known:
            raise InputError(f"there is no setting {name!r}{choices_hint(name, known)}")
        else:
            changes[name] = value
    return replace(config, **changes)


RULES = {
    "greater_than": "must be above {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "less_than": "must be below {lt:g}",
    "literal_error": "must be one of {expected}",
    "finite_number": "must be a finite number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "value_error": "{error}",
}
"""Requirements of settings, by the type of pydantic's error."""


def explain(error: ValidationError) -> str:
    """Return the first problem that pydantic found as one sentence."""
    found = error.errors()[0]
    rule = f"is not valid ({found['msg'][0].lower()}{found['msg'][1:]})"
    if found["type"] in RULES:
        rule = RULES[found["type"]].format(**found.get("ctx", {}))
    return f"{'.'.join(map(str, found['loc']))} {rule}, but is {found['input']!r}"


def read_config(path: Path) -> dict[str, Any]:
    """Read the settings in a TOML file."""
    try:
        return tomllib.loads(read_regular(path).decode("utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"there is no configuration file {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
