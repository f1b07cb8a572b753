"""Errors that cosen raises. Each message says what is wrong, what was given and what to do."""

import re
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


_CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)  # also changes of the writing direction, and bytes that are not UTF-8

OUT_OF_MEMORY = (
    "memory ran out: use smaller batches (--batch-size), images (--size) or networks, fewer "
    "processes (--workers), or close other programs"
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, on the CPU or on a GPU."""
    texts = ("can't allocate memory", "not enough memory", "std::bad_alloc", "out of memory")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error).lower() for text in texts)
    )


def escape_controls(text: str, *, keep: str = "") -> str:
    """Escape control characters, which could change what a terminal shows.

    Args:
        text: Any text, such as a file name.
        keep: Control characters to keep.

    Example:
        >>> print(escape_controls("a\x1b[31m.png"))
        a\\x1b[31m.png
    """
    return _CONTROLS.sub(
        lambda found: found[0] if found[0] in keep else found[0].encode("unicode_escape").decode(),
        text,
    )


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
