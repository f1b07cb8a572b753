"""``cosen reproduce``: run the paper's tables and print our numbers and the paper's."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cosen.cli.compare import split_methods
from cosen.cli.display import Display, plain_table
from cosen.cli.options import DataRoot, Json

if TYPE_CHECKING:
    from cosen.comparing.grid import CompareCallbacks
    from cosen.paper.presets import Preset
    from cosen.paper.protocols import Protocol
    from cosen.paper.reproduce import Entry, Reproduced, ReproduceOptions
    from cosen.paper.side_by_side import Line

# As in cosen.paper.reproduce, which is slow to import.
FOLDER = Path("studies/reproduce")
SEEDS = 3

TABLE_TITLES = {
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

ROW_WIDTH, PAPER_WIDTH = 30, 22  # columns of the list, for a total of 80 characters


class AnyCase(TyperGroup):
    """Accepts table names in upper or lower case."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        names = {name.lower(): name for name in self.commands}
        return super().get_command(ctx, names.get(cmd_name.lower(), cmd_name))


reproduce_app = typer.Typer(
    name="reproduce",
    cls=AnyCase,
    help="Run rows of the paper's tables and print our numbers and the paper's.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

PresetName = Annotated[
    str, typer.Option("--preset", help="cpu or vgg16 (two cores), or paper (a GPU).")
]
Weights = Annotated[
    str | None, typer.Option(help="File of VGG-16 weights; default: download them.")
]
Out = Annotated[Path, typer.Option("--out", help="Output folder; each protocol has a subfolder.")]


@reproduce_app.command("list")
def list_(preset: PresetName = "cpu", json_: Json = False) -> None:
    """List all rows with the paper's numbers, required data and approximate time.

    Examples:

        cosen reproduce list

        cosen reproduce list --preset paper --json
    """
    from cosen.paper.presets import TIMING_MINUTES, find_preset
    from cosen.paper.protocols import TIMING, protocol
    from cosen.paper.reproduce import entries_of

    chosen = find_preset(preset)
    has_weights = chosen.timing_config().weights is not None
    timing_row = {
        "table": "timing",
        "row": "one epoch with learned costs, and one without",
        "protocol": chosen.timing,
        "numbers": {"with costs": TIMING.with_costs, "without costs": TIMING.without_costs},
        "needs": protocol(chosen.timing).dataset + (", VGG-16" if has_weights else ""),
        "minutes": TIMING_MINUTES if chosen.run_minutes else None,
    }
    found = {table: entries_of(table) for table in TABLE_TITLES}
    if json_:
        rows = [_entry_json(entry, chosen) for entries in found.values() for entry in entries]
        typer.echo(json.dumps([*rows, timing_row], indent=2, ensure_ascii=False))
    else:
        _print_list(found, timing_row, chosen)


def _entry_json(entry: "Entry", preset: "Preset") -> dict[str, Any]:
    record, runs = entry.protocol, len(entry.methods) * SEEDS
    return {
        "table": entry.row.table,
        "row": entry.label,
        "protocol": record.name if record else None,
        "metric": entry.row.metric,
        "numbers": dict(entry.row.numbers),
        "spread": dict(entry.row.spread),
        "is_stand_in": entry.is_stand_in,
        "methods": list(entry.methods),
        "needs": preset.needs(record) if record else None,
        "minutes": preset.minutes(record, runs=runs) if record else None,
    }


def _print_list(
    found: "dict[str, list[Entry]]", timing_row: dict[str, Any], preset: "Preset"
) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for name, entries in found.items():
        console.print(Text(f"{name}: {TABLE_TITLES[name]}"))
        table = plain_table("row", "paper", "needs", "time", right_from=3)
        table.columns[0].width, table.columns[1].width = ROW_WIDTH, PAPER_WIDTH
        for entry in entries:
            row = _entry_json(entry, preset)
            time = "-" if row["needs"] is None else _time_text(row["minutes"])
            needs = row["needs"] or "cited, not run"
            table.add_row(Text(entry.label), _paper_numbers(entry), needs, time)
        console.print(table)
        console.print()
    features = ", ".join(f"{name} {time:.0f}" for name, time in preset.feature_minutes.items())
    numbers = ", ".join(f"{name} {number} s" for name, number in timing_row["numbers"].items())
    time = _time_text(timing_row["minutes"])
    for line in (
        f"timing: {timing_row['row']}",
        f"paper: {numbers}; needs: {timing_row['needs']}; time: {time}",
        "",
        f"Preset {preset.name}: {preset.description}.",
        "Paper: accuracies in per cent. Numbers in brackets were measured on other data, which is "
        "not freely available. Cited numbers come from other papers.",
        "Time: for all methods of the row with 3 seeds on 2 cores. Rows with the same protocol "
        "share their runs. Features take more minutes, once per dataset: "
        f"{features}."
        if preset.run_minutes
        else "Time: not measured; this preset needs a GPU.",
        "Run a row with cosen reproduce TABLE --row ROW, where ROW is a part of its text.",
    ):
        console.print(Text(line))


def _paper_numbers(entry: "Entry") -> str:
    """The paper's numbers, several on a line if they fit."""
    from cosen.paper.side_by_side import paper_text

    lines: list[str] = []
    for method, number in entry.row.numbers.items():
        # our default has the name cosen too
        text = f"{'CoSen' if method == 'cosen' else method} {paper_text(entry, number)}"
        if method in entry.row.spread:
            text += f" ± {entry.row.spread[method]:.1f}"
        if lines and len(lines[-1]) + len(text) + 2 <= PAPER_WIDTH:
            lines[-1] += f", {text}"
        else:
            lines.append(text)
    return "\n".join(lines)


def _time_text(minutes: float | None) -> str:
    if minutes is None:
        return "GPU"
    if minutes < 1:
        return "< 1 min"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


@reproduce_app.command()
def results(
    folder: Annotated[Path, typer.Argument(help="Folder of studies or summaries.")] = FOLDER,
    out: Annotated[
        Path | None,
        typer.Option(help="First page to write, with details beside it; default: print it."),
    ] = None,
) -> None:
    """Write pages of results in Markdown from finished studies.

    The first page fits on a screen. Details of each preset are on pages beside it. In an existing
    page, only the text between the two marker comments is replaced.

    Examples:

        cosen reproduce results studies/reproduce

        cosen reproduce results studies/reproduce --out docs/results.md
    """
    from cosen.errors import RunError
    from cosen.paper.overview import read_others, render_overview
    from cosen.paper.presets import PRESETS
    from cosen.paper.results_page import read_timings, render_results, studies_of, write_page
    from cosen.paper.summary import read_summaries

    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}: run cosen reproduce TABLE first")
    summaries, timings = read_summaries(folder), read_timings(folder)
    if not summaries and not timings:
        raise RunError(f"{folder} has no summary.json: run cosen reproduce TABLE first")
    overview = render_overview(summaries, read_others(folder))
    if out is None:
        typer.echo(overview, nl=False)
        return
    pages = {out: overview}
    for name in PRESETS:
        if name in timings or studies_of(summaries, name):
            details = render_results(summaries, timings.get(name), preset=name)
            pages[out.with_name(f"{out.stem}-{name}{out.suffix}")] = details
    for path, text in pages.items():
        title = "Results" if path == out else f"Results in detail: {path.stem}"
        write_page(path, text, title=title)
        typer.echo(f"Results written to {path}")


@reproduce_app.command()
def timing(
    preset: PresetName = "cpu",
    out: Out = FOLDER,
    data_root: DataRoot = None,
    weights: Weights = None,
    json_: Json = False,
) -> None:
    """Time an epoch with learned costs and without, alternating batch by batch.

    Example:

        cosen reproduce timing --data-root ~/data
    """
    from rich.console import Console
    from rich.text import Text

    from cosen.paper.presets import find_preset
    from cosen.paper.protocols import TIMING
    from cosen.paper.timing import FILE, measure_overhead

    chosen = find_preset(preset)
    config = chosen.timing_config(weights=weights, data_root=str(data_root) if data_root else None)
    with Display("Timing", quiet=json_) as display:
        found = measure_overhead(config, progress=partial(display.progress, "Timing"))
    found.write(out / chosen.name / "timing" / FILE)
    if json_:
        typer.echo(found.model_dump_json(indent=1))
        return
    table = plain_table("", "ours, s", "ratio", "paper, s", "ratio", right_from=1)
    for cells in found.cells():
        table.add_row(*cells)
    console = Console(highlight=False)
    console.print(table)
    console.print(
        Text(
            f"Seconds per epoch. Ours: {config.network} on {chosen.timing}. Paper: "
            f"{TIMING.dataset} on {TIMING.hardware}."
        )
    )


def _add_table(table: str, title: str) -> None:
    """Add the command for a table of the paper."""

    def run(
        row: Annotated[
            str | None,
            typer.Option(help="Part of a row's text or protocol name; default: all rows."),
        ] = None,
        preset: PresetName = "cpu",
        seeds: Annotated[int, typer.Option(help="Runs of each method.")] = SEEDS,
        methods: Annotated[
            str | None,
            typer.Option(help="Additional methods, comma-separated, or all."),
        ] = None,
        only: Annotated[
            str | None,
            typer.Option(help="Run these methods and the baseline instead of the row's."),
        ] = None,
        ablation: Annotated[
            bool, typer.Option("--ablation", help="Also run simpler variants of cosen.")
        ] = False,
        out: Out = FOLDER,
        data_root: DataRoot = None,
        weights: Weights = None,
        epochs: Annotated[int | None, typer.Option(help="Default: the preset's.")] = None,
        trials: Annotated[
            int, typer.Option(help="Cross-validation trials of cosen-paper for mu and sigma.")
        ] = 0,
        workers: Annotated[
            int | None, typer.Option(help="Parallel processes; default: one per core.")
        ] = None,
        json_: Json = False,
    ) -> None:
        from cosen.paper.presets import find_preset
        from cosen.paper.reproduce import ReproduceOptions, find_entries

        options = ReproduceOptions(
            preset=find_preset(preset),
            out=out,
            seeds=seeds,
            methods=split_methods(methods or ""),
            only=split_methods(only or ""),
            ablation=ablation,
            data_root=data_root,
            weights=weights,
            epochs=epochs,
            trials=trials,
            workers=workers,
        )
        found = _run(find_entries(table, row), options, quiet=json_)
        if json_:
            typer.echo(json.dumps(_results_json(found, options), indent=2, ensure_ascii=False))
        else:
            _print_results(found, options)
        if not found.summaries:
            sys.exit(1)

    run.__doc__ = f"""Run {table}: {title}.

    Finished runs under --out are not repeated, even if they belong to another table.

    Example:

        cosen reproduce {table} --data-root ~/data --weights vgg16.pth
    """
    reproduce_app.command(table, short_help=title)(run)


for _table, _title in TABLE_TITLES.items():
    _add_table(_table, _title)


def _run(entries: "list[Entry]", options: "ReproduceOptions", *, quiet: bool) -> "Reproduced":
    from cosen.paper.reproduce import reproduce

    @contextmanager
    def watched(record: "Protocol") -> Iterator["CompareCallbacks"]:
        if not quiet:
            typer.echo(f"{record.name}, in {options.folder(record)}", err=True)
        with Display(quiet=quiet) as display:
            yield display.compare_callbacks()

    try:
        return reproduce(entries, options, watched=watched)
    except KeyboardInterrupt:
        typer.echo(
            f"\nStopped. Finished runs and epochs are kept in {options.out}.\n"
            "Repeat the command to resume.",
            err=True,
        )
        sys.exit(130)


def _lines(
    found: "Reproduced", options: "ReproduceOptions"
) -> "Iterator[tuple[Entry, Protocol, Sequence[Line] | None]]":
    """Rows with their protocol and lines; None instead of lines if they could not be run."""
    from cosen.paper.side_by_side import lines_of

    has_extra_methods = options.methods or options.only or options.ablation
    for entry in found.entries:
        if entry.protocol is not None:
            summary = found.summaries.get(entry.protocol.name)
            others = summary.results if summary and has_extra_methods else ()
            lines = lines_of(entry, summary, others=others) if summary else None
            yield entry, entry.protocol, lines


def _print_results(found: "Reproduced", options: "ReproduceOptions") -> None:
    from rich.console import Console
    from rich.text import Text

    from cosen.paper.reproduce import METRIC_NAMES
    from cosen.paper.side_by_side import cells_of

    console = Console(highlight=False)
    for entry, record, lines in _lines(found, options):
        console.print(Text(f"{entry.row.table}: {entry.label} ({record.name})"))
        if lines is None:
            console.print(Text(f"Not run: {found.reasons[record.name]}"))
        else:
            metric = METRIC_NAMES[entry.row.metric]
            headings = ("method", metric, "paper", "cut", "paper", "mean recall", "s", "seeds")
            table = plain_table(*headings, right_from=1)
            for line in lines:
                table.add_row(line.method, *cells_of(entry, line))
            console.print(table)
            for line in lines:
                for reason in dict.fromkeys(line.failures.values()):
                    console.print(Text(f"{line.method} failed: {' '.join(reason.split())}"))
        console.print()
    if found.summaries:
        console.print(
            Text(
                "Test results, mean ± standard deviation over seeds. Cut: per cent of the "
                "baseline's errors that a method avoids. The paper's CoSen is compared with "
                "cosen-paper (its algorithm) and cosen (our default). Numbers in brackets were "
                "measured on other data."
            )
        )
        folder = options.out / options.preset.name
        console.print(Text(f"All results are in {folder}"), soft_wrap=True)


def _results_json(found: "Reproduced", options: "ReproduceOptions") -> dict[str, Any]:
    from dataclasses import asdict

    rows: list[dict[str, Any]] = []
    for entry, record, lines in _lines(found, options):
        row: dict[str, Any] = {
            "table": entry.row.table,
            "row": entry.label,
            "protocol": record.name,
            "metric": entry.row.metric,
            "is_stand_in": entry.is_stand_in,
        }
        if lines is None:
            rows.append({**row, "not_run": found.reasons[record.name]})
        else:
            command = found.summaries[record.name].command
            rows.append({**row, "command": command, "methods": [asdict(line) for line in lines]})
    return {"rows": rows}
