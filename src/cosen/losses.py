"""Loss modules: thin wrappers around the functions in :mod:`cosen.functional`.

Shapes are as in ``torch.nn.CrossEntropyLoss``: logits ``(B, C)`` or ``(B, C, d1, ...)``, targets
``(B,)`` or ``(B, d1, ...)`` class indices, or probabilities in the shape of the logits. Costs,
frequencies and weights are buffers: they move with ``.to()`` and are in the ``state_dict``. They
keep their precision if the network is converted to half precision.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar, get_args

import numpy as np
import torch
from torch import Tensor, nn

from cosen import functional as F
from cosen.errors import InputError
from cosen.functional.checks import (
    check_choice,
    check_class_vector,
    check_costs,
    check_finite,
    check_fraction,
    check_misclassification_costs,
    check_not_negative,
    check_positive,
    check_same_device,
    check_weight,
    is_traced,
    values_are_readable,
)
from cosen.functional.costs import RelativeTo
from cosen.functional.losses import (
    SQUARED_ERROR_SIGNS,
    Factors,
    hinge,
    hinge_signs,
    squared_error,
)
from cosen.functional.margins import NO_MARGINS, Margins, margin_cross_entropy
from cosen.functional.rebalancing import balanced_softmax_margins, ldam_margins
from cosen.functional.reduction import Batch, full_precision, prepare_batch

KEPT = 2048
"""Classes up to which a second matrix, the logarithm of the costs, is kept for all batches."""

Result = TypeVar("Result")

Numbers = Tensor | Sequence[float] | Sequence[Sequence[float]]


def as_numbers(values: Numbers, *, name: str) -> Tensor:
    """Copy lists, an array or a tensor to a new tensor without a graph.

    The order is that of the class indices. Raise an error if a pandas object has another order.
    """
    if isinstance(values, Mapping):
        raise InputError(
            f"{name} must be numbers in the order of the classes, but is a "
            f"{type(values).__name__}: pass [{name}[label] for label in classes]"
        )
    for axis in ("index", "columns") if hasattr(values, "to_numpy") else ():
        found = getattr(values, axis, ())
        labels = [] if callable(found) else list(found)
        if labels != list(range(len(labels))):
            raise InputError(
                f"{name} must be in the order of the classes, but has the labels "
                f"{', '.join(map(str, labels[:5]))}{', ...' if labels[5:] else ''}: sort it and "
                "pass .to_numpy()"
            )
    try:
        if not isinstance(values, Tensor) and hasattr(values, "__array__"):
            array = np.asarray(values)  # may have negative strides or another byte order
            return torch.from_numpy(array.astype(array.dtype.newbyteorder("="), order="C"))
        return torch.as_tensor(values).detach().clone()
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} must be numbers: {error}") from None


def _floats(values: Numbers, *, name: str) -> Tensor:
    return as_numbers(values, name=name).to(torch.get_default_dtype())


def _check_frequencies(frequencies: Tensor, batch: Batch) -> None:
    """Require frequencies for the classes and on the device of a batch."""
    name, classes = "class_frequencies", batch.logits.shape[1]
    check_class_vector(frequencies, num_classes=classes, name=name, values=False)
    check_same_device(frequencies, batch.logits, name=name, other="logits")


class _Loss(nn.Module):
    """Base class: a loss with a reduction and an index to ignore."""

    def __init__(self, *, reduction: F.Reduction, ignore_index: int) -> None:
        super().__init__()
        check_choice(reduction, get_args(F.Reduction), name="reduction")
        self.reduction = reduction
        self.ignore_index = ignore_index
        self._seen: dict[str, tuple[Tensor, Tensor | None, tuple[object, ...], Any]] = {}

    def _batch(self, logits: Tensor, target: Tensor) -> Batch:
        return prepare_batch(
            logits, target, reduction=self.reduction, ignore_index=self.ignore_index
        )

    def _unless_changed(
        self,
        name: str,
        buffer: Tensor,
        batch: Batch,
        prepare: Callable[[Batch], Result],
        *options: object,
        other: Tensor | None = None,
    ) -> Result:
        """Return what follows from buffers and options for batches of this width and device.

        It is checked and computed again only if one of them has changed.
        """
        if batch.is_traced or buffer.is_inference():
            return prepare(batch)
        logits = batch.logits
        version = None if other is None else other._version
        now = (buffer._version, version, logits.shape[1], logits.device, *options)
        seen = self._seen.get(name)
        if seen is None or seen[0] is not buffer or seen[1] is not other or seen[2] != now:
            seen = self._seen[name] = buffer, other, now, prepare(batch)
        found: Result = seen[3]
        return found

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_seen": {}}  # copies and files do not need it

    def _options(self) -> dict[str, Any]:
        return {"reduction": self.reduction, "ignore_index": self.ignore_index}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move buffers, but keep their precision: in half precision a small cost would be 0."""

        def moved(tensor: Tensor) -> Tensor:
            result = fn(tensor)
            is_half = result.is_floating_point() and result.element_size() < 4
            return tensor.to(result.device) if is_half else result

        return super()._apply(moved, recurse)  # type: ignore[no-any-return,no-untyped-call]

    def extra_repr(self) -> str:
        shapes = [f"{name}={tuple(buffer.shape)}" for name, buffer in self.named_buffers()]
        return ", ".join([*shapes, f"reduction={self.reduction!r}"])


class _SmoothedLoss(_Loss):
    """Base class: a loss with label smoothing."""

    def __init__(
        self, *, reduction: F.Reduction, label_smoothing: float, ignore_index: int
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        check_fraction(label_smoothing, name="label_smoothing")
        self.label_smoothing = label_smoothing

    def _options(self) -> dict[str, Any]:
        return {"label_smoothing": self.label_smoothing, **super()._options()}


class CostSensitiveLoss(_SmoothedLoss):
    """Base class: a loss with costs ξ in (0, 1], row = true class.

    The costs are checked, and their logarithm is computed, only when they have changed.

    Attributes:
        costs: ξ, shape ``(C, C)``.
    """

    loss: Callable[..., Tensor] = staticmethod(margin_cross_entropy)
    """Computes the loss of a prepared batch with checked costs or their margins."""

    costs: Tensor

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        batch, smoothing = self._batch(logits, target), self.label_smoothing
        prepared = self._unless_changed("costs", self.costs, batch, self._prepare, smoothing)
        return self.loss(batch, prepared, label_smoothing=smoothing)

    def _prepare(self, batch: Batch) -> Margins | Factors:
        """Check the costs; return log ξ, or the factors of the outputs."""
        check_same_device(self.costs, batch.given, name="costs", other="logits")
        check_costs(self.costs, num_classes=batch.logits.shape[1], values=False)
        costs = full_precision(self.costs)
        check_costs(costs, values=values_are_readable(costs))
        is_constant = not (costs.requires_grad or is_traced())
        if self.loss is margin_cross_entropy:
            is_kept = is_constant and len(costs) <= KEPT  # a logarithm for all batches
            return Margins(matrix=costs.log()) if is_kept else Margins(costs=costs)
        signs = SQUARED_ERROR_SIGNS
        if self.loss is hinge:
            signs = hinge_signs(self.label_smoothing, len(costs))
        factors = Factors(costs, *signs)
        return factors.of_all_classes() if is_constant else factors


class FixedCostLoss(CostSensitiveLoss):
    """Base class: a cost-sensitive loss whose costs are a buffer. Changes in place are noticed."""

    def __init__(
        self,
        costs: Numbers,
        *,
        reduction: F.Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(
            reduction=reduction, label_smoothing=label_smoothing, ignore_index=ignore_index
        )
        matrix = _floats(costs, name="costs")
        check_costs(matrix)
        self.register_buffer("costs", matrix)

    @classmethod
    def from_class_counts(
        cls, class_counts: Numbers, *, relative_to: RelativeTo = "total", **options: Any
    ) -> Self:
        """Create the loss with costs H, from the training samples per class, shape ``(C,)``."""
        counts = as_numbers(class_counts, name="class_counts")
        frequencies = F.class_frequencies(counts, relative_to=relative_to)
        return cls(F.frequency_matrix(frequencies), **options)


class CostSensitiveCrossEntropyLoss(FixedCostLoss):
    """:func:`~cosen.functional.cost_sensitive_cross_entropy` with its costs as a buffer.

    Example:
        >>> criterion = CostSensitiveCrossEntropyLoss.from_class_counts([900, 100])
        >>> criterion(torch.zeros(2, 2), torch.tensor([0, 1]))
        tensor(1.4979)
    """


class CostSensitiveHingeLoss(FixedCostLoss):
    """:func:`~cosen.functional.cost_sensitive_hinge` with its costs as a buffer."""

    loss = staticmethod(hinge)


class CostSensitiveMSELoss(FixedCostLoss):
    """:func:`~cosen.functional.cost_sensitive_mse` with its costs as a buffer."""

    loss = staticmethod(squared_error)


class BalancedSoftmaxLoss(_SmoothedLoss):
    """:func:`~cosen.functional.balanced_softmax`; the logit-adjusted loss for other ``tau``."""

    class_frequencies: Tensor

    def __init__(
        self,
        class_counts: Numbers,
        *,
        tau: float = 1.0,
        reduction: F.Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(
            reduction=reduction, label_smoothing=label_smoothing, ignore_index=ignore_index
        )
        check_finite(tau, name="tau")
        counts = _floats(class_counts, name="class_counts")
        self.register_buffer("class_frequencies", F.class_frequencies(counts))
        self.tau = tau

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        batch, frequencies = self._batch(logits, target), self.class_frequencies
        margins = self._unless_changed("frequencies", frequencies, batch, self._margins, self.tau)
        return margin_cross_entropy(batch, margins, label_smoothing=self.label_smoothing)

    def _margins(self, batch: Batch) -> Margins:
        _check_frequencies(self.class_frequencies, batch)
        return balanced_softmax_margins(self.class_frequencies, tau=self.tau)


class LDAMLoss(_Loss):
    """:func:`~cosen.functional.ldam_loss`; assign ``weight`` to start deferred re-weighting."""

    class_frequencies: Tensor
    weight: Tensor

    def __init__(
        self,
        class_counts: Numbers,
        *,
        max_margin: float = 0.5,
        scale: float = 30.0,
        weight: Numbers | None = None,
        reduction: F.Reduction = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        check_finite(max_margin, name="max_margin")
        check_positive(scale, name="scale")
        frequencies = F.class_frequencies(_floats(class_counts, name="class_counts"))
        weights = torch.ones_like(frequencies) if weight is None else _floats(weight, name="weight")
        check_weight(weights, num_classes=len(frequencies))
        self.register_buffer("class_frequencies", frequencies)
        self.register_buffer("weight", weights)
        self.max_margin = max_margin
        self.scale = scale

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        batch, frequencies = self._batch(logits, target), self.class_frequencies
        options = (self.max_margin, self.scale)
        margins, weight = self._unless_changed(
            "frequencies", frequencies, batch, self._prepare, *options, other=self.weight
        )
        return margin_cross_entropy(batch, margins, weight=weight, scale=self.scale)

    def _prepare(self, batch: Batch) -> tuple[Margins, Tensor | None]:
        """Return the margins and the weights; None if all weights are 1."""
        frequencies, weight = self.class_frequencies, self.weight
        _check_frequencies(frequencies, batch)
        is_one = values_are_readable(weight) and bool((weight == 1).all())
        margins = ldam_margins(frequencies, max_margin=self.max_margin, scale=self.scale)
        return margins, None if is_one else weight


class FocalLoss(_Loss):
    """:func:`~cosen.functional.focal_loss` with an optional weight per class."""

    weight: Tensor | None

    def __init__(
        self,
        *,
        gamma: float = 2.0,
        weight: Numbers | None = None,
        reduction: F.Reduction = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        check_not_negative(gamma, name="gamma")
        weights = None if weight is None else _floats(weight, name="weight")
        if weights is not None:
            check_weight(weights)
        self.register_buffer("weight", weights)
        self.gamma = gamma

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.focal_loss(logits, target, gamma=self.gamma, weight=self.weight, **self._options())


class ClassBalancedLoss(_SmoothedLoss):
    """:func:`~cosen.functional.class_balanced_cross_entropy` with precomputed weights."""

    weight: Tensor

    def __init__(
        self,
        class_counts: Numbers,
        *,
        beta: float = 0.9999,
        reduction: F.Reduction = "mean",
        label_smoothing: float = 0.0,
        ignore_index: int = -100,
    ) -> None:
        super().__init__(
            reduction=reduction, label_smoothing=label_smoothing, ignore_index=ignore_index
        )
        counts = _floats(class_counts, name="class_counts")
        weights = F.class_balanced_weights(counts, beta=beta)
        self.register_buffer("weight", weights)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        batch = self._batch(logits, target)
        return margin_cross_entropy(
            batch, NO_MARGINS, weight=self.weight, label_smoothing=self.label_smoothing
        )


class SmoothOneSidedRegressionLoss(_Loss):
    """:func:`~cosen.functional.smooth_one_sided_regression` with the costs ξ′ as a buffer."""

    misclassification_costs: Tensor

    def __init__(
        self,
        misclassification_costs: Numbers,
        *,
        reduction: F.Reduction = "mean",
        ignore_index: int = -100,
    ) -> None:
        super().__init__(reduction=reduction, ignore_index=ignore_index)
        matrix = _floats(misclassification_costs, name="misclassification_costs")
        check_misclassification_costs(matrix)
        self.register_buffer("misclassification_costs", matrix)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return F.smooth_one_sided_regression(
            logits, target, self.misclassification_costs, **self._options()
        )
