"""How all figures look: lettering for a column of a paper, colours that most eyes tell apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from cosen.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN = 3.5
"""Inches: one column of a two-column page."""

LEAST_WIDTH, MOST_WIDTH = 3.0, 20.0

NORMAL, SMALL = 8.0, 7.0
"""Points at final size; nothing is set smaller than ``SMALL``."""

POINT = 1 / 72
"""Inches."""

LINE = 1.2
"""From one line of text to the next, in sizes of the font."""

# Okabe and Ito (2008): told apart with every common kind of colour blindness.
BLUE, RED, GREEN, ORANGE, BLACK = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#000000"
GREY = "#767676"
COLOURS = (BLUE, RED, GREEN, ORANGE, "#CC79A7", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)))
PALE_BLUE, PALE_ORANGE, PALE_GREY = "#DCEAF5", "#FBE6C8", "#EEEEEE"

SHADES = "Blues"
"""The colour map of surfaces and matrices: more is darker, in grey print as well."""

_OTHER_SCRIPTS = (
    *("Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans Arabic"),
    *("Noto Sans Devanagari", "WenQuanYi Micro Hei", "Arial Unicode MS", "PingFang SC"),
    *("Hiragino Sans", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Nirmala UI"),
)
"""Fonts for what DejaVu Sans, which comes with matplotlib, has no letters for."""


@contextmanager
def paper_style() -> Iterator[None]:
    """The settings to draw and to write under, whatever the user's own are; they come back after.

    Also a decorator. Nothing is read as TeX: class names may hold ``$`` and ``_``.
    """
    import matplotlib.style

    with matplotlib.style.context(["default", _settings()]):
        yield


@cache
def font_families() -> list[str]:
    """DejaVu Sans, then those fonts for other scripts that this machine has."""
    from matplotlib.font_manager import fontManager

    known = set(fontManager.get_font_names())
    return ["DejaVu Sans", *(name for name in _OTHER_SCRIPTS if name in known)]


def _settings() -> dict[str, Any]:
    return {
        "font.family": font_families(),
        "font.size": NORMAL,
        "axes.titlesize": NORMAL,
        "axes.labelsize": NORMAL,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "legend.fontsize": SMALL,
        "legend.title_fontsize": SMALL,
        "legend.frameon": False,
        "legend.handlelength": 1.8,
        "legend.borderaxespad": 0.2,
        "axes.linewidth": 0.6,
        "axes.titlepad": 4.0,
        "axes.labelpad": 2.0,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "xtick.major.width": 0.6,
        "ytick.major.width": 0.6,
        "xtick.major.size": 2.5,
        "ytick.major.size": 2.5,
        "xtick.major.pad": 2.0,
        "ytick.major.pad": 2.0,
        "lines.linewidth": 1.3,
        "hatch.linewidth": 0.6,
        "text.parse_math": False,
        "svg.fonttype": "none",  # text stays text
        "svg.hashsalt": "cosen",  # the same ids each time
        "pdf.fonttype": 42,
        "savefig.dpi": 300,
    }


def new_figure(width: float, height: float, *, by_hand: bool = False) -> "Figure":
    """An empty figure of this size in inches; axes make room for their labels, unless by hand."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    check_width(width)
    layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.04)
    return Figure(figsize=(width, height), layout=None if by_hand else layout)


def check_width(width: float) -> None:
    """Refuse a width that no figure can be drawn at."""
    if not LEAST_WIDTH <= width <= MOST_WIDTH:
        raise InputError(
            f"a figure is {LEAST_WIDTH:g} to {MOST_WIDTH:g} inches wide, but {width:g} were asked "
            f"for; a column has {COLUMN:g}"
        )
