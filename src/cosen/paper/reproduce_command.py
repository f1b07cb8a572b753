"""``cosen reproduce``: the paper's tables, ours beside the paper's."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from cosen.cli.data import DataRoot, Json
from cosen.cli.plain_table import plain_table
from cosen.paper.reproduce_list import TABLE_WORDS, entry_json, print_list, timing_row
from cosen.paper.reproduce_report import report

if TYPE_CHECKING:
    from cosen.comparing.compare import GridWatcher
    from cosen.paper.protocols import Protocol
    from cosen.paper.reproduce import Entry, Reproduced, Wish

# As in cosen.paper.reproduce, which takes longer to import than the rest of the command line.
FOLDER = Path("studies/reproduce")
SEEDS = 3


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
    from cosen.paper.presets import find_preset
    from cosen.paper.reproduce import entries_of

    chosen = find_preset(preset)
    found = {table: entries_of(table) for table in TABLE_WORDS}
    if json_:
        rows = [entry_json(entry, chosen) for entries in found.values() for entry in entries]
        typer.echo(json.dumps([*rows, timing_row(chosen)], indent=2, ensure_ascii=False))
        return
    print_list(found, chosen)


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
    from cosen.paper.results_page import read_timings, render_results, write_page
    from cosen.paper.summary import read_summaries

    if not folder.is_dir():
        raise RunError(f"there is no folder {folder}: run cosen reproduce TABLE first")
    summaries, timings = read_summaries(folder), read_timings(folder)
    if not summaries and not timings:
        raise RunError(f"{folder} has no summary.json in it: run cosen reproduce TABLE first")
    text = render_results(summaries, timings)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_page(out, text)
        typer.echo(f"The results are in {out}")


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
    from cosen.paper.presets import find_preset
    from cosen.paper.protocols import TIMING
    from cosen.paper.timing import FILE, measure_overhead
    from cosen.training.files import write_text

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
    table = plain_table("", "ours, s", "ratio", "paper, s", "ratio", right_from=1)
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
        seeds: Annotated[int, typer.Option(help="Runs of each method.")] = SEEDS,
        methods: Annotated[
            str | None,
            typer.Option(help="More methods than the row has, with commas between, or all."),
        ] = None,
        only: Annotated[
            str | None,
            typer.Option(help="These alone beside the baseline, in place of those of the row."),
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
        from cosen.paper.presets import find_preset
        from cosen.paper.reproduce import Wish, find_entries

        wish = Wish(
            preset=find_preset(preset),
            out=out,
            seeds=seeds,
            methods=_names(methods),
            only=_names(only),
            ablation=ablation,
            data_root=data_root,
            weights=weights,
            epochs=epochs,
            trials=trials,
            workers=workers,
        )
        found = _run(find_entries(table, row), wish, quiet=json_)
        report(found, wish, json_=json_)

    run.__doc__ = f"""Run {table}: {what}.

    What was trained before under --out is not trained again, nor for another table.

    Example:

        cosen reproduce {table} --data-root ~/data --weights vgg16.pth
    """
    reproduce_app.command(table, short_help=what)(run)


for _table, _what in TABLE_WORDS.items():
    _add_table(_table, _what)


def _names(text: str | None) -> tuple[str, ...]:
    """The methods that a text with commas names."""
    from cosen.methods import METHODS

    if (text or "").strip() == "all":
        return tuple(name for name in METHODS if name != "fixed-costs")  # that needs a file
    return tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))


def _run(entries: "list[Entry]", wish: "Wish", *, quiet: bool) -> "Reproduced":
    from cosen.paper.reproduce import reproduce

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
