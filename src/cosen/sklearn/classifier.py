"""The estimator: options, the visible training loop, predictions."""

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR

from cosen import functional as F
from cosen.costs import (
    LOSSES,
    Acceptance,
    AdaptiveCosts,
    CostLearner,
    LearnedCosts,
    LossName,
    Objective,
)
from cosen.errors import InputError
from cosen.functional.checks import check_not_negative, check_positive
from cosen.networks.checks import check_counts
from cosen.networks.head import Head
from cosen.networks.output import Network
from cosen.networks.small_cnn import SmallCNN
from cosen.sklearn.given_costs import class_weights, cost_matrix, numbers
from cosen.sklearn.global_state import draw_seed, few_threads, seeded
from cosen.sklearn.inputs import Array, channels_last, check_finite, encode_labels, hold_out
from cosen.sklearn.steps import batch_loss, epoch_loss, evaluate

COSTS = ("adaptive", "learned", "H")
LEARNED = COSTS[:2]
NETWORKS = ("auto", "head", "small-cnn")


class CosenClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network with one hidden layer, or a small convolutional one, trained with costs.

    Features ``(n, d)`` are standardised and go to a hidden layer with ReLU; images ``(n, h, w)``,
    ``(n, h, w, c)`` or ``(n, c, h, w)`` with one or three channels are standardised by channel and
    go to :class:`~cosen.networks.small_cnn.SmallCNN`. Training is AdamW with the learning rate
    falling to zero along a cosine. Costs matter in training only.

    Args:
        costs: ``"adaptive"``, learned by :class:`~cosen.AdaptiveCosts` on samples held out of the
            training set; ``"learned"`` as the paper does, by :class:`~cosen.CostLearner`, which is
            also what ``"adaptive"`` is in the other losses; ``"H"`` for fixed costs from the class
            frequencies; None for plain training; a matrix ξ, shape ``(C, C)``, in (0, 1], in the
            order of ``classes_``, row = true class, or a frame with their names; or
            ``{class: weight}``, which multiplies the loss of a class (1 where not given).
        loss: ``"cross_entropy"``, ``"hinge"`` or ``"mse"``.
        network: ``"auto"`` by the shape of X, ``"head"`` (images are flattened), ``"small-cnn"``.
        hidden: Units of the hidden layer; the small CNN has its own widths.
        epochs: Passes over the training set.
        batch_size: The most samples in a batch; the batches of a pass are of equal size.
        lr: The learning rate at the start.
        weight_decay: AdamW's.
        validation_fraction: The share of each class that learned costs are judged on: at least two
            samples of a class of four or more, one of three, none of a smaller one. Where that
            leaves none at all, they are judged on the training set.
        objective: What learned costs are judged by: ``"balanced"`` (each class counts the same),
            ``"overall"``, or an expert's misclassification costs, shape ``(C, C)``.
        cost_lr: This and the next five are options of :class:`~cosen.CostLearner`, with its
            defaults, and matter with ``"learned"``: γ_ξ.
        acceptance: ``"shrink"``, ``"revert"`` or ``"always"``.
        confusion_mean: μ₂.
        confusion_std: σ₂; infinite leaves the errors out.
        separability_mean: μ₁.
        separability_std: σ₁; infinite leaves the separability out.
        device: Where to train.
        random_state: A number or a ``RandomState`` makes the fit repeatable. With None each fit
            differs; NumPy's and torch's global random states are neither used nor changed.
        verbose: Print a line an epoch.

    Attributes:
        classes_: The labels, shape ``(C,)``.
        costs_: ξ at the end of training, shape ``(C, C)``; all ones with None and class weights.
        class_weight_: The factor for the loss of each class, shape ``(C,)``.
        n_features_in_: Features of a sample; of images, the length of their first axis.
        feature_names_in_: Where X had names.
        input_shape_: The shape of one sample.
        network_: The trained network.
        scaler_: The ``StandardScaler`` of the features or of the channels.
        loss_curve_: The mean training loss of each epoch.
        validation_errors_: E_val of each epoch where costs are learned, else empty.
        n_iter_: Epochs done.

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

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Train on samples X and their labels y, shape ``(n,)``, of any type."""
        array, labels = validate_data(self, X, y, allow_nd=True, ensure_all_finite=False)
        self.classes_, places = encode_labels(labels)
        self._check_options()
        check_finite(array, labels=labels, names=getattr(self, "feature_names_in_", None))
        self.input_shape_ = array.shape[1:]
        is_flat = len(self.input_shape_) == 1
        self._is_head = self.network == "head" or (self.network == "auto" and is_flat)
        seed = draw_seed(self.random_state)
        order = torch.Generator().manual_seed(seed)
        inputs = self._inputs(array, fit=True).to(self.device, torch.float32)
        target = torch.from_numpy(places).to(self.device)
        train, val = (rows.to(self.device) for rows in self._split(places, order))
        counts = torch.bincount(target[train], minlength=len(self.classes_)).cpu()
        learner = self._make_learner(counts)
        costs = self._fixed_costs(counts).to(self.device) if learner is None else learner.costs
        weights = self.costs if isinstance(self.costs, Mapping) else {}
        self.class_weight_ = class_weights(weights, self.classes_.tolist())
        weight = torch.from_numpy(self.class_weight_).to(self.device)
        network = seeded(seed, self._make_network).to(self.device).train()
        optimizer = AdamW(
            network.parameters(), lr=self.lr, weight_decay=self.weight_decay, fused=True
        )
        schedule = CosineAnnealingLR(optimizer, self.epochs)

        self.loss_curve_: list[float] = []
        self.validation_errors_: list[float] = []
        with few_threads(network, self.batch_size):
            for _ in range(self.epochs):
                losses = []
                shuffled = train[torch.randperm(len(train), generator=order).to(train.device)]
                for rows in shuffled.tensor_split(math.ceil(len(train) / self.batch_size)):
                    batch, true = inputs.index_select(0, rows), target.index_select(0, rows)
                    loss = batch_loss(self.loss, network(batch).logits, true, costs, weight)
                    optimizer.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    losses.append(loss.detach())
                schedule.step()
                self.loss_curve_.append(epoch_loss(losses))
                if learner is not None:
                    output = evaluate(network, inputs[val])
                    step = learner.step(output.logits, target[val], output.features)
                    self.validation_errors_.append(step.val_error)
                if self.verbose:
                    self._tell_epoch()
        self.n_iter_ = len(self.loss_curve_)
        self.costs_ = costs.cpu().numpy()
        # float64: what a row is given does not depend on the rows beside it
        self.network_ = network.eval().cpu().double() if self._is_head else network.eval()
        return self

    def decision_function(self, X: ArrayLike) -> Array:
        """The logits, shape ``(n, C)``; of two classes the second's less the first's, ``(n,)``."""
        logits = self._logits(X).numpy()
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def predict_proba(self, X: ArrayLike) -> Array:
        """The softmax of the logits, shape ``(n, C)``, in the order of ``classes_``."""
        return self._logits(X).softmax(1).numpy()

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """The log of :meth:`predict_proba`, shape ``(n, C)``, finite where that rounds to 0."""
        return self._logits(X).log_softmax(1).numpy()

    def predict(self, X: ArrayLike) -> Array:
        """The label with the largest logit, shape ``(n,)``."""
        places = self._logits(X).argmax(1).numpy()
        predicted: Array = self.classes_[places]
        return predicted

    def _logits(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        self._check_shape(getattr(X, "shape", ()))
        array = validate_data(self, X, reset=False, allow_nd=True, ensure_all_finite=False)
        self._check_shape(array.shape)  # lists have one only now
        check_finite(array, names=getattr(self, "feature_names_in_", None))
        weight = next(self.network_.parameters())
        inputs = self._inputs(array).to(weight.device, weight.dtype)
        return evaluate(self.network_, inputs).logits.cpu().double()

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        """Images must be of the size of those before; scikit-learn itself counts features."""
        has_images = max(len(shape) - 1, len(self.input_shape_)) > 1
        if len(shape) > 1 and has_images and tuple(shape[1:]) != self.input_shape_:
            raise InputError(
                f"CosenClassifier was fitted with samples of the shape {self.input_shape_}, "
                f"but X has samples of {tuple(shape[1:])}"
            )

    def _make_network(self) -> Network:
        if self._is_head:
            width = math.prod(self.input_shape_)
            return Head(width, len(self.classes_), width=self.hidden)
        return SmallCNN(len(self.classes_), channels=self.scaler_.n_features_in_)

    def _inputs(self, X: Array, *, fit: bool = False) -> Tensor:
        """What the network takes, standardised: ``(n, d)`` or ``(n, c, h, w)``."""
        samples = X.reshape(len(X), -1) if self._is_head else channels_last(X).astype(np.float32)
        columns = samples.reshape(-1, samples.shape[-1])  # (n, d) or (n * h * w, c)
        if fit:
            self.scaler_ = StandardScaler().fit(columns)
        inputs = torch.from_numpy(self.scaler_.transform(columns)).reshape(samples.shape)
        return inputs if self._is_head else inputs.permute(0, 3, 1, 2)

    def _split(self, places: Array, order: torch.Generator) -> tuple[Tensor, Tensor]:
        """Rows to train on and rows to judge learned costs on."""
        rows = torch.arange(len(places))
        if not self._are_learned():
            return rows, rows[:0]
        held_out = hold_out(places, share=self.validation_fraction, order=order)
        return rows[~held_out], rows[held_out] if held_out.any() else rows

    def _make_learner(self, counts: Tensor) -> LearnedCosts | None:
        if not self._are_learned():
            return None
        if self._costs_are("adaptive") and self.loss == "cross_entropy":
            return AdaptiveCosts(counts, objective=self._objective()).to(self.device)
        return self._papers_learner(counts, self._objective()).to(self.device)

    def _papers_learner(self, counts: Tensor, objective: Objective) -> CostLearner:
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
            return self.objective  # type: ignore[return-value]  # the learner refuses others
        return numbers("objective", self.objective, self.classes_.tolist())

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
        check_positive(self.lr, name="lr")
        check_not_negative(self.weight_decay, name="weight_decay")
        if not 0 < self.validation_fraction < 1:
            raise InputError(
                f"validation_fraction must lie between 0 and 1, but is {self.validation_fraction}"
            )
        self._papers_learner(torch.ones(2), "overall")  # refuses bad values, used or not

    def _tell_epoch(self) -> None:
        line = f"epoch {len(self.loss_curve_)} of {self.epochs}: loss {self.loss_curve_[-1]:.4f}"
        if self.validation_errors_:
            line += f", validation error {self.validation_errors_[-1]:.4f}"
        print(line)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags
