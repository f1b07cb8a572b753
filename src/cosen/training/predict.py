"""Using a trained model on new images: classes, probabilities, and decisions by an expert's costs.

Nothing of the run but its model file is needed, and loading that runs no code.
"""

import csv
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from cosen import functional as F
from cosen.data.decoding import Progress, broken_images_error, in_threads
from cosen.data.folder import files_below
from cosen.data.labelled import LabelledImages, unknown_class
from cosen.data.stores import ImageFiles
from cosen.errors import BrokenImageError, DataError, InputError
from cosen.functional.checks import check_class_vector, check_finite_matrix
from cosen.training.model_file import ImageClassifier, ModelFacts, load_model
from cosen.training.run_folder import RunFolder
from cosen.training.task import resolve_device

Prior = Mapping[str, float] | Literal["balanced", "training"]
"""The share of each class where the model is used: by name, all equal, or as in training."""

_log = logging.getLogger("cosen")


@dataclass(frozen=True)
class ClassProbability:
    """A class and how probable it is."""

    name: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """What a model says of an image.

    Attributes:
        image: The path as it was given, or below the folder that was given.
        decision: The class decided for; with costs not always the most probable one.
        probability: That of the decision.
        top: The most probable classes, the first one first.
    """

    image: str
    decision: str
    probability: float
    top: tuple[ClassProbability, ...]

    def as_json(self) -> dict[str, Any]:
        plain = asdict(self)
        return {"image": plain.pop("image"), "class": plain.pop("decision"), **plain}


def predict_images(
    run: Path | str,
    images: Sequence[Path | str] | Path | str,
    *,
    top: int = 1,
    calibrated: bool = True,
    prior: Prior | None = None,
    costs: Tensor | None = None,
    skip_broken: bool = False,
    batch_size: int = 64,
    device: str = "auto",
    progress: Progress | None = None,
) -> list[Prediction]:
    r"""What the model of a run says of images.

    Args:
        run: The run folder, or any folder with ``model.json`` and ``model.safetensors``.
        images: Files and folders; in a folder every file at any depth counts, but for hidden ones.
        top: How many of the most probable classes to name.
        calibrated: Divide the logits by the temperature that was found on validation. The classes
            keep their order, the probabilities become those of a model as often right as it says.
        prior: The shares of the classes where the model is used, in any unit; see
            :func:`correct_prior` for what this assumes. None and ``"training"`` correct nothing.
        costs: An expert's misclassification costs ξ′, row = true class, shape ``(C, C)``; the
            decision is then the one with the least expected cost, else the most probable class.
        skip_broken: Leave out files that do not decode, and say which; else an error names all.
        batch_size: Images at once.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        progress: Told how far it is.

    Returns:
        A prediction for each image, in the order given; of a folder in the order of the names.
    """
    if top < 1:
        raise InputError(f"top must be at least 1, but is {top}")
    classifier, facts = open_model(run)
    shares = prior_shares(prior, facts)
    if costs is not None:
        check_finite_matrix(costs, num_classes=len(facts.class_names), name="costs")
    data, logits = image_logits(
        classifier,
        facts,
        _unlabelled(find_images(images), facts.class_names),
        skip_broken=skip_broken,
        batch_size=batch_size,
        device=device,
        progress=progress,
    )
    logits = logits.double()
    probabilities = (logits / facts.temperature if calibrated else logits).softmax(1)
    if shares is not None:
        trained = torch.tensor(facts.class_counts, dtype=torch.float64)
        probabilities = correct_prior(probabilities, training=trained, prior=shares)
    ordered, order = probabilities.sort(dim=1, descending=True, stable=True)  # (images, C)
    decisions = order[:, 0] if costs is None else F.bayes_decision(probabilities, costs.cpu())
    return [
        Prediction(
            image=name,
            decision=facts.class_names[decision],
            probability=float(probabilities[row, decision]),
            top=tuple(
                ClassProbability(facts.class_names[label], probability)
                for label, probability in zip(
                    order[row, :top].tolist(), ordered[row, :top].tolist(), strict=True
                )
            ),
        )
        for row, (name, decision) in enumerate(zip(data.names, decisions.tolist(), strict=True))
    ]


def correct_prior(probabilities: Tensor, *, training: Tensor, prior: Tensor) -> Tensor:
    r"""Probabilities as they would be were the classes as frequent as ``prior`` says.

    .. math:: P'(p | x) \propto P(p | x) \, \pi_p / h_p

    This is exact for outputs that estimate the posterior under the training frequencies h, as
    plain cross-entropy does. A network trained with costs (or re-sampling) already leans towards
    rare classes, so that the correction is only approximate there, and ``balanced`` leans twice.

    Args:
        probabilities: Shape ``(B, C)``.
        training: h, counts or shares of the classes in training, shape ``(C,)``, positive.
        prior: π, shares of the classes in any unit, shape ``(C,)``, positive.

    Example:
        >>> correct_prior(torch.tensor([[0.9, 0.1]]), training=torch.tensor([90, 10]),
        ...               prior=torch.tensor([0.5, 0.5]))
        tensor([[0.5000, 0.5000]])
    """
    for name, vector in (("training", training), ("prior", prior)):
        check_class_vector(vector, num_classes=probabilities.shape[1], name=name)
    ratio = prior.to(probabilities) / training.to(probabilities)
    weighted = probabilities * (ratio / ratio.max())
    return weighted / weighted.sum(1, keepdim=True)


def parse_prior(text: str) -> Prior:
    """The prior that ``balanced``, ``training`` or ``cat=0.2,dog=0.8`` stands for.

    A name with a comma in it is quoted: ``"cat, black=0.2",dog=0.8``.

    Example:
        >>> parse_prior("cat=1, dog=9")
        {'cat': 1.0, 'dog': 9.0}
    """
    match text.strip():
        case "balanced":
            return "balanced"
        case "training":
            return "training"
    shares: dict[str, float] = {}
    for pair in next(csv.reader([text], skipinitialspace=True), []):
        name, _, value = pair.rpartition("=")
        try:
            share = float(value)
        except ValueError:
            share = float("nan")
        if not name or share != share:
            raise InputError(
                f"a prior is 'balanced' or a share for each class, such as cat=0.2,dog=0.8, "
                f"but {pair!r} was given"
            )
        if name in shares:
            raise InputError(f"the prior names class {name!r} twice")
        shares[name] = share
    return shares


def prior_shares(prior: Prior | None, facts: ModelFacts) -> Tensor | None:
    """The share of each class in the order of the model's outputs, or None for no correction."""
    if prior is None or prior == "training":
        return None
    if isinstance(prior, str):
        if prior != "balanced":
            raise InputError(
                f"a prior is 'balanced', 'training', or a share for each class, but is {prior!r}"
            )
        return torch.ones(len(facts.class_names), dtype=torch.float64)
    for name, share in prior.items():
        if name not in facts.class_names:
            raise InputError(unknown_class(name, facts.class_names, "the model"))
        if not 0 < share < float("inf"):
            raise InputError(
                f"shares in a prior must be positive and finite, but {name!r} has {share}"
            )
    missing = [name for name in facts.class_names if name not in prior]
    if missing:
        raise InputError(f"the prior lacks a share for {', '.join(map(repr, missing))}")
    return torch.tensor([prior[name] for name in facts.class_names], dtype=torch.float64)


def open_model(run: Path | str) -> tuple[ImageClassifier, ModelFacts]:
    """The classifier in a run folder, and its facts; a folder that holds neither is refused."""
    run = Path(run)
    if not (run / "model.json").exists():
        RunFolder.existing(run)
    folder = RunFolder(run)
    if folder.has_run and not folder.is_finished:
        _log.warning(
            "%s is not finished, its best model so far is used: go on with cosen train --resume %s",
            run,
            run,
        )
    return load_model(run)


def find_images(images: Sequence[Path | str] | Path | str) -> list[Path]:
    """The files among these paths and below the folders among them."""
    given = [Path(images)] if isinstance(images, str | Path) else [Path(path) for path in images]
    missing = [str(path) for path in given if not path.exists()]
    if missing:
        raise DataError(f"there is no file or folder {', '.join(missing)}")
    found: list[Path] = []
    for path in given:
        below = sorted(files_below(path)) if path.is_dir() else [path]
        if not below:
            raise DataError(f"the folder {path} has no image in it")
        found += below
    if not found:
        raise DataError("there are no images to predict: name files or folders")
    return found


def _unlabelled(files: list[Path], class_names: tuple[str, ...]) -> LabelledImages:
    return LabelledImages(
        images=ImageFiles(Path(), files),
        rows=np.arange(len(files)),
        labels=np.zeros(len(files), dtype=np.int64),  # not known, and not asked for
        class_names=class_names,
        source="images",
    )


def image_logits(
    classifier: ImageClassifier,
    facts: ModelFacts,
    data: LabelledImages,
    *,
    skip_broken: bool = False,
    batch_size: int = 64,
    device: str = "auto",
    progress: Progress | None = None,
) -> tuple[LabelledImages, Tensor]:
    """The logits of images that are decoded on the way, a few hundred in memory at a time.

    Returns:
        The data without what did not decode, and its logits on the CPU, shape ``(n, C)``.
    """
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, but is {batch_size}")
    target = _move(classifier, device)
    broken: dict[int, str] = {}

    def decode(row: int) -> np.ndarray | None:
        try:
            image = data.images.open(row, least_size=facts.preprocess.least_size)
        except BrokenImageError as error:
            broken[row] = str(error)
            return None
        return facts.preprocess(image)

    @torch.inference_mode()
    def run(pixels: list[np.ndarray]) -> Tensor:
        batch = torch.from_numpy(np.stack(pixels)).to(target)  # (B, H, W, C)
        logits: Tensor = classifier(facts.normalise.from_bytes(batch))
        return logits.float().cpu()

    waiting: list[np.ndarray] = []
    logits: list[Tensor] = []
    for pixels in in_threads(decode, data.rows.tolist(), progress):
        if pixels is not None:
            waiting.append(pixels)
        if len(waiting) == batch_size:
            logits.append(run(waiting))
            waiting = []
    if waiting:
        logits.append(run(waiting))
    if broken and not (skip_broken and logits):
        raise broken_images_error(data, broken)
    if broken:
        names = ", ".join(data.images.name(row) for row in sorted(broken))
        _log.warning("left out %d broken files of %d: %s", len(broken), len(data), names)
        data = data.take(~np.isin(data.rows, list(broken)))
    return data, torch.cat(logits)


def _move(classifier: ImageClassifier, device: str) -> torch.device:
    """Move a classifier to a device that may not be there."""
    try:
        target = torch.device(resolve_device(device))
        classifier.to(target)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InputError(f"device {device!r} cannot be used here: {error}") from error
    return target
