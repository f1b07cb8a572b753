"""Refusing bad tensors with a sentence that names what was wrong.

Shapes, dtypes and devices are checked always. Values are checked on the CPU only: on an
accelerator reading them back would stall the stream at every step, and under
``torch.compile`` it would break the graph. The modules of :mod:`cosen.losses` check their
costs once when they are built, so a bad matrix does not reach the device.
"""

import torch
from torch import Tensor

from cosen.errors import InputError


def values_are_readable(tensor: Tensor) -> bool:
    """Whether the values of ``tensor`` can be looked at without a price."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def check_logits(logits: Tensor) -> None:
    """``logits`` is ``(B, C)``, floating, with no NaN."""
    if logits.ndim != 2:
        raise InputError(
            f"logits must have the shape (samples, classes), but have {tuple(logits.shape)}"
        )
    if not logits.is_floating_point():
        raise InputError(f"logits must be floating point, but are {logits.dtype}")
    if values_are_readable(logits) and bool(logits.isnan().any()):
        sample = int(logits.isnan().any(dim=1).nonzero()[0])
        raise InputError(
            f"logits contain NaN, first in sample {sample}: training has diverged; "
            "lower the learning rate or clip the gradients"
        )


def check_target(target: Tensor, logits: Tensor, *, ignore_index: int) -> None:
    """``target`` is ``(B,)`` class indices or ``(B, C)`` class probabilities."""
    samples, classes = logits.shape
    if target.device != logits.device:
        raise InputError(f"target is on {target.device}, but logits are on {logits.device}")
    if target.is_floating_point():
        _check_probabilities(target, samples, classes)
    elif target.dtype == torch.bool or target.is_complex():
        raise InputError(f"target must be class indices or probabilities, but is {target.dtype}")
    elif target.shape != (samples,):
        raise InputError(
            f"target of class indices must have the shape ({samples},), "
            f"one index a sample, but has {tuple(target.shape)}"
        )
    elif values_are_readable(target):
        outside = (target != ignore_index) & ((target < 0) | (target >= classes))
        if bool(outside.any()):
            sample = int(outside.nonzero()[0])
            raise InputError(
                f"target must lie in 0..{classes - 1} for {classes} classes, "
                f"but sample {sample} has {int(target[sample])}"
            )


def _check_probabilities(target: Tensor, samples: int, classes: int) -> None:
    if target.shape != (samples, classes):
        raise InputError(
            f"target of class probabilities must have the shape ({samples}, {classes}) "
            f"of the logits, but has {tuple(target.shape)}; for class indices use an integer dtype"
        )
    if values_are_readable(target):
        wrong = ~((target >= 0).all(dim=1) & ((target.float().sum(dim=1) - 1).abs() < 1e-2))
        if bool(wrong.any()):
            sample = int(wrong.nonzero()[0])
            raise InputError(
                "target of class probabilities must be non-negative and sum to 1, "
                f"but sample {sample} has {target[sample].tolist()}"
            )


def check_costs(costs: Tensor, *, num_classes: int | None = None, name: str = "costs") -> None:
    """``costs`` is ``(C, C)`` with every entry in (0, 1] (Lemmas 4 and 5)."""
    check_square(costs, num_classes=num_classes, name=name)
    if values_are_readable(costs):
        outside = ~((costs > 0) & (costs <= 1))  # also true for NaN
        if bool(outside.any()):
            row, column = outside.nonzero()[0].tolist()
            raise InputError(
                f"{name} must lie in (0, 1], but {name}[{row}, {column}] is "
                f"{float(costs[row, column]):g}"
            )


def check_square(matrix: Tensor, *, num_classes: int | None, name: str) -> None:
    """``matrix`` is a floating ``(C, C)``, with C as given where it is known."""
    classes = num_classes if num_classes is not None else len(matrix) if matrix.ndim else 0
    if matrix.shape != (classes, classes) or classes == 0:
        wanted = f"({classes}, {classes})" if num_classes is not None else "(classes, classes)"
        raise InputError(f"{name} must have the shape {wanted}, but has {tuple(matrix.shape)}")
    if not matrix.is_floating_point():
        raise InputError(f"{name} must be floating point, but is {matrix.dtype}")


def check_same_device(tensor: Tensor, logits: Tensor, *, name: str) -> None:
    """A tensor that belongs to a loss stands where the logits are."""
    if tensor.device != logits.device:
        raise InputError(
            f"{name} is on {tensor.device}, but logits are on {logits.device}: "
            f"move it with .to('{logits.device}')"
        )


def check_misclassification_costs(costs: Tensor, *, num_classes: int | None = None) -> None:
    """An expert's ξ′: ``(C, C)``, zero diagonal, non-negative and finite elsewhere."""
    name = "misclassification_costs"
    check_square(costs, num_classes=num_classes, name=name)
    if not values_are_readable(costs):
        return
    wrong = ~((costs >= 0) & costs.isfinite())
    if bool(wrong.any()):
        row, column = wrong.nonzero()[0].tolist()
        raise InputError(
            f"{name} must be non-negative and finite, but {name}[{row}, {column}] is "
            f"{float(costs[row, column]):g}"
        )
    if bool(costs.diagonal().any()):
        row = int(costs.diagonal().nonzero()[0])
        raise InputError(
            f"{name} must have a zero diagonal, but {name}[{row}, {row}] is "
            f"{float(costs[row, row]):g}; subtract it from row {row} (Lemma 1)"
        )


def check_class_vector(values: Tensor, *, num_classes: int | None, name: str) -> None:
    """Counts or frequencies: ``(C,)``, each positive; a class with none is named."""
    if values.ndim != 1 or len(values) == 0 or len(values) != (num_classes or len(values)):
        wanted = f"({num_classes},)" if num_classes is not None else "(classes,)"
        raise InputError(f"{name} must have the shape {wanted}, but has {tuple(values.shape)}")
    if not values_are_readable(values):
        return
    if bool((values == 0).any()):
        empty = (values == 0).nonzero().flatten().tolist()
        raise InputError(
            f"{name} must be positive, but {'class' if len(empty) == 1 else 'classes'} "
            f"{', '.join(map(str, empty))} {'has' if len(empty) == 1 else 'have'} none: "
            "add samples, or leave the class out"
        )
    wrong = ~((values > 0) & values.isfinite())
    if bool(wrong.any()):
        index = int(wrong.nonzero()[0])
        raise InputError(
            f"{name} must be positive and finite, but class {index} has {float(values[index]):g}"
        )


def check_fraction(value: float, *, name: str) -> None:
    """``value`` is in [0, 1)."""
    if not 0 <= value < 1:
        raise InputError(f"{name} must lie in [0, 1), but is {value:g}")
