"""Where modules of the user's own are found."""

import sys


def find_modules_here() -> None:
    """Look in the present folder first, as ``python`` itself does, for ``module:Class``."""
    if "" not in sys.path:
        sys.path.insert(0, "")
