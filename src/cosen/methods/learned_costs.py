"""Learned costs: the default method, and the paper's algorithm with its three losses."""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from cosen.costs import AdaptiveCosts, CostLearner, LossName
from cosen.costs.cost_table import read_misclassification_costs
from cosen.errors import InputError
from cosen.files import expand_user
from cosen.methods.method import NetworkMethod, Setting, check_options
from cosen.networks import CosineOutput

TAKEN = ("reduction", "ignore_index", "objective", "loss")
"""Options of the losses that training sets."""

Output = Literal["auto", "linear", "cosine"]

COSINE_SCALE = 16.0
"""Factor for cosines in the output layer."""

COSINE_MARGIN = 3.0
"""Factor for margins between cosines."""

COSINE_SEPARABILITY = 20.0
"""Strength of separability between cosines."""

FIXED_MARGIN = 4.0
"""Largest margin between cosines of features that cannot adapt to it."""


class Cosen(NetworkMethod):
    """Costs from class frequencies and a margin, both learned from validation errors.

    A network that is trained from scratch gets a cosine output layer: its logits are bounded, so
    the margin shapes the features. A head on frozen features keeps a linear layer. For pretrained
    networks the form is cross-validated.

    Args:
        output: ``"cosine"``, ``"linear"`` or ``"auto"``.
        options: Options of :class:`~cosen.AdaptiveCosts`. On pretrained features, costs start from
            held-out errors: offsets of the classes and τ are fitted when the output layer is
            cross-validated. Then τ does not change in training. A given ``learn_tau`` uses no
            offsets and no class weights.
    """

    name = "cosen"
    description = "learned costs in cross-entropy; the default"

    def __init__(self, *, output: Output = "auto", **options: Any) -> None:
        if output not in get_args(Output):
            raise InputError(f"output must be auto, linear or cosine, but is {output!r}")
        own, papers = (inspect.signature(kind).parameters for kind in (AdaptiveCosts, CostLearner))
        for name in options:
            if name in papers and name not in (*own, *TAKEN):
                raise InputError(
                    f"{name} is an option of the paper's algorithm: use --method cosen-paper"
                )
        _check(self.name, options, AdaptiveCosts, besides=["output"])
        self.output, self.options = output, options
        self.weightings = (0.0,) if {"learn_tau", "weighting"} & set(options) else (0.0, 1.0)
        self.margins = (None,) if "margin" in options else (None, 0.0)
        self.uses_offsets = not {"learn_tau", "offsets"} & set(options)
        self.keeps_linear_output = output == "linear"
        AdaptiveCosts([1, 1], **options)  # raises for bad values

    def cosine_scale(self, setting: Setting) -> float | None:
        cosine = setting.learns_features if self.output == "auto" else self.output == "cosine"
        return COSINE_SCALE if cosine else None

    def make_loss(self, setting: Setting) -> nn.Module:
        counts = setting.class_counts
        has_cosines = setting.has_cosine_output or self.cosine_scale(setting) is not None
        wider = {}
        if has_cosines:
            wider = {"margin_scale": COSINE_MARGIN, "separability": COSINE_SEPARABILITY}
        if has_cosines and not setting.learns_features:
            wider["max_margin"] = FIXED_MARGIN
        known = {"offsets": setting.offsets, "tau": setting.tau} if self.uses_offsets else {}
        chosen = {"weighting": setting.weighting, "margin": setting.margin}
        options = {**wider, **known, **chosen, **self.options}
        return AdaptiveCosts(counts, objective=setting.objective, **options)

    def observe(
        self, loss: nn.Module, output: nn.Module, features: Tensor, target: Tensor, seed: int
    ) -> None:
        if not isinstance(loss, AdaptiveCosts):
            return
        generator = torch.Generator().manual_seed(seed)
        if isinstance(output, CosineOutput):
            unit = normalize(features, dim=1)
            loss.observe(output.scaled_weight, unit, target, generator=generator)
        elif isinstance(output, nn.Linear):
            loss.observe(lambda: output.weight, features, target, generator=generator)


class CosenPaper(NetworkMethod):
    """The paper's algorithm: costs from class frequencies, separability and validation errors.

    Args:
        trials: Number of candidates for options that are not set, such as μ and σ. They are
            cross-validated on the training images before training; 0 uses the defaults.
        folds: Folds of that cross-validation.
        options: Options of :class:`~cosen.CostLearner`; ``misclassification_costs`` may be a CSV.
    """

    name = "cosen-paper"
    description = "the paper's algorithm, in cross-entropy"
    loss: ClassVar[LossName] = "cross_entropy"
    defaults: ClassVar[dict[str, Any]] = {}

    def __init__(self, *, trials: int = 0, folds: int = 3, **options: Any) -> None:
        if (trials, folds) != (0, 3) and self.name != CosenPaper.name:
            raise InputError(f"only {CosenPaper.name} has trials and folds: remove them")
        for name, value, least in (("trials", trials, 0), ("folds", folds, 2)):
            if value < least:
                raise InputError(f"{name} must be at least {least}, but is {value}")
        self.trials, self.folds = trials, folds
        own = ["trials", "folds"] if self.name == CosenPaper.name else []
        _check(self.name, options, CostLearner, besides=own)
        self.options = self.defaults | options
        checked = self.options | {"misclassification_costs": None}
        CostLearner([1, 1], **checked)  # raises for bad values

    def check(self, setting: Setting) -> None:
        super().check(setting)
        self.make_loss(setting)  # reads misclassification costs and checks them

    def make_loss(self, setting: Setting) -> nn.Module:
        options = dict(self.options)
        given = options.get("misclassification_costs")
        if isinstance(given, str):
            options["misclassification_costs"] = read_misclassification_costs(
                expand_user(given), setting.class_names
            )
        counts = setting.class_counts
        return CostLearner(counts, loss=self.loss, objective=setting.objective, **options)


GENTLE = {"relative_to": "largest", "floor": 0.3, "cost_lr": 0.3}
"""In these losses, costs multiply outputs and gradients. A cost of 0.01, which is only a margin in
cross-entropy, would stop the learning of a rare class."""


class CosenHinge(CosenPaper):
    """The paper's algorithm in the hinge loss, with costs between 0.3 and 1."""

    name = "cosen-hinge"
    description = "the paper's algorithm, in the SVM hinge loss"
    loss = "hinge"
    defaults = GENTLE


class CosenMSE(CosenPaper):
    """The paper's algorithm in the mean squared error, with costs between 0.3 and 1."""

    name = "cosen-mse"
    description = "the paper's algorithm, in the mean squared error"
    loss = "mse"
    defaults = GENTLE


def _check(method: str, options: Mapping[str, Any], taker: type, *, besides: list[str]) -> None:
    """Raise an error for unknown options of a class of learned costs."""
    for name in TAKEN:
        if name in options:
            raise InputError(
                f"{name} is not an option of method {method}: "
                + ("use cosen-hinge or cosen-mse" if name == "loss" else "remove it")
            )
    without = ("class_counts", *TAKEN)
    check_options(method, options, taker, besides=besides, without=without, finite=False)
