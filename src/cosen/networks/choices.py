"""What to say when a name is not among the choices."""

from collections.abc import Iterable
from difflib import get_close_matches


def among(asked: str, choices: Iterable[str]) -> str:
    """The end of an error message: the nearest choice, if any is near, and all of them.

    Example:
        >>> "there is no network 'resnet'" + among("resnet", ["paper", "resnet32"])
        "there is no network 'resnet': did you mean 'resnet32'? There are paper, resnet32"
    """
    known = list(choices)
    if not known:
        return ": there are none"
    near = get_close_matches(asked.lower(), known, n=1)
    listed = ", ".join(known)
    return f": did you mean {near[0]!r}? There are {listed}" if near else f": there are {listed}"
