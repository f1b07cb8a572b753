"""How a run or a study was started, in words: its data, settings, time and command."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import PurePath
from typing import Any

from cosen.training.config import TrainConfig
from cosen.training.records import StartRecord

COMMANDS = ("train", "compare", "reproduce")
"""Commands that start a run or a study; other command lines are the user's programs."""

CLUSTER = "--cluster"
"""An option whose value is the address of a machine."""

MACHINE_SETTINGS = ("data_root", "device", "devices")
"""Settings that depend on the machine."""


def command(start: StartRecord) -> str:
    """The command that repeats a run or a study; empty if another program started it."""
    words = start.command
    return shlex.join(words) if len(words) > 1 and words[1] in COMMANDS else ""


def public_command(start: StartRecord) -> str:
    """The command without addresses and the folders of absolute paths, which others do not have.

    Example:
        >>> from types import SimpleNamespace as Start
        >>> public_command(Start(command=("cosen", "train", "/home/me/photos", "--out=~/runs/a")))
        'cosen train photos --out=a'
    """
    words: list[str] = []
    for before, word in zip(("", *start.command), start.command, strict=False):
        if CLUSTER not in (before, word.partition("=")[0]):
            words.append(_without_folders(word))
    return shlex.join(words) if command(start) else ""


def _without_folders(text: str) -> str:
    """Remove the folders of an absolute path, or of those among options.

    Example:
        >>> _without_folders("cosen-paper(trials=3,misclassification_costs=/home/me/costs.csv)")
        'cosen-paper(trials=3,misclassification_costs=costs.csv)'
    """
    if PurePath(text).is_absolute() or text.startswith("~"):
        return PurePath(text).name
    return re.sub(r"(?<=[=,(])[~/][^,()=]*/", "", text)


def data_title(config: TrainConfig) -> str:
    """The name of the data and its imbalance.

    Example:
        >>> data_title(TrainConfig(data="/photos/lesions.csv", imbalance="odd:0.1"))
        'lesions, odd:0.1'
    """
    name = PurePath(config.data).name.removesuffix(".csv") or config.data
    return f"{name}, {config.imbalance}" if config.imbalance else name


def changed_settings(
    config: TrainConfig, other: TrainConfig, ignored: tuple[str, ...]
) -> dict[str, Any]:
    """The settings that differ, except those that are ignored or depend on the machine."""
    others = asdict(other)
    return {
        name: value
        for name, value in asdict(config).items()
        if name not in (*ignored, *MACHINE_SETTINGS) and value != others[name]
    }


def with_options(name: str, options: Mapping[str, Any]) -> str:
    """A name and the options that were set."""
    return f"{name} ({settings_text(options)})" if options else name


def settings_text(values: Mapping[str, Any]) -> str:
    """Settings on one line, files without their folders.

    Example:
        >>> settings_text({"epochs": 5, "weights": "/models/resnet50.safetensors"})
        'epochs=5, weights=resnet50.safetensors'
    """
    return ", ".join(f"{name}={_text(value)}" for name, value in values.items())


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    if isinstance(value, Mapping):
        return f"({settings_text(value)})"
    return _without_folders(str(value))


def time_text(text: str) -> str:
    """A readable form of a time in ISO format.

    Example:
        >>> time_text("2026-11-16T02:32:04+00:00")
        '2026-11-16 02:32 UTC'
    """
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M %Z}".strip()
    except ValueError:
        return text
