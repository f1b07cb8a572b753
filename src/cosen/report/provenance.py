"""How it was made: data, split, settings, versions, and the command that repeats it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import PurePath
from typing import Any

from cosen.comparing.leaderboard_table import Measure
from cosen.report.run_data import Shown, ShownRun
from cosen.training.config import TrainConfig

COMMANDS = ("train", "compare", "reproduce")
"""What a run or a study is started with; anything else is a program of the user's own."""

SHOWN_BY_NAME = ("data", "split", "imbalance", "validation", "epochs", "objective", "expert")
TOLD_APART = ("seed", "method", "options", "network", "network_options")
OF_THE_MACHINE = ("data_root", "device", "devices")

MOST_FINGERPRINTS = 5
FINGERPRINT_LENGTH = 12
"""Characters of a fingerprint where there are several."""


def made(shown: Shown, about: Mapping[str, Any]) -> list[dict[str, str]]:
    """What a reader needs to know to make it again, line by line.

    Args:
        shown: The runs.
        about: Of the run or the study.
    """
    config = about["config"]
    lines = {
        "data": config["data"],
        "fingerprint": _fingerprints(shown),
        "split": f"{config['split']}: {_images(shown.first)}",
        "imbalance": config["imbalance"] or "as the data has it",
        "classes": _class_counts(shown),
        "validation": f"{100 * config['validation']:g} % of the training images, unless the data "
        "has its own",
        "seeds": ", ".join(map(str, shown.seeds)),
        "method": _methods(about),
        "objective": Measure.of(shown.first.folder.objective()).name,
        "network": _network(shown.first.about),
        "epochs": str(config["epochs"]),
        "other settings": _settings(_unusual(config)) or "the defaults",
        "held against": _held_against(shown),
        "versions": _versions(about),
        "platform": about.get("platform", ""),
        "started": _moment(about.get("started", "")),
    }
    return [{"name": name, "value": value} for name, value in lines.items() if value]


def command(about: Mapping[str, Any]) -> str:
    """What repeats it on a command line; empty where it was made by a program of another's.

    Example:
        >>> command({"command": ["cosen", "train", "my photos/"]}), command({"command": ["cosen"]})
        ("cosen train 'my photos/'", '')
        >>> command({"command": ["cosen", "reproduce", "MNISTexp", "--row", "10%) of odd"]})
        "cosen reproduce MNISTexp --row '10%) of odd'"
    """
    words: Sequence[str] = about.get("command", ())
    return shlex.join(words) if len(words) > 1 and words[1] in COMMANDS else ""


def title(about: Mapping[str, Any]) -> str:
    """The data and what was left of it.

    Example:
        >>> title({"config": {"data": "/photos/lesions.csv", "imbalance": "odd:0.1"}})
        'lesions, odd:0.1'
    """
    data, imbalance = about["config"]["data"], about["config"]["imbalance"]
    name = PurePath(data).name.removesuffix(".csv") or data
    return f"{name}, {imbalance}" if imbalance else name


def _fingerprints(shown: Shown) -> str:
    found = {seed: str(run.about["fingerprint"]) for seed, run in shown.chosen.runs.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    short = [f"{text[:FINGERPRINT_LENGTH]} (seed {seed})" for seed, text in found.items()]
    return ", ".join(short[:MOST_FINGERPRINTS] + ["…"] * (len(short) > MOST_FINGERPRINTS))


def _images(run: ShownRun) -> str:
    counts = {part: sum(found) for part, found in run.about["class_counts"].items()}
    return (
        f"{counts['train']} training, {counts['val']} validation and {counts['test']} test images"
    )


def _class_counts(shown: Shown) -> str:
    counts = shown.first.train_counts
    least, most = min(counts), max(counts)
    ratio = f" ({most / least:.1f} : 1)" if least else ""
    return f"{len(counts)}, with {least} to {most} training images each{ratio}"


def _methods(about: Mapping[str, Any]) -> str:
    if "methods" in about:
        return ", ".join(_called(name, m["options"]) for name, m in about["methods"].items())
    return _called(about["config"]["method"], about["config"]["options"])


def _called(method: str, options: Mapping[str, Any]) -> str:
    return f"{method} ({_settings(options)})" if options else method


def _network(about: Mapping[str, Any]) -> str:
    height, width, channels = about["network"]["size"]
    options = _settings(about["config"]["network_options"])
    return (
        f"{about['network']['name']}{f' ({options})' if options else ''}, images of {width} × "
        f"{height} pixels in {'grey' if channels == 1 else 'colour'}"
    )


def _unusual(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that differ from the defaults and are not shown otherwise."""
    usual = asdict(TrainConfig())
    told = (*SHOWN_BY_NAME, *TOLD_APART, *OF_THE_MACHINE)
    return {
        name: value
        for name, value in config.items()
        if name not in told and _plain(value) != _plain(usual.get(name))
    }


def _held_against(shown: Shown) -> str:
    """The other method, and what else was set otherwise; nothing where there is no other."""
    if shown.baseline is None:
        return ""
    other = next(iter(shown.baseline.runs.values())).about["config"]
    called, differing = _called(other["method"], other["options"]), settings_apart(shown)
    return f"{called}, with {differing}" if differing else called


def settings_apart(shown: Shown) -> str:
    """What the other runs were set otherwise, but for the method; empty where nothing was."""
    if shown.baseline is None:
        return ""
    other = next(iter(shown.baseline.runs.values())).about["config"]
    own = shown.first.about["config"]
    return _settings(
        {
            name: value
            for name, value in other.items()
            if name not in ("method", "options", *OF_THE_MACHINE) and own.get(name) != value
        }
    )


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in values.items())


def _text(value: Any) -> str:
    """A setting as it is typed, but for where on a machine a file was."""
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    text = str(value)
    return PurePath(text).name if PurePath(text).is_absolute() or text.startswith("~") else text


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _versions(about: Mapping[str, Any]) -> str:
    versions = {"cosen": about.get("cosen", "?"), **about.get("versions", {})}
    return ", ".join(f"{name} {number}" for name, number in versions.items())


def _moment(text: str) -> str:
    """The moment that a run was started, as people write it.

    Example:
        >>> _moment("2026-11-16T02:32:04+00:00")
        '2026-11-16 02:32 UTC'
    """
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M %Z}".strip()
    except ValueError:
        return text
