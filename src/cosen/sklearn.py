"""Cost-sensitive training as a scikit-learn classifier, for feature vectors and small images."""

import math
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR

from cosen import functional as F
from cosen.costs import LOSSES, Acceptance, CostLearner, LossName, Objective
from cosen.errors import InputError
from cosen.functional.checks import check_not_negative, check_positive
from cosen.functional.reduction import reduce_losses
from cosen.networks.checks import check_counts
from cosen.networks.head import Head
from cosen.networks.output import Network, NetworkOutput
from cosen.networks.small_cnn import SmallCNN

Array = NDArray[Any]

COSTS = ("learned", "H")
NETWORKS = ("auto", "head", "small-cnn")
EVALUATED_AT_ONCE = 1024

SHARED_WORK = 2**25
"""Multiplications of a layer from which on its work is worth sharing among threads."""

_global_state = threading.Lock()
_threads, _fits = 1, 0


class CoSenClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A network with one hidden layer, or a small convolutional one, trained with costs.

    Features ``(n, d)`` are standardised and go to a hidden layer with ReLU; images ``(n, h, w)``,
    ``(n, h, w, c)`` or ``(n, c, h, w)`` with one or three channels are standardised by channel and
    go to :class:`~cosen.networks.small_cnn.SmallCNN`. Training is AdamW with the learning rate
    falling to zero along a cosine. Costs matter in training only.

    Args:
        costs: ``"learned"`` by :class:`~cosen.CostLearner` on samples held out of the training
            set; ``"H"`` for fixed costs from the class frequencies; None for plain training; a
            matrix ξ, shape ``(C, C)``, in (0, 1], in the order of ``classes_``, row = true class;
            or ``{class: weight}``, which multiplies the loss of a class (1 where not given).
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
        objective: What learned costs are judged by: ``"overall"``, ``"balanced"``, or an expert's
            misclassification costs, shape ``(C, C)``.
        cost_lr: This and the following options are those of :class:`~cosen.CostLearner`.
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
        >>> model = CoSenClassifier("H", epochs=10, random_state=0).fit(X, y)
        >>> model.costs_.round(2)
        array([[0.9, 0.9],
               [0.9, 0.1]], dtype=float32)
    """

    def __init__(
        self,
        costs: str | ArrayLike | Mapping[Any, float] | None = "learned",
        *,
        loss: LossName = "cross_entropy",
        network: Literal["auto", "head", "small-cnn"] = "auto",
        hidden: int = 100,
        epochs: int = 50,
        batch_size: int = 64,
        lr: float = 0.01,
        weight_decay: float = 0.01,
        validation_fraction: float = 0.1,
        objective: Literal["overall", "balanced"] | ArrayLike = "overall",
        cost_lr: float = 0.1,
        acceptance: Acceptance = "shrink",
        confusion_mean: float = 1.0,
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
        array, y = validate_data(self, X, y, allow_nd=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self.input_shape_ = array.shape[1:]
        self._check_options()
        is_flat = len(self.input_shape_) == 1
        self._is_head = self.network == "head" or (self.network == "auto" and is_flat)
        seed = _seed(self.random_state)
        order = torch.Generator().manual_seed(seed)
        inputs = self._inputs(array, fit=True).to(self.device, torch.float32)
        target = torch.from_numpy(labels).to(self.device)
        train, val = (rows.to(self.device) for rows in self._split(labels, order))
        counts = torch.bincount(target[train], minlength=len(self.classes_)).cpu()
        learner = self._make_learner(counts)
        costs = self._fixed_costs(counts).to(self.device) if learner is None else learner.costs
        self.class_weight_ = self._class_weights()
        weight = torch.from_numpy(self.class_weight_).to(self.device)
        network = _seeded(seed, self._make_network).to(self.device).train()
        optimizer = AdamW(
            network.parameters(), lr=self.lr, weight_decay=self.weight_decay, fused=True
        )
        schedule = CosineAnnealingLR(optimizer, self.epochs)

        self.loss_curve_: list[float] = []
        self.validation_errors_: list[float] = []
        with _few_threads(network, self.batch_size):
            for _ in range(self.epochs):
                losses = []
                shuffled = train[torch.randperm(len(train), generator=order).to(train.device)]
                for rows in shuffled.tensor_split(math.ceil(len(train) / self.batch_size)):
                    batch, true = inputs.index_select(0, rows), target.index_select(0, rows)
                    loss = _loss(self.loss, network(batch).logits, true, costs, weight)
                    optimizer.zero_grad()
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    losses.append(loss.detach())
                schedule.step()
                self.loss_curve_.append(_mean_loss(losses))
                if learner is not None:
                    output = _evaluate(network, inputs[val])
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

    def predict(self, X: ArrayLike) -> Array:
        """The label with the largest logit, shape ``(n,)``."""
        places = self._logits(X).argmax(1).numpy()
        predicted: Array = self.classes_[places]
        return predicted

    def _logits(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        shape = tuple(getattr(X, "shape", ()))[1:]
        if shape and shape != self.input_shape_ and max(len(shape), len(self.input_shape_)) > 1:
            raise InputError(
                f"CoSenClassifier was fitted with samples of the shape {self.input_shape_}, "
                f"but X has samples of {shape}"
            )
        array = validate_data(self, X, reset=False, allow_nd=True)
        weight = next(self.network_.parameters())
        inputs = self._inputs(array).to(weight.device, weight.dtype)
        return _evaluate(self.network_, inputs).logits.cpu().double()

    def _make_network(self) -> Network:
        if self._is_head:
            width = math.prod(self.input_shape_)
            return Head(width, len(self.classes_), width=self.hidden)
        return SmallCNN(len(self.classes_), channels=self.scaler_.n_features_in_)

    def _inputs(self, X: Array, *, fit: bool = False) -> Tensor:
        """What the network takes, standardised: ``(n, d)`` or ``(n, c, h, w)``."""
        if self._is_head:
            columns = X.reshape(len(X), -1)
        else:
            images = _channels_last(X).astype(np.float32)
            columns = images.reshape(-1, images.shape[3])  # (n * h * w, c)
        if fit:
            self.scaler_ = StandardScaler().fit(columns)
        inputs = torch.from_numpy(self.scaler_.transform(columns))
        return inputs if self._is_head else inputs.view(images.shape).permute(0, 3, 1, 2)

    def _split(self, labels: Array, order: torch.Generator) -> tuple[Tensor, Tensor]:
        """Rows to train on and rows to judge learned costs on."""
        rows = torch.arange(len(labels))
        if not _is_named(self.costs, "learned"):
            return rows, rows[:0]
        held_out = _hold_out(labels, share=self.validation_fraction, order=order)
        return rows[~held_out], rows[held_out] if held_out.any() else rows

    def _make_learner(self, counts: Tensor) -> CostLearner | None:
        if not _is_named(self.costs, "learned"):
            return None
        return CostLearner(
            counts,
            loss=self.loss,
            cost_lr=self.cost_lr,
            acceptance=self.acceptance,
            objective=self._objective(),
            confusion_mean=self.confusion_mean,
            confusion_std=self.confusion_std,
            separability_mean=self.separability_mean,
            separability_std=self.separability_std,
        ).to(self.device)

    def _fixed_costs(self, counts: Tensor) -> Tensor:
        if _is_named(self.costs, "H"):
            return F.frequency_matrix(F.class_frequencies(counts))
        if self.costs is None or isinstance(self.costs, Mapping):
            return torch.ones(len(counts), len(counts))
        return self._cost_matrix(self.costs)

    def _cost_matrix(self, costs: Any) -> Tensor:
        classes = len(self.classes_)
        matrix = _numbers("costs", costs)
        if matrix.shape != (classes, classes):
            raise InputError(
                f"costs of CoSenClassifier must have the shape ({classes}, {classes}) for "
                f"{classes} classes, but have {tuple(matrix.shape)}"
            )
        wrong = ~((matrix > 0) & (matrix <= 1))
        if wrong.any():
            row, column = wrong.nonzero()[0].tolist()
            true, output = self.classes_.tolist()[row], self.classes_.tolist()[column]
            raise InputError(
                "costs of CoSenClassifier must lie in (0, 1], but the cost of true class "
                f"{true!r} and output {output!r} is {float(matrix[row, column]):g}"
            )
        return matrix

    def _class_weights(self) -> Array:
        places = {label: place for place, label in enumerate(self.classes_.tolist())}
        vector = np.ones(len(places), np.float32)
        given = self.costs if isinstance(self.costs, Mapping) else {}
        for label, weight in given.items():
            if label not in places:
                raise InputError(
                    f"costs of CoSenClassifier weigh class {label!r}, which is not in y; "
                    f"its classes are {', '.join(map(repr, places))}"
                )
            if not 0 < weight < math.inf:
                raise InputError(
                    "class weights in costs of CoSenClassifier must be positive and finite, "
                    f"but class {label!r} has {weight}"
                )
            vector[places[label]] = weight
        return vector

    def _objective(self) -> Objective:
        if isinstance(self.objective, str):
            return self.objective  # type: ignore[return-value]  # the learner refuses others
        return _numbers("objective", self.objective)

    def _check_options(self) -> None:
        if len(self.classes_) < 2:
            raise InputError(
                "CoSenClassifier needs samples of at least two classes, "
                f"but y has one class only: {self.classes_.tolist()[0]!r}"
            )
        for name, value, choices in (
            ("loss", self.loss, LOSSES),
            ("network", self.network, NETWORKS),
            ("costs", self.costs, COSTS),
        ):
            is_choice = isinstance(value, str) and value in choices
            if not is_choice and (name != "costs" or isinstance(value, str)):
                also = ", None, a matrix or a dict of class weights" if name == "costs" else ""
                raise InputError(
                    f"{name} of CoSenClassifier must be one of {', '.join(choices)}{also}, "
                    f"but is {value!r}"
                )
        check_counts(hidden=self.hidden, epochs=self.epochs, batch_size=self.batch_size)
        check_positive(self.lr, name="lr")
        check_not_negative(self.weight_decay, name="weight_decay")
        if not 0 < self.validation_fraction < 1:
            raise InputError(
                f"validation_fraction must lie between 0 and 1, but is {self.validation_fraction}"
            )

    def _tell_epoch(self) -> None:
        error = f", validation error {self.validation_errors_[-1]:.4f}"
        print(
            f"epoch {len(self.loss_curve_)} of {self.epochs}: loss {self.loss_curve_[-1]:.4f}"
            + (error if self.validation_errors_ else "")
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _is_named(costs: Any, name: str) -> bool:
    return isinstance(costs, str) and costs == name


def _numbers(name: str, values: Any) -> Tensor:
    try:
        return torch.from_numpy(np.array(values, dtype=np.float32))
    except (TypeError, ValueError) as error:
        message = f"{name} of CoSenClassifier must be a matrix of numbers: {error}"
        raise InputError(message) from None


def _seed(random_state: int | np.random.RandomState | None) -> int:
    if random_state is None:
        return secrets.randbits(31)
    return int(check_random_state(random_state).randint(2**31))


def _seeded(seed: int, make: Callable[[], Network]) -> Network:
    """Networks draw their weights from torch's global generator, which is put back afterwards."""
    with _global_state, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@contextmanager
def _few_threads(network: Network, batch_size: int) -> Iterator[None]:
    """One thread where a step is too little work to share, and the number from before afterwards.

    On busy cores, threads that wait for one another at every step can take ten times as long.
    """
    global _threads, _fits
    is_little = isinstance(network, Head) and batch_size * _size(network.hidden) < SHARED_WORK
    if not is_little:
        yield
        return
    with _global_state:
        if _fits == 0:  # other fits may run beside this one, in threads
            _threads = torch.get_num_threads()
        _fits += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _global_state:
            _fits -= 1
            torch.set_num_threads(_threads)


def _hold_out(labels: Array, *, share: float, order: torch.Generator) -> Tensor:
    """A mask of the share of each class; by the rule of ``cosen.data.splits``."""
    counts = np.bincount(labels)
    wanted = np.where(counts >= 4, np.maximum(np.round(share * counts), 2), counts == 3)
    wanted = np.minimum(wanted, counts - 1)  # and the class stays in training
    shuffled = torch.randperm(len(labels), generator=order).numpy()
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    rank = np.arange(len(labels)) - np.repeat(counts.cumsum() - counts, counts)
    mask = np.zeros(len(labels), bool)
    mask[by_class] = rank < np.repeat(wanted, counts)
    return torch.from_numpy(mask)


def _loss(name: LossName, logits: Tensor, target: Tensor, costs: Tensor, weight: Tensor) -> Tensor:
    """The mean over a batch, by class weight, of the cost-sensitive loss."""
    if name == "cross_entropy":
        # what cost_sensitive_cross_entropy gives, without its checks, which take longer than it
        margins = costs.index_select(0, target).log()  # (B, C)
        return cross_entropy(logits + margins, target, weight=weight)
    losses = LOSSES[name].function(logits, target, costs, reduction="none")
    return reduce_losses(losses, weight[target], "mean")


def _mean_loss(losses: list[Tensor]) -> float:
    mean = float(torch.stack(losses).mean())
    if not math.isfinite(mean):
        raise InputError("the training of CoSenClassifier has diverged: lower lr")
    return mean


def _channels_last(images: Array) -> Array:
    """``(n, h, w, c)``, with one or three channels."""
    if images.ndim == 3:
        return images[..., None]
    if images.ndim == 4 and images.shape[3] in (1, 3):
        return images
    if images.ndim == 4 and images.shape[1] in (1, 3):
        return images.transpose(0, 2, 3, 1)
    raise InputError(
        "the small-cnn of CoSenClassifier takes images of the shape (n, h, w), (n, h, w, c) or "
        f"(n, c, h, w) with one or three channels, but X has {images.shape}"
    )


@torch.no_grad()
def _evaluate(network: Network, inputs: Tensor) -> NetworkOutput:
    """Both outputs for all samples; the network is left in the mode it was in."""
    was_training = network.training
    network.eval()
    parts = [network(part) for part in torch.split(inputs, EVALUATED_AT_ONCE)]
    network.train(was_training)
    return NetworkOutput(*(torch.cat(outputs) for outputs in zip(*parts, strict=True)))
