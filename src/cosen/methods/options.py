"""Refusing options that a method does not have, and values of another kind."""

import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from cosen.errors import InputError, choices_hint


def check_options(
    method: str,
    options: Mapping[str, Any],
    taker: Callable[..., Any],
    *,
    besides: Collection[str] = (),
    without: Collection[str] = (),
    finite: bool = True,
) -> None:
    """Refuse what a method cannot be told, before anything is made of it.

    Args:
        method: Its name.
        options: By name.
        taker: What takes them; where it takes any, names are its own affair.
        besides: Options that the method has besides, for the sentence.
        without: Parameters of the taker that are not for the user to set.
        finite: Whether numbers must be finite.
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
        if option in parameters and option in hints:
            _check_kind(method, option, value, hints[option], finite=finite)


def _check_kind(method: str, option: str, value: Any, kind: Any, *, finite: bool) -> None:
    wanted = None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            wanted = f"one of {', '.join(map(str, get_args(kind)))}"
    elif kind is float or (kind == float | None and value is not None):
        if finite:
            wanted = None if is_number and math.isfinite(value) else "a finite number"
        else:
            wanted = None if is_number else "a number"
    elif kind is int:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        wanted = None if is_whole else "a whole number"
    elif kind is bool:
        wanted = None if isinstance(value, bool) else "true or false"
    elif kind is str and not isinstance(value, str):
        wanted = "a text"
    if wanted is not None:
        raise InputError(f"option {option} of method {method} must be {wanted}, but is {value!r}")
