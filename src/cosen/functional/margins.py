"""Cross-entropy with a margin for each pair of true class and output: the core of many losses.

Row = true class, column = output. Logits are ``(B, C)``, ``(B, C, d1, ...)`` or ``(C,)`` as in
``torch.nn.functional.cross_entropy``. Half-precision logits are converted to float32, also under
autocast.

Targets of probabilities need up to ``B * C * C`` numbers: use ``label_smoothing=`` instead of
smoothed targets. If samples have many classes and the margins in a row differ by less than 40, only
one matrix product is needed.
"""

import math
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cosen.functional.checks import (
    check_fraction,
    check_margins,
    check_same_device,
    is_traced,
)
from cosen.functional.reduction import (
    LARGE,
    Batch,
    Fused,
    Reduction,
    batch_loss,
    fused_loss,
    is_moderate,
    prepare_batch,
    reduce_plain,
    without_autocast,
)

WIDE = 40.0
"""Largest difference of margins in a row for which float32 can add their exponentials. The second
derivatives, which divide by the square of the sum, set the limit."""

LEAST, MOST = 1e-30, 1e30
"""Exponentials that float32 adds, and divides by the size of a batch, without a loss of digits."""

LOG_2 = math.log(2)

NO_CLASS = -(2**62)

SMALL = 512
"""Classes up to which a matrix of margins is cheap."""


def pairwise_margin_cross_entropy(
    logits: Tensor,
    target: Tensor,
    margins: Tensor,
    *,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    r"""Cross-entropy of logits shifted by a margin for each pair of true class and output.

    .. math:: \ell(p, o) = -\log \frac{e^{o_p + \Delta_{p,p}}}{\sum_k e^{o_k + \Delta_{p,k}}}

    The core of many losses: :math:`\Delta = \log \xi` is the paper's cost-sensitive
    cross-entropy, :math:`\Delta_{p,n} = \tau \log h_n` is balanced softmax, a negative diagonal is
    a margin as in LDAM. Adding a constant to a row changes nothing.

    Args:
        logits: Network outputs :math:`o`, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes, indices ``(B,)`` or ``(B, d1, ...)``, or probabilities in the shape
            of the logits. With probabilities the loss is the expected loss, each class with its
            own row of margins.
        margins: :math:`\Delta`, shape ``(C, C)``.
        weight: Factor for the loss of each true class, shape ``(C,)``.
        reduction: ``"mean"`` (by weight), ``"sum"`` or ``"none"``.
        label_smoothing: Share of the target spread evenly over the outputs. The margins are still
            those of the true class. An output masked with a logit of -inf has an infinite loss, as
            in ``torch.nn.functional.cross_entropy``.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> logits, target = torch.tensor([[2.0, 1.0]]), torch.tensor([0])
        >>> pairwise_margin_cross_entropy(logits, target, torch.tensor([[-1.0, 0], [0, 0]]))
        tensor(0.6931)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    check_same_device(margins, logits, name="margins", other="logits")
    check_margins(margins, num_classes=batch.logits.shape[1])
    return margin_cross_entropy(
        batch, Margins(matrix=margins), weight=weight, label_smoothing=label_smoothing
    )


@dataclass(frozen=True, eq=False)
class Margins:
    """Margins Δ of each pair of true class p and output n, in one of three forms.

    Attributes:
        matrix: Δ, shape ``(C, C)``.
        costs: ξ, shape ``(C, C)``, for Δ = log ξ. Only the rows that are needed are converted.
        row: Δ[p, n] = row[n], shape ``(C,)``.
        diagonal: Added to Δ[p, p] of ``row``, shape ``(C,)``.
    """

    matrix: Tensor | None = None
    costs: Tensor | None = None
    row: Tensor | None = None
    diagonal: Tensor | None = None

    @classmethod
    def of_row(cls, row: Tensor, diagonal: Tensor | None = None) -> Self:
        """Create margins from a row and a diagonal.

        With few classes they become a matrix, because one gather is faster than two additions.
        """
        if diagonal is None or len(row) > SMALL:
            return cls(row=row, diagonal=diagonal)
        return cls(matrix=row + torch.diag(diagonal))

    def of_classes(self, classes: Tensor) -> Tensor:
        """Return the rows of true classes ``(K,)``, shape ``(K, C)``."""
        if self.matrix is not None:
            return self.matrix.index_select(0, classes)
        if self.costs is not None:
            return self.costs.index_select(0, classes).log()
        assert self.row is not None
        rows = self.row.expand(len(classes), -1)
        if self.diagonal is None:
            return rows
        return rows.scatter_add(1, classes[:, None], self.diagonal[classes[:, None]])

    def added(
        self, outputs: Tensor, classes: Tensor, *, scale: float = 1.0, is_eager: bool = False
    ) -> Tensor:
        """Add the margins to outputs ``(K, C)`` times ``scale``, of true classes ``(K,)``.

        ``is_eager`` saves memory. Transforms of torch cannot change a new matrix in place.
        """
        if self.row is None:
            rows = self.of_classes(classes)
            if rows.dtype is not outputs.dtype:
                rows = rows.to(outputs.dtype)
            if is_eager:
                return rows.add_(outputs, alpha=scale)
            return torch.add(rows, outputs, alpha=scale)
        row = self.row if self.row.dtype is outputs.dtype else self.row.to(outputs.dtype)
        total = torch.add(row, outputs, alpha=scale)
        if self.diagonal is None:
            return total
        index = classes.unsqueeze(1)
        of_true = self.diagonal.take(index).to(outputs.dtype)
        return (total.scatter_add_ if is_eager else total.scatter_add)(1, index, of_true)

    def powers(self, outputs: Tensor, classes: Tensor, *, scale: float = 1.0) -> Tensor:
        """Return e to the power of :meth:`added`, with few passes over a new matrix.

        They are computed as powers of 2: the speed of ``torch.exp`` depends on the processor.
        """
        unit = scale / LOG_2
        matrix, row, diagonal = self._in_powers_of_2
        if self.costs is not None:  # fewer passes than their logarithm
            powers = torch.mul(outputs, unit).exp2_()
            return powers.mul_(self.costs.index_select(0, classes))
        if matrix is not None:
            sums = matrix.index_select(0, classes).to(outputs.dtype)
            return sums.add_(outputs, alpha=unit).exp2_()
        assert row is not None
        sums = torch.add(row.to(outputs.dtype), outputs, alpha=unit)
        if diagonal is not None:
            index = classes.unsqueeze(1)
            sums.scatter_add_(1, index, diagonal.take(index).to(outputs.dtype))
        return sums.exp2_()

    @cached_property
    def _in_powers_of_2(self) -> tuple[Tensor | None, ...]:
        found = (self.matrix, self.row, self.diagonal)
        return tuple(None if tensor is None else tensor / LOG_2 for tensor in found)

    @property
    def requires_grad(self) -> bool:
        tensors = (self.matrix, self.costs, self.row, self.diagonal)
        return any(tensor is not None and tensor.requires_grad for tensor in tensors)


NO_MARGINS = Margins()


def margin_cross_entropy(
    batch: Batch,
    margins: Margins,
    *,
    weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    scale: float = 1.0,
) -> Tensor:
    """:func:`pairwise_margin_cross_entropy` of a prepared batch and checked margins.

    The logits are multiplied by ``scale`` before the margins are added.
    """
    if label_smoothing != 0:
        check_fraction(label_smoothing, name="label_smoothing")
    if batch.is_plain and weight is None and margins is not NO_MARGINS:
        if batch.logits.numel() < LARGE:
            quick = _small_loss(batch, margins, label_smoothing, scale)
        elif label_smoothing or margins.requires_grad:
            quick = None
        else:
            quick = _large_loss(batch, margins, scale)
        if quick is not None:
            return quick

    def losses_of_all(outputs: Tensor) -> Tensor | None:
        return _losses_of_all(scale * outputs, margins, label_smoothing)

    plain = partial(_losses, margins=margins, label_smoothing=label_smoothing, scale=scale)
    return batch_loss(batch, plain, losses_of_all=losses_of_all, weight=weight)


def _losses(
    outputs: Tensor, classes: Tensor, *, margins: Margins, label_smoothing: float, scale: float
) -> Tensor:
    """Losses of true classes ``(K,)`` for outputs ``(K, C)``, at any size of the outputs."""
    if margins is not NO_MARGINS:
        # cross-entropy ignores the shift, but margins added to large logits would lose digits
        shifted = outputs - outputs.detach().amax(1, keepdim=True)
        outputs = margins.added(shifted, classes, scale=scale, is_eager=not is_traced())
    return cross_entropy(
        outputs,
        classes,
        label_smoothing=label_smoothing,
        reduction="none",
        ignore_index=NO_CLASS,
    )


def _large_loss(batch: Batch, margins: Margins, scale: float) -> Tensor | None:
    """Compute a loss with the fewest passes; None if the values need a closer look."""

    def compute(outputs: Tensor, classes: Tensor, share: float) -> Fused | None:
        index = classes.unsqueeze(1)
        powers = margins.powers(outputs, classes, scale=scale)
        totals, of_true = powers.sum(1, keepdim=True), powers.gather(1, index)  # (K, 1)
        if not (of_true.amin().item() > LEAST and totals.amax().item() < MOST):  # also for NaN
            return None
        loss = reduce_plain((totals / of_true).log_(), batch.reduction)
        powers.mul_(totals.reciprocal_().mul_(share * scale))
        return Fused(loss, powers.scatter_(1, index, -share * scale, reduce="add"))

    plain = partial(_losses, margins=margins, label_smoothing=0.0, scale=scale)
    return fused_loss(batch, compute, plain)


def _small_loss(
    batch: Batch, margins: Margins, label_smoothing: float, scale: float
) -> Tensor | None:
    """Compute a loss with the fewest calls; None if the values need a closer look.

    A class that does not exist raises an error.
    """
    logits, target, matrix = batch.logits, batch.target, margins.matrix
    if not is_moderate(logits):
        return None
    try:
        if matrix is not None and matrix.dtype is logits.dtype:  # the usual case, with few calls
            sums = matrix.index_select(0, target).add_(logits, alpha=scale)
        else:
            sums = margins.added(logits, target, scale=scale, is_eager=True)
        loss = cross_entropy(
            sums,
            target,
            label_smoothing=label_smoothing,
            reduction=batch.reduction,
            ignore_index=NO_CLASS,
        )
    except (IndexError, RuntimeError):
        return None
    return loss.reshape(batch.shape) if loss.ndim else loss


def _losses_of_all(outputs: Tensor, margins: Margins, label_smoothing: float) -> Tensor | None:
    """Losses of every true class, shape ``(N, C)``; None if float32 would lose digits."""
    outputs = outputs - outputs.detach().amax(1, keepdim=True)
    classes = torch.arange(outputs.shape[1], device=outputs.device)
    if margins is NO_MARGINS:
        margins = Margins(row=outputs.new_zeros(len(classes)))
    if margins.row is not None and len(classes) > SMALL:
        return _losses_of_all_with_row(outputs, margins, label_smoothing)
    rows = margins.of_classes(classes).to(outputs.dtype)
    lowered = rows - rows.amax(1, keepdim=True)  # does not change the loss
    if not bool(lowered.amin() > -WIDE):
        return None
    with without_autocast(outputs.device):
        log_sums = (outputs.exp() @ lowered.exp().T).log()
    won = outputs + lowered.diagonal()
    if label_smoothing:
        mean = outputs.mean(1, keepdim=True) + lowered.mean(1)
        won = (1 - label_smoothing) * won + label_smoothing * mean
    return log_sums - won


def _losses_of_all_with_row(outputs: Tensor, margins: Margins, label_smoothing: float) -> Tensor:
    """Losses of every true class without a matrix: only the diagonal differs between classes.

    The diagonal changes one term of each sum. In float64, subtracting it loses no digits.
    """
    assert margins.row is not None
    moved = outputs.double() + margins.row
    log_sums, won, mean = moved.logsumexp(1, keepdim=True), moved, moved.mean(1, keepdim=True)
    if margins.diagonal is not None:
        diagonal = margins.diagonal.double()
        log_sums = log_sums + ((moved - log_sums).exp() * diagonal.expm1()).log1p()
        won, mean = won + diagonal, mean + diagonal / len(diagonal)
    if label_smoothing:
        won = (1 - label_smoothing) * won + label_smoothing * mean
    return (log_sums - won).to(outputs.dtype)
