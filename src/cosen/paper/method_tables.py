"""Methods side by side over several studies, and one of them against the best of today's."""

from collections.abc import Sequence

from cosen.comparing.spread import Spread
from cosen.paper.side_by_side import markdown_table, per_cent_text
from cosen.paper.summary import Summary

ALTERNATIVES = (
    *("class-weights", "focal", "class-balanced", "ldam-drw", "balanced-softmax", "crt"),
)
"""What one would take today; the last table holds our default against the best of them."""

JUDGED = "cosen"


def methods_table(
    studies: Sequence[tuple[str, Summary]],
    *,
    metric: str = "mean_recall",
    methods: Sequence[str] | None = None,
) -> str:
    """A line for each method, a column for each study, and the average over studies.

    Args:
        studies: A label and a summary for each column.
        metric: One of those of a summary, shown in per cent.
        methods: Which, and in what order; all, if not given.
    """
    names = list(methods or dict.fromkeys(name for _, found in studies for name in found.results))
    spreads = {name: [found.spread(name, metric) for _, found in studies] for name in names}
    names = [name for name in names if any(spreads[name])]
    columns = [[spreads[name][number] for name in names] for number in range(len(studies))]
    averages = [_average([column[row] for column in columns]) for row in range(len(names))]
    lines = [["method", *(label for label, _ in studies), "average"]]
    lines.append(["---", *["---:"] * (len(studies) + 1)])
    marked = [_best_in_bold(column) for column in (*columns, averages)]
    lines += [[f"`{name}`", *(cells[row] for cells in marked)] for row, name in enumerate(names)]
    return markdown_table(lines)


def _average(row: Sequence[Spread | None]) -> Spread | None:
    """The mean over all studies; None where a method lacks one, since it could not be compared."""
    means = [spread.mean for spread in row if spread is not None]
    return Spread(sum(means) / len(means), None, len(means)) if len(means) == len(row) else None


def _best_in_bold(column: Sequence[Spread | None]) -> list[str]:
    best = max((spread.mean for spread in column if spread is not None), default=None)
    return [
        f"**{per_cent_text(spread)}**"
        if spread is not None and spread.mean == best
        else per_cent_text(spread)
        for spread in column
    ]


def gains_table(
    studies: Sequence[tuple[str, Summary]],
    pairs: Sequence[tuple[str, str]],
    *,
    metric: str = "mean_recall",
) -> str:
    """A line for each pair of methods: how far the first is above the second, in bold beyond noise.

    Args:
        studies: A label and a summary for each column.
        pairs: A method, and the one that it is held against.
        metric: One of those of a summary, shown in per cent.
    """
    lines = [["method", "against", *(label for label, _ in studies)]]
    lines.append(["---", "---", *["---:"] * len(studies)])
    for method, other in pairs:
        gaps = [_gap(found, metric, method, other) for _, found in studies]
        if any(gaps):
            lines.append([f"`{method}`", f"`{other}`", *map(_marked_gap, gaps)])
    return markdown_table(lines)


def _gap(found: Summary, metric: str, method: str, other: str) -> Spread | None:
    """How far a method is above another, seed by seed; None where they share no seed."""
    own, others = found.values(method, metric), found.values(other, metric)
    return Spread.of(own[seed] - others[seed] for seed in sorted(own.keys() & others.keys()))


def _marked_gap(gap: Spread | None) -> str:
    if gap is None:
        return "-"
    return f"**{_gap_text(gap)}**" if gap.against(0) in ("above", "below") else _gap_text(gap)


def against_alternatives(
    studies: Sequence[tuple[str, Summary]],
    *,
    metric: str = "mean_recall",
    method: str = JUDGED,
    alternatives: Sequence[str] = ALTERNATIVES,
) -> str:
    """Where a method lies below the best of the alternatives by more than noise, and where not.

    Differences are taken seed by seed; one is more than noise where 0 is outside the 95 % interval
    of its mean. With one seed there is none, and nothing is judged.
    """
    told: dict[str | None, list[str]] = {"below": [], "within": [], "above": [], None: []}
    for label, found in studies:
        compared = _against_best(found, metric, method, alternatives)
        if compared is None:
            continue
        best, gap = compared
        words = f"{label} (`{best}`, {_gap_text(gap)})"
        told[gap.against(0)].append(words)
    openings = {
        "below": "lies below the best of them beyond the interval on",
        "within": "cannot be told from it on",
        "above": "lies above it beyond the interval on",
        None: "cannot be judged, as there is one seed, on",
    }
    among = ", ".join(f"`{name}`" for name in alternatives)
    sentences = [
        f"`{method}` {openings[verdict]}: {'; '.join(words)}."
        for verdict, words in told.items()
        if words
    ]
    if not sentences:
        return ""
    if not told["below"] and (told["within"] or told["above"]):
        where = "Where there are several seeds, " if told[None] else ""
        sentences.insert(
            0, f"{where}`{method}` lies nowhere below the best of them beyond the interval."
        )
    return (
        f"Against {among}, in each column the one with the highest mean (the difference, seed by "
        f"seed, ± half its 95 % interval, by Student's t): {' '.join(sentences)}"
    )


def _against_best(
    found: Summary, metric: str, method: str, alternatives: Sequence[str]
) -> tuple[str, Spread] | None:
    """The best alternative, and how far a method is above it, seed by seed."""
    rivals = {
        name: (spread.mean, gap)
        for name in alternatives
        if (spread := found.spread(name, metric)) and (gap := _gap(found, metric, method, name))
    }
    if not rivals:
        return None
    best = max(rivals, key=lambda name: rivals[name][0])
    return best, rivals[best][1]


def _gap_text(gap: Spread) -> str:
    mean, half = f"{100 * gap.mean:+.2f}", gap.half_interval
    return mean if half is None else f"{mean} ± {100 * half:.2f}"
