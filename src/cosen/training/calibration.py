"""What the outputs of a model mean: probabilities under the class shares of training or others.

Training with costs, weights or other samples changes what outputs estimate. Cross-entropy with
costs ξ models the posterior under the training shares h as softmax(o + log ξ), so the outputs alone
estimate another one. For any method,

    log P(n | x) = o_n / T + b_n + const  under h, and  + log π_n - log h_n  under shares π.

T and b are fitted on validation. b starts from what the loss says, and only evidence moves it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from cosen.costs import AdaptiveCosts
from cosen.errors import InputError
from cosen.functional.margins import margin_cross_entropy
from cosen.losses import BalancedSoftmaxLoss, CostSensitiveLoss

CHUNK = 2**20
"""Logits that are calibrated at a time."""

TEMPERATURE_SAMPLES, OFFSET_SAMPLES = 10, 30
"""Samples that count against a temperature other than 1, and against each change of offsets. In
cross-validation on validation images of four datasets, 10 to 100 samples hardly differ."""

CAUTIOUS_STEPS = 31
"""Temperatures that are tried if no prediction is wrong."""

LEAST_SHARE = 1e-9

MAX_ERROR = 0.1
"""Largest standard error of an estimated share."""


@dataclass(frozen=True, eq=False)
class Calibration:
    """The temperature T and the offsets b, and the class shares of training.

    Attributes:
        temperature: T.
        offsets: b, float64, shape ``(C,)``.
        class_counts: Training images per class, shape ``(C,)``.
    """

    temperature: float
    offsets: Tensor
    class_counts: Tensor

    @property
    def training_shares(self) -> Tensor:
        """h, float64, shape ``(C,)``."""
        counts = self.class_counts.double().clamp(min=1)
        return counts / counts.sum()

    def logits(self, logits: Tensor, shares: Tensor | None = None) -> Tensor:
        """Return logits whose softmax is the posterior under class shares, float64.

        Args:
            logits: Outputs of the model, shape ``(B, C)``.
            shares: π, shape ``(C,)``. None uses the outputs as they are: the shares that the
                method has trained for, roughly equal ones with learned costs.
        """
        scaled = logits.double() / self.temperature
        if shares is None:
            return scaled
        shares = shares.double() / shares.sum()
        log_ratios = (shares.clamp(min=LEAST_SHARE) / self.training_shares).log()
        return scaled.add_(self.offsets + log_ratios)  # the logits of many classes are large

    def of_shares(self, shares: Tensor) -> "Calibration":
        """Return the calibration of the result of :meth:`logits` for these shares."""
        shares = (shares.double() / shares.sum()).clamp(min=LEAST_SHARE)
        return Calibration(1.0, (self.training_shares / shares).log(), self.class_counts)

    def probabilities(self, logits: Tensor, shares: Tensor | None = None) -> Tensor:
        """Return the posterior under class shares, as :meth:`logits`."""
        return self.logits(logits, shares).softmax(1)


def make_calibration(
    temperature: float, offsets: Sequence[float], class_counts: Tensor
) -> Calibration:
    """Return a stored calibration; offsets that an older version did not store are 0."""
    values = torch.tensor(offsets or [0.0] * len(class_counts), dtype=torch.float64)
    return Calibration(temperature, values, class_counts)


def fit_calibration(
    logits: Tensor, target: Tensor, class_counts: Tensor, *, expected: Tensor | None = None
) -> Calibration:
    """Fit T and b to validation images, whose class shares are those of training.

    b is the expected offset, plus a multiple of log h, plus a bias of each class. All are shrunk:
    a class with few images has hardly any bias. If no prediction is wrong, the temperature raises
    the mean confidence to (V + 1) / (V + 2) at most, as if one of V + 2 images were wrong.

    Args:
        logits: Outputs for the validation images, shape ``(V, C)``.
        target: Their classes, shape ``(V,)``.
        class_counts: Training images per class, shape ``(C,)``.
        expected: b as the loss implies it, from :func:`expected_offsets`; None is 0.
    """
    classes = logits.shape[1]
    start = torch.zeros(classes, dtype=torch.float64) if expected is None else expected.double()
    calibration = Calibration(1.0, start, class_counts)
    if not len(target):
        return calibration
    log_shares = calibration.training_shares.log()
    log_shares = log_shares - log_shares.mean()
    log_temperature, lean = (torch.zeros((), dtype=torch.float64) for _ in range(2))
    bias = torch.zeros(classes, dtype=torch.float64)
    fitted = [value.requires_grad_() for value in (log_temperature, lean, bias)]
    rows = max(1, CHUNK // classes)
    parts = list(zip(torch.split(logits, rows), torch.split(target, rows), strict=True))
    optimizer = torch.optim.LBFGS(fitted, max_iter=100, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        changes = lean.square() + bias.square().sum()
        penalty = TEMPERATURE_SAMPLES * log_temperature.square() + OFFSET_SAMPLES * changes
        total = penalty / 2 / len(target)
        total.backward()  # type: ignore[no-untyped-call]
        for outputs, labels in parts:
            moved = outputs.double() / log_temperature.exp() + start + lean * log_shares + bias
            loss = nn.functional.cross_entropy(moved, labels, reduction="sum") / len(target)
            loss.backward()  # type: ignore[no-untyped-call]
            total = total.detach() + loss.detach()
        return total

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        temperature = float(log_temperature.clamp(-3, 3).exp())
        offsets = start + lean * log_shares + bias
        if bool((logits.argmax(1) == target).all()):
            temperature = _cautious(temperature, parts, offsets)
        return Calibration(temperature, offsets - offsets.mean(), class_counts)


def _cautious(temperature: float, parts: list[tuple[Tensor, Tensor]], offsets: Tensor) -> float:
    """Return the lowest of some temperatures up to 1 that do not make predictions too confident."""
    if temperature >= 1:
        return temperature
    count = sum(len(outputs) for outputs, _ in parts)
    for candidate in torch.linspace(math.log(temperature), 0, CAUTIOUS_STEPS).exp().tolist():
        sure = [(outputs.double() / candidate + offsets).softmax(1).amax(1) for outputs, _ in parts]
        if float(torch.cat(sure).mean()) <= (count + 1) / (count + 2):
            return float(candidate)
    return 1.0


def expected_offsets(loss: nn.Module, draws: np.ndarray | None = None) -> Tensor | None:
    """Return b as a loss and the sampling rates of the classes imply it; None if they imply none.

    Example:
        >>> expected_offsets(BalancedSoftmaxLoss([90, 10])).exp()
        tensor([0.9000, 0.1000])
    """
    offsets: Tensor | None = None
    if isinstance(loss, AdaptiveCosts):
        # its own offsets are left out: they remove what held-out outputs lack, so outputs are
        # balanced with them
        offsets = loss.tau * loss.frequency_term
    elif isinstance(loss, BalancedSoftmaxLoss):
        offsets = loss.tau * loss.class_frequencies.log()
    elif isinstance(loss, CostSensitiveLoss) and loss.loss is margin_cross_entropy:
        offsets = loss.costs.log().mean(0)
    weight = getattr(loss, "weight", None)
    factors = [weight, None if draws is None else torch.from_numpy(draws)]
    for factor in factors:
        if isinstance(factor, Tensor) and bool((factor > 0).all()):
            changed = -factor.detach().log().cpu()
            offsets = changed if offsets is None else offsets.cpu() + changed
    return None if offsets is None else offsets.detach().cpu()


def estimate_shares(posterior: Tensor, trained: Tensor) -> tuple[Tensor, Tensor]:
    """Estimate the class shares of unlabelled images, with standard errors (Saerens et al. 2002).

    The likelihood of the images is maximised by expectation maximisation. The errors are those of
    its curvature.

    Args:
        posterior: Probabilities of the images under the training shares, shape ``(B, C)``.
        trained: The training shares, shape ``(C,)``.

    Returns:
        Shares and standard errors, shape ``(C,)`` each.

    Raises:
        InputError: The images do not determine the shares.
    """
    ratios = posterior / trained  # proportional to the densities p(x | n)
    shares = trained
    for _ in range(1000):
        weighted = ratios * shares
        updated = (weighted / weighted.sum(1, keepdim=True)).mean(0)
        change = float((updated - shares).abs().max())
        shares = updated
        if change < 1e-8:
            break
    errors = _errors_of_shares(ratios, shares)
    worst = int(errors.argmax())
    if not math.isfinite(float(errors[worst])) or float(errors[worst]) > MAX_ERROR:
        raise InputError(
            f"the images ({len(posterior)}) do not determine the class shares: predict more images "
            "at once, or give the shares"
        )
    return shares, errors


def _errors_of_shares(ratios: Tensor, shares: Tensor) -> Tensor:
    """Standard errors from the curvature of the log-likelihood, where shares sum to 1."""
    scores = ratios / (ratios * shares).sum(1, keepdim=True)  # (B, C)
    classes = len(shares)
    centred = torch.eye(classes, dtype=torch.float64)[:, 1:] - 1 / classes
    basis = torch.linalg.qr(centred).Q  # of changes that sum to 0, (C, C - 1)
    curvatures, directions = torch.linalg.eigh(basis.T @ scores.T @ scores @ basis)
    spread: Tensor = basis @ directions / curvatures.clamp(min=1e-12).sqrt()
    return spread.square().sum(1).sqrt()
