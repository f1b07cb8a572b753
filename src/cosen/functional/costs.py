"""Costs from class frequencies, the target T, the step towards it, and misclassification costs.

Row = true class, column = output, everywhere.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from cosen.errors import InputError
from cosen.functional.checks import (
    check_class_vector,
    check_costs,
    check_finite_matrix,
    check_gaussian,
    check_misclassification_costs,
    check_not_negative,
    check_positive,
    check_same_device,
)
from cosen.functional.reduction import full_precision, without_autocast

RelativeTo = Literal["total", "largest"]

FLOOR = 1e-6
"""Default lower bound of costs: above zero (Lemma 4), with log(floor) far from -inf."""


def class_frequencies(class_counts: Tensor, *, relative_to: RelativeTo = "total") -> Tensor:
    r"""Distribution of the classes in the training set, h.

    .. math:: h_p = n_p / \sum_k n_k \quad \text{or} \quad h_p = n_p / \max_k n_k

    The paper does not say whether h are counts or fractions. The scale does not matter in
    cross-entropy, but it does in hinge and MSE and in steps that start from costs of 1.

    Args:
        class_counts: Training samples per class, shape ``(C,)``, all positive.
        relative_to: ``"total"`` (fractions of the training set) or ``"largest"``.

    Example:
        >>> class_frequencies(torch.tensor([60, 30, 10]))
        tensor([0.6000, 0.3000, 0.1000])
    """
    if relative_to not in get_args(RelativeTo):
        raise InputError(f"relative_to must be 'total' or 'largest', but is {relative_to!r}")
    check_class_vector(class_counts, name="class_counts")
    counts = class_counts.to(torch.float32)
    return counts / (counts.sum() if relative_to == "total" else counts.max())


def frequency_matrix(class_frequencies: Tensor) -> Tensor:
    """Costs from class frequencies alone, H: ``max(h_p, h_q)``.

    In cross-entropy a rare class must win against a more frequent one by the log of their ratio. A
    frequent class needs no margin against a rare one.

    Args:
        class_frequencies: h, shape ``(C,)``, in (0, 1].

    Example:
        >>> frequency_matrix(torch.tensor([0.75, 0.25]))
        tensor([[0.7500, 0.7500],
                [0.7500, 0.2500]])
    """
    frequencies = _frequencies(class_frequencies)
    return torch.maximum(frequencies[:, None], frequencies[None, :])


def frequency_complement(class_frequencies: Tensor) -> Tensor:
    """Factor that turns H into balanced softmax: ``min(1, h_q / h_p)``.

    It lowers the loss of frequent classes against rare outputs. Every row of
    ``H * frequency_complement(h)`` is h.

    Args:
        class_frequencies: h, shape ``(C,)``, in (0, 1].

    Example:
        >>> frequency_complement(torch.tensor([0.8, 0.2]))
        tensor([[1.0000, 0.2500],
                [1.0000, 1.0000]])
    """
    frequencies = _frequencies(class_frequencies)
    return (frequencies[None, :] / frequencies[:, None]).clamp(max=1)


def _frequencies(class_frequencies: Tensor) -> Tensor:
    check_class_vector(class_frequencies, name="class_frequencies")
    if not class_frequencies.is_floating_point() or bool((class_frequencies > 1).any()):
        raise InputError(
            "class_frequencies must be fractions in (0, 1]; "
            "for counts use class_frequencies(class_counts)"
        )
    return class_frequencies


def target_costs(
    frequency_matrix: Tensor,
    separability: Tensor | None,
    confusion: Tensor | None,
    *,
    separability_mean: float,
    separability_std: float,
    confusion_mean: float,
    confusion_std: float,
    floor: float = FLOOR,
) -> Tensor:
    r"""Target costs T that ξ moves to (Eq. Texp), computed in log space.

    .. math:: T = H \circ e^{-(S - \mu_1)^2 / 2 \sigma_1^2} \circ e^{-(R - \mu_2)^2 / 2 \sigma_2^2}

    The product can underflow, so T is clamped to ``[floor, 1]``.

    Args:
        frequency_matrix: H, shape ``(C, C)``, in (0, 1].
        separability: S, shape ``(C, C)``, or None to omit its factor.
        confusion: R, row rates, shape ``(C, C)``, or None to omit its factor.
        separability_mean: :math:`\mu_1`.
        separability_std: :math:`\sigma_1`, positive; ``inf`` switches the factor off.
        confusion_mean: :math:`\mu_2`.
        confusion_std: :math:`\sigma_2`, positive; ``inf`` switches the factor off.
        floor: Lower bound of the costs.

    Example:
        >>> h = frequency_matrix(torch.tensor([0.75, 0.25]))
        >>> target_costs(h, None, torch.eye(2), separability_mean=0, separability_std=1,
        ...              confusion_mean=1, confusion_std=1)
        tensor([[0.7500, 0.4549],
                [0.4549, 0.2500]])
    """
    check_costs(frequency_matrix, name="frequency_matrix")
    log_costs = full_precision(frequency_matrix).log()
    for name, matrix, mean, std in (
        ("separability", separability, separability_mean, separability_std),
        ("confusion", confusion, confusion_mean, confusion_std),
    ):
        check_gaussian(mean, std, name=name)
        if matrix is None:
            continue
        check_same_device(matrix, frequency_matrix, name=name, other="frequency_matrix")
        check_finite_matrix(matrix, num_classes=len(frequency_matrix), name=name)
        log_costs = _minus_half_square(log_costs, (matrix.to(log_costs.dtype) - mean) / std)
    return project_costs(log_costs.exp(), floor=floor)


def _minus_half_square(total: Tensor, term: Tensor) -> Tensor:
    """Return total - term² / 2. A function of its own frees the term, which may be large."""
    return torch.addcmul(total, term, term, value=-0.5)


def project_costs(costs: Tensor, *, floor: float = FLOOR) -> Tensor:
    """Clamp costs to ``[floor, 1]``, a subset of (0, 1] (Lemma 5).

    Half precision becomes float32, which can hold a small floor.

    Example:
        >>> project_costs(torch.tensor([[1.5, 0.5], [-0.2, 1.0]]), floor=0.01)
        tensor([[1.0000, 0.5000],
                [0.0100, 1.0000]])
    """
    if not 0 < floor <= 1:
        raise InputError(f"floor must lie in (0, 1], but is {floor:g}")
    costs = full_precision(costs)
    if not costs.is_floating_point():
        raise InputError(f"costs must be floating point, but are {costs.dtype}")
    if bool(costs.isnan().any()):
        raise InputError(f"costs contain NaN, first at {costs.isnan().nonzero()[0].tolist()}")
    return costs.clamp(max(floor, torch.finfo(costs.dtype).tiny), 1)


def cost_objective(costs: Tensor, target_costs: Tensor, val_error: Tensor | float) -> Tensor:
    r"""Objective of the costs, F (Eq. 2ndcost_fun): :math:`\|T - \xi\|_2^2 + E_{val}`.

    Example:
        >>> cost_objective(torch.ones(2, 2), torch.full((2, 2), 0.5), 0.25)
        tensor(1.2500)
    """
    _check_costs_and_target(costs, target_costs)
    return (target_costs - costs).square().sum() + val_error


def step_costs(
    costs: Tensor, target_costs: Tensor, *, cost_lr: float, floor: float = FLOOR
) -> Tensor:
    r"""One descent step on F: :math:`\xi + \gamma_\xi (T - \xi)`, clamped to ``[floor, 1]``.

    Eq. (gard_F) omits the factor 2 and the validation error. The factor is part of ``cost_lr``
    here, and the error decides whether the step is kept (Algorithm 1).

    Args:
        costs: ξ, shape ``(C, C)``, in (0, 1].
        target_costs: T, shape ``(C, C)``, in (0, 1].
        cost_lr: :math:`\gamma_\xi`, not negative: 0 is no step, 1 goes to T.
        floor: Lower bound of the costs.

    Example:
        >>> step_costs(torch.ones(2, 2), torch.full((2, 2), 0.5), cost_lr=0.1)
        tensor([[0.9500, 0.9500],
                [0.9500, 0.9500]])
    """
    _check_costs_and_target(costs, target_costs)
    check_not_negative(cost_lr, name="cost_lr")
    costs = full_precision(costs)
    return project_costs(costs.lerp(target_costs.to(costs.dtype), cost_lr), floor=floor)


def _check_costs_and_target(costs: Tensor, target_costs: Tensor) -> None:
    check_same_device(target_costs, costs, name="target_costs", other="costs")
    check_costs(costs)
    check_costs(target_costs, num_classes=len(costs), name="target_costs")


def costs_from_misclassification(
    misclassification_costs: Tensor, *, floor: float = FLOOR
) -> Tensor:
    r"""Convert misclassification costs ξ′ to costs ξ.

    .. math:: \xi_{p,p} = 1, \quad \xi_{p,n} = \xi'_{p,n} / (2 \max \xi' - \xi'_{p,n})

    With two classes, training with ξ gives the decisions of the Bayes rule with ξ′. With more
    classes this holds for each pair. The cost-insensitive :math:`1 - I` gives all ones (Lemma 3). A
    mistake without cost gets ``floor``.

    Args:
        misclassification_costs: ξ′, shape ``(C, C)``, zero diagonal, not negative, not all zero.
        floor: Lower bound of the costs.

    Example:
        >>> costs_from_misclassification(torch.tensor([[0.0, 1.0], [4.0, 0.0]]))
        tensor([[1.0000, 0.1429],
                [1.0000, 1.0000]])
    """
    check_misclassification_costs(misclassification_costs)
    worst = misclassification_costs.max()
    if not bool(worst > 0):
        raise InputError(
            "misclassification_costs are all zero: at least one mistake must have a cost"
        )
    shares = full_precision(misclassification_costs) / worst  # 2 max ξ′ may overflow
    return project_costs((shares / (2 - shares)).fill_diagonal_(1), floor=floor)


def random_misclassification_costs(
    class_counts: Tensor, *, most: float = 10.0, generator: torch.Generator
) -> Tensor:
    r"""Random misclassification costs ξ′, higher for rare classes.

    .. math:: \xi'_{p,n} \sim U[0, m \, h_n / h_p] \text{ for } n \ne p, \quad \xi'_{p,p} = 0

    Abe et al. (2004) use such costs for data without costs; the scale is that of Chung et al.
    (2016).

    Args:
        class_counts: Training samples per class, shape ``(C,)``; only ratios matter.
        most: :math:`m`, the largest cost between equally frequent classes.
        generator: Source of randomness.

    Example:
        >>> draw = torch.Generator().manual_seed(0)
        >>> random_misclassification_costs(torch.tensor([90, 10]), generator=draw)
        tensor([[0.0000, 0.8536],
                [7.9630, 0.0000]])
    """
    check_positive(most, name="most")
    frequencies = class_frequencies(class_counts)
    draws = torch.rand(len(frequencies), len(frequencies), generator=generator)
    ratios = frequencies[None, :] / frequencies[:, None]
    return (most * draws * ratios).fill_diagonal_(0)


def bayes_decision(probabilities: Tensor, misclassification_costs: Tensor) -> Tensor:
    r"""Decision with the lowest expected cost (Eq. ideal_clsf).

    .. math:: p^* = \arg\min_n \sum_p P(p | x) \, \xi'_{p,n}

    The paper's risk swaps the indices of ξ′ compared to its own definition. Here the row is the
    true class, as everywhere. The diagonal need not be zero.

    Args:
        probabilities: P(p | x), shape ``(B, C)``.
        misclassification_costs: ξ′, shape ``(C, C)``, finite.

    Returns:
        Class indices, shape ``(B,)``; the lowest index if costs are equal.

    Example:
        >>> costs = torch.tensor([[0.0, 1.0], [4.0, 0.0]])
        >>> bayes_decision(torch.tensor([[0.7, 0.3], [0.9, 0.1]]), costs)
        tensor([1, 0])
    """
    if probabilities.ndim != 2 or not probabilities.is_floating_point():
        raise InputError(
            "probabilities must be floating point of the shape (samples, classes), "
            f"but are {probabilities.dtype} of {tuple(probabilities.shape)}"
        )
    name = "misclassification_costs"
    check_same_device(misclassification_costs, probabilities, name=name, other="probabilities")
    check_finite_matrix(misclassification_costs, num_classes=probabilities.shape[1], name=name)
    if not bool((probabilities >= 0).all()):
        raise InputError("probabilities must not be negative or NaN")
    chances, costs = full_precision(probabilities), full_precision(misclassification_costs)
    dtype = torch.promote_types(chances.dtype, costs.dtype)
    with without_autocast(probabilities.device):
        return (chances.to(dtype) @ costs.to(dtype)).argmin(1)
