"""What ``cosen reproduce TABLE`` prints: our numbers beside the paper's."""

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from cosen.cli.plain_table import plain_table

if TYPE_CHECKING:
    from rich.console import Console

    from cosen.paper.reproduce import Entry, Reproduced, Wish
    from cosen.paper.side_by_side import Line


def report(found: "Reproduced", wish: "Wish", *, json_: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from cosen.paper.side_by_side import lines_of

    if json_:
        typer.echo(json.dumps(_results_json(found, wish), indent=2, ensure_ascii=False))
    else:
        console = Console(highlight=False)
        for entry in found.entries:
            if entry.protocol is None:
                continue
            console.print(Text(f"{entry.row.table}: {entry.words} ({entry.protocol.name})"))
            if entry.protocol.name in found.summaries:
                summary = found.summaries[entry.protocol.name]
                others = summary.results if wish.asks_for_more else ()
                _print_row(entry, lines_of(entry, summary, others=others), console)
            else:
                console.print(Text(f"Not run: {found.reasons[entry.protocol.name]}"))
            console.print()
        if found.summaries:
            _print_notes(found, console)
            place = wish.out / wish.preset.name
            console.print(Text(f"Everything is in {place}"), soft_wrap=True)
    if not found.summaries:
        sys.exit(1)


def _print_row(entry: "Entry", lines: "Sequence[Line]", console: "Console") -> None:
    from rich.text import Text

    from cosen.paper.reproduce import METRIC_WORDS
    from cosen.paper.side_by_side import (
        cut_text,
        number_text,
        paper_cut_text,
        paper_text,
        per_cent_text,
        seconds_text,
    )

    words = METRIC_WORDS[entry.row.metric]
    headings = ("method", words, "paper", "cut", "paper", "mean recall", "s", "seeds")
    table = plain_table(*headings, right_from=1)
    for line in lines:
        table.add_row(
            line.method,
            number_text(entry, line.ours),
            paper_text(entry, line.paper),
            cut_text(line.cut),
            paper_cut_text(entry, line.paper_cut),
            per_cent_text(line.mean_recall),
            seconds_text(line.seconds),
            str(line.ours.count if line.ours else 0),
        )
    console.print(table)
    for line in lines:
        for reason in dict.fromkeys(line.failures.values()):
            console.print(Text(f"{line.method} failed: {' '.join(reason.split())}"))


def _print_notes(found: "Reproduced", console: "Console") -> None:
    from rich.text import Text

    notes = [
        "On test, mean ± standard deviation over seeds. Cut: the per cent of the baseline's errors "
        "that are not made. The paper's CoSen stands beside cosen-paper, its algorithm, and cosen, "
        "our default."
    ]
    if any(entry.is_stand_in for entry in found.entries):
        notes.append("Numbers in brackets are of other data, which this stands in for.")
    console.print(Text(" ".join(notes)))


def _results_json(found: "Reproduced", wish: "Wish") -> dict[str, Any]:
    from dataclasses import asdict

    from cosen.paper.side_by_side import lines_of

    rows: list[dict[str, Any]] = []
    for entry in found.entries:
        if entry.protocol is None:
            continue
        row: dict[str, Any] = {
            "table": entry.row.table,
            "row": entry.words,
            "protocol": entry.protocol.name,
            "metric": entry.row.metric,
            "is_stand_in": entry.is_stand_in,
        }
        summary = found.summaries.get(entry.protocol.name)
        if summary is None:
            rows.append({**row, "not_run": found.reasons[entry.protocol.name]})
        else:
            others = summary.results if wish.asks_for_more else ()
            lines = [asdict(line) for line in lines_of(entry, summary, others=others)]
            rows.append({**row, "command": summary.command, "methods": lines})
    return {"rows": rows}
