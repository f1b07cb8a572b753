"""Where our numbers do not reach the paper's, and where there are none, in plain sentences."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from cosen.comparing.spread import Spread
from cosen.paper.reproduce import OURS, Entry
from cosen.paper.side_by_side import cut_text, lines_of, number_text, paper_cut_text, paper_text
from cosen.paper.summary import Summary

INTERVAL = "the 95 % interval over seeds"
"""Beyond which the paper's number must lie for ours to be below it."""

Verdict = Literal["beyond", "within", "reached"]
"""How a number of ours lies below the paper's: beyond the interval, within it, or not at all."""


def shortfalls(rows: Sequence[tuple[Entry, Summary]]) -> str:
    """Where we do not reach the paper, in plain sentences.

    A number is not reached where the paper's lies above the 95 % interval of ours over seeds. With
    one seed there is none, and nothing is judged. Rows on other data say nothing.
    """
    own = [(entry, summary) for entry, summary in rows if not entry.is_stand_in]
    sentences = []
    if own:
        sentences += [_numbers_missed(own), _cuts_missed(own)]
    sentences += [_failed(rows), _not_run(rows), _stand_ins(rows), _one_seed(own)]
    return " ".join(sentence for sentence in sentences if sentence)


def _numbers_missed(rows: Sequence[tuple[Entry, Summary]]) -> str:
    told: dict[Verdict, list[str]] = {"beyond": [], "within": [], "reached": []}
    for entry, summary in rows:
        for line in lines_of(entry, summary):
            verdict = _shortfall(line.ours, line.paper)
            if verdict is not None:
                numbers = f"{number_text(entry, line.ours)} against {paper_text(entry, line.paper)}"
                told[verdict].append(f"`{line.method}` on {_short(entry)} ({numbers})")
    sentences = []
    if told["beyond"]:
        sentences.append(
            f"Below the paper's number beyond {INTERVAL}: {'; '.join(told['beyond'])}."
        )
    elif any(told.values()):
        sentences.append(f"No number here lies below the paper's beyond {INTERVAL}.")
    if told["within"]:
        sentences.append(f"Lower, but within that interval: {'; '.join(told['within'])}.")
    return " ".join(sentences)


def _shortfall(ours: Spread | None, paper: float | None) -> Verdict | None:
    """None where nothing can be judged, as with one seed."""
    if ours is None or paper is None or (verdict := ours.against(paper)) is None:
        return None
    if ours.mean >= paper - 1e-9:
        return "reached"
    return "beyond" if verdict == "below" else "within"


def _cuts_missed(rows: Sequence[tuple[Entry, Summary]]) -> str:
    told = []
    for method in OURS["cosen"]:
        own: dict[Verdict, list[str]] = {"beyond": [], "within": [], "reached": []}
        lines = [
            (entry, line)
            for entry, summary in rows
            for line in lines_of(entry, summary)
            if line.method == method and line.cut and line.paper_cut is not None
        ]
        for entry, line in lines:
            verdict = _shortfall(line.cut, line.paper_cut)
            if verdict is not None:
                cuts = f"{cut_text(line.cut)} % against {paper_cut_text(entry, line.paper_cut)} %"
                own[verdict].append(f"{_short(entry)} ({cuts})")
        opening = f"Of its baseline's errors `{method}` cuts"
        if own["beyond"]:
            missed = "; ".join(own["beyond"])
            told.append(f"{opening} fewer than the paper's method beyond {INTERVAL} on {missed}.")
        if own["within"]:
            lower = "; ".join(own["within"])
            told.append(f"{opening} fewer, but within {INTERVAL}, on {lower}.")
        if own["reached"] and not own["beyond"] and not own["within"]:
            rest = "" if len(own["reached"]) == len(lines) else " with more than one seed"
            told.append(f"{opening} as many as the paper's method, or more, in every row{rest}.")
    return " ".join(told)


def _failed(rows: Sequence[tuple[Entry, Summary]]) -> str:
    return failures_told(
        why_seeds_lack(
            line.method, _short(entry), line.ours.count if line.ours else 0, summary, line.failures
        )
        for entry, summary in rows
        for line in lines_of(entry, summary)
        if line.failures
    )


def why_seeds_lack(
    method: str, where: str, done: int, summary: Summary, failures: Mapping[int, str]
) -> str:
    """How many seeds a method has, and what became of the others."""
    return (
        f"`{method}` on {where} has {done} of {len(summary.seeds)} seeds, since {_reason(failures)}"
    )


def failures_told(told: Iterable[str]) -> str:
    """A sentence of what :func:`why_seeds_lack` says, if there is anything."""
    joined = "; ".join(told)
    return f"Some runs failed: {joined}." if joined else ""


def _not_run(rows: Sequence[tuple[Entry, Summary]]) -> str:
    told = []
    for entry, summary in rows:
        missing = [f"`{name}`" for name in entry.methods if name not in summary.tried]
        if missing:
            told.append(f"{' and '.join(missing)} on {_short(entry)}")
    return f"Not run: {'; '.join(told)}." if told else ""


def _reason(failures: Mapping[int, str]) -> str:
    return " ".join(next(iter(failures.values())).split()).rstrip(".")


def _stand_ins(rows: Sequence[tuple[Entry, Summary]]) -> str:
    names = dict.fromkeys(
        entry.protocol.dataset.upper()
        for entry, _ in rows
        if entry.is_stand_in and entry.protocol is not None
    )
    if not names:
        return ""
    stands = "stands" if len(names) == 1 else "stand"
    return (
        f"{' and '.join(names)} {stands} in for data that cannot be had freely: the paper's "
        "numbers in brackets are of that other data, and nothing follows from a difference."
    )


def _one_seed(rows: Sequence[tuple[Entry, Summary]]) -> str:
    told = []
    for entry, summary in rows:
        ours = {
            line.method: line.ours
            for line in lines_of(entry, summary)
            if line.ours and line.paper is not None
        }
        single = [method for method, spread in ours.items() if spread.count == 1]
        if len(single) == len(ours):
            told += [_short(entry)] if ours else []
        else:
            told += [f"`{method}` on {_short(entry)}" for method in single]
    return f"With one seed nothing can be judged: {'; '.join(told)}." if told else ""


def _short(entry: Entry) -> str:
    """A row's words, in a sentence."""
    return entry.words.removesuffix(".")
