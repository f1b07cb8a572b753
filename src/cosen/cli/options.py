"""Options that several commands share."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from cosen.errors import InputError

Data = Annotated[
    str | None,
    typer.Argument(
        help="Folder of class folders, CSV of paths and labels, or dataset name; default: digits.",
        show_default=False,
    ),
]
DataRoot = Annotated[
    Path | None, typer.Option("--data-root", help="Folder of named datasets; default: COSEN_DATA.")
]
Exclude = Annotated[
    list[str] | None, typer.Option("--exclude", help="Class to exclude; may be repeated.")
]
SkipBroken = Annotated[
    bool, typer.Option("--skip-broken", help="Skip images that cannot be decoded.")
]
Split = Annotated[str | None, typer.Option(help="official, fraction:0.6, fold:1/3, ...")]
Imbalance = Annotated[
    str | None, typer.Option(help="Reduce training classes: odd:0.1, longtail:100, ...")
]
Objective = Annotated[
    str | None,
    typer.Option(
        help="What to measure: balanced (mean class recall), overall (accuracy), or a CSV of "
        "misclassification costs."
    ),
]
Decide = Annotated[
    str | None,
    typer.Option(
        help="How to decide: probability, recall:NAME=0.95, review:0.1 (a person checks a tenth) "
        "or sets:0.9. Thresholds come from the validation images."
    ),
]
Ensemble = Annotated[
    bool, typer.Option("--ensemble", help="Average all seeds of the chosen method of a study.")
]
Tta = Annotated[
    Literal["flip"] | None,
    typer.Option(help="flip: average the outputs for each image and its mirror image."),
]
Prior = Annotated[
    str | None,
    typer.Option(
        help="Class shares where the model is used: train, balanced, estimate (from the images), "
        "or cat=0.1,dog=0.9. Default: the outputs as they are."
    ),
]
MisclassificationCosts = Annotated[
    Path | None,
    typer.Option(help="CSV of costs, row = true class: minimise the expected cost."),
]
Network = Annotated[
    str | None,
    typer.Option(help="Network: a name (cosen network), my_module:make, or auto."),
]
OwnNetwork = Annotated[
    str | None, typer.Option("--network", help="my_module:make, if the run trained your network.")
]
Weights = Annotated[
    str | None, typer.Option(help="File of pretrained weights, or vgg16 to download them.")
]
Finetune = Annotated[
    str | None,
    typer.Option(
        help="Which part of a pretrained network to train: none, light, last, all or auto."
    ),
]
Size = Annotated[int | None, typer.Option(min=1, help="Image size in pixels.")]
Augment = Annotated[str | None, typer.Option(help="crop,flip,colour,randaugment,mixup.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the training set.")]
BatchSize = Annotated[int | None, typer.Option(help="Images per batch.")]
Lr = Annotated[float | None, typer.Option(help="Learning rate.")]
Seed = Annotated[int | None, typer.Option(help="Seed of split, weights and order; default: 0.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps; default: auto.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="TOML file of settings; options override it.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="Any other setting: NAME=VALUE; may be repeated."),
]
Run = Annotated[Path, typer.Argument(help="Run or study folder.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def given(**options: Any) -> dict[str, Any]:
    """Return the options that the user gave, as plain values."""
    settings = {}
    for name, value in options.items():
        if value is None or value is False or value == []:
            continue
        if isinstance(value, list):
            value = tuple(value)
        settings[name] = str(value) if isinstance(value, Path) else value
    return settings


def parse_set(texts: Sequence[str] | None) -> dict[str, str]:
    """Return the names and values of ``--set name=value``."""
    settings = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set takes NAME=VALUE, but was given {text!r}")
        settings[name] = value
    return settings


def find_modules_here(*names: str) -> None:
    """Also search the current folder for modules, if a name is the user's ``module:Class``.

    It is searched last: a file there cannot replace a module that cosen imports.
    """
    if "" not in sys.path and any(":" in name for name in names):
        sys.path.append("")


def parse_out(text: str) -> Path:
    """Return the folder of ``--out``; an empty name would be the current folder."""
    if not text:
        raise InputError("--out is empty: give the name of a folder")
    return Path(text)
