"""A row of the paper in numbers: each of its methods, ours beside the paper's."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cosen.comparing.spread import Spread
from cosen.paper.reproduce import Entry
from cosen.paper.summary import Summary, error_reduction


@dataclass(frozen=True)
class Line:
    """A method of a row, ours beside the paper's.

    Attributes:
        method: Our method.
        ours: The row's metric, in the paper's unit; None where no run finished.
        paper: The paper's number; None where it has none.
        cut: The share of the baseline's errors that it does not make, for accuracies.
        paper_cut: The paper's.
        mean_recall: Of the classes, as a share of 1.
        seconds: Of a run.
        failures: Why runs are missing, by seed.
    """

    method: str
    ours: Spread | None
    paper: float | None
    cut: Spread | None
    paper_cut: float | None
    mean_recall: Spread | None
    seconds: Spread | None
    failures: Mapping[int, str]


def lines_of(entry: Entry, summary: Summary, *, others: Iterable[str] = ()) -> list[Line]:
    """The methods of a row that were tried, each with what its study has.

    Args:
        entry: The row.
        summary: Of the study of its protocol.
        others: Methods of the study to show after those of the row.
    """
    is_accuracy = entry.row.metric == "accuracy"
    found = []
    for method in dict.fromkeys((*entry.methods, *others)):
        if method not in summary.tried:
            continue
        scale = 100.0 if is_accuracy else 1.0
        values = summary.values(method, entry.row.metric).values()
        is_cut = is_accuracy and method != "baseline"
        found.append(
            Line(
                method=method,
                ours=Spread.of(scale * value for value in values),
                paper=entry.paper(method),
                cut=summary.spread(method, "error_reduction") if is_cut else None,
                paper_cut=_paper_cut(entry, method) if is_cut else None,
                mean_recall=summary.spread(method, "mean_recall"),
                seconds=summary.spread(method, "seconds"),
                failures=summary.failures.get(method, {}),
            )
        )
    return found


def _paper_cut(entry: Entry, method: str) -> float | None:
    number, plain = entry.paper(method), entry.paper("baseline")
    if number is None or plain is None:
        return None
    return error_reduction(number / 100, plain / 100)


def markdown_table(lines: Iterable[Sequence[str]]) -> str:
    """Lines of cells, the heading and the dashes below it among them, in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def number_text(entry: Entry, spread: Spread | None) -> str:
    """Ours, with its spread, to as many digits as are worth reading."""
    return _text(spread, 2 if entry.row.metric == "accuracy" else 3)


def paper_text(entry: Entry, number: float | None) -> str:
    """The paper's number as printed; of other data in brackets."""
    if number is None:
        return "-"
    text = f"{number:.{1 if entry.row.metric == 'accuracy' else 3}f}"
    return f"({text})" if entry.is_stand_in else text


def per_cent_text(spread: Spread | None, decimals: int = 2) -> str:
    """A share of 1 in per cent, with its spread."""
    return _text(_scaled(spread, 100), decimals)


def cut_text(cut: Spread | None) -> str:
    """The share of errors that is cut, in per cent."""
    return per_cent_text(cut, 1)


def paper_cut_text(entry: Entry, cut: float | None) -> str:
    """The paper's share; of other data in brackets."""
    if cut is None:
        return "-"
    text = f"{100 * cut:.0f}"
    return f"({text})" if entry.is_stand_in else text


def seconds_text(spread: Spread | None) -> str:
    """The mean seconds of a run."""
    return "-" if spread is None else f"{spread.mean:.{0 if spread.mean >= 10 else 1}f}"


def _text(spread: Spread | None, decimals: int) -> str:
    if spread is None:
        return "-"
    mean = f"{spread.mean:.{decimals}f}"
    return mean if spread.deviation is None else f"{mean} ± {spread.deviation:.{decimals}f}"


def _scaled(spread: Spread | None, by: float) -> Spread | None:
    if spread is None:
        return None
    deviation = None if spread.deviation is None else by * spread.deviation
    return Spread(by * spread.mean, deviation, spread.count)
