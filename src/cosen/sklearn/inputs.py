"""Check and convert the arguments of the estimator: X, y, weights and costs."""

import math
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor

from cosen.data.splits import validation_counts
from cosen.errors import InputError

Array = NDArray[Any]

LISTED = 10
"""Largest number of classes that a message names."""


def encode_labels(y: Array) -> tuple[Array, Array]:
    """Return the sorted classes of y, and the index of each label among them.

    Example:
        >>> encode_labels(np.array(["dog", "cat", "dog"]))
        (array(['cat', 'dog'], dtype='<U3'), array([1, 0, 1]))
    """
    try:
        check_classification_targets(y)
        classes, encoded = np.unique(y, return_inverse=True)
    except TypeError:
        types = sorted({type(label).__name__ for label in y})
        raise InputError(
            "the labels of CosenClassifier must have one type, to be sortable, "
            f"but y has {' and '.join(types)}"
        ) from None
    if len(classes) < 2:
        raise InputError(
            "CosenClassifier needs samples of at least two classes, "
            f"but y has one class only: {classes.tolist()[0]!r}"
        )
    return classes, encoded


def check_finite(X: Array, *, labels: Array | None = None, names: Array | None = None) -> None:
    """Raise an error that names the first NaN or infinity: its sample, class and feature.

    Args:
        X: Samples, shape ``(n, ...)``.
        labels: The class of each sample, if known, shape ``(n,)``.
        names: The names of the features, if X has names.
    """
    if X.dtype.kind != "f" or np.isfinite(X).all():
        return
    sample, *place = (int(index) for index in np.argwhere(~np.isfinite(X))[0])
    what = "NaN" if np.isnan(X[(sample, *place)]) else "infinity"
    of_class = "" if labels is None else f" of class {labels[[sample]].tolist()[0]!r}"
    if len(place) > 1:
        where = f"pixel {tuple(place)}"
    else:
        where = f"feature {place[0] if names is None else repr(names[place[0]])}"
    raise InputError(
        f"Input X contains {what}: CosenClassifier needs finite numbers, but sample {sample}"
        f"{of_class} has {what} in {where}; remove such samples, or impute the values first"
    )


def check_sample_weight(sample_weight: ArrayLike, samples: int) -> Array:
    """Return the weights as an array of shape ``(samples,)``; a number applies to all samples.

    Example:
        >>> check_sample_weight([1, 0, 2], 3)
        array([1., 0., 2.], dtype=float32)
    """
    name = "sample_weight of CosenClassifier"
    try:
        weight: Array = np.asarray(sample_weight, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from None
    if weight.ndim == 0:
        weight = np.full(samples, weight)
    if weight.shape != (samples,):
        raise InputError(
            f"{name} must have the shape ({samples},), one weight per sample, but has "
            f"{weight.shape}"
        )
    wrong = ~(np.isfinite(weight) & (weight >= 0))
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(
            f"{name} must be finite and not negative, but sample {row} has {weight[row]:g}"
        )
    if not weight.any():
        raise InputError(f"{name} must not be zero for all samples")
    return weight


def channels_last(images: Array) -> Array:
    """Return images of one or three channels in the shape ``(n, h, w, c)``."""
    if images.ndim == 3:
        return images[..., None]
    if images.ndim == 4 and images.shape[3] in (1, 3):
        return images
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return images.transpose(0, 2, 3, 1)
    raise InputError(
        "the small-cnn of CosenClassifier takes images of the shape (n, h, w), (n, h, w, c) or "
        f"(n, c, h, w) with one or three channels, but X has {images.shape}"
    )


def draw_seed(random_state: int | np.random.RandomState | None) -> int:
    """Return a seed; for None from the system, not from NumPy's global state."""
    if random_state is None:
        return secrets.randbits(31)
    return int(check_random_state(random_state).randint(2**31))


def hold_out(encoded: Array, *, share: float, order: torch.Generator) -> Tensor:
    """Return a mask of the validation samples: a share of each class.

    Args:
        encoded: The class of each sample, shape ``(n,)``.
        share: The share of each class; see :func:`cosen.data.splits.validation_counts`.
        order: Draws the samples.
    """
    counts = np.bincount(encoded)
    wanted = np.minimum(validation_counts(counts, share), counts - 1)  # the class stays in training
    shuffled = torch.randperm(len(encoded), generator=order).numpy()
    by_class = shuffled[np.argsort(encoded[shuffled], kind="stable")]
    rank = np.arange(len(encoded)) - np.repeat(counts.cumsum() - counts, counts)
    mask = np.zeros(len(encoded), bool)
    mask[by_class] = rank < np.repeat(wanted, counts)
    return torch.from_numpy(mask)


def cost_matrix(costs: Any, classes: list[Any]) -> Tensor:
    """Return ξ, shape ``(C, C)``, each entry in (0, 1].

    Example:
        >>> cost_matrix([[1, 1], [1, 0.1]], ["cat", "dog"])
        tensor([[1.0000, 1.0000],
                [1.0000, 0.1000]])
    """
    matrix = as_matrix(costs, classes, name="costs")
    shape = (len(classes), len(classes))
    if matrix.shape != shape:
        raise InputError(
            f"costs of CosenClassifier must have the shape {shape}, a row and a column for each "
            f"of the classes {_listed(classes)}, but have {tuple(matrix.shape)}"
        )
    wrong = ~((matrix > 0) & (matrix <= 1))
    if wrong.any():
        row, column = wrong.nonzero()[0].tolist()
        raise InputError(
            "costs of CosenClassifier must lie in (0, 1], but the cost of true class "
            f"{classes[row]!r} and output {classes[column]!r} is {float(matrix[row, column]):g}"
        )
    return matrix


def class_weights(weights: Mapping[Any, float], classes: list[Any]) -> NDArray[np.float32]:
    """Return the factor for the loss of each class, shape ``(C,)``; 1 if none is given.

    Example:
        >>> class_weights({"dog": 5}, ["cat", "dog"])
        array([1., 5.], dtype=float32)
    """
    vector = np.ones(len(classes), np.float32)
    for label, weight in weights.items():
        if label not in classes:
            raise InputError(
                f"costs of CosenClassifier have a weight for class {label!r}, which is not in y; "
                f"its classes are {_listed(classes)}"
            )
        if not _is_positive(weight):
            raise InputError(
                "class weights in costs of CosenClassifier must be positive and finite, "
                f"but class {label!r} has {weight!r}"
            )
        vector[classes.index(label)] = weight
    return vector


def as_matrix(values: Any, classes: list[Any], *, name: str) -> Tensor:
    """Copy lists, an array, a data frame or a tensor to a tensor.

    A data frame with the class names as rows and columns is put in the order of the classes.
    """
    if all(hasattr(values, part) for part in ("to_numpy", "index", "columns")):  # a data frame
        rows, columns = list(values.index), list(values.columns)
        if set(rows) == set(columns) == set(classes):
            places = np.ix_(list(map(rows.index, classes)), list(map(columns.index, classes)))
            values = values.to_numpy()[places]
        elif not rows == columns == list(range(len(rows))):  # the default index has no names
            raise InputError(
                f"{name} of CosenClassifier must have a row and a column for each of the classes "
                f"{_listed(classes)}, but have the rows {_listed(rows)} and the columns "
                f"{_listed(columns)}"
            )
    try:
        return torch.from_numpy(np.asarray(values, dtype=np.float32).copy())
    except (TypeError, ValueError) as error:
        message = f"{name} of CosenClassifier must be a matrix of numbers: {error}"
        raise InputError(message) from None


def _is_positive(weight: Any) -> bool:
    try:
        return 0 < float(weight) < math.inf
    except (TypeError, ValueError):
        return False


def _listed(classes: list[Any]) -> str:
    names = ", ".join(map(repr, classes[:LISTED]))
    return names if len(classes) <= LISTED else f"{names} and {len(classes) - LISTED} more"
