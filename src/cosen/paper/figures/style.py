"""Style, lettering and writing of all figures: text sizes, colours, fonts, file formats."""

import logging
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosen.errors import InputError, choices_hint
from cosen.files import make_folder, write_with

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN = 3.5  # inches, one column of a two-column page
MIN_WIDTH, MAX_WIDTH = 3.0, 20.0  # inches
NORMAL, SMALL = 8.0, 7.0  # font sizes in points; no text is smaller than SMALL
POINT = 1 / 72  # inches
LINE = 1.2  # line height in font sizes

# Okabe and Ito (2008): distinguishable with every common kind of colour blindness.
BLUE, RED, GREEN, ORANGE, BLACK = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#000000"
GREY = "#767676"
COLOURS = (BLUE, RED, GREEN, ORANGE, "#CC79A7", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (4, 1.2, 1, 1.2)))
PALE_BLUE, PALE_ORANGE, PALE_GREY = "#DCEAF5", "#FBE6C8", "#EEEEEE"
SHADES = "Blues"  # colour map of surfaces and matrices; larger values are darker

_OTHER_SCRIPTS = (
    *("Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans CJK KR", "Noto Sans Arabic"),
    *("Noto Sans Devanagari", "WenQuanYi Micro Hei", "Arial Unicode MS", "PingFang SC"),
    *("Hiragino Sans", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Nirmala UI"),
)
"""Fonts for characters missing from DejaVu Sans, which comes with matplotlib."""

_SETTINGS: dict[str, Any] = {
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), NORMAL),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), SMALL),
    **dict.fromkeys(("legend.fontsize", "legend.title_fontsize"), SMALL),
    **{"legend.frameon": False, "legend.handlelength": 1.8, "legend.borderaxespad": 0.2},
    **{"axes.titlepad": 4.0, "axes.labelpad": 2.0},
    **{"axes.spines.top": False, "axes.spines.right": False},
    **dict.fromkeys(("axes.linewidth", "xtick.major.width", "ytick.major.width"), 0.6),
    **dict.fromkeys(("xtick.major.size", "ytick.major.size"), 2.5),
    **dict.fromkeys(("xtick.major.pad", "ytick.major.pad"), 2.0),
    "lines.linewidth": 1.3,
    "text.parse_math": False,  # class names may contain $ and _
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "cosen",  # the same ids each time
    "pdf.fonttype": 42,
    "savefig.dpi": 300,
}

METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "cosen"},
    "png": {"Software": "cosen"},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": "cosen", "Producer": "matplotlib"},
}
"""Metadata of each format, without dates: the same figure gives the same bytes."""


@contextmanager
def paper_style() -> Iterator[None]:
    """Apply the figures' own matplotlib settings and restore the user's; also a decorator."""
    import matplotlib.style

    with matplotlib.style.context(["default", {"font.family": font_families(), **_SETTINGS}]):
        yield


@cache
def font_families() -> list[str]:
    """DejaVu Sans and the installed fonts for other scripts."""
    from matplotlib.font_manager import fontManager

    known = set(fontManager.get_font_names())
    return ["DejaVu Sans", *(name for name in _OTHER_SCRIPTS if name in known)]


def new_figure(width: float, height: float, *, manual_layout: bool = False) -> "Figure":
    """Empty figure of this size in inches; axes make room for labels unless laid out manually."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    check_width(width)
    layout = ConstrainedLayoutEngine(w_pad=0.03, h_pad=0.03, wspace=0.02, hspace=0.04)
    return Figure(figsize=(width, height), layout=None if manual_layout else layout)


def check_width(width: float) -> None:
    """Raise InputError if a figure cannot have this width."""
    if not MIN_WIDTH <= width <= MAX_WIDTH:
        raise InputError(
            f"the width must be {MIN_WIDTH:g} to {MAX_WIDTH:g} inches, but is {width:g}; "
            f"one column of a page is {COLUMN:g}"
        )


def one_line(name: str) -> str:
    """Name without line breaks and characters that XML forbids; never empty.

    Example:
        >>> one_line("sea\\nslug \\x00 $x_1$"), one_line("  ")
        ('sea slug � $x_1$', '(no name)')
    """
    kept = "".join(map(_legal, name))
    return " ".join(kept.split()) or "(no name)"


def _legal(letter: str) -> str:
    if letter.isspace():
        return " "
    # XML forbids controls, surrogates and non-characters
    illegal = unicodedata.category(letter) in ("Cc", "Cs") or (ord(letter) & 0xFFFE) == 0xFFFE
    return "\N{REPLACEMENT CHARACTER}" if illegal else letter


@lru_cache(maxsize=4096)
def text_width(text: str, size: float = SMALL) -> float:
    """Width of a line of text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(family=font_families(), size=size)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a box is as wide as a letter
        width, _, _ = text_to_path.get_text_width_height_descent(text, font, False)
    return float(width) * POINT


def shortened(name: str, width: float, size: float = SMALL) -> str:
    """Name cut in the middle to at most ``width`` inches; similar names often differ at the end.

    Example:
        >>> shortened("Acropora cervicornis", 0.8)
        'Acropor…icornis'
    """
    if text_width(name, size) <= width:
        return name
    for kept in range(len(name) - 1, 1, -1):
        cut = name[: (kept + 1) // 2].rstrip() + "…" + name[len(name) - kept // 2 :].lstrip()
        if text_width(cut, size) <= width:
            return cut
    return name[:1] + "…"


def put_title(axes: "Axes", title: str, facts: str, *, width: float) -> None:
    """Set a title and a smaller line below it, both shortened to ``width`` inches."""
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


def parse_formats(text: str) -> tuple[str, ...]:
    """Formats from a comma-separated text, without duplicates.

    Example:
        >>> parse_formats("svg, png")
        ('svg', 'png')
    """
    asked = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    for name in asked:
        if name not in METADATA:
            raise InputError(f"there is no format {name!r}{choices_hint(name, METADATA)}")
    if not asked:
        raise InputError(f"no format is given: choose from {', '.join(METADATA)}")
    return asked


def write_figure(
    figure: "Figure", folder: Path, name: str, *, formats: Sequence[str] = ("svg", "png")
) -> list[Path]:
    """Write a figure as ``folder/name.FORMAT`` in each format and return the paths."""
    make_folder(folder)
    written = []
    with paper_style(), warnings.catch_warnings(record=True) as caught:
        warnings.filterwarnings("always", message="Glyph .* missing from font")
        for kind in formats:
            path = folder / f"{name}.{kind}"
            write_with(path, partial(figure.savefig, format=kind, metadata=METADATA[kind]))
            written.append(path)
    others = [warning for warning in caught if "Glyph" not in str(warning.message)]
    for warning in others:
        warnings.warn(warning.message, warning.category, stacklevel=2)
    if len(others) < len(caught):
        logging.getLogger(__name__).warning(
            "%s: no installed font has some of its characters; PNG and PDF show boxes for them",
            name,
        )
    return written
