"""Provenance of a report: data, split, settings and versions."""

from cosen.report.run_data import ReportData
from cosen.training.config import TrainConfig
from cosen.training.provenance import changed_settings, settings_text, time_text, with_options

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
        "method": ", ".join(with_options(name, options) for name, options in data.options.items()),
        "objective": data.objective.label,
        "network": with_options(run.network, data.first.record.config.network_options)
        + f", images of {width} × {height} pixels in {'grey' if channels == 1 else 'colour'}",
        "epochs": str(data.first.record.config.epochs or "the default"),
        "other settings": settings_text(changed_settings(config, TrainConfig(), LISTED_SETTINGS))
        or "the defaults",
        "compared with": _compared_with(data),
        "versions": ", ".join(f"{name} {number}" for name, number in versions.items()),
        "platform": start.platform,
        "started": time_text(start.started),
    }
    return [{"name": name, "value": value} for name, value in lines.items() if value]


def different_settings(data: ReportData) -> str:
    """The settings of the baseline that differ from those of the chosen method."""
    if data.baseline is None:
        return ""
    other = next(iter(data.baseline.runs.values())).record.config
    return settings_text(changed_settings(other, data.first.record.config, ("method", "options")))


def _compared_with(data: ReportData) -> str:
    if data.baseline is None:
        return ""
    config = next(iter(data.baseline.runs.values())).record.config
    different = different_settings(data)
    return with_options(config.method, config.options) + (
        f", with {different}" if different else ""
    )


def _fingerprints(data: ReportData) -> str:
    found = {seed: run.data.fingerprint for seed, run in data.chosen.runs.items()}
    if len(found) == 1:
        return next(iter(found.values()))
    short = [f"{text[:FINGERPRINT_LENGTH]} (seed {seed})" for seed, text in found.items()]
    return ", ".join(short[:MAX_FINGERPRINTS] + ["…"] * (len(short) > MAX_FINGERPRINTS))
