"""Cost-sensitive deep learning for imbalanced image classification.

The names and parts below load on first use, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "AdaptiveCosts": "costs",
    "CostLearner": "costs",
    "CostStep": "costs",
    "CosenError": "errors",
    "InputError": "errors",
    "BalancedSoftmaxLoss": "losses",
    "ClassBalancedLoss": "losses",
    "CostSensitiveCrossEntropyLoss": "losses",
    "CostSensitiveHingeLoss": "losses",
    "CostSensitiveMSELoss": "losses",
    "FocalLoss": "losses",
    "LDAMLoss": "losses",
    "SmoothOneSidedRegressionLoss": "losses",
}

_PARTS = {
    "costs",
    "data",
    "errors",
    "functional",
    "losses",
    "methods",
    "networks",
    "comparing",
    "paper",
    "report",
    "sklearn",
    "training",
}

__all__ = [
    "AdaptiveCosts",
    "BalancedSoftmaxLoss",
    "ClassBalancedLoss",
    "CosenError",
    "CostLearner",
    "CostSensitiveCrossEntropyLoss",
    "CostSensitiveHingeLoss",
    "CostSensitiveMSELoss",
    "CostStep",
    "FocalLoss",
    "InputError",
    "LDAMLoss",
    "SmoothOneSidedRegressionLoss",
    "__version__",
    "functional",
]

if TYPE_CHECKING:
    from cosen import functional
    from cosen.costs import AdaptiveCosts, CostLearner, CostStep
    from cosen.errors import CosenError, InputError
    from cosen.losses import (
        BalancedSoftmaxLoss,
        ClassBalancedLoss,
        CostSensitiveCrossEntropyLoss,
        CostSensitiveHingeLoss,
        CostSensitiveMSELoss,
        FocalLoss,
        LDAMLoss,
        SmoothOneSidedRegressionLoss,
    )


def __getattr__(name: str) -> object:
    if name in _PARTS:
        return import_module(f"cosen.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'cosen' has no attribute {name!r}")
    return getattr(import_module(f"cosen.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_PARTS})
