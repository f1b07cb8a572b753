"""Commands about methods: compare, methods."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosen.cli.data import Data, DataRoot, Exclude, Json
from cosen.cli.train import setting

if TYPE_CHECKING:
    from rich.console import Console

    from cosen.comparing.compare import Comparison, GridWatcher
    from cosen.comparing.jobs import Outcome

VALIDATION = 0.2
"""More than a single run holds out: the choice between methods rests on it too."""

WIDTH_IN_A_FILE = 120
"""Of the leaderboard where it is not printed on a terminal, unless COLUMNS says otherwise."""


def methods(json_: Json = False) -> None:
    """List the methods, what they do, and what a comparison includes by default."""
    from cosen.comparing.compare import DEFAULT_METHODS
    from cosen.methods import METHODS

    if json_:
        found = {name: method.description for name, method in METHODS.items()}
        typer.echo(json.dumps(found, indent=2))
        return
    names = {name: f"{name} *" if name in DEFAULT_METHODS else name for name in METHODS}
    width = max(map(len, names.values()))
    for name, method in METHODS.items():
        typer.echo(f"{names[name]:{width}}  {method.description}")
    typer.echo("* compared by cosen compare unless --methods says otherwise; all takes all.")


def compare(
    data: Data = "digits",
    methods: Annotated[
        str | None,
        typer.Option(help="Names with commas between, or all; module:Class is one of your own."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each method, each on its own split.")] = 3,
    out: Annotated[
        Path | None, typer.Option(help="The study folder; one that holds a study goes on with it.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None,
    objective: Annotated[
        str | None,
        typer.Option(help="balanced (each class counts the same), overall, or an expert's CSV."),
    ] = None,
    network: Annotated[str | None, typer.Option(help="A network's name, or auto.")] = None,
    weights: Annotated[str | None, typer.Option(help="A file of pre-trained weights.")] = None,
    size: Annotated[int | None, typer.Option(help="Pixels of a side.")] = None,
    split: Annotated[str | None, typer.Option(help="official, fraction:0.6, fold:1/3, ...")] = None,
    imbalance: Annotated[str | None, typer.Option(help="odd:0.1, longtail:100, ...")] = None,
    validation: Annotated[
        float | None,
        typer.Option(help=f"The share held out to choose by; {VALIDATION} if not set."),
    ] = None,
    augment: Annotated[str | None, typer.Option(help="crop,flip,colour,randaugment,mixup.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training set.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images in a batch.")] = None,
    lr: Annotated[float | None, typer.Option(help="The learning rate.")] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes at once; one a core if not set.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(help="Run on Ray: local, auto, or the address of a cluster."),
    ] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out images that do not decode.")
    ] = False,
    exclude: Exclude = None,
    data_root: DataRoot = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, lr=0.1; of a method, smote.neighbours=3."),
    ] = None,
    json_: Json = False,
) -> None:
    """Compare methods on your data: same splits, network, seeds and budget.

    Prints a leaderboard, and in one sentence which method to take. The choice rests on validation
    images; the leaderboard shows test images, which have no part in it. Run again, it goes on where
    it stopped, and may be given more methods or seeds.

    Examples:

        cosen compare photos/

        cosen compare digits --imbalance odd:0.1 --seeds 5

        cosen compare photos/ --weights vgg16.pth --methods all --objective costs.csv

        cosen compare photos/ --methods cosen,smote --set smote.neighbours=3 --set epochs=50
    """
    from cosen.cli.modules import find_modules_here
    from cosen.comparing.compare import DEFAULT_METHODS
    from cosen.comparing.compare import compare as run_comparison
    from cosen.training.config import make_config, read_config

    find_modules_here()
    given: dict[str, Any] = {
        "data": data,
        "network": network,
        "weights": weights,
        "size": size,
        "split": split,
        "imbalance": imbalance,
        "validation": validation,
        "augment": augment,
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "seed": seed,
        "device": device,
        "skip_broken": skip_broken or None,
        "exclude": tuple(exclude) if exclude else None,
        "data_root": str(data_root) if data_root else None,
    }
    if objective is not None:
        given["expert" if objective.lower().endswith(".csv") else "objective"] = objective
    given = {name: value for name, value in given.items() if value is not None}
    names = DEFAULT_METHODS if methods is None else _names(methods)
    shared, options = _sorted_out([setting(text) for text in set_ or []])
    base = {"validation": VALIDATION}
    settings = make_config(base | (read_config(config) if config else {}))
    settings = make_config(given | shared, base=settings)
    folder = out or Path("studies") / Path(settings.data.replace(":", "-")).resolve().stem
    try:
        with watched_grid(quiet=json_) as watcher:
            comparison = run_comparison(
                settings,
                folder,
                methods=names,
                options=options,
                seeds=seeds,
                workers=workers,
                cluster=cluster,
                watcher=watcher,
            )
    except KeyboardInterrupt:  # out here, where the bars are gone and take no words along
        typer.echo(
            f"\nStopped; finished runs and epochs are kept in {folder}.\n"
            "Go on with the same command.",
            err=True,
        )
        sys.exit(130)
    _report(comparison, json_=json_)


def _names(text: str) -> tuple[str, ...]:
    """The methods that a text with commas names."""
    from cosen.methods import METHODS

    if text.strip() == "all":
        return tuple(name for name in METHODS if name != "fixed-costs")  # that needs a file
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def _sorted_out(
    pairs: Sequence[tuple[str, str]],
) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Settings that all runs share, and options by method."""
    from cosen.errors import InputError
    from cosen.training.config import plain_value

    shared: dict[str, str] = {}
    options: dict[str, dict[str, Any]] = {}
    for name, value in pairs:
        method, dot, option = name.rpartition(".")
        if method == "options":
            raise InputError(f"say whose option it is: --set METHOD.{option}={value}")
        if name in ("method", "seed"):
            raise InputError(f"{name} varies in a comparison: use --methods and --seeds")
        if dot and method != "network_options":
            options.setdefault(method, {})[option] = plain_value(value)
        else:
            shared[name] = value
    return shared, options


def _report(comparison: "Comparison", *, json_: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from cosen.comparing.leaderboard_table import leaderboard_table

    board, choice = comparison.leaderboard, comparison.choice
    if json_:
        found: Mapping[str, Any] = {
            "study": str(comparison.folder.path),
            "choice": choice.as_json(),
            "leaderboard": board.as_json(),
        }
        typer.echo(json.dumps(found, indent=2))
        return
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH_IN_A_FILE
    console.print(leaderboard_table(board, width=console.width))
    console.print()
    console.print(Text(" ".join([choice.sentence, *choice.caveats])))
    for row in board.rows:
        folders = [comparison.folder.run(row.method, seed).path for seed in row.failures]
        traces = [folder / "traceback.txt" for folder in folders]
        for trace in [trace for trace in traces if trace.exists()][:1]:
            console.print(Text(f"Where {row.method} failed is in {trace}"), soft_wrap=True)
    console.print(Text(f"Everything is in {comparison.folder.path}"), soft_wrap=True)


@contextmanager
def watched_grid(*, quiet: bool) -> Iterator["GridWatcher"]:
    """A bar over the whole grid on a terminal, a line for each run elsewhere."""
    from rich.console import Console

    from cosen.comparing.compare import GridWatcher

    console = Console(stderr=True, highlight=False)
    with _notes_told_once(console):
        if quiet:
            yield GridWatcher()
        elif console.is_terminal:
            with _bars(console) as watcher:
                yield watcher
        else:
            yield _lines(console)


@contextmanager
def _notes_told_once(console: "Console") -> Iterator[None]:
    """What cosen logs goes above the bars, and once: each seed, and the first run, says it too."""
    import logging

    from rich.text import Text

    said: set[str] = set()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if not any(text == earlier or text.endswith(f": {earlier}") for earlier in said):
                said.add(text)
                console.print(Text(f"cosen: {text}"), soft_wrap=not console.is_terminal)

    log = logging.getLogger("cosen")
    before = log.handlers, log.propagate
    log.handlers, log.propagate = [Handler()], False
    try:
        yield
    finally:
        log.handlers, log.propagate = before


def _lines(console: "Console") -> "GridWatcher":
    from rich.text import Text

    from cosen.cli.progress import READING, occasional_lines
    from cosen.comparing.compare import GridWatcher

    runs = {"done": 0, "total": 0}

    def started(total: int, finished: int) -> None:
        runs.update(done=finished, total=total)
        before = f", {finished} of them finished before" if finished else ""
        console.print(f"{total} run{'s' * (total != 1)}{before}")

    def outcome(ended: "Outcome") -> None:
        if ended.reason is not None:
            console.print(Text(f"{ended.name} failed: {ended.reason}"), soft_wrap=True)
            return
        runs["done"] += 1
        console.print(Text(f"{ended.name} ({runs['done']} of {runs['total']})"), soft_wrap=True)

    preparing = occasional_lines(READING, console)
    return GridWatcher(preparing=preparing, started=started, outcome=outcome)


@contextmanager
def _bars(console: "Console") -> Iterator["GridWatcher"]:
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
    from rich.text import Text

    from cosen.cli.progress import READING
    from cosen.comparing.compare import GridWatcher

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        whole = bar.add_task(READING, total=None)
        running: dict[str, TaskID] = {}
        shares: dict[str, float] = {}
        runs = {"done": 0, "total": 0}

        def show() -> None:
            bar.update(
                whole,
                description=f"{runs['done']} of {runs['total']} runs",
                completed=runs["done"] + sum(shares.values()),
                total=runs["total"],
            )

        def started(total: int, finished: int) -> None:
            runs.update(done=finished, total=total)
            show()

        def progress(name: str, done: int, total: int) -> None:
            if name not in running:
                running[name] = bar.add_task(escape(name), total=total)
            bar.update(running[name], completed=done, total=total)
            shares[name] = done / max(1, total)
            show()

        def outcome(ended: "Outcome") -> None:
            if ended.name in running:
                bar.remove_task(running.pop(ended.name))
            shares.pop(ended.name, None)
            if ended.reason is None:
                runs["done"] += 1
            else:
                console.print(Text(f"{ended.name} failed: {ended.reason}"))
                runs["total"] -= runs["total"] > 0  # before the start it is not among them
            if runs["total"]:
                show()

        yield GridWatcher(
            preparing=lambda done, total: bar.update(whole, completed=done, total=total),
            started=started,
            progress=progress,
            outcome=outcome,
        )
