"""Predict new images: classes, probabilities, and decisions by misclassification costs.

Only the model files of a run are needed, and loading them runs no code.
"""

import csv
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from cosen.data.decoding import Progress, in_threads
from cosen.data.image_cache import broken_images_error
from cosen.data.labelled import LabelledImages, unknown_class
from cosen.data.sources import files_below
from cosen.data.stores import ImageFiles, printable
from cosen.errors import (
    OUT_OF_MEMORY,
    BrokenImageError,
    DataError,
    InputError,
    RunError,
    is_out_of_memory,
)
from cosen.files import is_file, is_folder
from cosen.functional.checks import check_finite_matrix
from cosen.inference.decisions import Known, LowestCost, MostProbable, Rule, parse_rule
from cosen.networks.device import resolve_device
from cosen.training.calibration import Calibration, estimate_shares
from cosen.training.model_file import ImageClassifier, load_model
from cosen.training.records import ModelInfo
from cosen.training.run_folder import RunFolder

Prior = Mapping[str, float] | Literal["balanced", "train", "estimate"]
"""Class shares where the model is used: by name, all equal, as in training, or estimated."""

FEW_IMAGES = 10
"""Fewer validation images of a class do not calibrate its probabilities well."""

_log = logging.getLogger("cosen")


@dataclass(frozen=True)
class ClassProbability:
    """A class and its probability."""

    name: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """The prediction for an image.

    Attributes:
        image: The path as given, or relative to the given folder.
        decision: The predicted class; with costs not always the most probable one.
        probability: Probability of the decision.
        top: The most probable classes, the best first.
        review: Whether a person should check the image; None if the rule asks no one.
        classes: The prediction set; None if the rule has no sets.
    """

    image: str
    decision: str
    probability: float
    top: tuple[ClassProbability, ...]
    review: bool | None = None
    classes: tuple[str, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        plain = {name: value for name, value in asdict(self).items() if value is not None}
        return {"image": plain.pop("image"), "class": plain.pop("decision"), **plain}


def predict_images(
    runs: Path | str | Sequence[Path | str],
    images: Sequence[Path | str] | Path | str,
    *,
    top: int = 1,
    calibrated: bool = True,
    prior: Prior | None = None,
    misclassification_costs: Tensor | None = None,
    decide: str = "probability",
    flip: bool = False,
    validation_runs: Sequence[Path] = (),
    network: Callable[[], nn.Module] | None = None,
    skip_broken: bool = False,
    batch_size: int = 64,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Prediction]:
    r"""Predict images with the model of a run, or with the average of several.

    Args:
        runs: The run folder, or any folder with ``model.json`` and ``model.safetensors``; or
            several of them with the same classes, whose probabilities are averaged.
        images: Files and folders; all files below a folder are used, except hidden ones.
        top: Number of most probable classes to return.
        calibrated: Divide the logits by the temperature that was fitted on validation.
        prior: The shares of the classes where the model is used: by name and in any unit,
            ``"balanced"``, ``"train"``, or ``"estimate"`` (from these images). None uses the
            outputs as they are: with learned costs for roughly equal shares.
        misclassification_costs: ξ′, row = true class, shape ``(C, C)``. The decision is then the
            class with the lowest expected cost instead of the most probable class. Without
            ``prior``, classes have their shares of training.
        decide: ``probability``; ``recall:NAME=0.95``, to find 95 % of a class; ``review:0.1``, to
            let a person check the least certain tenth; or ``sets:0.9``, sets that contain the true
            class with a probability of 90 %, whichever it is. Thresholds are those of the run's
            validation images, and what they cost there is logged.
        flip: Average the outputs for each image and its mirror image.
        validation_runs: Runs whose validation images the thresholds come from; by default ``runs``.
        network: Creates the network, if the run trained a custom one.
        skip_broken: Skip files that cannot be decoded, with a warning; otherwise an error lists
            them all.
        batch_size: Images per batch.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        progress: Callback for progress.

    Returns:
        A prediction for each image, in the given order; images of a folder are sorted by name.
    """
    if top < 1:
        raise InputError(f"top must be at least 1, but is {top}")
    models = open_models(
        runs, network, calibrated=calibrated, flip=flip, validation_runs=validation_runs
    )
    names, costs = models.class_names, misclassification_costs
    if costs is not None:
        check_finite_matrix(costs, num_classes=len(names), name="misclassification_costs")
        prior = prior or "train"  # expected costs need the shares of real images
    rule = parse_rule(decide, costs)
    fitted = models.fitted(rule, models.shares(prior))  # an error before images are read
    files = find_images(images)
    data = LabelledImages(
        images=ImageFiles(Path(), files),
        rows=np.arange(len(files)),
        labels=np.zeros(len(files), dtype=np.int64),  # unknown, and not needed
        class_names=names,
        source="images",
    )
    options = {"skip_broken": skip_broken, "batch_size": batch_size, "device": device}
    data, logits = models.logits(data, progress=progress, **options)
    shares = models.shares(prior, logits)
    if prior == "estimate":
        fitted = models.fitted(rule, shares)
    if fitted.sentence:
        _log.warning(fitted.sentence)
    predictions = models.predictions(data.names, logits, shares, fitted.rule, top=top)
    checked = sum(bool(one.review) for one in predictions)
    if checked:
        _log.warning("of these %d images, %d are to be checked", len(predictions), checked)
    return predictions


@dataclass(frozen=True, eq=False)
class FittedRule:
    """A rule with thresholds, and a sentence on what it gives on validation; may be empty."""

    rule: Rule
    sentence: str = ""


@dataclass(frozen=True, eq=False)
class Models:
    """One or several models with the same classes, and how they are used.

    Attributes:
        paths: Their folders.
        classifiers: The networks.
        infos: Their ``model.json``.
        calibrations: What the outputs of each mean.
        class_names: The names of their classes.
        flip: Whether outputs are averaged over images and mirror images.
        validation_runs: Runs whose validation images decisions are fitted to; () for the models'
            own. Each predicts its own images, so those of a comparison's other seeds count too.
        excluded: Names of images that decisions are not fitted to, because they are evaluated.
        calibrated: Whether logits are divided by the temperature.
    """

    paths: list[Path]
    classifiers: list[ImageClassifier]
    infos: list[ModelInfo]
    calibrations: list[Calibration]
    class_names: tuple[str, ...]
    flip: bool = False
    validation_runs: tuple[Path, ...] = ()
    excluded: frozenset[str] = frozenset()
    calibrated: bool = True

    def logits(self, data: LabelledImages, **options: Any) -> tuple[LabelledImages, list[Tensor]]:
        """Return the data without broken images, and the logits of each model; see
        :func:`image_logits`.
        """
        found = []
        for classifier, info in zip(self.classifiers, self.infos, strict=True):
            data, logits = image_logits(classifier, info, data, flip=self.flip, **options)
            found.append(logits)
        return data, found

    def probabilities(self, logits: Sequence[Tensor], shares: Tensor | None) -> Tensor:
        """Return the mean probabilities under class shares, ``(B, C)``."""
        pairs = zip(self.calibrations, logits, strict=True)
        return torch.stack([one.probabilities(own, shares) for one, own in pairs]).mean(0)

    def shares(self, prior: Prior | None, logits: Sequence[Tensor] | None = None) -> Tensor | None:
        """Return the share of each class; None uses the outputs as they are.

        ``estimate`` needs the logits of all models; without them it is ``train``.
        """
        trained = torch.stack([one.training_shares for one in self.calibrations]).mean(0)
        if prior != "estimate" or logits is None:
            return prior_shares(prior, self.class_names, trained)
        shares, errors = estimate_shares(self.probabilities(logits, trained), trained)
        known = self.validation(trained)
        rarest = 0 if known is None else int(known.target.bincount(minlength=len(trained)).min())
        if rarest < FEW_IMAGES:
            _log.warning(
                "the estimate relies on probabilities that were calibrated with %d validation "
                "images of the rarest class: it may be wrong by more than its errors",
                rarest,
            )
        found = zip(self.class_names, shares.tolist(), errors.tolist(), strict=True)
        text = ", ".join(f"{name} {share:.3f} ± {error:.3f}" for name, share, error in found)
        _log.warning("estimated class shares: %s", text)
        return shares

    def predictions(
        self,
        names: Sequence[str],
        logits: Sequence[Tensor],
        shares: Tensor | None,
        rule: Rule,
        *,
        top: int,
    ) -> list[Prediction]:
        """Decide for images by a fitted rule under class shares."""
        probabilities = self.probabilities(logits, shares)
        ordered, order = probabilities.sort(dim=1, descending=True, stable=True)  # (images, C)
        decisions, predictions = rule.decide(probabilities), []
        for row, image in enumerate(names):
            label = int(decisions.classes[row])
            best = zip(order[row, :top].tolist(), ordered[row, :top].tolist(), strict=True)
            predictions.append(
                Prediction(
                    image=image,
                    decision=self.class_names[label],
                    probability=float(probabilities[row, label]),
                    top=tuple(ClassProbability(self.class_names[n], share) for n, share in best),
                    review=None if decisions.review is None else bool(decisions.review[row]),
                    classes=None if decisions.sets is None else self._named(decisions.sets[row]),
                )
            )
        return predictions

    def _named(self, members: Tensor) -> tuple[str, ...]:
        return tuple(self.class_names[label] for label in members.nonzero().flatten())

    def fitted(self, rule: Rule, shares: Tensor | None) -> FittedRule:
        """Fit a rule to the validation images of the runs, under class shares."""
        if isinstance(rule, MostProbable):
            return FittedRule(rule)
        known = self.validation(shares)
        if known is None and isinstance(rule, LowestCost):
            return FittedRule(rule)
        if known is None:
            raise RunError(
                f"{self.paths[0]} has no predictions for its validation images, which the decision "
                "needs: use the whole folder of a finished run"
            )
        fitted = rule.fit(known)
        said = f"on {len(known.target)} validation images: {fitted.describe(known)}"
        return FittedRule(fitted, said)

    def validation(self, shares: Tensor | None) -> Known | None:
        """Return the probabilities of validation images under class shares; None without them."""
        if not self._validation_outputs:
            return None
        return Known(
            torch.cat([one.probabilities(own, shares) for one, own, _ in self._validation_outputs]),
            torch.cat([target for _, _, target in self._validation_outputs]),
            self.class_names,
        )

    @cached_property
    def _validation_outputs(self) -> list[tuple[Calibration, Tensor, Tensor]]:
        """Logits and targets of the validation images of each run; each image counts once."""
        counted: set[str] = set()
        found = []
        for folder in map(RunFolder, self.validation_runs or self.paths):
            if not (folder.path / "predictions.safetensors").exists():
                return []
            names, part = folder.image_names().val, folder.predictions()["val"]
            is_new = torch.tensor(
                [name not in counted and name not in self.excluded for name in names],
                dtype=torch.bool,
            )
            counted.update(names)
            calibration = folder.record().calibration
            if not self.calibrated:
                calibration = replace(calibration, temperature=1.0)
            found.append((calibration, part.logits[is_new], part.target[is_new]))
        return found if any(len(target) for _, _, target in found) else []


def open_models(
    runs: Path | str | Sequence[Path | str],
    network: Callable[[], nn.Module] | None = None,
    *,
    calibrated: bool = True,
    flip: bool = False,
    validation_runs: Sequence[Path] = (),
) -> Models:
    """Load the models of one or several runs; see :class:`Models`."""
    paths = [Path(runs)] if isinstance(runs, str | Path) else [Path(run) for run in runs]
    opened = [open_model(path, network) for path in paths]
    infos = [info for _, info in opened]
    if any(info.class_names != infos[0].class_names for info in infos):
        raise InputError("the models have different classes: use runs on the same data")
    calibrations = [info.calibration for info in infos]
    if not calibrated:
        calibrations = [replace(one, temperature=1.0) for one in calibrations]
    classifiers = [classifier for classifier, _ in opened]
    names = infos[0].class_names
    return Models(
        paths,
        classifiers,
        infos,
        calibrations,
        names,
        flip=flip,
        validation_runs=tuple(validation_runs),
        calibrated=calibrated,
    )


def parse_prior(text: str) -> Prior:
    """Parse ``balanced``, ``train``, ``estimate`` or ``cat=0.2,dog=0.8``.

    Quote a name that contains a comma: ``"cat, black=0.2",dog=0.8``.

    Example:
        >>> parse_prior("cat=1, dog=9")
        {'cat': 1.0, 'dog': 9.0}
    """
    match text.strip():
        case "balanced":
            return "balanced"
        case "train" | "training":
            return "train"
        case "estimate":
            return "estimate"
    shares: dict[str, float] = {}
    for pair in next(csv.reader([text], skipinitialspace=True), []):
        name, _, value = pair.rpartition("=")
        try:
            share = float(value)
        except ValueError:
            share = float("nan")
        if not name or share != share:
            raise InputError(
                "prior must be train, balanced, estimate or a share for each class, such as "
                f"cat=0.2,dog=0.8, but has {pair!r}"
            )
        if name in shares:
            raise InputError(f"prior has class {name!r} twice")
        shares[name] = share
    return shares


def prior_shares(
    prior: Prior | None, class_names: tuple[str, ...], trained: Tensor
) -> Tensor | None:
    """Return the share of each class in the order of the outputs, or None to use them as they are.

    ``trained`` are the shares of training, also for ``"estimate"``.
    """
    if prior is None:
        return None
    if isinstance(prior, str):
        if prior not in ("balanced", "train", "estimate"):
            raise InputError(
                "prior must be 'train', 'balanced', 'estimate' or a share for each class, but is "
                f"{prior!r}"
            )
        return torch.ones_like(trained) if prior == "balanced" else trained
    for name, share in prior.items():
        if name not in class_names:
            raise InputError(unknown_class(name, class_names, "the model"))
        if not 0 < share < float("inf"):
            raise InputError(
                f"the shares of prior must be positive and finite, but {name!r} has {share}"
            )
    missing = [name for name in class_names if name not in prior]
    if missing:
        raise InputError(f"prior has no share for {', '.join(map(repr, missing))}")
    return torch.tensor([prior[name] for name in class_names], dtype=torch.float64)


def open_model(
    run: Path | str, network: Callable[[], nn.Module] | None = None
) -> tuple[ImageClassifier, ModelInfo]:
    """Load the classifier of a run, and its ``model.json``."""
    run = Path(run)
    if not (run / "model.json").exists():
        RunFolder.existing(run)
    folder = RunFolder(run)
    if folder.has_run and not folder.is_finished:
        _log.warning(
            "%s is not finished; its best model so far is used (cosen train --resume %s)", run, run
        )
    return load_model(run, network=network)


def find_images(images: Sequence[Path | str] | Path | str) -> list[Path]:
    """Return the files among these paths and in the folders among them."""
    given = [Path(images)] if isinstance(images, str | Path) else [Path(path) for path in images]
    missing = [printable(str(path)) for path in given if not is_file(path) and not is_folder(path)]
    if missing:
        raise DataError(f"there is no file or folder {', '.join(missing)}")
    found: list[Path] = []
    for path in given:
        below = sorted(files_below(path)) if is_folder(path) else [path]
        if not below:
            raise DataError(f"the folder {path} has no images")
        found += below
    if not found:
        raise DataError("there are no images to predict: give files or folders")
    return found


def place(classifier: nn.Module, device: str) -> torch.device:
    """Move a classifier to a device, such as ``auto`` or ``cpu``, and return the device."""
    try:
        target = torch.device(resolve_device(device))
        classifier.to(target)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        if is_out_of_memory(error):
            raise RunError(OUT_OF_MEMORY) from error
        raise InputError(f"device {device!r} cannot be used: {error}") from error
    return target


@contextmanager
def network_errors() -> Iterator[None]:
    """Raise errors of a network as a RunError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            raise RunError(OUT_OF_MEMORY) from error
        raise RunError(f"the network cannot take these images: {error}") from error


def batch_logits(classifier: nn.Module, inputs: Tensor, *, flip: bool) -> Tensor:
    """Return the logits of normalised images on the CPU, shape ``(B, C)``; see `image_logits`."""
    outputs: Tensor = classifier(inputs).float()
    if flip:
        outputs = (outputs + classifier(inputs.flip(-1)).float()) / 2
    return outputs.cpu()


def image_logits(
    classifier: ImageClassifier,
    info: ModelInfo,
    data: LabelledImages,
    *,
    skip_broken: bool = False,
    batch_size: int = 64,
    device: str = "auto",
    flip: bool = False,
    progress: Progress | None = None,
) -> tuple[LabelledImages, Tensor]:
    """Return the data without broken images, and its logits on the CPU, shape ``(n, C)``.

    With ``flip``, they are the mean over each image and its mirror image.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, but is {batch_size}")
    target = place(classifier, device)
    broken: dict[int, str] = {}

    def decode(row: int) -> np.ndarray | None:
        try:
            image = data.images.open(row, least_size=info.preprocess.least_size)
        except BrokenImageError as error:
            broken[row] = str(error)
            return None
        return info.preprocess(image)

    decoded = in_threads(decode, data.rows.tolist(), progress)
    whole = (pixels for pixels in decoded if pixels is not None)
    logits: list[Tensor] = []
    with network_errors(), torch.inference_mode():
        while batch := list(islice(whole, batch_size)):
            pixels = torch.from_numpy(np.stack(batch)).to(target)  # (B, H, W, C)
            inputs = info.normalise.from_bytes(pixels)
            logits.append(batch_logits(classifier, inputs, flip=flip))
    if logits and not all(bool(part.isfinite().all()) for part in logits):
        raise RunError("the model gives outputs that are not finite: it is damaged or has diverged")
    if broken and not (skip_broken and logits):
        raise broken_images_error(data, broken)
    if broken:
        names = ", ".join(printable(data.images.name(row)) for row in sorted(broken))
        _log.warning("skipped %d broken files of %d: %s", len(broken), len(data), names)
        data = data.take(~np.isin(data.rows, list(broken)))
    return data, torch.cat(logits)
