"""Writing figures: the same figure gives the same bytes."""

import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosen.errors import InputError, choices_hint
from cosen.paper.figures.style import paper_style
from cosen.training.files import make_folder, write_with

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": "cosen"},
    "png": {"Software": "cosen"},
    "pdf": {"CreationDate": None, "ModDate": None, "Creator": "cosen", "Producer": "matplotlib"},
}
"""What each format says of itself: never when it was made."""


def parse_formats(text: str) -> tuple[str, ...]:
    """Formats with commas between, each once.

    Example:
        >>> parse_formats("svg, png")
        ('svg', 'png')
    """
    asked = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    for name in asked:
        if name not in METADATA:
            raise InputError(f"there is no format {name!r}{choices_hint(name, METADATA)}")
    if not asked:
        raise InputError(f"no format is given: write {','.join(METADATA)} or some of them")
    return asked


def write_figure(
    figure: "Figure", folder: Path, name: str, *, formats: Sequence[str] = ("svg", "png")
) -> list[Path]:
    """Write a figure as ``folder/name.FORMAT`` in each format, and say where.

    Args:
        figure: What to write.
        folder: Made if it is not there.
        name: The files' name without its end.
        formats: ``svg``, ``png``, ``pdf``.
    """
    make_folder(folder)
    written = []
    with paper_style(), warnings.catch_warnings(record=True) as told:
        warnings.filterwarnings("always", message="Glyph .* missing from font")
        for kind in formats:
            path = folder / f"{name}.{kind}"

            def save(partial: Path, kind: str = kind) -> None:
                figure.savefig(partial, format=kind, metadata=METADATA[kind])

            write_with(path, save)
            written.append(path)
    glyphs = [warning for warning in told if "Glyph" in str(warning.message)]
    for other in told:
        if other not in glyphs:
            warnings.warn(other.message, other.category, stacklevel=2)
    if glyphs:
        logging.getLogger(__name__).warning(
            "%s: no font here has some of its characters; they are boxes except in SVG, which "
            "holds the text itself",
            name,
        )
    return written
