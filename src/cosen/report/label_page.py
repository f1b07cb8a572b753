"""Write suspected label problems as a CSV and as one self-contained page of pictures."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from cosen.data.inspection import LabelProblem
from cosen.data.labelled import LabelledImages
from cosen.data.stores import printable
from cosen.errors import BrokenImageError
from cosen.files import make_folder, write_text
from cosen.inference.label_problems import label_problems_csv
from cosen.report.page import as_utf8, asset, content_security_policy, environment
from cosen.training.thumbnails import make_thumbnail

CSV, PAGE = "label-problems.csv", "label-problems.html"

SIDE = 160
"""Largest side of a picture in pixels."""

MOST_PICTURES = 500
"""The CSV lists all problems."""

STYLES = ("base.css", "page.css", "pictures.css")


def write_label_problems(
    folder: Path | str, problems: Sequence[LabelProblem], data: LabelledImages
) -> tuple[Path, Path]:
    """Write a CSV of all problems and a page with pictures of the first ones; return the paths."""
    folder = Path(folder)
    make_folder(folder)
    write_text(folder / CSV, label_problems_csv(problems))
    rows = dict(zip(map(printable, data.names), data.rows.tolist(), strict=True))
    shown = [
        {
            "label": problem.label,
            "suggested": problem.suggested,
            "probability": problem.probability,
            "name": problem.image,
            "picture": _picture(data, rows[problem.image]),
        }
        for problem in problems[:MOST_PICTURES]
    ]
    write_text(folder / PAGE, render(data.source, shown, total=len(problems)))
    return folder / CSV, folder / PAGE


def render(source: str, shown: list[dict[str, Any]], *, total: int) -> str:
    """Render the page, with the problems of a class together."""
    by_label = sorted(shown, key=lambda one: str(one["label"]))  # stable: worst first in a class
    groups = [
        {"label": label, "problems": list(problems)}
        for label, problems in groupby(by_label, key=lambda one: one["label"])
    ]
    contents = as_utf8({"source": source, "groups": groups, "shown": len(shown), "total": total})
    return (
        environment()
        .get_template("label_problems.html.j2")
        .render(
            **contents,
            style=Markup("\n".join(asset(f"styles/{name}") for name in STYLES)),
            policy=content_security_policy(),
        )
    )


def _picture(data: LabelledImages, row: int) -> dict[str, Any] | None:
    with suppress(BrokenImageError):  # damaged since the run
        image = data.images.open(row, least_size=(SIDE, SIDE))
        pixels = np.asarray(image).reshape(image.height, image.width, -1)
        return asdict(make_thumbnail(pixels, side=SIDE))
    return None
