"""Refusing bad tensors with a sentence that names what was wrong.

Shapes, dtypes and devices are checked always, and so are values, with one exception: the losses
run at every step, and skip values on an accelerator, where reading them back would stall the
stream, and under ``torch.compile``, where it would break the graph. Their modules in
:mod:`cosen.losses` check costs and options when they are built, so no bad matrix reaches a device.
"""

import math

import torch
from torch import Tensor

from cosen.errors import InputError


def values_are_readable(tensor: Tensor) -> bool:
    """Whether the values of ``tensor`` can be looked at without a price."""
    return tensor.device.type == "cpu" and not torch.compiler.is_compiling()


def check_tensor(tensor: Tensor, *, name: str) -> None:
    """``tensor`` is one, not an array or a list."""
    if not isinstance(tensor, Tensor):
        kind = type(tensor).__name__
        what_to_do = f"use torch.as_tensor({name})"
        if name == "logits" and isinstance(tensor, tuple):
            what_to_do = "of a network that gives logits and features, take the first"
        raise InputError(f"{name} must be a tensor, but is a {kind}: {what_to_do}")


def check_logits(logits: Tensor) -> None:
    """``logits`` is ``(B, C)`` with a class at least, floating, with no NaN."""
    check_tensor(logits, name="logits")
    if logits.ndim != 2 or logits.shape[1] == 0:
        raise InputError(
            "logits must have the shape (samples, classes) with at least one class, "
            f"but have {tuple(logits.shape)}"
        )
    if not logits.is_floating_point():
        raise InputError(f"logits must be floating point, but are {logits.dtype}")
    if values_are_readable(logits) and len(logits) and not bool(logits.amax() < math.inf):
        sample = int((~(logits < math.inf)).any(dim=1).nonzero()[0])
        what = "NaN" if bool(logits[sample].isnan().any()) else "infinity"
        raise InputError(
            f"logits contain {what}, first in sample {sample}: training has diverged; "
            "lower the learning rate or clip the gradients"
        )


def check_target(target: Tensor, logits: Tensor, *, ignore_index: int) -> None:
    """``target`` is ``(B,)`` class indices or ``(B, C)`` class probabilities."""
    samples, classes = logits.shape
    check_tensor(target, name="target")
    check_same_device(target, logits, name="target", other="logits")
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
        indices = target.long()  # small integer dtypes cannot hold -100 or 256
        outside = (indices != ignore_index) & ((indices < 0) | (indices >= classes))
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


def check_class_indices(classes: Tensor, *, samples: int, num_classes: int, name: str) -> None:
    """``classes`` is ``(samples,)``, integers in 0..num_classes-1."""
    if num_classes < 1:
        raise InputError(f"num_classes must be at least 1, but is {num_classes}")
    check_tensor(classes, name=name)
    if classes.shape != (samples,) or classes.is_floating_point() or classes.is_complex():
        raise InputError(
            f"{name} must be class indices of the shape ({samples},), one a sample, "
            f"but is {classes.dtype} of {tuple(classes.shape)}"
        )
    if samples:
        low, high = int(classes.min()), int(classes.max())
        if low < 0 or high >= num_classes:
            raise InputError(
                f"{name} must lie in 0..{num_classes - 1}, but runs from {low} to {high}"
            )


def check_square(matrix: Tensor, *, num_classes: int | None, name: str) -> None:
    """``matrix`` is a floating ``(C, C)``, with C as given where it is known."""
    check_tensor(matrix, name=name)
    classes = num_classes if num_classes is not None else len(matrix) if matrix.ndim else 0
    if matrix.shape != (classes, classes) or classes == 0:
        wanted = f"({classes}, {classes})" if num_classes else "(classes, classes)"
        raise InputError(f"{name} must have the shape {wanted}, but has {tuple(matrix.shape)}")
    if not matrix.is_floating_point():
        raise InputError(f"{name} must be floating point, but is {matrix.dtype}")


def check_costs(
    costs: Tensor, *, num_classes: int | None = None, name: str = "costs", values: bool = True
) -> None:
    """``costs`` is ``(C, C)`` with every entry in (0, 1] (Lemmas 4 and 5)."""
    check_square(costs, num_classes=num_classes, name=name)
    if values and not (costs.amin() > 0 and costs.amax() <= 1):  # quick; NaN is neither
        _check_entries(costs, (costs > 0) & (costs <= 1), name=name, rule="lie in (0, 1]")


def check_finite_matrix(matrix: Tensor, *, num_classes: int | None, name: str) -> None:
    """``matrix`` is ``(C, C)``, finite."""
    check_square(matrix, num_classes=num_classes, name=name)
    _check_entries(matrix, matrix.isfinite(), name=name, rule="be finite")


def check_misclassification_costs(
    costs: Tensor,
    *,
    num_classes: int | None = None,
    name: str = "misclassification_costs",
    values: bool = True,
) -> None:
    """An expert's ξ′: ``(C, C)``, zero diagonal, non-negative and finite elsewhere."""
    check_square(costs, num_classes=num_classes, name=name)
    if not values:
        return
    allowed = (costs >= 0) & costs.isfinite()
    _check_entries(costs, allowed, name=name, rule="be non-negative and finite")
    if bool(costs.diagonal().any()):
        row = int(costs.diagonal().nonzero()[0])
        raise InputError(
            f"{name} must have a zero diagonal, but {name}[{row}, {row}] is "
            f"{float(costs[row, row]):g}; subtract it from row {row} (Lemma 1)"
        )


def check_margins(margins: Tensor, *, num_classes: int) -> None:
    """Pairwise margins Δ: ``(C, C)``, no NaN; -inf takes an output out for a true class."""
    check_square(margins, num_classes=num_classes, name="margins")
    if values_are_readable(margins):
        _check_entries(margins, margins < math.inf, name="margins", rule="be below infinity")


def _check_entries(matrix: Tensor, allowed: Tensor, *, name: str, rule: str) -> None:
    if not bool(allowed.all()):
        row, column = (~allowed).nonzero()[0].tolist()
        raise InputError(
            f"{name} must {rule}, but {name}[{row}, {column}] is {float(matrix[row, column]):g}"
        )


def check_class_vector(
    vector: Tensor, *, num_classes: int | None = None, name: str, values: bool = True
) -> None:
    """Counts or frequencies: ``(C,)``, each positive; a class with none is named."""
    _check_vector_shape(vector, num_classes, name)
    if not values:
        return
    if bool((vector == 0).any()):
        empty = (vector == 0).nonzero().flatten().tolist()
        raise InputError(
            f"{name} must be positive, but {'class' if len(empty) == 1 else 'classes'} "
            f"{', '.join(map(str, empty))} {'has' if len(empty) == 1 else 'have'} none: "
            "add samples, or leave the class out"
        )
    _check_classes(vector, (vector > 0) & vector.isfinite(), f"{name} must be positive and finite")


def check_weight(weight: Tensor, *, num_classes: int | None = None, values: bool = True) -> None:
    """A factor for the loss of each class: ``(C,)``, not negative; 0 leaves a class out."""
    _check_vector_shape(weight, num_classes, "weight")
    if values:
        allowed = (weight >= 0) & weight.isfinite()
        _check_classes(weight, allowed, "weight must be finite and not negative")


def _check_vector_shape(vector: Tensor, num_classes: int | None, name: str) -> None:
    check_tensor(vector, name=name)
    if vector.ndim != 1 or len(vector) == 0 or num_classes not in (None, len(vector)):
        wanted = "(classes,)" if num_classes is None else f"({num_classes},)"
        raise InputError(f"{name} must have the shape {wanted}, but has {tuple(vector.shape)}")


def _check_classes(vector: Tensor, allowed: Tensor, rule: str) -> None:
    if not bool(allowed.all()):
        label = int((~allowed).nonzero()[0])
        raise InputError(f"{rule}, but class {label} has {float(vector[label]):g}")


def check_same_device(tensor: Tensor, reference: Tensor, *, name: str, other: str) -> None:
    """Two tensors, called ``name`` and ``other``, stand on one device."""
    check_tensor(tensor, name=name)
    if tensor.device != reference.device:
        raise InputError(
            f"{name} and {other} must be on one device, but are on {tensor.device} and "
            f"{reference.device}: move {name} with .to('{reference.device}')"
        )


# Options are compared, not handed to math.isfinite, which torch.compile cannot trace; no
# comparison holds for NaN.


def check_fraction(value: float, *, name: str) -> None:
    """``value`` is in [0, 1)."""
    if not 0 <= value < 1:
        raise InputError(f"{name} must lie in [0, 1), but is {value:g}")


def check_finite(value: float, *, name: str) -> None:
    """``value`` is neither infinite nor NaN."""
    if not -math.inf < value < math.inf:
        raise InputError(f"{name} must be finite, but is {value:g}")


def check_not_negative(value: float, *, name: str) -> None:
    """``value`` is in [0, ∞)."""
    if not 0 <= value < math.inf:
        raise InputError(f"{name} must be finite and not negative, but is {value:g}")


def check_positive(value: float, *, name: str) -> None:
    """``value`` is in (0, ∞)."""
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be finite and positive, but is {value:g}")
