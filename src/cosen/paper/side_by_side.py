"""Rows of the paper's tables: our number and the paper's for each method."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cosen.comparing.bootstrap import Spread
from cosen.paper.reproduce import Entry
from cosen.paper.summary import Summary, error_reduction


@dataclass(frozen=True)
class Line:
    """Results of a method of a row; None if there is no number."""

    method: str
    ours: Spread | None  # the row's metric in the paper's unit
    paper: float | None
    cut: Spread | None  # share of the baseline's errors that are avoided; only for accuracies
    paper_cut: float | None
    mean_recall: Spread | None  # in [0, 1]
    seconds: Spread | None
    failures: Mapping[int, str]  # error message by seed

    @property
    def seeds(self) -> int:
        """Number of finished runs."""
        return self.ours.count if self.ours else 0


def lines_of(entry: Entry, summary: Summary, *, others: Iterable[str] = ()) -> list[Line]:
    """The methods of a row that were run, then ``others`` of the same study."""
    is_accuracy = entry.row.metric == "accuracy"
    scale = 100.0 if is_accuracy else 1.0
    found = []
    for method in dict.fromkeys((*entry.methods, *others)):
        if method not in summary.tried:
            continue
        has_cut = is_accuracy and method != "baseline"
        number, baseline = entry.paper(method), entry.paper("baseline")
        shares = (n if n is None else n / 100 for n in (number, baseline))
        found.append(
            Line(
                method=method,
                ours=Spread.of(
                    scale * value for value in summary.values(method, entry.row.metric).values()
                ),
                paper=number,
                cut=summary.spread(method, "error_reduction") if has_cut else None,
                paper_cut=error_reduction(*shares) if has_cut else None,
                mean_recall=summary.spread(method, "mean_recall"),
                seconds=summary.spread(method, "seconds"),
                failures=summary.failures.get(method, {}),
            )
        )
    return found


def cells_of(entry: Entry, line: Line) -> tuple[str, str, str, str, str, str, str]:
    """Texts of a line: ours, paper, cut, paper's cut, mean recall, seconds, seeds."""
    return (
        spread_text(line.ours, decimals=2 if entry.row.metric == "accuracy" else 3),
        paper_text(entry, line.paper),
        spread_text(line.cut, scale=100, decimals=1),
        "-" if line.paper_cut is None else _in_brackets(entry, f"{100 * line.paper_cut:.0f}"),
        spread_text(line.mean_recall, scale=100),
        f"{line.seconds.mean:.{int(line.seconds.mean < 10)}f}" if line.seconds else "-",
        str(line.seeds),
    )


def paper_text(entry: Entry, number: float | None) -> str:
    """The paper's number as printed, in brackets if it was measured on other data."""
    if number is None:
        return "-"
    return _in_brackets(entry, f"{number:.{1 if entry.row.metric == 'accuracy' else 3}f}")


def _in_brackets(entry: Entry, text: str) -> str:
    return f"({text})" if entry.is_stand_in else text


def spread_text(spread: Spread | None, *, scale: float = 1.0, decimals: int = 2) -> str:
    """Mean ± standard deviation.

    Example:
        >>> spread_text(Spread.of([0.25, 0.75]), scale=100, decimals=1)
        '50.0 ± 35.4'
    """
    if spread is None:
        return "-"
    mean = f"{scale * spread.mean:.{decimals}f}"
    if spread.deviation is None:
        return mean
    return f"{mean} ± {scale * spread.deviation:.{decimals}f}"
