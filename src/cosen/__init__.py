"""Cost-sensitive deep learning for imbalanced image classification.

Names and submodules load on first use, so importing the package is cheap.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.2.0"

_HOME = {
    "compare": "api",
    "inspect": "api",
    "train": "api",
    "load": "runs",
    "Run": "runs",
    "Study": "runs",
    "AdaptiveCosts": "costs",
    "CostLearner": "costs",
    "CostStep": "costs",
    "Objective": "costs",
    "CosenError": "errors",
    "DataError": "errors",
    "InputError": "errors",
    "RunError": "errors",
    "BalancedSoftmaxLoss": "losses",
    "ClassBalancedLoss": "losses",
    "CostSensitiveCrossEntropyLoss": "losses",
    "CostSensitiveHingeLoss": "losses",
    "CostSensitiveMSELoss": "losses",
    "FocalLoss": "losses",
    "LDAMLoss": "losses",
    "SmoothOneSidedRegressionLoss": "losses",
    "CosenClassifier": "sklearn",
}

_SUBMODULES = (
    "comparing",
    "costs",
    "data",
    "errors",
    "functional",
    "inference",
    "losses",
    "methods",
    "networks",
    "paper",
    "report",
    "serving",
    "sklearn",
    "training",
)

__all__ = [
    "AdaptiveCosts",
    "BalancedSoftmaxLoss",
    "ClassBalancedLoss",
    "CosenClassifier",
    "CosenError",
    "CostLearner",
    "CostSensitiveCrossEntropyLoss",
    "CostSensitiveHingeLoss",
    "CostSensitiveMSELoss",
    "CostStep",
    "DataError",
    "FocalLoss",
    "InputError",
    "LDAMLoss",
    "Objective",
    "Run",
    "RunError",
    "SmoothOneSidedRegressionLoss",
    "Study",
    "__version__",
    "compare",
    "comparing",
    "costs",
    "data",
    "errors",
    "functional",
    "inference",
    "inspect",
    "load",
    "losses",
    "methods",
    "networks",
    "paper",
    "report",
    "serving",
    "sklearn",
    "train",
    "training",
]

if TYPE_CHECKING:
    from cosen import (
        comparing,
        costs,
        data,
        errors,
        functional,
        inference,
        losses,
        methods,
        networks,
        paper,
        report,
        serving,
        sklearn,
        training,
    )
    from cosen.api import compare, inspect, train
    from cosen.costs import AdaptiveCosts, CostLearner, CostStep, Objective
    from cosen.errors import CosenError, DataError, InputError, RunError
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
    from cosen.runs import Run, Study, load
    from cosen.sklearn import CosenClassifier


def __getattr__(name: str) -> object:
    if name in _SUBMODULES:
        return import_module(f"cosen.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'cosen' has no attribute {name!r}")
    return getattr(import_module(f"cosen.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
