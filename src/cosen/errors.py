"""Errors that cosen raises. Each message says what is wrong, what was given and what to do."""

from collections.abc import Iterable
from difflib import get_close_matches


class CosenError(Exception):
    """Base class of all errors that cosen raises."""


class InputError(CosenError, ValueError):
    """An invalid tensor or option."""


class DataError(CosenError):
    """Data that is missing, unreadable, or different from what was expected."""


class BrokenImageError(DataError):
    """An image that cannot be decoded."""


class RunError(CosenError):
    """A run that cannot continue, or a run folder that cannot be used."""


def choices_hint(asked: str, choices: Iterable[str], *, most: int = 30) -> str:
    """Return the end of an error message about an unknown name: the closest choice and all choices.

    Example:
        >>> "there is no network 'resnet'" + choices_hint("resnet", ["paper", "resnet32"])
        "there is no network 'resnet': did you mean 'resnet32'? Choose from paper, resnet32"
    """
    known = list(choices)
    if not known:
        return ": there are none"
    listed = ", ".join(known[:most]) + (f" and {len(known) - most} more" * (len(known) > most))
    near = get_close_matches(asked.lower(), known, n=1) or get_close_matches(asked, known, n=1)
    return (
        f": did you mean {near[0]!r}? Choose from {listed}" if near else f": choose from {listed}"
    )
