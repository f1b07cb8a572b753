"""Learned costs (Khan et al.): the paper's method, in each of its three losses."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from cosen.costs import CostLearner, LossName
from cosen.errors import InputError
from cosen.methods.cost_table import read_misclassification_costs
from cosen.methods.method import NetworkMethod, Setting

TAKEN = ("reduction", "objective", "loss")
"""What is not for the user to set here: training decides it."""


class Cosen(NetworkMethod):
    """Costs learned from class frequencies, separability and validation errors.

    Args:
        options: Those of :class:`~cosen.CostLearner`; ``expert`` may be a CSV.
    """

    name = "cosen"
    description = "learned costs, in cross-entropy"
    loss: ClassVar[LossName] = "cross_entropy"
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, **options: Any) -> None:
        for name in TAKEN:
            if name in options:
                raise InputError(
                    f"{name} is not an option of method {self.name}: "
                    + ("use cosen, cosen-hinge or cosen-mse" if name == "loss" else "leave it out")
                )
        self.options = self.defaults | options
        plain = {name: value for name, value in self.options.items() if name != "expert"}
        CostLearner([1, 1], **plain)  # refuses unknown options and bad values now

    def check(self, setting: Setting) -> None:
        super().check(setting)
        self.make_loss(setting)  # reads an expert's costs, and refuses bad ones

    def make_loss(self, setting: Setting) -> nn.Module:
        options = dict(self.options)
        if isinstance(options.get("expert"), str):
            path = Path(options["expert"]).expanduser()
            options["expert"] = read_misclassification_costs(path, setting.class_names)
        counts = torch.from_numpy(setting.class_counts)
        return CostLearner(counts, loss=self.loss, objective=setting.objective, **options)


GENTLE = {"relative_to": "largest", "floor": 0.3}
"""Where costs multiply the outputs, they multiply the gradients too: costs of a hundredth, which
cross-entropy turns into margins, would stop a rare class from being learned at all."""


class CosenHinge(Cosen):
    """The same in the hinge loss, with costs between 0.3 and 1."""

    name = "cosen-hinge"
    description = "learned costs, in the SVM hinge loss"
    loss = "hinge"
    defaults = GENTLE


class CosenMSE(Cosen):
    """The same in the mean square error, with costs between 0.3 and 1."""

    name = "cosen-mse"
    description = "learned costs, in the mean square error"
    loss = "mse"
    defaults = GENTLE
