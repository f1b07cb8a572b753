"""The paper's three cost-sensitive losses (Sec. III-C) and the margin cross-entropy behind them.

Row = true class, column = output. Logits are ``(B, C)``, ``(B, C, d1, ...)`` or ``(C,)`` as in
``torch.nn.functional.cross_entropy``. All losses sum over the outputs and then reduce over the
samples. Half-precision logits are converted to float32, also under autocast.

Targets of probabilities need up to ``B * C * C`` numbers: use ``label_smoothing=`` instead of
smoothed targets. If samples have many classes and the margins in a row differ by less than 40, the
cross-entropies need only one matrix product.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from cosen.functional.checks import (
    check_costs,
    check_fraction,
    check_logit_values,
    check_margins,
    check_same_device,
    is_traced,
    values_are_readable,
)
from cosen.functional.reduction import (
    LARGE,
    Batch,
    ClassLoss,
    Fused,
    Reduction,
    WithGradient,
    batch_loss,
    full_precision,
    is_moderate,
    prepare_batch,
    reduce_plain,
    without_autocast,
)

WIDE = 40.0
"""Largest difference of margins in a row for which float32 can add their exponentials. The second
derivatives, which divide by the square of the sum, set the limit."""

LEAST = 1e-30
"""Smallest likelihood that is exact enough in float32. If one is smaller, its logarithm is computed
instead."""

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

    def added(self, outputs: Tensor, classes: Tensor, *, scale: float = 1.0) -> Tensor:
        """Add the margins to outputs ``(K, C)`` times ``scale``, of true classes ``(K,)``."""
        is_eager = not is_traced()  # a transform cannot change a new matrix in place
        if self.row is None:
            rows = self.of_classes(classes).to(outputs.dtype)
            if is_eager:
                return rows.add_(outputs, alpha=scale)
            return torch.add(rows, outputs, alpha=scale)
        total = torch.add(self.row.to(outputs.dtype), outputs, alpha=scale)
        if self.diagonal is None:
            return total
        index = classes.unsqueeze(1)
        of_true = self.diagonal.take(index).to(outputs.dtype)
        return (total.scatter_add_ if is_eager else total.scatter_add)(1, index, of_true)

    def weighted(self, scores: Tensor, classes: Tensor) -> Tensor:
        """Multiply scores ``(K, C)`` of true classes ``(K,)`` by e^Δ, up to a factor by sample.

        The scores may be overwritten.
        """
        if self.row is None:
            if self.costs is not None:
                rows = self.costs.index_select(0, classes)
            else:
                rows = self.of_classes(classes)
                rows = rows.sub_(rows.amax(1, keepdim=True)).exp_()
            return rows.to(scores.dtype).mul_(scores)
        of_outputs, of_true = self._exponentials
        scores.mul_(of_outputs)
        if of_true is not None:
            index = classes.unsqueeze(1)
            scores.scatter_(1, index, scores.gather(1, index).mul_(of_true.take(index)))
        return scores

    @cached_property
    def _exponentials(self) -> tuple[Tensor, Tensor | None]:
        """e^row, at most 1, and e^diagonal."""
        assert self.row is not None
        of_true = None if self.diagonal is None else self.diagonal.exp()
        return (self.row - self.row.max()).exp(), of_true

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
    is_small = batch.logits.numel() < LARGE
    if is_small and weight is None and margins is not NO_MARGINS and batch.is_plain:
        small = _small_loss(batch, margins, label_smoothing, scale)
        if small is not None:
            return small

    def moved(outputs: Tensor, classes: Tensor) -> Tensor:
        if margins is NO_MARGINS:
            return outputs
        # cross-entropy ignores the shift, but margins added to large logits would lose digits
        shifted = outputs - outputs.detach().amax(1, keepdim=True)
        return margins.added(shifted, classes, scale=scale)

    def plain(outputs: Tensor, classes: Tensor) -> Tensor:
        sums = moved(outputs, classes)
        return cross_entropy(
            sums,
            classes,
            label_smoothing=label_smoothing,
            reduction="none",
            ignore_index=NO_CLASS,
        )

    def with_gradient(outputs: Tensor, classes: Tensor, share: float) -> WithGradient:
        # costs multiply the softmax: the same as margins on logits, but large logits lose no digits
        scores = (outputs if scale == 1 else scale * outputs).softmax(1)
        table, factor = margins.weighted(scores, classes), share * scale
        index = classes.unsqueeze(1)
        totals, of_true = table.sum(1, keepdim=True), table.gather(1, index)  # (K, 1)
        if not of_true.min().item() > LEAST:
            return None
        likelihoods = of_true.div_(totals)
        loss = reduce_plain(likelihoods.log().neg_().squeeze(1), batch.reduction)
        table.div_(totals.div_(factor)).scatter_(1, index, likelihoods.sub_(1).mul_(factor))
        return Fused(loss, table)

    is_fused = not (is_small or label_smoothing or margins.requires_grad or margins is NO_MARGINS)
    of_class = ClassLoss(plain, with_gradient if is_fused else None)

    def losses_of_all(outputs: Tensor) -> Tensor | None:
        return _losses_of_all(scale * outputs, margins, label_smoothing)

    return batch_loss(batch, of_class, losses_of_all=losses_of_all, weight=weight)


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
            sums = margins.added(logits, target, scale=scale)
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


def cost_sensitive_cross_entropy(
    logits: Tensor,
    target: Tensor,
    costs: Tensor,
    *,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    r"""Cross-entropy of the cost-weighted softmax (Sec. III-C, loss c).

    .. math:: y_n = \xi_{p,n} e^{o_n} / \sum_k \xi_{p,k} e^{o_k}, \quad \ell = -\log y_p

    A lower diagonal cost raises its class's loss: the class must win by a wider margin. Only the
    ratios within a row of costs matter. Costs of 1 give plain cross-entropy.

    Args:
        logits: Network outputs :math:`o`, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes :math:`p`, shape ``(B,)`` or ``(B, d1, ...)``, or probabilities in the
            shape of the logits.
        costs: Cost matrix :math:`\xi`, shape ``(C, C)``, in (0, 1].
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of the target spread evenly over the outputs.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> costs = torch.tensor([[0.5, 1, 1], [1, 1, 1], [1, 1, 1]])
        >>> cost_sensitive_cross_entropy(torch.tensor([[2.0, 1, 0]]), torch.tensor([0]), costs)
        tensor(0.6964)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    margins = Margins(costs=_checked_costs(costs, batch.logits))
    return margin_cross_entropy(batch, margins, label_smoothing=label_smoothing)


def cost_sensitive_hinge(
    logits: Tensor,
    target: Tensor,
    costs: Tensor,
    *,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    r"""One-against-all hinge loss of the cost-weighted outputs (Sec. III-C, loss b).

    .. math:: \ell = \sum_n \max(0, 1 - (2 d_n - 1) y_n), \quad y_n = o_n \xi_{p,n}

    The paper's equation has a leading minus that contradicts its own gradient; it is omitted.

    Args:
        logits: Network outputs :math:`o`, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes :math:`p`, shape ``(B,)`` or ``(B, d1, ...)``, or probabilities in the
            shape of the logits.
        costs: Cost matrix :math:`\xi`, shape ``(C, C)``, in (0, 1].
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of :math:`d` spread evenly over the outputs.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> costs = torch.tensor([[0.5, 1], [1, 1]])
        >>> cost_sensitive_hinge(torch.tensor([[1.0, -0.5]]), torch.tensor([0]), costs)
        tensor(1.)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    costs = _checked_costs(costs, batch.logits)
    factors = Factors(costs, *hinge_signs(label_smoothing, len(costs)))
    return hinge(batch, factors, label_smoothing=label_smoothing)


def cost_sensitive_mse(
    logits: Tensor,
    target: Tensor,
    costs: Tensor,
    *,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    ignore_index: int = -100,
) -> Tensor:
    r"""Squared error of the cost-weighted logistic outputs (Sec. III-C, loss a).

    .. math:: \ell = \tfrac12 \sum_n (d_n - y_n)^2, \quad y_n = 1 / (1 + e^{-o_n \xi_{p,n}})

    Args:
        logits: Network outputs :math:`o`, shape ``(B, C)`` or ``(B, C, d1, ...)``.
        target: True classes :math:`p`, shape ``(B,)`` or ``(B, d1, ...)``, or probabilities in the
            shape of the logits.
        costs: Cost matrix :math:`\xi`, shape ``(C, C)``, in (0, 1].
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        label_smoothing: Share of :math:`d` spread evenly over the outputs.
        ignore_index: Class index of samples to ignore.

    Example:
        >>> costs = torch.ones(2, 2)
        >>> cost_sensitive_mse(torch.tensor([[0.0, 0.0]]), torch.tensor([0]), costs)
        tensor(0.2500)
    """
    batch = prepare_batch(logits, target, reduction=reduction, ignore_index=ignore_index)
    costs = _checked_costs(costs, batch.logits)
    factors = Factors(costs, *SQUARED_ERROR_SIGNS)
    return squared_error(batch, factors, label_smoothing=label_smoothing)


@dataclass(frozen=True, eq=False)
class Factors:
    """What the outputs are multiplied by: the costs times the sign of their class.

    Attributes:
        costs: ξ, shape ``(C, C)``; the factors themselves if there are no signs.
        wrong: Sign of the outputs of wrong classes.
        true: Sign of the output of the true class.
    """

    costs: Tensor
    wrong: float | None = None
    true: float | None = None

    def of_all_classes(self) -> Self:
        """Return factors that are computed once for all batches."""
        return type(self)(self.of_classes(torch.arange(len(self.costs), device=self.costs.device)))

    def of_classes(self, classes: Tensor) -> Tensor:
        """Return the factors of true classes ``(K,)``, shape ``(K, C)``, as a new matrix."""
        rows = self.costs.index_select(0, classes)
        if self.wrong is None or self.true is None:
            return rows
        index = classes.unsqueeze(1)
        return (self.wrong * rows).scatter(1, index, self.true * rows.gather(1, index))


def hinge_signs(label_smoothing: float, classes: int) -> tuple[float, float]:
    """Return 1 - 2 d of wrong and true classes."""
    check_fraction(label_smoothing, name="label_smoothing")
    share = label_smoothing / classes
    return 1 - 2 * share, 2 * (label_smoothing - share) - 1


def hinge(batch: Batch, factors: Factors, *, label_smoothing: float = 0.0) -> Tensor:  # noqa: ARG001
    """:func:`cost_sensitive_hinge` of a prepared batch and its factors."""

    def terms(outputs: Tensor, rows: Tensor) -> Tensor:
        return torch.addcmul(rows.new_ones(()), outputs, rows).relu_()

    def with_gradient(outputs: Tensor, rows: Tensor, share: float) -> Fused:
        found = terms(outputs, rows)
        torch.ops.aten.threshold_backward.grad_input(rows, found, 0, grad_input=rows)
        loss = found.sum(1) if batch.reduction == "none" else found.sum().mul_(share)
        return Fused(loss, rows if share == 1 else rows.mul_(share))

    return _loss_of_weighted_outputs(batch, factors, terms, with_gradient=with_gradient)


SQUARED_ERROR_SIGNS = (1.0, -1.0)
"""Signs of wrong and true classes: with y = logistic(x), 1 - y = logistic(-x)."""


def squared_error(batch: Batch, factors: Factors, *, label_smoothing: float = 0.0) -> Tensor:
    """:func:`cost_sensitive_mse` of a prepared batch and its factors."""
    check_fraction(label_smoothing, name="label_smoothing")
    share = label_smoothing / batch.logits.shape[1]

    def terms(outputs: Tensor, rows: Tensor) -> Tensor:
        errors = (outputs * rows).sigmoid()  # |d - y| without smoothing
        if label_smoothing:
            is_wrong = rows > 0  # costs are positive
            errors = errors - share - (label_smoothing - 2 * share) * (~is_wrong).to(errors.dtype)
        return errors.square()

    def with_gradient(outputs: Tensor, rows: Tensor, share: float) -> Fused:
        errors = torch.mul(outputs, rows).sigmoid_()
        torch.ops.aten.sigmoid_backward.grad_input(rows, errors, grad_input=rows)
        if batch.reduction == "none":
            loss = torch.linalg.vecdot(errors, errors).mul_(0.5 * share)
        else:
            loss = errors.view(-1).dot(errors.view(-1)).mul_(0.5 * share)
        return Fused(loss, torch.addcmul(rows.new_zeros(()), rows, errors, value=share, out=rows))

    fused = None if label_smoothing else with_gradient
    return _loss_of_weighted_outputs(batch, factors, terms, share=0.5, with_gradient=fused)


def _loss_of_weighted_outputs(
    batch: Batch,
    factors: Factors,
    terms: Callable[[Tensor, Tensor], Tensor],
    *,
    share: float = 1.0,
    with_gradient: Callable[[Tensor, Tensor, float], Fused] | None = None,
) -> Tensor:
    """Compute a loss of the outputs times factors.

    Args:
        batch: The samples.
        factors: Factors of the outputs.
        terms: Maps outputs and their factors ``(K, C)`` to the summands of the loss.
        share: Factor for the summands.
        with_gradient: Computes the loss together with its gradient, which is faster for large
            batches. It may write to the factors.
    """

    def rows_of(classes: Tensor) -> Tensor:
        rows = factors.of_classes(classes)
        return rows if rows.dtype is batch.logits.dtype else rows.to(batch.logits.dtype)

    def plain(outputs: Tensor, classes: Tensor) -> Tensor:
        check_logit_values(batch.given)  # an infinite logit may have a finite loss
        return share * terms(outputs, rows_of(classes)).sum(1)

    def fused(outputs: Tensor, classes: Tensor, weight: float) -> WithGradient:
        if with_gradient is None or not _has_finite_sum(outputs):
            return None
        return with_gradient(outputs, rows_of(classes), weight)

    is_small = batch.logits.numel() < LARGE
    is_fused = not (is_small or with_gradient is None or factors.costs.requires_grad)
    is_quick = batch.is_plain and batch.reduction != "none" and not is_fused
    if is_quick and _has_finite_sum(batch.logits):
        try:
            total = terms(batch.logits, rows_of(batch.target)).sum()
            return total * (share / len(batch.target) if batch.reduction == "mean" else share)
        except (IndexError, RuntimeError):
            pass  # a target is ignored or wrong
    return batch_loss(batch, ClassLoss(plain, fused if is_fused else None))


def _has_finite_sum(outputs: Tensor) -> bool:
    """Return whether no output is infinite or NaN; the reverse need not hold."""
    return math.isfinite(outputs.detach().sum().item())


def _checked_costs(costs: Tensor, logits: Tensor) -> Tensor:
    check_same_device(costs, logits, name="costs", other="logits")
    check_costs(costs, num_classes=logits.shape[1], values=values_are_readable(costs))
    return full_precision(costs)
