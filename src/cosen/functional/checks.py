"""Input checks: each raises :class:`~cosen.errors.InputError` with one clear sentence.

Shapes, dtypes and devices are always checked. Values are checked too, except in losses on an
accelerator, where reading them back would stall the stream, under ``torch.compile``, where it
would break the graph, and under transforms such as ``torch.func.vmap``, where it is impossible.
The modules in :mod:`cosen.losses` check costs and options in their constructors, so no bad matrix
reaches a device.
"""

import math
from collections.abc import Collection

import torch
from torch import Tensor

from cosen.errors import InputError


def values_are_readable(tensor: Tensor) -> bool:
    """Return whether reading the values of ``tensor`` is possible and cheap."""
    return tensor.is_cpu and not is_traced()


def is_traced() -> bool:
    """Return whether ``torch.compile`` or a transform of ``torch.func`` runs the code."""
    return torch.compiler.is_compiling() or is_transforming()


def is_transforming() -> bool:
    """Return whether a transform of ``torch.func`` is running."""
    return bool(torch._C._are_functorch_transforms_active())


def check_tensor(tensor: Tensor, *, name: str) -> None:
    """Require a tensor, not an array or a list."""
    if not isinstance(tensor, Tensor):
        kind = type(tensor).__name__
        what_to_do = f"use torch.as_tensor({name})"
        if name == "logits" and isinstance(tensor, tuple):
            what_to_do = "if the network returns logits and features, pass the logits only"
        raise InputError(f"{name} must be a tensor, but is a {kind}: {what_to_do}")


def check_logits(logits: Tensor) -> None:
    """Require floating ``(B, C)``, ``(B, C, d1, ...)`` or ``(C,)``."""
    check_tensor(logits, name="logits")
    class_dim = min(1, logits.ndim - 1)
    if logits.ndim == 0 or logits.shape[class_dim] == 0:
        raise InputError(
            "logits must have the shape (samples, classes), (samples, classes, d1, ...) or "
            f"(classes,) with at least one class, but have {tuple(logits.shape)}"
        )
    if not logits.is_floating_point():
        raise InputError(f"logits must be floating point, but are {logits.dtype}")


def check_logit_values(logits: Tensor) -> None:
    """Require checked logits without NaN or +inf, if their values can be read."""
    class_dim = min(1, logits.ndim - 1)
    if values_are_readable(logits) and logits.numel() and not bool(logits.amax() < math.inf):
        index = (~(logits < math.inf)).any(dim=class_dim).nonzero()[0].tolist()
        bad = logits.movedim(class_dim, -1)[tuple(index)]
        what = "NaN" if bool(bad.isnan().any()) else "infinity"
        raise InputError(
            f"logits contain {what}, first in {_sample(index)}: training has diverged; "
            "lower the learning rate or clip the gradients"
        )


def check_target(target: Tensor, logits: Tensor) -> None:
    """Require class indices or probabilities in a shape that fits checked logits."""
    check_same_device(target, logits, name="target", other="logits")
    if target.is_floating_point():
        if target.shape != logits.shape:
            raise InputError(
                f"target of class probabilities must have the shape of the logits, "
                f"{tuple(logits.shape)}, but has {tuple(target.shape)}; for class indices use an "
                "integer dtype"
            )
        return
    if target.dtype == torch.bool or target.is_complex():
        raise InputError(f"target must be class indices or probabilities, but is {target.dtype}")
    shape = logits.shape[:1] + logits.shape[2:] if logits.ndim > 1 else ()
    if target.shape != shape:
        raise InputError(
            f"target of class indices must have the shape {tuple(shape)} for logits of the shape "
            f"{tuple(logits.shape)}, but has {tuple(target.shape)}"
        )


def check_target_values(target: Tensor, logits: Tensor, *, ignore_index: int) -> bool:
    """Require valid classes or probabilities in a checked target, if its values can be read.

    Returns:
        Whether classes were read and no sample is ignored.
    """
    if not values_are_readable(target):
        return False
    if target.is_floating_point():
        _check_probabilities(target)
    elif target.numel():
        classes = logits.shape[min(1, logits.ndim - 1)]
        ends = torch.aminmax(target)
        low, high = ends.min.item(), ends.max.item()
        if low >= 0 and high < classes:
            return not low <= ignore_index <= high
        indices = target.long()  # small integer dtypes cannot hold -100 or 256
        outside = (indices != ignore_index) & ((indices < 0) | (indices >= classes))
        if bool(outside.any()):
            index = outside.nonzero()[0].tolist()
            raise InputError(
                f"target must lie in 0..{classes - 1} for {classes} classes, "
                f"but {_sample(index)} has {int(target[tuple(index)])}"
            )
    return False


def _check_probabilities(target: Tensor) -> None:
    class_dim = min(1, target.ndim - 1)
    sums = target.float().sum(dim=class_dim)
    wrong = ~((target >= 0).all(dim=class_dim) & ((sums - 1).abs() < 1e-2))
    if bool(wrong.any()):
        index = wrong.nonzero()[0].tolist()
        raise InputError(
            "target of class probabilities must be non-negative and sum to 1, but "
            f"{_sample(index)} has {target.movedim(class_dim, -1)[tuple(index)].tolist()}"
        )


def _sample(index: list[int]) -> str:
    """Name a sample or pixel by its index in the target."""
    return f"sample {index[0] if len(index) == 1 else index}" if index else "the sample"


def check_class_indices(classes: Tensor, *, samples: int, num_classes: int, name: str) -> None:
    """Require integers ``(samples,)`` in 0..num_classes-1."""
    if num_classes < 1:
        raise InputError(f"num_classes must be at least 1, but is {num_classes}")
    check_tensor(classes, name=name)
    if classes.shape != (samples,) or classes.is_floating_point() or classes.is_complex():
        raise InputError(
            f"{name} must be class indices of the shape ({samples},), one per sample, "
            f"but is {classes.dtype} of {tuple(classes.shape)}"
        )
    if samples:
        low, high = int(classes.min()), int(classes.max())
        if low < 0 or high >= num_classes:
            raise InputError(
                f"{name} must lie in 0..{num_classes - 1}, but runs from {low} to {high}"
            )


def check_square(matrix: Tensor, *, num_classes: int | None, name: str) -> None:
    """Require a floating ``(C, C)`` matrix; C is ``num_classes`` unless that is None."""
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
    """Require ξ: ``(C, C)``, every entry in (0, 1] (Lemmas 4 and 5)."""
    check_square(costs, num_classes=num_classes, name=name)
    if values and not (costs.amin() > 0 and costs.amax() <= 1):  # fast; False for NaN
        _check_entries(costs, (costs > 0) & (costs <= 1), name=name, rule="lie in (0, 1]")


def check_finite_matrix(matrix: Tensor, *, num_classes: int | None, name: str) -> None:
    """Require a finite ``(C, C)`` matrix."""
    check_square(matrix, num_classes=num_classes, name=name)
    _check_entries(matrix, matrix.isfinite(), name=name, rule="be finite")


def check_misclassification_costs(
    costs: Tensor,
    *,
    num_classes: int | None = None,
    name: str = "misclassification_costs",
    values: bool = True,
) -> None:
    """Require ξ′: ``(C, C)``, zero diagonal, non-negative and finite elsewhere."""
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
    """Require pairwise margins Δ: ``(C, C)``, no NaN; -inf removes an output for a true class."""
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
    """Require counts or frequencies: ``(C,)``, positive; name the classes that have none."""
    _check_vector_shape(vector, num_classes, name)
    if not values:
        return
    if bool((vector == 0).any()):
        empty = (vector == 0).nonzero().flatten().tolist()
        raise InputError(
            f"{name} must be positive, but is 0 for class {', '.join(map(str, empty))}: "
            "add samples or remove the class"
        )
    _check_classes(vector, (vector > 0) & vector.isfinite(), f"{name} must be positive and finite")


def check_weight(weight: Tensor, *, num_classes: int | None = None, values: bool = True) -> None:
    """Require class weights: ``(C,)``, not negative; 0 ignores a class."""
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
    """Require two tensors, called ``name`` and ``other``, on the same device."""
    check_tensor(tensor, name=name)
    if tensor.device != reference.device:
        raise InputError(
            f"{name} and {other} must be on one device, but are on {tensor.device} and "
            f"{reference.device}: move {name} with .to('{reference.device}')"
        )


# Options are compared with inf because torch.compile cannot trace math.isfinite. NaN fails every
# comparison.


def check_number(value: object, *, name: str) -> None:
    """Require a number, not a text or a boolean. NumPy numbers are fine."""
    if isinstance(value, float | int) and not isinstance(value, bool):
        return  # also under torch.compile
    try:
        is_number = not isinstance(value, bool | str) and float(value) is not None  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        is_number = False
    if not is_number:
        raise InputError(f"{name} must be a number, but is {value!r}")


def check_choice(value: object, choices: Collection[str], *, name: str) -> None:
    """Require one of several names."""
    if value not in choices:
        raise InputError(f"{name} must be one of {', '.join(choices)}, but is {value!r}")


def check_fraction(value: float, *, name: str) -> None:
    """Require a number in [0, 1)."""
    check_number(value, name=name)
    if not 0 <= value < 1:
        raise InputError(f"{name} must lie in [0, 1), but is {value:g}")


def check_finite(value: float, *, name: str) -> None:
    """Require a finite number."""
    check_number(value, name=name)
    if not -math.inf < value < math.inf:
        raise InputError(f"{name} must be finite, but is {value:g}")


def check_gaussian(mean: float, std: float, *, name: str) -> None:
    """Require the mean and the standard deviation of a factor of the target T."""
    if not math.isfinite(mean) or not std > 0:
        raise InputError(
            f"{name}_mean must be finite and {name}_std positive, but they are {mean} and {std}"
        )


def check_not_negative(value: float, *, name: str) -> None:
    """Require a finite number, at least 0."""
    check_number(value, name=name)
    if not 0 <= value < math.inf:
        raise InputError(f"{name} must be finite and not negative, but is {value:g}")


def check_positive(value: float, *, name: str) -> None:
    """Require a finite number above 0."""
    check_number(value, name=name)
    if not 0 < value < math.inf:
        raise InputError(f"{name} must be finite and positive, but is {value:g}")
