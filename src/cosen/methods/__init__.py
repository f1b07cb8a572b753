"""Methods by name: each makes the loss that a network is trained with.

A loss may learn between epochs: :class:`~cosen.costs.CostLearner` does.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
import torch
from torch import nn

from cosen.costs import CostLearner, Objective
from cosen.errors import InputError
from cosen.losses import CostSensitiveCrossEntropy

MakeLoss = Callable[[np.ndarray, Objective, Mapping[str, Any]], nn.Module]
"""Maps class counts, the objective and the method's options to a loss."""


@dataclass(frozen=True)
class Method:
    """A way to train.

    Attributes:
        name: What it is asked for by.
        description: One line.
        make_loss: Makes the loss.
    """

    name: str
    description: str
    make_loss: MakeLoss


def _baseline(_: np.ndarray, __: Objective, options: Mapping[str, Any]) -> nn.Module:
    return nn.CrossEntropyLoss(**options)


def _fixed_frequencies(counts: np.ndarray, _: Objective, options: Mapping[str, Any]) -> nn.Module:
    return CostSensitiveCrossEntropy.from_class_counts(torch.from_numpy(counts), **options)


def _learned_costs(
    counts: np.ndarray, objective: Objective, options: Mapping[str, Any]
) -> nn.Module:
    return CostLearner(torch.from_numpy(counts), objective=objective, **options)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("baseline", "plain cross-entropy", _baseline),
        Method("fixed-h", "fixed costs from the class frequencies (H)", _fixed_frequencies),
        Method("cosen", "costs learned from frequencies and validation errors", _learned_costs),
    )
}


def find_method(name: str) -> Method:
    """The method of this name; an unknown one lists the choices."""
    if name in METHODS:
        return METHODS[name]
    near = get_close_matches(name, METHODS, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise InputError(f"there is no method {name!r}; {hint}there are {', '.join(METHODS)}")


def make_loss(
    name: str, class_counts: np.ndarray, *, objective: Objective, options: Mapping[str, Any]
) -> nn.Module:
    """The loss of a method, for these training counts; options it does not have are refused."""
    method = find_method(name)
    shown = ", ".join(f"{key}={value!r}" for key, value in options.items())
    if "reduction" in options:
        raise InputError("costs.reduction is not a setting: training needs the mean")
    try:
        return method.make_loss(class_counts, objective, options)
    except TypeError as error:
        raise InputError(f"method {name} does not take these costs: {shown} ({error})") from error
