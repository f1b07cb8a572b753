"""The estimator: options, training with the shared loop, predictions."""

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.optim import AdamW

from cosen import functional as F
from cosen.costs import (
    LOSSES,
    OVERALL,
    Acceptance,
    AdaptiveCosts,
    CostLearner,
    LearnedCosts,
    LossName,
    Objective,
)
from cosen.data.batches import FeatureBatches
from cosen.errors import InputError
from cosen.functional import Reduction
from cosen.functional.checks import check_not_negative, check_positive
from cosen.losses import CostSensitiveLoss
from cosen.networks.network import Network, Outputs, check_counts
from cosen.networks.small import Head, SmallCNN
from cosen.sklearn.inputs import (
    Array,
    as_matrix,
    channels_last,
    check_finite,
    check_sample_weight,
    class_weights,
    cost_matrix,
    draw_seed,
    encode_labels,
    hold_out,
)
from cosen.training.loop import Callbacks, Diverged, Loop, LoopSettings, seeded
from cosen.training.records import EpochRecord

COSTS = ("adaptive", "learned", "H")
LEARNED = COSTS[:2]
NETWORKS = ("auto", "head", "small-cnn")

EVALUATED_AT_ONCE = 1024


class CosenClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network with one hidden layer, or a small convolutional network, trained with costs.

    Features ``(n, d)`` are standardised and go to a hidden layer with ReLU. Images ``(n, h, w)``,
    ``(n, h, w, c)`` or ``(n, c, h, w)`` with one or three channels are standardised by channel and
    go to :class:`~cosen.networks.small.SmallCNN`. It trains with AdamW and a learning rate that
    decreases to zero along a cosine. Costs are used in training only.

    Args:
        costs: One of

            - ``"adaptive"``: learned by :class:`~cosen.AdaptiveCosts` on held-out samples. With
              other losses than cross-entropy it is the same as ``"learned"``.
            - ``"learned"``: learned by :class:`~cosen.CostLearner`, as in the paper.
            - ``"H"``: fixed costs from the class frequencies.
            - None: plain training.
            - A matrix ξ, shape ``(C, C)``, in (0, 1], in the order of ``classes_``, row = true
              class, or a data frame with the names of the classes.
            - ``{class: weight}``: factors for the loss of classes, 1 by default.
        loss: ``"cross_entropy"``, ``"hinge"`` or ``"mse"``.
        network: ``"auto"`` depends on the shape of X, ``"head"`` flattens images, ``"small-cnn"``.
        hidden: Units of the hidden layer. The small CNN has fixed widths.
        epochs: Passes over the training set.
        batch_size: The largest number of samples in a batch; batches have about the same size.
        lr: Learning rate at the start.
        weight_decay: Weight decay of AdamW.
        validation_fraction: The share of each class on which learned costs are validated: at least
            two samples of a class with four or more, one of three, none of a smaller class. If all
            classes are smaller, the training set is used.
        objective: What learned costs optimise: ``"balanced"`` (classes have equal weight),
            ``"overall"`` (samples have equal weight), or misclassification costs ξ′, shape
            ``(C, C)``.
        cost_lr: γ_ξ. This and the next five are options of :class:`~cosen.CostLearner` for
            ``"learned"``, with the same defaults.
        acceptance: ``"shrink"``, ``"revert"`` or ``"always"``.
        confusion_mean: μ₂.
        confusion_std: σ₂; infinite ignores the validation errors.
        separability_mean: μ₁.
        separability_std: σ₁; infinite ignores the separability.
        device: Where to train.
        random_state: A number or a ``RandomState`` makes the fit repeatable. With None each fit
            differs. The global random states of NumPy and torch are neither used nor changed.
        verbose: Print a line per epoch.

    Attributes:
        classes_: The labels, shape ``(C,)``.
        costs_: ξ at the end of training, shape ``(C, C)``; all ones with None and class weights.
        class_weight_: The factor for the loss of each class, shape ``(C,)``.
        n_features_in_: Number of features; for images the length of their first axis.
        feature_names_in_: The names of the features, if X had names.
        input_shape_: The shape of one sample.
        network_: The trained network.
        scaler_: The ``StandardScaler`` of the features or channels.
        loss_curve_: The mean training loss of each epoch.
        validation_errors_: E_val of each epoch if costs are learned, else empty.
        n_iter_: Number of epochs.

    Example:
        >>> from sklearn.datasets import make_classification
        >>> X, y = make_classification(500, weights=[0.9], random_state=0)
        >>> model = CosenClassifier("H", epochs=10, random_state=0).fit(X, y)
        >>> model.costs_.round(2)
        array([[0.9, 0.9],
               [0.9, 0.1]], dtype=float32)
    """

    def __init__(
        self,
        costs: str | ArrayLike | Mapping[Any, float] | None = "adaptive",
        *,
        loss: LossName = "cross_entropy",
        network: Literal["auto", "head", "small-cnn"] = "auto",
        hidden: int = 100,
        epochs: int = 50,
        batch_size: int = 64,
        lr: float = 0.01,
        weight_decay: float = 0.01,
        validation_fraction: float = 0.1,
        objective: Literal["overall", "balanced"] | ArrayLike = "balanced",
        cost_lr: float = 1.0,
        acceptance: Acceptance = "shrink",
        confusion_mean: float = 0.7,
        confusion_std: float = 0.5,
        separability_mean: float = 1.0,
        separability_std: float = math.inf,
        device: str | torch.device = "cpu",
        random_state: int | np.random.RandomState | None = None,
        verbose: bool = False,
    ) -> None:
        self.costs = costs
        self.loss = loss
        self.network = network
        self.hidden = hidden
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.validation_fraction = validation_fraction
        self.objective = objective
        self.cost_lr = cost_lr
        self.acceptance = acceptance
        self.confusion_mean = confusion_mean
        self.confusion_std = confusion_std
        self.separability_mean = separability_mean
        self.separability_std = separability_std
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train.

        Args:
            X: Samples.
            y: Labels of any type, shape ``(n,)``.
            sample_weight: The weight of each sample in the loss, shape ``(n,)``. Samples with
                weight 0 are ignored. Class frequencies and validation count samples, not weights.
        """
        array, labels = validate_data(self, X, y, allow_nd=True, ensure_all_finite=False)
        weight: Array | None = None
        if sample_weight is not None:
            weight = check_sample_weight(sample_weight, len(array))
            array, labels, weight = array[weight > 0], labels[weight > 0], weight[weight > 0]
            if (weight == weight[0]).all():
                weight = None
        self.classes_, encoded = encode_labels(labels)
        self._check_options()
        check_finite(array, labels=labels, names=getattr(self, "feature_names_in_", None))
        self.input_shape_ = array.shape[1:]
        is_flat = len(self.input_shape_) == 1
        self._is_head = self.network == "head" or (self.network == "auto" and is_flat)
        class_weight = self.costs if isinstance(self.costs, Mapping) else {}
        self.class_weight_ = class_weights(class_weight, self.classes_.tolist())
        if class_weight:
            weight = self.class_weight_[encoded] * (1 if weight is None else weight)
        loop = self._make_loop(array, encoded, weight)
        try:
            loop.fit()
        except Diverged as error:
            raise InputError("the training of CosenClassifier diverged: use a lower lr") from error
        self.loss_curve_ = [record.train_loss for record in loop.history]
        self.validation_errors_ = [
            record.val_error for record in loop.history if record.val_error is not None
        ]
        self.n_iter_ = len(loop.history)
        assert isinstance(loop.loss.costs, Tensor)
        self.costs_ = loop.loss.costs.cpu().numpy()
        network = loop.network.eval()
        # float64: the result for a row does not depend on the rows next to it
        self.network_ = network.cpu().double() if self._is_head else network
        return self

    def _make_loop(self, array: Array, encoded: Array, weight: Array | None) -> Loop:
        """Create the training loop for samples, their classes and their weights."""
        seed = draw_seed(self.random_state)
        order = torch.Generator().manual_seed(seed)
        inputs = self._inputs(array, fit=True).to(self.device, torch.float32)
        target = torch.from_numpy(encoded).to(self.device)
        train, val = (rows.to(self.device) for rows in self._split(encoded, order))
        counts = torch.bincount(target[train], minlength=len(self.classes_)).cpu()
        loss = self._make_loss(counts, reduction="mean" if weight is None else "none")
        with seeded(seed):
            network = self._make_network().to(self.device)
        weights = None if weight is None else torch.from_numpy(weight).to(self.device)[train]
        steps = math.ceil(len(train) / self.batch_size)
        batches = FeatureBatches(
            inputs,
            target[train],
            rows=train,
            batch_size=math.ceil(len(train) / steps),
            sample_weight=weights,
            order=order,
            device=self.device,
        )
        val_samples = inputs[val], target[val]
        return Loop(
            network,
            loss,
            AdamW(network.parameters(), lr=self.lr, weight_decay=self.weight_decay, fused=True),
            LoopSettings(epochs=self.epochs, lr=self.lr),
            batches=lambda: batches,
            validate=(lambda evaluated: evaluate(evaluated, *val_samples)) if len(val) else None,
            objective=loss.objective if isinstance(loss, LearnedCosts) else OVERALL,
            class_counts=counts,
            callbacks=Callbacks(epoch=self._print_epoch) if self.verbose else None,
            multiplications=(
                self.batch_size * self.hidden * (int(np.prod(self.input_shape_)) + 1)
                if self._is_head
                else None
            ),
        )

    def decision_function(self, X: ArrayLike) -> Array:
        """Return the logits, shape ``(n, C)``; for two classes their difference, shape ``(n,)``."""
        logits = self._logits(X).numpy()
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: ArrayLike) -> Array:
        """Return the softmax of the logits, shape ``(n, C)``, in the order of ``classes_``."""
        return self._logits(X).softmax(1).numpy()

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Return the log of :meth:`predict_proba`, shape ``(n, C)``; finite even if that is 0."""
        return self._logits(X).log_softmax(1).numpy()

    def predict(self, X: ArrayLike) -> Array:
        """Return the label with the largest logit, shape ``(n,)``."""
        places = self._logits(X).argmax(1).numpy()
        predicted: Array = self.classes_[places]
        return predicted

    def _logits(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        self._check_shape(getattr(X, "shape", ()))
        array = validate_data(self, X, reset=False, allow_nd=True, ensure_all_finite=False)
        self._check_shape(array.shape)  # a list has a shape only now
        check_finite(array, names=getattr(self, "feature_names_in_", None))
        weight = next(self.network_.parameters())
        inputs = self._inputs(array).to(weight.device, weight.dtype)
        return evaluate(self.network_, inputs, torch.zeros(len(inputs))).logits.cpu().double()

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        """Raise an error for images of another size; scikit-learn itself checks features."""
        has_images = max(len(shape) - 1, len(self.input_shape_)) > 1
        if len(shape) > 1 and has_images and tuple(shape[1:]) != self.input_shape_:
            raise InputError(
                f"CosenClassifier was fitted with samples of the shape {self.input_shape_}, "
                f"but X has samples of the shape {tuple(shape[1:])}"
            )

    def _make_network(self) -> Network:
        if self._is_head:
            width = math.prod(self.input_shape_)
            return Head(width, len(self.classes_), width=self.hidden)
        return SmallCNN(len(self.classes_), channels=self.scaler_.n_features_in_)

    def _inputs(self, X: Array, *, fit: bool = False) -> Tensor:
        """Return the standardised inputs of the network: ``(n, d)`` or ``(n, c, h, w)``."""
        samples = X.reshape(len(X), -1) if self._is_head else channels_last(X).astype(np.float32)
        columns = samples.reshape(-1, samples.shape[-1])  # (n, d) or (n * h * w, c)
        if fit:
            self.scaler_ = StandardScaler().fit(columns)
        inputs = torch.from_numpy(self.scaler_.transform(columns)).reshape(samples.shape)
        return inputs if self._is_head else inputs.permute(0, 3, 1, 2)

    def _split(self, encoded: Array, order: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return rows to train on and rows to validate learned costs on."""
        rows = torch.arange(len(encoded))
        if not self._are_learned():
            return rows, rows[:0]
        held_out = hold_out(encoded, share=self.validation_fraction, order=order)
        return rows[~held_out], rows[held_out] if held_out.any() else rows

    def _make_loss(
        self, counts: Tensor, *, reduction: Reduction
    ) -> CostSensitiveLoss | LearnedCosts:
        loss: CostSensitiveLoss | LearnedCosts
        if not self._are_learned():
            loss = LOSSES[self.loss](self._fixed_costs(counts), reduction=reduction)
        elif self._costs_are("adaptive") and self.loss == "cross_entropy":
            loss = AdaptiveCosts(counts, objective=self._objective(), reduction=reduction)
        else:
            loss = self._cost_learner(counts, self._objective(), reduction=reduction)
        return loss.to(self.device)

    def _cost_learner(
        self, counts: Tensor, objective: Objective, *, reduction: Reduction = "mean"
    ) -> CostLearner:
        return CostLearner(
            counts,
            loss=self.loss,
            cost_lr=self.cost_lr,
            acceptance=self.acceptance,
            objective=objective,
            confusion_mean=self.confusion_mean,
            confusion_std=self.confusion_std,
            separability_mean=self.separability_mean,
            separability_std=self.separability_std,
            reduction=reduction,
        )

    def _fixed_costs(self, counts: Tensor) -> Tensor:
        if self._costs_are("H"):
            return F.frequency_matrix(F.class_frequencies(counts))
        if self.costs is None or isinstance(self.costs, Mapping):
            return torch.ones(len(counts), len(counts))
        return cost_matrix(self.costs, self.classes_.tolist())

    def _are_learned(self) -> bool:
        return any(map(self._costs_are, LEARNED))

    def _costs_are(self, name: str) -> bool:
        return isinstance(self.costs, str) and self.costs == name

    def _objective(self) -> Objective:
        if isinstance(self.objective, str):
            return Objective.of(self.objective)
        return Objective.of(as_matrix(self.objective, self.classes_.tolist(), name="objective"))

    def _check_options(self) -> None:
        for name, value, choices in (
            ("loss", self.loss, LOSSES),
            ("network", self.network, NETWORKS),
            ("costs", self.costs, COSTS),
        ):
            is_choice = isinstance(value, str) and value in choices
            if not is_choice and (name != "costs" or isinstance(value, str)):
                also = ", None, a matrix or a dict of class weights" if name == "costs" else ""
                raise InputError(
                    f"{name} of CosenClassifier must be one of {', '.join(choices)}{also}, "
                    f"but is {value!r}"
                )
        check_counts(hidden=self.hidden, epochs=self.epochs, batch_size=self.batch_size)
        try:
            torch.zeros(1, device=self.device).item()
        except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"device {self.device!r} cannot be used: {reason}") from error
        check_positive(self.lr, name="lr")
        check_not_negative(self.weight_decay, name="weight_decay")
        if not 0 < self.validation_fraction < 1:
            raise InputError(
                f"validation_fraction must lie between 0 and 1, but is {self.validation_fraction}"
            )
        self._cost_learner(torch.ones(2), OVERALL)  # raises for bad values, used or not

    def _print_epoch(self, record: EpochRecord) -> None:
        line = f"epoch {record.epoch} of {self.epochs}: loss {record.train_loss:.4f}"
        if record.val_error is not None:
            line += f", validation error {record.val_error:.4f}"
        print(line)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


@torch.no_grad()
def evaluate(network: nn.Module, inputs: Tensor, target: Tensor) -> Outputs:
    """Return the outputs for all samples."""
    network.eval()
    parts = [network(part) for part in torch.split(inputs, EVALUATED_AT_ONCE)]
    return Outputs(
        torch.cat([part.logits for part in parts]),
        torch.cat([part.features for part in parts]),
        target,
    )
