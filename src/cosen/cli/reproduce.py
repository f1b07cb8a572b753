"""``cosen reproduce``: the paper's tables, ours beside the paper's."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cosen.cli.data import DataRoot, Json

if TYPE_CHECKING:
    from rich.console import Console

    from cosen.study.compare import GridWatcher
    from cosen.study.presets import Preset
    from cosen.study.protocols import Protocol
    from cosen.study.reproduce import Entry, Reproduced, Wish
    from cosen.study.side_by_side import Line

TABLES = {
    "DILexp": "skin lesions; HAM10000 in place of Dermofit",
    "MLCexp": "corals; RSMAS in place of Moorea",
    "MNISTexp": "MNIST, 10 or 25 % of the odd or even digits",
    "CIFARexp": "CIFAR-100, 10 or 25 % of the odd or even classes",
    "Caltechexp": "Caltech-101, 10 % of the odd or even classes",
    "MIT67exp": "MIT-67, 10 % of the odd or even classes",
    "gnf": "F-measure and G-mean on the most imbalanced protocols",
    "comp_imbalanced": "against sampling, weighted SVM and forest, SOSR",
    "comp_fixedcost": "fixed against learned costs",
}
"""The paper's tables and what they are of."""

FOLDER = Path("studies/reproduce")

ROW_WIDTH, PAPER_WIDTH = 30, 22
"""Of columns of the list, which is to be read at 80."""


class AnyCase(TyperGroup):
    """Takes the names of tables in large or small letters."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        names = {name.lower(): name for name in self.commands}
        return super().get_command(ctx, names.get(cmd_name.lower(), cmd_name))


reproduce_app = typer.Typer(
    name="reproduce",
    cls=AnyCase,
    help="Run the rows of the paper's tables, and print ours beside the paper's.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

PresetName = Annotated[str, typer.Option("--preset", help="cpu (two cores) or paper (a GPU).")]
Weights = Annotated[
    str | None, typer.Option(help="A file of VGG-16's weights; downloaded if not given.")
]
Out = Annotated[Path, typer.Option("--out", help="Where studies go, a folder for each protocol.")]


@reproduce_app.command("list")
def list_(preset: PresetName = "cpu", json_: Json = False) -> None:
    """Show every row with the paper's numbers, what it needs, and how long it takes.

    Examples:

        cosen reproduce list

        cosen reproduce list --preset paper --json
    """
    from cosen.study.presets import find_preset
    from cosen.study.reproduce import entries_of

    chosen = find_preset(preset)
    found = {table: entries_of(table) for table in TABLES}
    if json_:
        rows = [_as_json(entry, chosen) for entries in found.values() for entry in entries]
        typer.echo(json.dumps([*rows, _timing_row(chosen)], indent=2, ensure_ascii=False))
        return
    _print_list(found, chosen)


@reproduce_app.command()
def results(
    folder: Annotated[Path, typer.Argument(help="Where studies are, or their summaries.")] = FOLDER,
    out: Annotated[
        Path | None, typer.Option(help="A page, written between its markers; else printed.")
    ] = None,
) -> None:
    """Write the results page from studies: Markdown, ours beside the paper's.

    Of a page that is there, only what stands between its two marker comments is replaced.

    Examples:

        cosen reproduce results studies/reproduce

        cosen reproduce results studies/reproduce --out docs/results.md
    """
    from cosen.errors import RunError
    from cosen.study.results import render_results, write_page
    from cosen.study.summary import read_summaries

    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}: run cosen reproduce TABLE first")
    summaries, timings = read_summaries(folder), _read_timings(folder)
    if not summaries and not timings:
        raise RunError(f"{folder} has no summary.json in it: run cosen reproduce TABLE first")
    text = render_results(summaries, timings)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_page(out, text)
        typer.echo(f"The results are in {out}")


def _read_timings(folder: Path) -> dict[str, Any]:
    """Timing comparisons by preset, whose folder they stand in."""
    paths = sorted(folder.rglob("timing/timing.json"))
    if not paths:
        return {}
    from cosen.study.timing import Overhead  # needs torch

    return {path.parent.parent.name: Overhead.read(path) for path in paths}


@reproduce_app.command()
def timing(
    preset: PresetName = "cpu",
    out: Out = FOLDER,
    data_root: DataRoot = None,
    weights: Weights = None,
    json_: Json = False,
) -> None:
    """Time an epoch with learned costs and without, in turn batch by batch.

    Example:

        cosen reproduce timing --data-root ~/data
    """
    from rich.console import Console
    from rich.text import Text

    from cosen.cli.progress import progress_bar
    from cosen.study.presets import find_preset
    from cosen.study.protocols import TIMING
    from cosen.study.timing import FILE, measure_overhead
    from cosen.training.atomic import write_text

    chosen = find_preset(preset)
    config = chosen.timing_config(weights=weights, data_root=str(data_root) if data_root else None)
    with progress_bar("Timing", quiet=json_) as progress:
        found = measure_overhead(config, progress=progress)
    place = out / chosen.name / "timing" / FILE
    place.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found.as_json(), indent=1)
    write_text(place, text + "\n")
    if json_:
        typer.echo(text)
        return
    table = _plain_table("", "ours, s", "ratio", "paper, s", "ratio", right_from=1)
    plain = TIMING.without_costs
    table.add_row("without costs", f"{found.plain.epoch:.2f}", "1", f"{plain:.2f}", "1")
    for method in found.learned:
        table.add_row(
            method.method,
            f"{method.epoch:.2f}",
            f"{found.ratio(method):.3f}",
            f"{TIMING.with_costs:.2f}",
            f"{TIMING.with_costs / plain:.3f}",
        )
    console = Console(highlight=False)
    console.print(table)
    console.print(
        Text(
            f"Seconds of an epoch of {config.network} on {chosen.timing}; the paper's are of "
            f"{TIMING.dataset} on an {TIMING.hardware}."
        )
    )


def _add_table(table: str, what: str) -> None:
    """A command for a table of the paper."""

    def run(
        row: Annotated[
            str | None,
            typer.Option(help="A part of one row's words, or of its protocol's name; else all."),
        ] = None,
        preset: PresetName = "cpu",
        seeds: Annotated[int, typer.Option(help="Runs of each method.")] = 3,
        methods: Annotated[
            str | None,
            typer.Option(help="More methods than the row has, with commas between, or all."),
        ] = None,
        ablation: Annotated[
            bool, typer.Option("--ablation", help="The parts of cosen one by one, too.")
        ] = False,
        out: Out = FOLDER,
        data_root: DataRoot = None,
        weights: Weights = None,
        epochs: Annotated[int | None, typer.Option(help="In place of the preset's.")] = None,
        trials: Annotated[
            int, typer.Option(help="Of cosen-paper's cross-validation of its mu and sigma.")
        ] = 0,
        workers: Annotated[
            int | None, typer.Option(help="Processes at once; one a core if not set.")
        ] = None,
        json_: Json = False,
    ) -> None:
        from cosen.study.ablation import ASKED
        from cosen.study.presets import find_preset
        from cosen.study.reproduce import Wish, find_entries

        wish = Wish(
            preset=find_preset(preset),
            out=out,
            seeds=seeds,
            methods=(*_names(methods), *(ASKED if ablation else ())),
            data_root=data_root,
            weights=weights,
            epochs=epochs,
            trials=trials,
            workers=workers,
        )
        found = _run(find_entries(table, row), wish, quiet=json_)
        _report(found, wish, json_=json_)

    run.__doc__ = f"""Run {table}: {what}.

    What was trained before under --out is not trained again, nor for another table.

    Example:

        cosen reproduce {table} --data-root ~/data --weights vgg16.pth
    """
    reproduce_app.command(table, short_help=what)(run)


for _table, _what in TABLES.items():
    _add_table(_table, _what)


def _names(text: str | None) -> tuple[str, ...]:
    """The methods that a text with commas names."""
    from cosen.methods import METHODS

    if (text or "").strip() == "all":
        return tuple(name for name in METHODS if name != "fixed-costs")  # that needs a file
    return tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))


def _run(entries: "list[Entry]", wish: "Wish", *, quiet: bool) -> "Reproduced":
    from cosen.study.reproduce import reproduce

    @contextmanager
    def watched(record: "Protocol") -> Iterator["GridWatcher"]:
        from cosen.cli.compare import watched_grid

        if not quiet:
            typer.echo(f"{record.name}, in {wish.folder(record)}", err=True)
        with watched_grid(quiet=quiet) as watcher:
            yield watcher

    try:
        return reproduce(entries, wish, watched=watched)
    except KeyboardInterrupt:
        typer.echo(
            f"\nStopped; finished runs and epochs are kept in {wish.out}.\n"
            "Go on with the same command.",
            err=True,
        )
        sys.exit(130)


# What came out


def _report(found: "Reproduced", wish: "Wish", *, json_: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from cosen.study.side_by_side import lines_of

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
                others = summary.results if wish.methods else ()
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

    from cosen.study.reproduce import METRIC_WORDS
    from cosen.study.side_by_side import (
        cut_text,
        number_text,
        paper_cut_text,
        paper_text,
        per_cent_text,
        seconds_text,
    )

    words = METRIC_WORDS[entry.row.metric]
    headings = ("method", words, "paper", "cut", "paper", "mean recall", "s", "seeds")
    table = _plain_table(*headings, right_from=1)
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

    from cosen.study.side_by_side import lines_of

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
            others = summary.results if wish.methods else ()
            lines = [asdict(line) for line in lines_of(entry, summary, others=others)]
            rows.append({**row, "command": summary.command, "methods": lines})
    return {"rows": rows}


# What there is to run


def _print_list(found: "dict[str, list[Entry]]", preset: "Preset") -> None:
    from rich.console import Console
    from rich.text import Text

    from cosen.study.presets import TIMES

    console = Console(highlight=False)
    for name, entries in found.items():
        console.print(Text(f"{name}: {TABLES[name]}"))
        table = _plain_table("row", "paper", "needs", "time", right_from=3)
        table.columns[0].width, table.columns[1].width = ROW_WIDTH, PAPER_WIDTH
        for entry in entries:
            table.add_row(
                Text(entry.words), _paper(entry), _needs(entry, preset), _time(entry, preset)
            )
        console.print(table)
        console.print()
    timing_row = _timing_row(preset)
    console.print(Text(f"timing: {timing_row['row']}"))
    console.print(
        Text(
            f"{timing_row['numbers']['with costs']} s and "
            f"{timing_row['numbers']['without costs']} s in the paper; needs "
            f"{timing_row['needs']}; time {_words(timing_row['minutes'])}"
        )
    )
    console.print()
    features = ", ".join(f"{name} {t.features:.0f}" for name, t in TIMES.items() if t.features)
    time = (
        "Time: about, on 2 cores, of all methods of the row with 3 seeds; rows on the same "
        "protocol share their runs. VGG-16's features are computed once for a dataset, which "
        f"takes more minutes: {features}."
        if preset.measured
        else "Time: not measured; this preset is for a GPU."
    )
    console.print(
        Text(
            f"Preset {preset.name}: {preset.description}. {time} Accuracies are in per cent. Run a "
            "row with cosen reproduce TABLE --row ROW, where a part of its words will do. Cited "
            "numbers are those that the paper takes from other papers; brackets: the paper's "
            "number is of other data, which cannot be had freely."
        )
    )


def _paper(entry: "Entry") -> str:
    """The paper's numbers, a method and its number always on one line."""
    from cosen.study.side_by_side import paper_text

    lines: list[str] = []
    for method, number in entry.row.numbers.items():
        words = f"{method} {paper_text(entry, number)}"
        if method in entry.row.spread:
            words += f" ± {entry.row.spread[method]:.1f}"
        if lines and len(lines[-1]) + len(words) + 2 <= PAPER_WIDTH:
            lines[-1] += f", {words}"
        else:
            lines.append(words)
    return "\n".join(lines)


def _needs(entry: "Entry", preset: "Preset") -> str:
    return "cited, not run" if entry.protocol is None else preset.needs(entry.protocol)


def _minutes(entry: "Entry", preset: "Preset") -> float | None:
    from cosen.study.presets import minutes_of
    from cosen.study.reproduce import SEEDS

    if entry.protocol is None:
        return None
    return minutes_of(preset, entry.protocol, runs=len(entry.methods) * SEEDS)


def _time(entry: "Entry", preset: "Preset") -> str:
    return "-" if entry.protocol is None else _words(_minutes(entry, preset))


def _words(minutes: float | None) -> str:
    if minutes is None:
        return "GPU"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _as_json(entry: "Entry", preset: "Preset") -> dict[str, Any]:
    return {
        "table": entry.row.table,
        "row": entry.words,
        "protocol": entry.protocol.name if entry.protocol else None,
        "metric": entry.row.metric,
        "numbers": dict(entry.row.numbers),
        "spread": dict(entry.row.spread),
        "is_stand_in": entry.is_stand_in,
        "methods": list(entry.methods),
        "needs": preset.needs(entry.protocol) if entry.protocol else None,
        "minutes": _minutes(entry, preset),
    }


def _timing_row(preset: "Preset") -> dict[str, Any]:
    from cosen.study.presets import TIMING_MINUTES
    from cosen.study.protocols import TIMING, protocol

    config = preset.timing_config()
    needs = protocol(preset.timing).dataset + (", VGG-16" if config.weights else "")
    return {
        "table": "timing",
        "row": "one epoch with learned costs, and one without",
        "protocol": preset.timing,
        "numbers": {"with costs": TIMING.with_costs, "without costs": TIMING.without_costs},
        "needs": needs,
        "minutes": TIMING_MINUTES if preset.measured else None,
    }


def _plain_table(*headings: str, right_from: int) -> Any:
    """A table without lines; columns from ``right_from`` on are numbers."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number >= right_from else "left")
    return table
