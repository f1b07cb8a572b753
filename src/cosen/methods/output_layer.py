"""Methods that change the output layer of a trained baseline: cRT, tau-norm, logit adjustment."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from cosen import functional as F
from cosen.errors import InputError
from cosen.methods.method import AdjustingMethod, NetworkMethod, Setting


@dataclass(frozen=True)
class ClassifierRetraining(NetworkMethod):
    """Classifier re-training (cRT, Kang et al. 2020): a new output layer on balanced batches."""

    name = "crt"
    description = "cRT: the baseline with its output layer re-trained on balanced batches"
    starts_from_baseline = True
    retrains_output = True
    keeps_linear_output = True

    def class_draws(self, setting: Setting) -> np.ndarray:
        return 1 / setting.class_counts.double().numpy()


@dataclass(frozen=True)
class TauNorm(AdjustingMethod):
    """Tau-normalisation of the baseline's output weights (Kang et al. 2020).

    Attributes:
        tau: Strength, from 0 (the baseline) to 1 (equal norms) and above; -1 selects the value of
            0, 0.1, ..., 2 with the lowest validation error.
    """

    name = "tau-norm"
    description = "tau-norm: the baseline with its class weights normalised afterwards"

    tau: float = -1.0

    def __post_init__(self) -> None:
        if self.tau < 0 and self.tau != -1:
            raise InputError(f"tau must be 0 or more, or -1 to choose one, but is {self.tau}")

    @torch.no_grad()
    def adjust(self, output: nn.Linear, setting: Setting) -> None:
        tau = self.tau if self.tau >= 0 else self._chosen(output, setting)
        output.weight.copy_(_normalised(output.weight, tau))
        output.bias.zero_()  # as in the paper: biases favour frequent classes too

    def _chosen(self, output: nn.Linear, setting: Setting) -> float:
        assert setting.baseline is not None
        outputs = setting.baseline

        def error(tau: float) -> float:
            logits = outputs.features @ _normalised(output.weight, tau).T
            confusion = F.confusion_matrix(
                outputs.target, logits.argmax(1), num_classes=len(setting.class_counts)
            )
            return setting.objective.error(confusion)

        return min((round(0.1 * step, 1) for step in range(21)), key=error)


def _normalised(weight: Tensor, tau: float) -> Tensor:
    norms = torch.linalg.vector_norm(weight, dim=1, keepdim=True)
    found: Tensor = weight / norms.clamp(min=torch.finfo(weight.dtype).tiny) ** tau
    return found


@dataclass(frozen=True)
class LogitAdjustment(AdjustingMethod):
    """Post-hoc logit adjustment (Menon et al. 2021): subtracts log frequencies from the logits.

    Attributes:
        tau: Strength of the class frequencies; 1 gives the posteriors of balanced classes.
    """

    name = "logit-adjustment"
    description = "the baseline with logits adjusted for class frequencies afterwards"

    tau: float = 1.0

    @torch.no_grad()
    def adjust(self, output: nn.Linear, setting: Setting) -> None:
        counts = setting.class_counts.float()
        output.bias.sub_(self.tau * (counts / counts.sum()).log())
