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
    "BalancedSoftmax": "losses",
    "ClassBalancedCrossEntropy": "losses",
    "CostSensitiveCrossEntropy": "losses",
    "CostSensitiveHinge": "losses",
    "CostSensitiveMSE": "losses",
    "FocalLoss": "losses",
    "LDAMLoss": "losses",
    "SmoothOneSidedRegression": "losses",
}

_PARTS = {
    "costs",
    "data",
    "errors",
    "functional",
    "losses",
    "methods",
    "networks",
    "study",
    "training",
}

__all__ = [
    "AdaptiveCosts",
    "BalancedSoftmax",
    "ClassBalancedCrossEntropy",
    "CosenError",
    "CostLearner",
    "CostSensitiveCrossEntropy",
    "CostSensitiveHinge",
    "CostSensitiveMSE",
    "CostStep",
    "FocalLoss",
    "InputError",
    "LDAMLoss",
    "SmoothOneSidedRegression",
    "__version__",
    "functional",
]

if TYPE_CHECKING:
    from cosen import functional
    from cosen.costs import AdaptiveCosts, CostLearner, CostStep
    from cosen.errors import CosenError, InputError
    from cosen.losses import (
        BalancedSoftmax,
        ClassBalancedCrossEntropy,
        CostSensitiveCrossEntropy,
        CostSensitiveHinge,
        CostSensitiveMSE,
        FocalLoss,
        LDAMLoss,
        SmoothOneSidedRegression,
    )


def __getattr__(name: str) -> object:
    if name in _PARTS:
        return import_module(f"cosen.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'cosen' has no attribute {name!r}")
    return getattr(import_module(f"cosen.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME, *_PARTS})
