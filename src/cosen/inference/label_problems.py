"""Find images whose label is contradicted by predictions of models that did not train on them.

Confident learning (Northcutt, Jiang and Chuang, 2021) by cleanlab estimates how many labels are
wrong, with a threshold for each class. That many labels are listed, the least probable first.

Class shares matter, too. Under those of training, correct labels of rare classes look wrong; under
equal shares, those of frequent classes do. The probabilities here are for square roots of the
training shares, halfway between both. ``benchmarks/labels.py`` compares them.
"""

import csv
import io
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray

from cosen.data.inspection import LabelProblem
from cosen.data.labelled import LabelledImages
from cosen.data.stores import printable
from cosen.errors import DataError, InputError, RunError
from cosen.files import spreadsheet_text
from cosen.training.records import RunRecord
from cosen.training.run_folder import RunFolder

MAX_LABEL_PROBABILITY = 0.1
"""A label with a higher probability is not listed: a weak model contradicts many correct labels."""

NEEDS_CLEANLAB = 'finding label problems needs cleanlab: pip install "cosen[labels]"'


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions for images by models that did not train on them.

    Attributes:
        names: The images.
        labels: Their classes, shape ``(n,)``.
        probabilities: The mean over models, shape ``(n, C)``.
        class_names: The classes.
    """

    names: tuple[str, ...]
    labels: NDArray[np.int64]
    probabilities: NDArray[np.float32]
    class_names: tuple[str, ...]

    def relabelled(self, data: LabelledImages) -> "HeldOut":
        """Return the images that are in the data, with its labels, which may be corrected ones."""
        if data.class_names != self.class_names:
            raise DataError(
                f"{data.source} and the run have different classes: give the data of the run, with "
                "the same --exclude"
            )
        labels = dict(zip(map(printable, data.names), data.labels.tolist(), strict=True))
        known = [row for row, name in enumerate(self.names) if name in labels]
        if not known:
            raise DataError(
                f"{data.source} has none of the images that the run held out, such as "
                f"{self.names[0]}: give the data of the run"
            )
        names = tuple(self.names[row] for row in known)
        new = np.array([labels[name] for name in names])
        return HeldOut(names, new, self.probabilities[known], self.class_names)


def held_out_predictions(runs: Sequence[RunFolder], *, power: float = 0.5) -> HeldOut:
    """Read the predictions of runs for their validation and test images.

    The runs have the same classes. An image that several runs held out gets their mean. Class
    shares are those of training to the given power.
    """
    names: list[str] = []
    labels, probabilities = [], []
    for run in runs:
        record, outputs, own_names = run.record(), run.predictions(), run.image_names()
        shares = record.calibration.training_shares**power
        for part, own in outputs.items():
            names += getattr(own_names, part)
            labels.append(own.target.numpy())
            probabilities.append(record.calibration.probabilities(own.logits, shares).float())
    targets, rows = np.concatenate(labels), torch.cat(probabilities).numpy()
    if not len(names) == len(targets) == len(rows):
        raise RunError(f"{runs[0].path} is damaged: its predictions have {len(names)} names")
    distinct, image = np.unique(names, return_inverse=True)
    sums = np.zeros((len(distinct), rows.shape[1]), dtype=np.float32)
    np.add.at(sums, image, rows)
    label = np.zeros(len(distinct), dtype=np.int64)
    label[image] = targets
    means = sums / np.bincount(image)[:, None]
    class_names = runs[0].record().prepared.class_names
    return HeldOut(tuple(distinct.tolist()), label, means.astype(np.float32), class_names)


def find_label_problems(held_out: HeldOut) -> tuple[LabelProblem, ...]:
    """Return the images whose label is probably wrong, the most suspicious first."""
    labels, probabilities = held_out.labels, held_out.probabilities
    names, suggested = held_out.class_names, probabilities.argmax(1)
    return tuple(
        LabelProblem(
            image=held_out.names[row],
            label=names[labels[row]],
            suggested=names[suggested[row]],
            probability=float(probabilities[row, suggested[row]]),
            label_probability=float(probabilities[row, labels[row]]),
        )
        for row in suspicious(labels, probabilities).tolist()
    )


def suspicious(labels: NDArray[np.int64], probabilities: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the rows whose label is probably wrong, the lowest probability of the label first.

    Args:
        labels: Given classes, shape ``(n,)``.
        probabilities: Of models that did not train on the images, shape ``(n, C)``.
    """
    try:
        from cleanlab.filter import find_label_issues
    except ImportError as error:
        raise InputError(NEEDS_CLEANLAB) from error
    if len(np.unique(labels)) < 2:  # cleanlab refuses them
        return np.zeros(0, dtype=np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about classes with few images
        found = find_label_issues(
            labels,
            probabilities,
            filter_by="low_self_confidence",
            return_indices_ranked_by="self_confidence",
            n_jobs=1,
        )
    own = probabilities[found, labels[found]]
    is_other = probabilities[found].argmax(1) != labels[found]
    return np.asarray(found[(own < MAX_LABEL_PROBABILITY) & is_other], dtype=np.int64)


def coverage_hint(record: RunRecord, *, covered: int, total: int) -> list[str]:
    """Say how to get predictions for all images, if some have none."""
    if covered == total:
        return []
    config = record.config
    return [
        f"Labels were checked for {covered} of {total} images: those with predictions of a model "
        "that did not train on them; to check all, give --run the study of this command, with the "
        "other options of the run: "
        f"cosen compare {shlex.quote(config.data)} --methods {shlex.quote(config.method)} "
        "--split fold:seed/3"
    ]


def label_problems_csv(problems: Sequence[LabelProblem]) -> str:
    """Return one line per image, the most suspicious first."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(LabelProblem)])
    for problem in problems:
        values = asdict(problem).values()
        writer.writerow(
            [spreadsheet_text(one) if isinstance(one, str) else f"{one:.4f}" for one in values]
        )
    return text.getvalue()


def with_splits_of(run: RunFolder, data: LabelledImages) -> LabelledImages:
    """Return the data with the splits of a run; images that it did not use are in none."""
    names = run.image_names()
    own = np.array([printable(name) for name in data.names])
    # older versions did not store the names of training images
    parts = np.full(len(data), "" if names.train else "train", dtype="<U5")
    for part in ("train", "val", "test"):
        parts[np.isin(own, getattr(names, part))] = part
    return replace(data, parts=parts)
