"""Typed records: the JSON files of a run folder."""

import platform
import sys
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError
from pydantic.dataclasses import dataclass
from torch import Tensor

import cosen
from cosen.costs import Objective
from cosen.data.batches import Normalise
from cosen.data.decoding import Preprocess
from cosen.errors import InputError, RunError
from cosen.methods.method import Setting
from cosen.training.calibration import Calibration, make_calibration
from cosen.training.checksums import read_checked, write_checked_text
from cosen.training.config import TrainConfig, explain


def _class_counts(values: Any) -> Tensor:
    counts = torch.as_tensor(values)
    if counts.ndim != 1:
        raise ValueError("must be a list of numbers")
    return counts


ClassCounts = Annotated[
    Tensor, BeforeValidator(_class_counts), PlainSerializer(lambda counts: counts.tolist())
]
"""Samples per class, int64 of shape ``(C,)``; a list in JSON."""


class _Frozen(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, ser_json_inf_nan="constants"
    )


class Record(_Frozen):
    """A record with its own JSON file."""

    FILE: ClassVar[str]

    def write(self, folder: Path) -> None:
        """Write the file completely or not at all."""
        write_checked_text(folder / self.FILE, self.model_dump_json(indent=2))

    @classmethod
    def read(
        cls, folder: Path, *, missing: str = "the run is not finished; resume it with --resume"
    ) -> Self:
        """Read the file; ``missing`` is the error message if there is no such file."""
        path = folder / cls.FILE
        try:
            return cls.model_validate_json(read_checked(path))
        except FileNotFoundError as error:
            raise RunError(f"{folder} has no {cls.FILE}: {missing}") from error
        except ValidationError as error:
            raise RunError(f"{path} is damaged: {explain(error)}") from error
        except (InputError, ValueError, TypeError, RuntimeError, OverflowError) as error:
            raise RunError(f"{path} is damaged: {error}") from error
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from error

    def changed(self, **values: Any) -> Self:
        """Return a copy with other values."""
        return self.model_copy(update=values)


class SplitCounts(_Frozen):
    """Images per class in each split."""

    train: ClassCounts
    val: ClassCounts
    test: ClassCounts


class DataRecord(_Frozen):
    """Facts about the data of a run."""

    fingerprint: str  # changes with any image, label or split
    class_names: tuple[str, ...]
    class_counts: SplitCounts
    network: str
    size: tuple[int, int, int]  # height, width and channels
    misclassification_costs: tuple[tuple[float, ...], ...] | None = None  # from a CSV


class TuningRecord(_Frozen):
    """How a run chose its options before training."""

    trials: int
    folds: int
    seconds: float
    sentence: str


def head_label(
    output: str, weight_decay: float, weighting: float = 0.0, margin: float | None = None
) -> str:
    """Describe a candidate for the output layer.

    Example:
        >>> head_label("linear", 0.01, 1.0)
        'linear, weight decay 0.01, class weights'
        >>> head_label("cosine", 0.001, margin=0.0)
        'cosine, weight decay 0.001, margin 0'
    """
    weights = ", class weights" if weighting == 1 else f", weighting {weighting:g}"
    fixed = "" if margin is None else f", margin {margin:g}"
    return f"{output}, weight decay {weight_decay:g}{weights if weighting else ''}{fixed}"


class HeadRecord(_Frozen):
    """How a run chose the output layer on pretrained features."""

    output: Literal["linear", "cosine"]
    weight_decay: float
    errors: dict[str, float]  # cross-validated, by candidate; empty if there was no choice
    seconds: float
    weighting: float = 0.0  # share of the importance of classes that is a weight of samples
    margin: float | None = None  # fixed margin; None if the method sets or learns it
    offsets: tuple[float, ...] | None = None  # of the classes, from held-out outputs
    tau: float = 1.0  # strength of class frequencies, from held-out outputs

    def applied_to(self, setting: Setting) -> Setting:
        """Return the facts about the data with what was chosen."""
        return replace(
            setting,
            has_cosine_output=self.output == "cosine",
            weighting=self.weighting,
            margin=self.margin,
            offsets=None if self.offsets is None else torch.tensor(self.offsets),
            tau=self.tau,
        )

    def sentence(self) -> str:
        """Describe the choice."""
        candidate = (self.output, self.weight_decay, self.weighting, self.margin)
        chosen = f"Output layer: {head_label(*candidate)}"
        if self.tau != 1:
            chosen += f", strength of class frequencies {self.tau:.2g}"
        if not self.errors:
            return chosen
        best, worst = min(self.errors.values()), max(self.errors.values())
        return (
            f"{chosen} (cross-validated error {100 * best:.1f} %; of {len(self.errors)} candidates "
            f"the worst has {100 * worst:.1f} %; {self.seconds:.0f} s)"
        )


class StartRecord(Record):
    """How a run or a study was started."""

    version: str  # of cosen
    started: str
    command: tuple[str, ...]
    config: TrainConfig  # that of a study applies to all of its runs
    versions: dict[str, str]  # of Python and libraries
    platform: str

    @classmethod
    def now(cls, config: TrainConfig, **values: Any) -> Self:
        """Create the record of a run or a study that starts now."""
        libraries = ("torch", "numpy", "pillow", "lightning-fabric", "kornia", "scikit-learn")
        versions = {name: version(name) for name in libraries}
        return cls(
            version=cosen.__version__,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            command=("cosen", *sys.argv[1:]),
            config=config,
            versions={"python": platform.python_version()} | versions,
            platform=platform.platform(),
            **values,
        )


class RunRecord(StartRecord):
    """``run.json``: how a run was started, and facts found while it ran."""

    FILE = "run.json"

    objects: tuple[str, ...] = ()  # data, method, network or objective, if objects
    baseline: str | None = None  # the folder of the baseline, if one was given
    tuning: TuningRecord | None = None  # if options were chosen
    head: HeadRecord | None = None  # if the network is pretrained
    data: DataRecord | None = None  # after it was read
    seconds: float | None = None  # training time with that of the baseline, at the end
    temperature: float | None = None  # divides the logits to calibrate them, at the end
    offsets: tuple[float, ...] = ()  # added for the class shares of training, at the end

    @property
    def prepared(self) -> DataRecord:
        """Facts about the data of a run that has read it."""
        if self.data is None:
            raise RunError(f"{self.FILE} has no record of the data: the run is not finished")
        return self.data

    @property
    def calibration(self) -> Calibration:
        """What the outputs of a finished run mean."""
        counts = self.prepared.class_counts.train
        return make_calibration(self.temperature or 1.0, self.offsets, counts)

    @property
    def objective(self) -> Objective:
        """What validation measured; misclassification costs are those at the start of the run."""
        costs = None if self.data is None else self.data.misclassification_costs
        return Objective.of(self.config.objective if costs is None else costs)


class SparseConfusion(_Frozen):
    """Confusion counts of more than 1,000 classes: only the pairs that occur."""

    classes: int
    cells: tuple[tuple[int, int, int], ...]  # true class, predicted class, count

    @classmethod
    def of(cls, counts: Tensor) -> Self:
        """Convert a sparse tensor."""
        cells = torch.cat([counts.indices(), counts.values()[None]]).T.tolist()
        return cls(classes=len(counts), cells=tuple(map(tuple, cells)))

    @property
    def counts(self) -> Tensor:
        """The counts as a sparse tensor, shape ``(C, C)``."""
        cells = torch.tensor(self.cells, dtype=torch.long).reshape(-1, 3).T
        shape = (self.classes, self.classes)
        return torch.sparse_coo_tensor(cells[:2], cells[2], shape, check_invariants=True).coalesce()


class Metrics(_Frozen):
    """The metrics of predictions; None if a metric is not defined."""

    samples: int
    error: float | None  # what the objective measures, 0 (perfect) to 1
    accuracy: float | None  # share of correct images
    mean_recall: float | None  # over classes
    rare_recall: float | None  # mean recall of the rarest third of the classes
    g_mean: float | None  # geometric mean of the recalls
    macro_f1: float | None  # mean F1 over classes
    paper_g_mean: float | None  # as the paper defines it
    paper_f_measure: float | None  # as the paper defines it
    auc: float | None  # mean one-vs-rest area under the ROC curve
    average_precision: float | None  # mean one-vs-rest average precision
    calibration_error: float | None  # expected calibration error of the softmax
    calibration_error_after: float | None  # calibrated, for the class shares of these images
    class_recall: tuple[float | None, ...]
    class_precision: tuple[float, ...]
    confusion: tuple[tuple[int, ...], ...] | SparseConfusion  # counts, row = true class

    @property
    def counts(self) -> Tensor:
        """The confusion counts, shape ``(C, C)``; sparse with many classes."""
        if isinstance(self.confusion, SparseConfusion):
            return self.confusion.counts
        return torch.tensor(self.confusion)


METRIC_TITLES = {
    "accuracy": "overall accuracy",
    "mean_recall": "mean class recall",
    "rare_recall": "recall of the rarest third",
    "g_mean": "G-mean",
    "macro_f1": "macro F1",
    "auc": "area under the ROC curves",
}
"""The metrics that a reader sees first."""


class RunMetrics(Record):
    """``metrics.json``: the metrics on validation and test images. A run with it is finished."""

    FILE = "metrics.json"

    val: Metrics
    test: Metrics


class ImageNames(Record):
    """``predictions.json``: the names of the images in ``predictions.safetensors``, and of those
    that the run trained on.
    """

    FILE = "predictions.json"

    train: tuple[str, ...] = ()  # empty in runs of older versions
    val: tuple[str, ...]
    test: tuple[str, ...]


class ModelInfo(Record):
    """``model.json``: the facts needed to use the weights of a model.

    ``features`` is empty if the network takes images, or the name of a network whose penultimate
    features it takes, and which is then part of the weights. With ``head``, ``"vgg16"`` are the
    convolutions of VGG-16, not timm's network of this name.
    """

    FILE = "model.json"

    format: int = 2
    network: str
    options: dict[str, Any]  # of the network
    class_names: tuple[str, ...]  # of its outputs
    class_counts: ClassCounts  # training images
    preprocess: Preprocess
    normalise: Normalise
    features: str = ""
    feature_options: dict[str, Any] = {}  # of the network that computes features
    temperature: float = 1.0  # divides the logits for calibrated probabilities
    offsets: tuple[float, ...] = ()  # added for the class shares of training; () if unknown

    @property
    def has_vgg_features(self) -> bool:
        """Whether it is a head on the convolutions of VGG-16."""
        return (self.network, self.features) == ("head", "vgg16")

    @property
    def calibration(self) -> Calibration:
        """What the outputs of the model mean."""
        return make_calibration(self.temperature, self.offsets, self.class_counts)


@dataclass(frozen=True)
class EpochRecord:
    """One line of ``history.csv``. Validation values are None without validation samples."""

    epoch: int  # from 1
    lr: float  # learning rate at the end of the epoch
    train_loss: float  # mean
    train_error: float  # share of samples that were wrong when they were trained on
    val_error: float | None  # what the objective measures
    val_accuracy: float | None
    mean_recall: float | None  # over classes, on validation
    rare_recall: float | None  # of the rarest third of the classes, on validation
    seconds: float
    images_per_second: float  # training only, without validation and saving
    cost_accepted: bool | None  # whether the last step of learned costs was accepted
    cost_lr: float | None  # γ_ξ of the paper's algorithm
    best: bool  # lowest validation error so far, within noise; the last such model is kept
