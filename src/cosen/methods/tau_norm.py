"""Tau-normalisation of the output layer (Kang et al. 2020)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cosen import functional as F
from cosen.costs import validation_error
from cosen.errors import InputError
from cosen.methods.method import AdjustingMethod, Setting

STRENGTHS = tuple(round(0.1 * step, 1) for step in range(21))


@dataclass(frozen=True)
class TauNorm(AdjustingMethod):
    """Evens out the norms of the baseline's class weights, which grow with the class frequency.

    Attributes:
        tau: The strength, from 0 (the baseline) to 1 (equal norms) and beyond; -1 takes the one of
            0, 0.1, ..., 2 with the least validation error, the smallest of equals.
    """

    name = "tau-norm"
    description = "the baseline, the norms of its class weights evened out afterwards"

    tau: float = -1.0

    def __post_init__(self) -> None:
        if self.tau < 0 and self.tau != -1:
            raise InputError(f"tau must be 0 or more, or -1 to choose one, but is {self.tau}")

    @torch.no_grad()
    def adjust(self, output: nn.Linear, setting: Setting) -> None:
        tau = self.tau if self.tau >= 0 else self._chosen(output, setting)
        output.weight.copy_(_normalised(output.weight, tau))
        output.bias.zero_()  # as in the paper: norms and biases both favour frequent classes

    def _chosen(self, output: nn.Linear, setting: Setting) -> float:
        assert setting.baseline is not None  # it starts from the baseline
        outputs = setting.baseline

        def error(tau: float) -> float:
            logits = outputs.features @ _normalised(output.weight, tau).T
            confusion = F.confusion_matrix(
                outputs.target, logits.argmax(1), num_classes=len(setting.class_counts)
            )
            return validation_error(confusion, setting.objective)

        return min(STRENGTHS, key=error)


def _normalised(weight: Tensor, tau: float) -> Tensor:
    norms = torch.linalg.vector_norm(weight, dim=1, keepdim=True)
    found: Tensor = weight / norms.clamp(min=torch.finfo(weight.dtype).tiny) ** tau
    return found
