"""Learned costs: today's default, and the paper's (Khan et al.) in each of its three losses."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import nn

from cosen.costs import AdaptiveCosts, CostLearner, LossName
from cosen.errors import InputError
from cosen.methods.cost_table import read_misclassification_costs
from cosen.methods.method import NetworkMethod, Setting
from cosen.methods.options import check_options

TAKEN = ("reduction", "objective", "loss")
"""What is not for the user to set here: training decides it."""

DECIDED = ("class_counts", *TAKEN)
"""The same with what only the data can say."""

Output = Literal["auto", "linear", "cosine"]

COSINE_SCALE = 16.0
"""What cosines in the output layer are multiplied by."""

COSINE_MARGIN = 3.0
"""How much wider margins are between cosines."""

OWN, PAPERS = (inspect.signature(kind).parameters for kind in (AdaptiveCosts, CostLearner))
"""What each way of learning can be told."""


class Cosen(NetworkMethod):
    """Costs from class frequencies, whose few strengths are learned from validation errors.

    A network that learns its features gets an output layer of cosines: as its logits cannot grow
    without bound, the margin shapes the features. A head on frozen ones is better off without.

    Args:
        output: ``"cosine"``, ``"linear"``, or ``"auto"`` for the one of them that suits.
        options: Those of :class:`~cosen.AdaptiveCosts`.
    """

    name = "cosen"
    description = "learned costs, in cross-entropy: the default"

    def __init__(self, *, output: Output = "auto", **options: Any) -> None:
        if output not in get_args(Output):
            raise InputError(f"output must be auto, linear or cosine, but is {output!r}")
        self.output = output
        _check_not_taken(self.name, options)
        for name in options:
            if name not in OWN and name in PAPERS:
                raise InputError(
                    f"{name} is an option of the paper's algorithm: use --method cosen-paper"
                )
        check_options(
            self.name, options, AdaptiveCosts, besides=["output"], without=DECIDED, finite=False
        )
        self.options = options
        AdaptiveCosts([1, 1], **options)  # refuses bad values now

    def cosine_scale(self, setting: Setting) -> float | None:
        cosine = setting.learns_features if self.output == "auto" else self.output == "cosine"
        return COSINE_SCALE if cosine else None

    def make_loss(self, setting: Setting) -> nn.Module:
        counts = torch.from_numpy(setting.class_counts)
        wider = {} if self.cosine_scale(setting) is None else {"margin_scale": COSINE_MARGIN}
        return AdaptiveCosts(counts, objective=setting.objective, **{**wider, **self.options})


class CosenPaper(NetworkMethod):
    """The paper's algorithm: costs from class frequencies, separability and validation errors.

    Args:
        trials: How many candidates for the options that are not given, μ and σ among them, are
            cross-validated on the training images before training; 0 takes the defaults.
        folds: Parts of the training images for that, each held out once.
        options: Those of :class:`~cosen.CostLearner`; ``expert`` may be a CSV.
    """

    name = "cosen-paper"
    description = "learned costs as the paper has them, in cross-entropy"
    loss: ClassVar[LossName] = "cross_entropy"
    defaults: ClassVar[dict[str, Any]] = {}
    trials: int = 0
    folds: int = 3

    def __init__(self, *, trials: int = 0, folds: int = 3, **options: Any) -> None:
        if (trials, folds) != (0, 3) and self.name != CosenPaper.name:
            raise InputError(f"only {CosenPaper.name} has trials and folds: leave them out")
        for name, value, least in (("trials", trials, 0), ("folds", folds, 2)):
            if value < least:
                raise InputError(f"{name} must be at least {least}, but is {value}")
        self.trials, self.folds = trials, folds
        _check_not_taken(self.name, options)
        check_options(
            self.name,
            options,
            CostLearner,
            besides=["trials", "folds"] if self.name == CosenPaper.name else [],
            without=DECIDED,
            finite=False,
        )
        self.options = self.defaults | options
        plain = {name: value for name, value in self.options.items() if name != "expert"}
        CostLearner([1, 1], **plain)  # refuses bad values now

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


GENTLE = {"relative_to": "largest", "floor": 0.3, "cost_lr": 0.3}
"""Where costs multiply the outputs, they multiply the gradients too: costs of a hundredth, which
cross-entropy turns into margins, would stop a rare class from being learned at all."""


class CosenHinge(CosenPaper):
    """The same in the hinge loss, with costs between 0.3 and 1."""

    name = "cosen-hinge"
    description = "learned costs as the paper has them, in the SVM hinge loss"
    loss = "hinge"
    defaults = GENTLE


class CosenMSE(CosenPaper):
    """The same in the mean square error, with costs between 0.3 and 1."""

    name = "cosen-mse"
    description = "learned costs as the paper has them, in the mean square error"
    loss = "mse"
    defaults = GENTLE


def _check_not_taken(method: str, options: Mapping[str, Any]) -> None:
    for name in TAKEN:
        if name in options:
            raise InputError(
                f"{name} is not an option of method {method}: "
                + ("use cosen-hinge or cosen-mse" if name == "loss" else "leave it out")
            )
