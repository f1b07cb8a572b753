"""The base class of methods, and four kinds that change different parts of plain training."""

import inspect
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import (
    Any,
    ClassVar,
    Literal,
    Protocol,
    Self,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from torch import Tensor, nn

from cosen.costs import OVERALL, Objective
from cosen.errors import DataError, InputError, choices_hint
from cosen.networks.network import Outputs

Samples = tuple[np.ndarray, np.ndarray]
"""Features ``(n, d)`` and classes ``(n,)``."""

Scores = Callable[[np.ndarray], np.ndarray]
"""Maps features ``(n, d)`` to class scores ``(n, C)``; the largest score is the prediction."""


@dataclass(frozen=True, eq=False)
class Setting:
    """Facts about the data that a method knows before training.

    Attributes:
        class_counts: Training images per class, shape ``(C,)``.
        class_names: Names of the classes.
        objective: What validation measures.
        seed: Seed for random choices of the method.
        learns_features: Whether a network of cosen is trained from images with no layer frozen.
        has_cosine_output: Whether the output layer on pretrained features has cosines.
        weighting: Share of the importance of classes that is a weight of samples instead of a cost.
        margin: Fixed margin of learned costs; None if they learn it.
        offsets: What held-out outputs on pretrained features lack by class, shape ``(C,)``; None
            if they were not cross-validated.
        tau: Strength of class frequencies that is best for these outputs.
        baseline: Outputs of the baseline for the validation images, if the method starts from the
            baseline.
    """

    class_counts: Tensor
    class_names: tuple[str, ...]
    objective: Objective = OVERALL
    seed: int = 0
    learns_features: bool = False
    has_cosine_output: bool = False
    weighting: float = 0.0
    margin: float | None = None
    offsets: Tensor | None = None
    tau: float = 1.0
    baseline: Outputs | None = None


class Context(Protocol):
    """The argument of :meth:`Method.run`; see :class:`cosen.training.context.RunContext`."""

    @property
    def setting(self) -> Setting: ...

    @property
    def setting_with_baseline(self) -> Setting: ...

    @property
    def is_first_process(self) -> bool: ...

    def make_loop(
        self, method: "NetworkMethod", samples: Samples | None = None, *, resample: Any = None
    ) -> Any: ...

    def on_features(self) -> Self: ...

    def samples(self, part: Literal["train", "val", "test"]) -> Samples: ...

    def baseline_classifier(self) -> Any: ...

    def linear_output(self, method: "Method", network: nn.Module) -> nn.Linear: ...

    def save_model(self, classifier: Any) -> None: ...

    def finish(
        self, *, seconds: float, loss: nn.Module | None = None, draws: np.ndarray | None = None
    ) -> None: ...

    def finish_scores(self, scores: Scores, *, seconds: float) -> None: ...


class Method(ABC):
    """A way to train, with its options: ``Smote(neighbours=3)``.

    Derive from one of the kinds below and set ``name`` and ``description``. Pass the method to
    :func:`cosen.train` or :func:`cosen.compare`, or name it on the command line as
    ``module:Class``.

    Attributes:
        name: The name on the command line.
        description: One line.
        starts_from_baseline: Whether it needs a network trained without costs.
        uses_features: Whether it works on features. If so, it needs no baseline when pretrained
            weights give the features.
    """

    name: ClassVar[str]
    description: ClassVar[str]
    starts_from_baseline: ClassVar[bool] = False
    uses_features: ClassVar[bool] = False

    def check(self, setting: Setting) -> None:
        """Raise an error before training if the method does not support this data."""
        counts, names = setting.class_counts.tolist(), setting.class_names
        present = [name for name, count in zip(names, counts, strict=True) if count]
        if len(present) < 2:
            raise DataError(
                f"method {self.name} needs training images of at least two classes, but has "
                + (f"one class only: {present[0]!r}" if present else "none")
            )
        for name, count in zip(names, counts, strict=True):
            if not count:
                raise DataError(
                    f"method {self.name} needs training images of every class, but class {name!r} "
                    f"has none: add some, or remove the class with --exclude {name}"
                )

    def needs_baseline(self, *, has_features: bool) -> bool:
        """Whether it needs a baseline, given whether there are features of pretrained weights."""
        return self.starts_from_baseline and not (self.uses_features and has_features)

    @abstractmethod
    def run(self, context: Context) -> None:
        """Train, and write the results. The kinds below implement it."""


class NetworkMethod(Method):
    """Trains the network, with another loss, another order of images or another output layer.

    Methods that are not overridden give plain training with cross-entropy.

    Attributes:
        retrains_output: Whether only the output layer of the baseline is trained again.
        keeps_linear_output: Whether the output layer must be linear, because it is adjusted.
        uses_offsets: Whether it uses ``offsets`` of its :class:`Setting`.
        weightings: Values of ``weighting`` of its :class:`Setting` that are compared when the
            output layer is chosen.
        margins: Values of ``margin`` of its :class:`Setting` that are compared for cosines.
    """

    retrains_output: ClassVar[bool] = False
    keeps_linear_output: bool = False
    uses_offsets: bool = False
    weightings: tuple[float, ...] = (0.0,)
    margins: tuple[float | None, ...] = (None,)

    def make_loss(self, setting: Setting) -> nn.Module:
        """Return the loss of logits and targets. It may be :class:`~cosen.AdaptiveCosts`."""
        return nn.CrossEntropyLoss()

    def cosine_scale(self, setting: Setting) -> float | None:
        """Return the factor for cosines in the output layer; None keeps the linear layer."""
        return None

    def begin_epoch(self, loss: nn.Module, setting: Setting, progress: float) -> None:
        """Change the loss during training.

        Args:
            loss: The result of :meth:`make_loss`.
            setting: Facts about the data.
            progress: Share of finished epochs.
        """

    def observe(
        self, loss: nn.Module, output: nn.Module, features: Tensor, target: Tensor, seed: int
    ) -> None:
        """Show the loss the features of a pretrained network before it is trained.

        Args:
            loss: The result of :meth:`make_loss`.
            output: The output layer.
            features: Features of the training samples, shape ``(N, D)``.
            target: Their classes, shape ``(N,)``.
            seed: For random numbers.
        """

    def class_draws(self, setting: Setting) -> np.ndarray | None:
        """Return the relative sampling rate of each class; None uses each image once per epoch."""
        return None

    def run(self, context: Context) -> None:
        loop = context.make_loop(self)
        loop.fit()
        seconds = sum(record.seconds for record in loop.history)
        context.finish(seconds=seconds, loss=loop.loss, draws=self.class_draws(context.setting))


class SamplingMethod(Method):
    """Changes the training samples in feature space, and trains a small network on them."""

    starts_from_baseline = True
    uses_features = True

    @abstractmethod
    def resample(self, features: np.ndarray, labels: np.ndarray, setting: Setting) -> Samples:
        """Return the changed training samples."""

    def run(self, context: Context) -> None:
        start = time.perf_counter()
        on_features = context.on_features()
        samples = self.resample(*_training_samples(self, on_features), context.setting)
        seconds = time.perf_counter() - start
        # plain cross-entropy
        loop = on_features.make_loop(NetworkMethod(), samples, resample=self.resample)
        loop.fit()
        on_features.finish(seconds=seconds + sum(record.seconds for record in loop.history))


class ClassifierMethod(Method):
    """Fits a classifier that is not a network on features. It saves predictions, but no model."""

    starts_from_baseline = True
    uses_features = True

    @abstractmethod
    def fit(self, features: np.ndarray, labels: np.ndarray, setting: Setting) -> Scores:
        """Fit a classifier to these training samples."""

    def run(self, context: Context) -> None:
        start = time.perf_counter()
        on_features = context.on_features()
        if context.is_first_process:
            scores = self.fit(*_training_samples(self, on_features), context.setting)
            on_features.finish_scores(scores, seconds=time.perf_counter() - start)


class AdjustingMethod(Method):
    """Changes the output layer of a trained network, without further training."""

    starts_from_baseline = True

    @abstractmethod
    def adjust(self, output: nn.Linear, setting: Setting) -> None:
        """Change weights and biases in place, given ``setting.baseline``."""

    def run(self, context: Context) -> None:
        start = time.perf_counter()
        classifier = context.baseline_classifier()
        output = context.linear_output(self, classifier.network)
        if output.bias is None:
            raise InputError(f"method {self.name} needs an output layer with a bias")
        self.adjust(output, context.setting_with_baseline)
        context.save_model(classifier)
        context.finish(seconds=time.perf_counter() - start)


def _training_samples(method: Method, context: Context) -> Samples:
    """Return the training features and classes; raise an error if features are not finite."""
    features, labels = context.samples("train")
    broken = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(broken):
        first = context.setting.class_names[labels[broken[0]]]
        raise DataError(
            f"method {method.name} needs finite features, but {len(broken)} of {len(features)} "
            f"training samples have NaN or infinite ones, the first of class {first!r}: fix these "
            "samples, or use the features of a network whose training has not diverged"
        )
    return features, labels


def check_options(
    method: str,
    options: Mapping[str, Any],
    taker: Callable[..., Any],
    *,
    besides: Collection[str] = (),
    without: Collection[str] = (),
    finite: bool = True,
) -> None:
    """Raise an error for unknown options of a method and for values of a wrong type.

    The options are the parameters of the class or function ``taker``, except those in ``without``.
    ``besides`` are other options of the method, for the message.
    """
    parameters = inspect.signature(taker).parameters
    takes_any = any(entry.kind is entry.VAR_KEYWORD for entry in parameters.values())
    known = [*besides, *(name for name in parameters if name not in without)]
    hints = get_type_hints(taker.__init__ if inspect.isclass(taker) else taker)
    for option, value in options.items():
        if option not in known and not takes_any:
            raise InputError(
                f"method {method} has no option {option!r}{choices_hint(option, known)}"
            )
        kind = hints.get(option) if option in parameters else None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        wanted, fits = "", True
        if get_origin(kind) is Literal:
            wanted, fits = f"one of {', '.join(map(str, get_args(kind)))}", value in get_args(kind)
        elif kind is float or (kind == float | None and value is not None):
            wanted = "a finite number" if finite else "a number"
            fits = is_number and (math.isfinite(value) or not finite)
        elif kind is int:
            wanted, fits = "a whole number", is_number and isinstance(value, int)
        elif kind is bool:
            wanted, fits = "true or false", isinstance(value, bool)
        elif kind is str:
            wanted, fits = "a text", isinstance(value, str)
        if not fits:
            raise InputError(
                f"option {option} of method {method} must be {wanted}, but is {value!r}"
            )
