"""Provenance of a report: data, split, settings, versions, and the command that repeats it."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import PurePath
from typing import Any

from cosen.report.run_data import ReportData
from cosen.training.config import TrainConfig
from cosen.training.records import StartRecord

COMMANDS = ("train", "compare", "reproduce")
"""Commands that start a run or a study; other command lines are the user's programs."""

MACHINE_SETTINGS = ("data_root", "device", "devices")
LISTED_SETTINGS = (
    *("data", "split", "imbalance", "validation", "epochs", "objective"),
    *("seed", "method", "options", "network", "network_options"),
)
"""Settings with their own line."""

MAX_FINGERPRINTS = 5
FINGERPRINT_LENGTH = 12
"""Characters of a fingerprint if there are several."""


def provenance(data: ReportData) -> list[dict[str, str]]:
    """Names and values of everything that is needed to repeat the runs."""
    start, run = data.start, data.first.data
    config, splits = start.config, run.class_counts
    counts = splits.train.tolist()
    height, width, channels = run.size
    versions = {"cosen": start.version, **start.versions}
    lines = {
        "data": config.data,
        "fingerprint": _fingerprints(data),
        "split": f"{config.split}: {splits.train.sum()} training, {splits.val.sum()} validation "
        f"and {splits.test.sum()} test images",
        "imbalance": config.imbalance or "unchanged",
        "classes": f"{len(counts)}, with {min(counts)} to {max(counts)} training images each"
        + (f" (ratio {max(counts) / min(counts):.1f})" if min(counts) else ""),
        "validation": f"{100 * config.validation:g} % of the training images, unless the data has "
        "its own",
        "seeds": ", ".join(map(str, data.seeds)),
        "method": ", ".join(_called(name, options) for name, options in data.options.items()),
        "objective": data.objective.label,
        "network": f"{_called(run.network, data.first.record.config.network_options)}, images of "
        f"{width} × {height} pixels in {'grey' if channels == 1 else 'colour'}",
        "epochs": str(config.epochs),
        "other settings": _settings(_changed(config, TrainConfig(), LISTED_SETTINGS))
        or "the defaults",
        "compared with": _compared_with(data),
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "platform": start.platform,
        "started": _time(start.started),
    }
    return [{"name": name, "value": value} for name, value in lines.items() if value]


def command(start: StartRecord) -> str:
    """The command that repeats a run or a study; empty if another program started it."""
    words = start.command
    return shlex.join(words) if len(words) > 1 and words[1] in COMMANDS else ""


def data_title(config: TrainConfig) -> str:
    """The name of the data and its imbalance.

    Example:
        >>> data_title(TrainConfig(data="/photos/lesions.csv", imbalance="odd:0.1"))
        'lesions, odd:0.1'
    """
    name = PurePath(config.data).name.removesuffix(".csv") or config.data
    return f"{name}, {config.imbalance}" if config.imbalance else name


def different_settings(data: ReportData) -> str:
    """The settings of the baseline that differ from those of the chosen method."""
    if data.baseline is None:
        return ""
    other = next(iter(data.baseline.runs.values())).record.config
    return _settings(_changed(other, data.first.record.config, ("method", "options")))


def _compared_with(data: ReportData) -> str:
    if data.baseline is None:
        return ""
    config = next(iter(data.baseline.runs.values())).record.config
    different = different_settings(data)
    return _called(config.method, config.options) + (f", with {different}" if different else "")


def _changed(config: TrainConfig, other: TrainConfig, ignored: tuple[str, ...]) -> dict[str, Any]:
    """The settings that differ, except those that are ignored or depend on the machine."""
    others = asdict(other)
    return {
        name: value
        for name, value in asdict(config).items()
        if name not in (*ignored, *MACHINE_SETTINGS) and value != others[name]
    }


def _fingerprints(data: ReportData) -> str:
    found = {seed: run.data.fingerprint for seed, run in data.chosen.runs.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    short = [f"{text[:FINGERPRINT_LENGTH]} (seed {seed})" for seed, text in found.items()]
    return ", ".join(short[:MAX_FINGERPRINTS] + ["…"] * (len(short) > MAX_FINGERPRINTS))


def _called(name: str, options: Mapping[str, Any]) -> str:
    return f"{name} ({_settings(options)})" if options else name


def _settings(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_text(value)}" for name, value in values.items())


def _text(value: Any) -> str:
    """A setting as on the command line; a file without its folder."""
    if isinstance(value, list | tuple):
        return ",".join(map(_text, value))
    text = str(value)
    return PurePath(text).name if PurePath(text).is_absolute() or text.startswith("~") else text


def _time(text: str) -> str:
    """A readable form of a time in ISO format.

    Example:
        >>> _time("2026-11-16T02:32:04+00:00")
        '2026-11-16 02:32 UTC'
    """
    try:
        return f"{datetime.fromisoformat(text):%Y-%m-%d %H:%M %Z}".strip()
    except ValueError:
        return text
