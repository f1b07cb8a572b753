"""Test and validation images whose label the predictions contradict."""

from dataclasses import asdict
from typing import Any

from cosen.errors import InputError
from cosen.inference.label_problems import find_label_problems
from cosen.report.gallery import without_folder
from cosen.report.run_data import MOST_CHECKED, ReportData
from cosen.training.thumbnails import Thumbnail

MOST_LISTED = 30


def label_section(data: ReportData) -> dict[str, Any]:
    """The most suspicious labels with their pictures, as far as runs have them, and a note."""
    held_out = data.held_out
    if held_out is None:
        note = f"Not checked with more than {MOST_CHECKED:,} classes: use cosen inspect --run."
        return {"problems": [], "note": note}
    try:
        problems = find_label_problems(held_out)
    except InputError as error:  # cleanlab is not installed
        return {"problems": [], "note": f"Not checked: {error}."}
    thumbnails = _thumbnails(data)
    listed = [
        {
            "name": without_folder(problem.image),
            "label": problem.label,
            "suggested": problem.suggested,
            "probability": round(problem.probability, 4),
            "picture": asdict(found) if (found := thumbnails.get(problem.image)) else None,
        }
        for problem in problems[:MOST_LISTED]
    ]
    shown = f", the {len(listed)} most suspicious are shown" if len(listed) < len(problems) else ""
    note = (
        f"Labels that the predictions of {data.chosen.name} contradict: {len(problems)} of "
        f"{len(held_out.names)} validation and test images{shown}. Both the label and the "
        "suggestion may be wrong. To list all, with larger pictures: cosen inspect DATA --run RUN"
    )
    return {"problems": listed, "note": note}


def _thumbnails(data: ReportData) -> dict[str, Thumbnail]:
    """The pictures of test images, by name."""
    return {
        run.names[row]: thumbnail
        for method in data.methods.values()
        for run in method.runs.values()
        for row, thumbnail in (run.thumbnails or {}).items()
    }
