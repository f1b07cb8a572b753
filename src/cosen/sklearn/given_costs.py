"""Costs as a user gives them: a matrix, or weights by class."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosen.errors import InputError

LISTED = 10
"""Classes that a message names before it says how many more there are."""


def cost_matrix(costs: Any, classes: list[Any]) -> Tensor:
    """ξ, shape ``(C, C)``, every entry in (0, 1].

    Example:
        >>> cost_matrix([[1, 1], [1, 0.1]], ["cat", "dog"])
        tensor([[1.0000, 1.0000],
                [1.0000, 0.1000]])
    """
    matrix = numbers("costs", costs, classes)
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
    """The factor for the loss of each class, shape ``(C,)``: 1 where none is given.

    Example:
        >>> class_weights({"dog": 5}, ["cat", "dog"])
        array([1., 5.], dtype=float32)
    """
    places = {label: place for place, label in enumerate(classes)}
    vector = np.ones(len(classes), np.float32)
    for label, weight in weights.items():
        if label not in places:
            raise InputError(
                f"costs of CosenClassifier weigh class {label!r}, which is not in y; "
                f"its classes are {_listed(classes)}"
            )
        if not _is_positive(weight):
            raise InputError(
                "class weights in costs of CosenClassifier must be positive and finite, "
                f"but class {label!r} has {weight!r}"
            )
        vector[places[label]] = weight
    return vector


def numbers(name: str, values: Any, classes: list[Any]) -> Tensor:
    """A tensor of its own of what may be lists, an array, a frame or a tensor.

    A frame whose rows and columns are named as the classes is put in their order.
    """
    if all(hasattr(values, part) for part in ("to_numpy", "index", "columns")):  # a frame
        rows, columns = list(values.index), list(values.columns)
        if set(rows) == set(columns) == set(classes):
            places = np.ix_(list(map(rows.index, classes)), list(map(columns.index, classes)))
            values = values.to_numpy()[places]
        elif not rows == columns == list(range(len(rows))):  # which are no names
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
