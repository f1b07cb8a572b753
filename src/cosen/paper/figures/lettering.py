"""Names from data as they can be set in a figure: one line, legal in XML, measured, shortened."""

import unicodedata
import warnings
from functools import lru_cache
from typing import TYPE_CHECKING

from cosen.data.stores import printable
from cosen.paper.figures.style import LINE, NORMAL, POINT, SMALL, font_families

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ELLIPSIS = "…"


def one_line(name: str) -> str:
    """A name without line breaks and characters that XML forbids; never empty.

    Example:
        >>> one_line("sea\\nslug \\x00 $x_1$"), one_line("  ")
        ('sea slug � $x_1$', '(no name)')
    """
    kept = "".join(_legal(letter) for letter in printable(name))
    return " ".join(kept.split()) or "(no name)"


def _legal(letter: str) -> str:
    if letter.isspace():
        return " "
    # XML forbids controls, surrogates and non-characters; marks of direction (Cf) are text
    illegal = unicodedata.category(letter) in ("Cc", "Cs") or (ord(letter) & 0xFFFE) == 0xFFFE
    return "\N{REPLACEMENT CHARACTER}" if illegal else letter


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = SMALL) -> float:
    """How wide a line of text is, in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=font_families(), size=size)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a box is as wide as a letter
        width, _, _ = text_to_path.get_text_width_height_descent(text, font, False)
    return float(width) * POINT


def shortened(name: str, width: float, size: float = SMALL) -> str:
    """A name cut in the middle until it is no wider than ``width`` inches.

    Both ends stay: names of one group often begin alike.

    Example:
        >>> shortened("Acropora cervicornis", 0.8)
        'Acropor…icornis'
    """
    if text_width(name, size) <= width:
        return name
    for kept in range(len(name) - 1, 1, -1):
        cut = name[: (kept + 1) // 2].rstrip() + ELLIPSIS + name[len(name) - kept // 2 :].lstrip()
        if text_width(cut, size) <= width:
            return cut
    return name[:1] + ELLIPSIS


def put_title(axes: "Axes", title: str, facts: str, *, width: float) -> None:
    """A title and a smaller line below it, both shortened to so many inches."""
    axes.set_title(
        shortened(one_line(title), width, NORMAL), parse_math=False, pad=4 + LINE * SMALL
    )
    axes.annotate(
        shortened(facts, width),
        (0.5, 1),
        xytext=(0, 3),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=SMALL,
    )
