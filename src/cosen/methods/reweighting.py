"""Methods that change the loss, the class weights or the sampling of plain training."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from cosen import functional as F
from cosen.costs import read_misclassification_costs
from cosen.errors import InputError
from cosen.files import expand_user
from cosen.functional.checks import check_fraction, check_not_negative, check_positive
from cosen.losses import BalancedSoftmaxLoss, FocalLoss, LDAMLoss, SmoothOneSidedRegressionLoss
from cosen.methods.method import NetworkMethod, Setting
from cosen.networks.output_layers import SCALE


@dataclass(frozen=True)
class Baseline(NetworkMethod):
    """Plain cross-entropy, the reference for all other methods.

    Attributes:
        label_smoothing: Share of the target that is spread evenly over the classes.
    """

    name = "baseline"
    description = "plain cross-entropy"
    keeps_linear_output = True  # other methods adjust it

    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        check_fraction(self.label_smoothing, name="label_smoothing")

    def make_loss(self, setting: Setting) -> nn.Module:
        return nn.CrossEntropyLoss(label_smoothing=self.label_smoothing)


@dataclass(frozen=True)
class ClassWeights(NetworkMethod):
    """Cross-entropy with weights that give every class the same influence.

    Attributes:
        power: Weights are ``class_counts ** -power``.
    """

    name = "class-weights"
    description = "cross-entropy with weights inverse to the class frequencies"

    power: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.power <= 2:
            raise InputError(f"power must lie in [0, 2], but is {self.power}")

    def make_loss(self, setting: Setting) -> nn.Module:
        counts = setting.class_counts
        weights = with_mean_one(counts.float() ** -self.power, counts)
        return MeanOverSamples(nn.CrossEntropyLoss(weight=weights, reduction="sum"))


@dataclass(frozen=True)
class ClassBalanced(NetworkMethod):
    """Cross-entropy with weights inverse to the effective number of samples (Cui et al. 2019).

    Attributes:
        beta: The closer to 1, the closer the weights are to inverse class counts.
    """

    name = "class-balanced"
    description = "cross-entropy with weights from the effective number of samples"

    beta: float = 0.999

    def __post_init__(self) -> None:
        check_fraction(self.beta, name="beta")

    def make_loss(self, setting: Setting) -> nn.Module:
        counts = setting.class_counts
        weights = with_mean_one(F.class_balanced_weights(counts, beta=self.beta), counts)
        return MeanOverSamples(nn.CrossEntropyLoss(weight=weights, reduction="sum"))


@dataclass(frozen=True)
class WeightedSampling(NetworkMethod):
    """Cross-entropy on images drawn with replacement, each class equally often.

    Attributes:
        power: A class is drawn in proportion to its frequency to the power ``1 - power``.
    """

    name = "weighted-sampling"
    description = "cross-entropy on batches that draw all classes equally often"

    power: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.power <= 2:
            raise InputError(f"power must lie in [0, 2], but is {self.power}")

    def class_draws(self, setting: Setting) -> np.ndarray:
        return setting.class_counts.double().numpy() ** -self.power


@dataclass(frozen=True)
class Focal(NetworkMethod):
    """Focal loss: well-classified samples count less (Lin et al. 2017).

    Attributes:
        gamma: How much less; 0 is cross-entropy.
    """

    name = "focal"
    description = "focal loss: well-classified samples count less"

    gamma: float = 2.0

    def __post_init__(self) -> None:
        check_not_negative(self.gamma, name="gamma")

    def make_loss(self, setting: Setting) -> nn.Module:
        return FocalLoss(gamma=self.gamma)


@dataclass(frozen=True)
class BalancedSoftmax(NetworkMethod):
    """Balanced softmax (Ren et al. 2020), the logit-adjusted loss (Menon et al. 2021).

    The class frequencies are added to the logits in training, and not at inference.

    Attributes:
        tau: Strength of the class frequencies; 1 is balanced softmax.
    """

    name = "balanced-softmax"
    description = "balanced softmax, the logit-adjusted loss"

    tau: float = 1.0

    def make_loss(self, setting: Setting) -> nn.Module:
        return BalancedSoftmaxLoss(setting.class_counts, tau=self.tau)


@dataclass(frozen=True)
class LDAMDRW(NetworkMethod):
    """LDAM with deferred re-weighting: wider margins for rare classes (Cao et al. 2019).

    Attributes:
        max_margin: Margin of the rarest class, in cosines.
        beta: As in the method class-balanced.
        defer: Share of the epochs before the class weights are used.
    """

    name = "ldam-drw"
    description = "LDAM: wider margins for rare classes, deferred re-weighting"

    max_margin: float = 0.5
    beta: float = 0.9999
    defer: float = 0.8

    def __post_init__(self) -> None:
        check_not_negative(self.max_margin, name="max_margin")
        check_fraction(self.beta, name="beta")
        if not 0 <= self.defer <= 1:
            raise InputError(f"defer must lie in [0, 1], but is {self.defer}")

    def cosine_scale(self, setting: Setting) -> float:
        return SCALE

    def make_loss(self, setting: Setting) -> nn.Module:
        # the output layer multiplies its cosines by the scale
        margin = SCALE * self.max_margin
        loss = LDAMLoss(setting.class_counts, max_margin=margin, scale=1.0, reduction="sum")
        return MeanOverSamples(loss)

    def begin_epoch(self, loss: nn.Module, setting: Setting, progress: float) -> None:
        assert isinstance(loss, MeanOverSamples)
        assert isinstance(loss.loss, LDAMLoss)
        if progress >= self.defer:
            counts = setting.class_counts
            weights = F.class_balanced_weights(counts, beta=self.beta)
            loss.loss.weight.copy_(with_mean_one(weights, counts))


@dataclass(frozen=True)
class SOSR(NetworkMethod):
    """Smooth one-sided regression of the cost of each decision (Chung et al. 2016).

    If no costs are given, they are drawn at random, as in Abe et al. (2004).

    Attributes:
        most: Costs between equally frequent classes are drawn from [0, most]. Chung et al. use
            10, which needs a lower learning rate.
        misclassification_costs: A CSV of costs to use instead. If the objective has
            misclassification costs, those are used.
    """

    name = "sosr"
    description = "SOSR: smooth one-sided regression of misclassification costs"

    most: float = 1.0
    misclassification_costs: str = ""

    def __post_init__(self) -> None:
        check_positive(self.most, name="most")

    def check(self, setting: Setting) -> None:
        super().check(setting)
        self._costs(setting)

    def make_loss(self, setting: Setting) -> nn.Module:
        return SmoothOneSidedRegressionLoss(self._costs(setting))

    def _costs(self, setting: Setting) -> Tensor:
        if self.misclassification_costs:
            path = expand_user(self.misclassification_costs)
            return read_misclassification_costs(path, setting.class_names)
        if setting.objective.misclassification_costs is not None:
            return setting.objective.misclassification_costs
        return F.random_misclassification_costs(
            setting.class_counts,
            most=self.most,
            generator=torch.Generator().manual_seed(setting.seed),
        )


class MeanOverSamples(nn.Module):
    """Divides the sum of weighted losses by the number of samples.

    PyTorch's weighted mean divides by the weights in the batch. A batch that is split over
    processes, or over several steps, would then give different gradients from the whole batch.

    Args:
        loss: A loss with the reduction ``sum``.
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        summed: Tensor = self.loss(logits, target)
        return summed / len(target)


def with_mean_one(weights: Tensor, class_counts: Tensor) -> Tensor:
    """Scale class weights ``(C,)`` to a mean of 1 over the training samples.

    Example:
        >>> with_mean_one(torch.tensor([1.0, 9.0]), torch.tensor([90, 10]))
        tensor([0.5556, 5.0000])
    """
    shares = class_counts / class_counts.sum()
    return weights / (weights * shares).sum()
