"""Methods by name; one of the user's own is ``module:Class``, or an object."""

import importlib
import inspect
from collections.abc import Mapping
from typing import Any

from cosen.errors import InputError, choices_hint
from cosen.methods.balanced_softmax import BalancedSoftmax
from cosen.methods.baseline import Baseline
from cosen.methods.class_balanced import ClassBalanced
from cosen.methods.class_weights import ClassWeights
from cosen.methods.crt import ClassifierRetraining
from cosen.methods.fixed_costs import FixedCosts, FixedErrors, FixedFrequencies, FixedSeparability
from cosen.methods.focal import Focal
from cosen.methods.ldam_drw import LDAMDRW
from cosen.methods.learned_costs import Cosen, CosenHinge, CosenMSE, CosenPaper
from cosen.methods.logit_adjustment import LogitAdjustment
from cosen.methods.method import (
    AdjustingMethod,
    ClassifierMethod,
    Method,
    NetworkMethod,
    SamplingMethod,
    Setting,
)
from cosen.methods.options import check_options
from cosen.methods.smote import Smote
from cosen.methods.smote_rsb import SmoteRSB
from cosen.methods.sosr import SOSR
from cosen.methods.tau_norm import TauNorm
from cosen.methods.under_sampling import UnderSampling
from cosen.methods.weighted_forest import WeightedForest
from cosen.methods.weighted_sampling import WeightedSampling
from cosen.methods.weighted_svm import WeightedSVM

__all__ = [
    "METHODS",
    "AdjustingMethod",
    "ClassifierMethod",
    "Method",
    "NetworkMethod",
    "SamplingMethod",
    "Setting",
    "find_method",
    "make_method",
]

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        Baseline,
        Cosen,
        CosenPaper,
        CosenHinge,
        CosenMSE,
        FixedFrequencies,
        FixedSeparability,
        FixedErrors,
        FixedCosts,
        Smote,
        UnderSampling,
        SmoteRSB,
        WeightedSVM,
        WeightedForest,
        SOSR,
        ClassWeights,
        WeightedSampling,
        Focal,
        ClassBalanced,
        LDAMDRW,
        BalancedSoftmax,
        LogitAdjustment,
        ClassifierRetraining,
        TauNorm,
    )
}
"""Every method that can be asked for by name."""


def find_method(name: str) -> type[Method]:
    """The method of this name, or of a module of the user's; an unknown one lists the choices.

    Args:
        name: One of :data:`METHODS`, or ``module:Class``.
    """
    if name in METHODS:
        return METHODS[name]
    module, colon, attribute = name.partition(":")
    if colon:
        return _imported(module, attribute)
    hint = choices_hint(name, METHODS)
    raise InputError(f"there is no method {name!r}{hint}, or give module:Class for your own")


def make_method(name: str, options: Mapping[str, Any] | None = None) -> Method:
    """A method with these options; those that it does not have are refused.

    Args:
        name: As for :func:`find_method`.
        options: By name.

    Example:
        >>> make_method("smote", {"neighbours": 3})
        Smote(neighbours=3)
    """
    method = find_method(name)
    options = options or {}
    check_options(name, options, method)
    shown = ", ".join(f"{key}={value!r}" for key, value in options.items())
    try:
        return method(**options)
    except InputError as error:
        raise InputError(f"method {name}: {error}") from error
    except (TypeError, ValueError) as error:
        raise InputError(f"method {name} does not take the options {shown} ({error})") from error


def _imported(module: str, attribute: str) -> type[Method]:
    """A class of the user's, from a module that Python finds."""
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise InputError(f"{module}:{attribute} is no module:Class, such as my_methods:Mine")
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"there is no module {module!r} to take the method {attribute!r} from ({error}): "
            "start in its folder, or put that on PYTHONPATH"
        ) from error
    except Exception as error:  # whatever the user's own code does
        raise InputError(
            f"the module {module!r} cannot be loaded ({type(error).__name__}: {error})"
        ) from error
    found = getattr(loaded, attribute, None)
    if found is None:
        raise InputError(f"the module {module!r} has no {attribute!r}")
    if not (inspect.isclass(found) and issubclass(found, Method)):
        raise InputError(
            f"{module}:{attribute} is not a method: derive it from cosen.methods.NetworkMethod "
            "or another kind of cosen.methods.Method"
        )
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise InputError(f"{module}:{attribute} is a method without {missing}: write it")
    return found
