"""The first page of results, on one screen: the paper's numbers, other methods, and the parts.

Details are on the pages of :mod:`cosen.paper.results_page`.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from cosen.comparing.bootstrap import Spread
from cosen.comparing.leaderboard_table import markdown_table
from cosen.paper.ablation import STEPS
from cosen.paper.protocols import TABLES
from cosen.paper.reproduce import Entry, entries_of
from cosen.paper.results_page import (
    ALTERNATIVES,
    COSEN,
    Studies,
    gain_over,
    gain_text,
    marked,
    studies_of,
)
from cosen.paper.side_by_side import Line, cells_of, lines_of, spread_text
from cosen.paper.summary import COSEN_PAPER, Summary

PRESET = "cpu"

OTHERS_NOTE = (
    "Mean class recall ± standard deviation over seeds / accuracy, in per cent on test. The method "
    "with the highest average recall is first."
)

ALSO = ("baseline", "fixed-h", COSEN_PAPER)
"""Methods beside the alternatives."""

DATASETS = {
    "mnist": "MNIST",
    "cifar100": "CIFAR-100",
    "caltech101": "Caltech-101",
    "mit67": "MIT-67",
    "dil": "DIL",
    "mlc": "MLC",
    "ham10000": "HAM10000",
    "rsmas": "RSMAS",
}


OTHERS = "unseen"
"""Folder of comparisons on data that was not used to choose defaults."""

Recalls = Mapping[str, tuple[Spread, Spread]]
"""Mean recall and accuracy by method."""


def read_others(folder: Path) -> dict[str, Recalls]:
    """Read the leaderboards in the folder ``unseen``, by dataset."""
    found: dict[str, Recalls] = {}
    for path in sorted((folder / OTHERS).glob("*/leaderboard.json")):
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        found[path.parent.name] = {
            row["method"]: (Spread(**row["test"]["mean_recall"]), Spread(**row["test"]["accuracy"]))
            for row in rows
        }
    return found


def render_overview(
    summaries: Sequence[Summary], others: Mapping[str, Recalls] | None = None
) -> str:
    """Render the generated part of the first page, from the preset ``cpu``.

    Args:
        summaries: Of all studies.
        others: Comparisons on other data, see :func:`read_others`.
    """
    studies = studies_of(summaries, PRESET)
    parts = []
    if accuracy := _accuracy_lines(studies):
        headings = ["row", "paper: baseline", "CoSen", "cut", "ours: baseline", "`cosen`", "cut"]
        parts += [
            "## Ours and the paper's",
            "Accuracy in per cent, mean ± standard deviation over seeds. *cut*: share of the "
            "baseline's errors that are avoided. The paper's number is in **bold** if it is higher "
            "than ours and outside the 95 % interval of our mean, in _italics_ if it is higher but "
            "inside. Rows without a number of the paper stand in for data that is not free.",
            markdown_table(headings, accuracy, left=("row",)),
        ]
    if methods := _method_lines(studies):
        named = dict.fromkeys(_dataset(name) for name in _compared(studies))
        headings = ["method", *named, "average", "rows", f"`{COSEN}` minus it", "better", "worse"]
        parts += [
            "## Today's methods",
            f"Mean class recall on test in per cent, averaged over {len(_compared(studies))} rows. "
            "A method that was not run in all of them has no average. "
            f"The difference has a 95 % interval over the rows. *better*, *worse*: rows in which "
            f"`{COSEN}` is clearly better or worse, beyond the 95 % interval over seeds.",
            markdown_table(headings, methods, left=("method",)),
        ]
    if steps := _step_lines(studies):
        headings = ["method", "minus", "rows", "difference", "better", "worse"]
        parts += [
            "## What each part adds",
            "As above, for variants of our method.",
            markdown_table(headings, steps, left=("method", "minus")),
        ]
    if others:
        parts += ["## On other data", OTHERS_NOTE, _others_table(others)]
    return "\n\n".join(parts) + "\n"


def _others_table(others: Mapping[str, Recalls]) -> str:
    """Return a table of mean recall and accuracy, a line for each method, the best first."""
    methods = [
        name for name in next(iter(others.values())) if all(name in o for o in others.values())
    ]
    averages = {
        name: [100 * fmean(found[name][k].mean for found in others.values()) for k in (0, 1)]
        for name in methods
    }
    lines = []
    for name in sorted(methods, key=averages.__getitem__, reverse=True):
        cells = []
        for found in others.values():
            recall, accuracy = found[name]
            text = spread_text(recall, scale=100, decimals=1)
            cells.append(f"{text} / {100 * accuracy.mean:.1f}")
        lines.append([f"`{name}`", *cells, "{:.1f} / {:.1f}".format(*averages[name])])
    return markdown_table(["method", *others, "average"], lines)


def _accuracy_lines(studies: Studies) -> list[list[str]]:
    """Return a line for each row of the paper's tables of accuracies."""
    lines = []
    for entry, summary in _accuracy_rows(studies):
        found = {line.method: line for line in lines_of(entry, summary)}
        if "baseline" in found and COSEN in found:
            lines.append([_row_name(entry), *_paper_and_ours(entry, found)])
    return lines


def _accuracy_rows(studies: Studies) -> Iterable[tuple[Entry, Summary]]:
    own = (table for table, rows in TABLES.items() if {*rows[-1].numbers} == {"baseline", "cosen"})
    for table in own:
        for entry in entries_of(table):
            if entry.row.metric == "accuracy" and entry.protocol is not None:
                summary = studies.get(entry.protocol.name)
                if summary is not None:
                    yield entry, summary


def _paper_and_ours(entry: Entry, found: Mapping[str, Line]) -> list[str]:
    baseline, cosen = found["baseline"], found[COSEN]
    first, own = cells_of(entry, baseline), cells_of(entry, cosen)
    if entry.is_stand_in:
        return ["-", "-", "-", first[0], own[0], own[2]]
    return [
        first[1],
        marked(own[1], cosen.ours, cosen.paper),
        marked(own[3], cosen.cut, cosen.paper_cut),
        first[0],
        own[0],
        own[2],
    ]


def _row_name(entry: Entry) -> str:
    """Return a short name of a row: the dataset and the rest of the protocol's name.

    Example:
        >>> from cosen.paper.reproduce import find_entries
        >>> _row_name(find_entries("Caltechexp", "caltech101/60-odd-10")[0])
        'Caltech-101, 60-odd-10'
    """
    assert entry.protocol is not None
    return f"{_dataset(entry.protocol.name)}, {entry.protocol.name.partition('/')[2]}"


def _dataset(protocol: str) -> str:
    return DATASETS[protocol.partition("/")[0]]


def _methods(studies: Studies) -> list[str]:
    """Return the methods that were run in most rows."""
    compared = _compared(studies).values()
    counts = {
        name: sum(bool(found.values(name, "mean_recall")) for found in compared)
        for name in (COSEN, *ALTERNATIVES, *ALSO)
    }
    return [name for name, count in counts.items() if count > len(compared) / 2]


def _compared(studies: Studies) -> Studies:
    needed = (COSEN, "balanced-softmax")
    return {
        protocol: found
        for protocol, found in studies.items()
        if all(found.values(name, "mean_recall") for name in needed)
    }


def _method_lines(studies: Studies) -> list[list[str]]:
    """Return a line for each method, the best first."""
    compared = _compared(studies)
    lines = {}
    for name in _methods(studies):
        by_dataset: dict[str, list[float]] = {}
        for protocol, found in compared.items():
            values = found.values(name, "mean_recall").values()
            recall = 100 * fmean(values) if values else math.nan
            by_dataset.setdefault(_dataset(protocol), []).append(recall)
        recalls = [recall for own in by_dataset.values() for recall in own]
        means = [*map(fmean, by_dataset.values()), fmean(recalls)]
        order = fmean(gain.mean for gain in _gains(compared, COSEN, name))
        lines[order, name] = [
            f"`{name}`",
            *("-" if math.isnan(mean) else f"{mean:.1f}" for mean in means),
            *(
                _difference(compared, COSEN, name)
                if name != COSEN
                else [str(len(recalls))] + ["-"] * 3
            ),
        ]
    return [lines[key] for key in sorted(lines)]


def _step_lines(studies: Studies) -> list[list[str]]:
    lines = []
    for method, other in STEPS:
        cells = _difference(studies, method, other)
        if cells[0] != "0":
            lines.append([f"`{method}`", f"`{other}`", *cells])
    return lines


def _gains(studies: Studies, method: str, other: str) -> list[Spread]:
    """Return the difference of mean recall in each row with both methods."""
    return [gain for found in studies.values() if (gain := gain_over(found, method, other))]


def _difference(studies: Studies, method: str, other: str) -> list[str]:
    """Return the rows with both, the mean difference, and the rows clearly better and worse."""
    gains = _gains(studies, method, other)
    verdicts = [gain.against(0) for gain in gains]
    mean = gain_text(Spread.of(gain.mean for gain in gains))
    return [
        str(len(gains)),
        mean,
        str(verdicts.count("above")),
        str(verdicts.count("below")),
    ]
