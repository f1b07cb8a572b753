"""A model card: a Markdown page with the front matter of the Hugging Face hub.

All facts come from the files of a finished run. What only the user knows is marked *To fill in*.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from jinja2 import Environment, PackageLoader, StrictUndefined

from cosen import functional as F
from cosen.errors import RunError, escape_controls
from cosen.inference.decisions import Known, ReviewBudget
from cosen.inference.evaluate_run import stored_metrics
from cosen.methods import METHODS
from cosen.networks import NETWORKS
from cosen.networks.network import Outputs
from cosen.networks.pretrained import hub_name, title
from cosen.training.calibration import Calibration
from cosen.training.config import TrainConfig
from cosen.training.model_file import OWN
from cosen.training.provenance import (
    changed_settings,
    data_title,
    public_command,
    settings_text,
    time_text,
    with_options,
)
from cosen.training.records import METRIC_TITLES, Metrics, ModelInfo, RunRecord, StartRecord
from cosen.training.run_folder import RunFolder, open_tensors

LISTED_UP_TO = 50
"""Classes up to which the card lists all of them."""

MAX_LISTED = 10
"""Classes with the lowest recall, and with the fewest images, of those with more classes."""

MAX_NAMES = 10
"""Classes that a sentence names."""

FEW_IMAGES = 10
"""A recall from fewer test images is marked as uncertain."""

REVIEWED = 0.1
"""Share of images that a person checks, in the example."""

LIBRARIES = {"onnx": "onnx", "torchscript": "pytorch", "hub": "timm"}
"""The library that loads each format, as the hub calls it."""

HUB_METRICS = {"accuracy": "accuracy", "mean_recall": "recall", "macro_f1": "f1"}
"""Our metrics that the hub has a name for."""


@dataclass(frozen=True)
class ClassRow:
    """Images of a class in each split, and its results on test images."""

    name: str
    train: int
    val: int
    test: int
    recall: float | None  # None without test images
    interval: tuple[float, float]  # of the recall, 95 %
    precision: float


@dataclass(frozen=True)
class Origin:
    """The study that chose a run.

    Attributes:
        start: How it was started.
        methods: The methods that it compared.
        seeds: The number of seeds.
    """

    start: StartRecord
    methods: tuple[str, ...]
    seeds: int


def model_card(
    run: Path,
    info: ModelInfo,
    name: str,
    format: str,
    note: str = "",
    *,
    study: Origin | None = None,
) -> str:
    """Return the card of a finished run.

    Args:
        run: The run folder.
        info: Its ``model.json``.
        name: The name of the exported file or folder.
        format: ``onnx``, ``torchscript`` or ``hub``.
        note: A restriction of the exported model; empty if there is none.
        study: The study that chose the run, if one did.
    """
    folder, name = RunFolder.existing(run), escape_controls(name)
    metrics, record, outputs = folder.metrics().test, folder.record(), folder.predictions()
    sizes = {len(info.class_names), len(metrics.class_recall), outputs["test"].logits.shape[1]}
    if sizes != {len(record.prepared.class_names)}:
        raise RunError(f"{run} is damaged: its files have different numbers of classes")
    rows = _class_rows(record, metrics)
    worst = sorted((row for row in rows if row.recall is not None), key=lambda row: row.recall or 0)
    rarest = sorted(rows, key=lambda row: row.train)
    some = {row.name for row in (*worst[:MAX_LISTED], *rarest[:MAX_LISTED])}
    listed = rows if len(rows) <= LISTED_UP_TO else [row for row in rarest if row.name in some]
    correct = round(metrics.samples * (metrics.accuracy or 0))
    splits = record.prepared.class_counts
    counts = info.class_counts.clamp(min=1)
    return (
        _environment()
        .get_template("model_card.md.j2")
        .render(
            front_matter=_front_matter(record, metrics, name, format, note),
            name=name,
            format=format,
            note=note,
            info=info,
            data=data_title(record.config),
            config=record.config,
            objective=record.objective.label,
            images={
                "training": int(splits.train.sum()),
                "validation": int(splits.val.sum()),
                "test": int(splits.test.sum()),
            },
            imbalance=float(counts.max() / counts.min()),
            network=_network(record),
            method=with_options(record.config.method, record.config.options),
            description=_description(record.config.method),
            costs=_learned_costs(folder.path),
            metrics=metrics,
            for_training=stored_metrics(run, prior="train").test,
            titles=METRIC_TITLES,
            accuracy_interval=_interval(correct, metrics.samples),
            rows=listed,
            classes=len(rows),
            max_listed=MAX_LISTED,
            untested=[row.name for row in rows if not row.test],
            rarest=rarest[0],
            uncertain=[row.name for row in rows if 0 < row.test < FEW_IMAGES],
            few_images=FEW_IMAGES,
            worst=[row for row in worst[:3] if row.recall != 1],
            confusions=_confusions(metrics, info.class_names),
            calibration=_calibration_losses(info.calibration, outputs["test"]),
            assumed=_range_of(_assumed_shares(info.calibration), info.class_names),
            trained=_range_of(info.calibration.training_shares, info.class_names),
            review=_review(info, outputs),
            command=escape_controls(public_command(study.start if study else record)),
            chosen_among=study.methods if study else (),
            seeds=study.seeds if study else 1,
            settings=settings_text(
                changed_settings(record.config, TrainConfig(), ("data", "seed"))
            ),
            record=record,
            started=time_text(record.started),
        )
    )


def _front_matter(record: RunRecord, metrics: Metrics, name: str, format: str, note: str) -> str:
    """Return the YAML that the hub reads. The licence is for the user to add."""
    from huggingface_hub import EvalResult, ModelCardData

    data = escape_controls(data_title(record.config))
    found = {metric: getattr(metrics, metric) for metric in HUB_METRICS}
    results = [
        EvalResult(
            task_type="image-classification",
            dataset_type=re.sub(r"[^A-Za-z0-9._-]+", "-", data).strip("-") or "images",
            dataset_name=data,
            dataset_split="test",
            metric_type=HUB_METRICS[metric],
            metric_name=METRIC_TITLES[metric],
            metric_value=round(value, 4),
        )
        for metric, value in found.items()
        if value is not None
    ]
    network, config = record.prepared.network, record.config
    is_pretrained = network not in (*NETWORKS, OWN) and config.weights is None
    library = "cosen" if note else LIBRARIES[format]
    return str(
        ModelCardData(
            model_name=Path(name).stem,
            library_name=library,
            pipeline_tag="image-classification",
            tags=list(dict.fromkeys(["imbalanced-data", "cosen", library])),
            base_model=hub_name(network) if is_pretrained else None,
            metrics=[HUB_METRICS[metric] for metric, value in found.items() if value is not None],
            eval_results=results or None,
        ).to_yaml()
    )


def _class_rows(record: RunRecord, metrics: Metrics) -> list[ClassRow]:
    splits, sums = record.prepared.class_counts, F.confusion_sums(metrics.counts)
    columns = zip(
        record.prepared.class_names,
        *(part.tolist() for part in (splits.train, splits.val)),
        sums.actual.long().tolist(),
        metrics.class_recall,
        sums.right.long().tolist(),
        metrics.class_precision,
        strict=True,
    )
    return [
        ClassRow(name, train, val, test, recall, _interval(right, test), precision)
        for name, train, val, test, recall, right, precision in columns
    ]


def _interval(right: int, total: int) -> tuple[float, float]:
    """Return the 95 % interval of a share by Clopper and Pearson.

    Example:
        >>> [round(end, 3) for end in _interval(9, 10)]
        [0.555, 0.997]
    """
    from scipy.stats import beta  # type: ignore[import-untyped]

    low = float(beta.ppf(0.025, right, total - right + 1)) if right else 0.0
    high = float(beta.ppf(0.975, right + 1, total - right)) if right < total else 1.0
    return low, high


def _confusions(metrics: Metrics, names: Sequence[str]) -> list[tuple[str, str, int]]:
    """Return the most frequent errors: true class, predicted class, images."""
    cells = metrics.counts.to_sparse().coalesce()
    (rows, columns), values = cells.indices(), cells.values()
    wrong = (rows != columns) & (values > 0)
    order = values[wrong].argsort(descending=True, stable=True)[:MAX_NAMES]
    found = torch.stack([part[wrong][order].long() for part in (rows, columns, values)], 1)
    return [(names[row], names[column], count) for row, column, count in found.tolist()]


def _calibration_losses(calibration: Calibration, test: Outputs) -> tuple[float, float]:
    """Return the log loss of the softmax, and of calibrated probabilities for the test shares."""
    shares = test.target.bincount(minlength=test.logits.shape[1])
    loss = torch.nn.functional.cross_entropy
    before = loss(test.logits.double(), test.target)
    return float(before), float(loss(calibration.logits(test.logits, shares), test.target))


def _assumed_shares(calibration: Calibration) -> torch.Tensor:
    """Return the class shares for which the softmax of o / T is the posterior: π ∝ h exp(-b)."""
    shares = calibration.training_shares * (-calibration.offsets).exp()
    return shares / shares.sum()


def _range_of(shares: torch.Tensor, names: Sequence[str]) -> list[tuple[str, float]]:
    """Return the smallest and the largest share, with the names of the classes."""
    return [(names[int(at)], float(shares[at])) for at in (shares.argmin(), shares.argmax())]


def _review(info: ModelInfo, outputs: dict[str, Outputs]) -> str:
    """Say what a review of the least certain images gives; empty without validation images."""
    val, test = (
        Known(info.calibration.probabilities(part.logits), part.target, info.class_names)
        for part in (outputs["val"], outputs["test"])
    )
    return ReviewBudget(REVIEWED).fit(val).describe(test) if len(val.target) else ""


def _network(record: RunRecord) -> str:
    name = record.prepared.network
    if name == OWN:
        return "a custom network, whose code is not part of the model"
    return name if name in NETWORKS else title(name, record.config.weights)


def _description(method: str) -> str:
    return METHODS[method].description if method in METHODS else "a custom method"


def _learned_costs(run: Path) -> tuple[float, float] | None:
    """Return τ and m after the last step of the default method."""
    files = sorted((run / "costs").glob("*.safetensors"))
    if not files:
        return None
    facts = open_tensors(files[-1]).metadata() or {}
    return (float(facts["tau"]), float(facts["margin"])) if "tau" in facts else None


def markdown(text: str) -> str:
    r"""Escape a text for a line or a table cell of Markdown.

    Example:
        >>> print(markdown("cat|*dog*\n_x_ a_b"))
        cat\|\*dog\*\\n_x\_ a_b
    """
    line = re.sub(r"[\\`*\[\]<>|&~$#]", r"\\\g<0>", escape_controls(text))
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\_", line)


def _names(names: Iterable[str]) -> str:
    """Return some names in a sentence, and how many others there are."""
    found = list(names)
    more = f" and {len(found) - MAX_NAMES} more" if len(found) > MAX_NAMES else ""
    return ", ".join(map(markdown, found[:MAX_NAMES])) + more


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f} %"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cosen.inference"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters = {"md": markdown, "names": _names, "percent": _percent, "shell": shlex.quote}
    environment.filters |= filters
    return environment
