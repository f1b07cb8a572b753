"""Methods by name. A custom method is ``module:Class`` or an object."""

import csv
import importlib
import inspect
import json
import re
from collections.abc import Mapping
from typing import Any

from cosen.errors import InputError, choices_hint
from cosen.methods.classifiers import WeightedForest, WeightedSVM
from cosen.methods.fixed_costs import FixedCosts, FixedErrors, FixedFrequencies, FixedSeparability
from cosen.methods.learned_costs import Cosen, CosenHinge, CosenMSE, CosenPaper
from cosen.methods.method import (
    AdjustingMethod,
    ClassifierMethod,
    Method,
    NetworkMethod,
    Samples,
    SamplingMethod,
    Scores,
    Setting,
    check_options,
)
from cosen.methods.output_layer import ClassifierRetraining, LogitAdjustment, TauNorm
from cosen.methods.resampling import Smote, SmoteRSB, UnderSampling
from cosen.methods.reweighting import (
    LDAMDRW,
    SOSR,
    BalancedSoftmax,
    Baseline,
    ClassBalanced,
    ClassWeights,
    Focal,
    WeightedSampling,
)

__all__ = [
    "METHODS",
    "AdjustingMethod",
    "ClassifierMethod",
    "Method",
    "NetworkMethod",
    "Samples",
    "SamplingMethod",
    "Scores",
    "Setting",
    "find_method",
    "import_name",
    "make_method",
    "method_label",
    "named_method",
    "parse_method",
    "plain_value",
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
"""All methods that have a name."""


def find_method(name: str) -> type[Method]:
    """Return the class of a method.

    Args:
        name: One of :data:`METHODS`, or ``module:Class``.
    """
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        return _imported(*name.split(":", 1))
    hint = choices_hint(name, METHODS)
    raise InputError(f"there is no method {name!r}{hint}, or give module:Class for a custom method")


def make_method(name: str, options: Mapping[str, Any] | None = None) -> Method:
    """Create a method with options; raise an error for unknown options.

    Example:
        >>> make_method("smote", {"neighbours": 3})
        Smote(neighbours=3)
    """
    method = find_method(name)
    options = options or {}
    check_options(name, options, method)
    try:
        return method(**options)
    except InputError as error:
        about = "" if str(error).startswith("method ") else f"method {name}: "
        raise InputError(f"{about}{error}") from error
    except (TypeError, ValueError) as error:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise InputError(f"method {name} does not take the options {given} ({error})") from error


def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """Split a method with options into its name and the options.

    Example:
        >>> parse_method("cosen(margin=4, output=linear)")
        ('cosen', {'margin': 4, 'output': 'linear'})
    """
    match = re.fullmatch(r"\s*([^()]+?)\s*(?:\((.*)\))?\s*", text)
    if match is None:
        raise InputError(f"{text!r} is not a method: write NAME or NAME(OPTION=VALUE)")
    options = {}
    for pair in next(csv.reader([match[2] or ""], skipinitialspace=True), []):
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise InputError(f"{pair!r} in {text!r} is not an option: write OPTION=VALUE")
        options[name.strip()] = plain_value(value.strip())
    return match[1], options


def method_label(name: str, options: Mapping[str, Any]) -> str:
    """Return the label of a method with options, the inverse of :func:`parse_method`.

    Example:
        >>> method_label("cosen", {"margin": 4}), method_label("cosen", {})
        ('cosen(margin=4)', 'cosen')
    """
    pairs = ",".join(
        f"{option}={str(value).lower() if isinstance(value, bool) else value}"
        for option, value in options.items()
    )
    return f"{name}({pairs})" if pairs else name


def named_method(method: Method) -> tuple[str, dict[str, Any]] | None:
    """Return the name and the options of a built-in method object; None for any other object.

    Example:
        >>> named_method(Smote(neighbours=3)), named_method(Cosen(margin=4))
        (('smote', {'neighbours': 3}), ('cosen', {'margin': 4}))
    """
    if METHODS.get(getattr(method, "name", "")) is not type(method):
        return None
    options: dict[str, Any] = {}
    for option, parameter in inspect.signature(type(method)).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            options |= getattr(method, option)
        elif getattr(method, option) != parameter.default:
            options[option] = getattr(method, option)
    try:
        plain: dict[str, Any] = json.loads(json.dumps(options))
    except TypeError:  # an option that cannot be written, such as a tensor
        return None
    return method.name, plain


def plain_value(value: Any) -> Any:
    """Convert a string to a number or a boolean if it is one.

    Example:
        >>> plain_value("3"), plain_value("0.5"), plain_value("false"), plain_value("revert")
        (3, 0.5, False, 'revert')
    """
    if not isinstance(value, str):
        return value
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    for kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def import_name(name: str, *, kind: str) -> Any:
    """Import the user's ``module:name``; ``kind`` is what it should be, for messages."""
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise InputError(f"{name} is not module:name, such as my_module:Mine")
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"there is no module {module!r} for the {kind} {attribute!r} ({error}): "
            "run in its folder, or add the folder to PYTHONPATH"
        ) from error
    except Exception as error:  # any error in the user's code
        raise InputError(
            f"the module {module!r} cannot be loaded ({type(error).__name__}: {error})"
        ) from error
    found = getattr(loaded, attribute, None)
    if found is None:
        raise InputError(f"the module {module!r} has no {attribute!r}")
    return found


def _imported(module: str, attribute: str) -> type[Method]:
    """Import a custom method."""
    found = import_name(f"{module}:{attribute}", kind="method")
    if not (inspect.isclass(found) and issubclass(found, Method)):
        raise InputError(
            f"{module}:{attribute} is not a method: derive it from cosen.methods.NetworkMethod "
            "or another kind of cosen.methods.Method"
        )
    if inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise InputError(f"{module}:{attribute} is a method without {missing}: define it")
    return found
