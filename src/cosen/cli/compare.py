"""Commands about methods: compare, methods."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosen.cli import options
from cosen.cli.display import Display

if TYPE_CHECKING:
    from cosen import Study

WIDTH_OF_FILES = 120
"""Width of a leaderboard that is not printed on a terminal, unless COLUMNS is set."""


def methods(json_: options.Json = False) -> None:
    """List the methods."""
    from cosen.comparing.grid import DEFAULT_METHODS
    from cosen.methods import METHODS

    if json_:
        found = {name: method.description for name, method in METHODS.items()}
        typer.echo(json.dumps(found, indent=2))
        return
    names = {name: f"{name} *" if name in DEFAULT_METHODS else name for name in METHODS}
    width = max(map(len, names.values()))
    for name, method in METHODS.items():
        typer.echo(f"{names[name]:{width}}  {method.description}")
    typer.echo("* compared by default")


def compare(
    data: options.Data = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help='Comma-separated: "cosen,cosen(margin=4),my_module:MyMethod"; or all. '
            "Default: those marked in cosen methods."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs per method, each with its own split.")] = 3,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Study folder; default: studies/NAME. Continues an existing study.",
            parser=options.parse_out,
        ),
    ] = None,
    config: options.ConfigFile = None,
    objective: options.Objective = None,
    network: options.Network = None,
    weights: options.Weights = None,
    finetune: options.Finetune = None,
    size: options.Size = None,
    split: options.Split = None,
    imbalance: options.Imbalance = None,
    validation: Annotated[
        float | None, typer.Option(help="Share of training images for validation; default: 0.2.")
    ] = None,
    augment: options.Augment = None,
    epochs: options.Epochs = None,
    batch_size: options.BatchSize = None,
    lr: options.Lr = None,
    seed: Annotated[int | None, typer.Option(help="The first seed; default: 0.")] = None,
    device: options.Device = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes at a time; default: one per core.")
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(help="Run on Ray: local, auto, or the address of a cluster.")
    ] = None,
    skip_broken: options.SkipBroken = False,
    exclude: options.Exclude = None,
    data_root: options.DataRoot = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting: clip=1; of a method: smote.neighbours=3."),
    ] = None,
    json_: options.Json = False,
) -> None:
    """Compare methods with the same splits, network, seeds and settings.

    Prints a leaderboard and recommends a method. The recommendation uses validation images only;
    the leaderboard shows test images. Run the same command again to continue, or with more
    methods or seeds to add them.

    Examples:

        cosen compare photos/

        cosen compare digits --imbalance odd:0.1 --seeds 5

        cosen compare photos/ --methods all --objective costs.csv

        cosen compare photos/ --methods "cosen,cosen(margin=4,tau=1)" --set epochs=50
    """
    import cosen
    from cosen.api import STUDY_VALIDATION
    from cosen.comparing.grid import DEFAULT_METHODS
    from cosen.errors import RunError
    from cosen.training.config import make_config, read_config

    wanted = DEFAULT_METHODS if methods is None else split_methods(methods)
    shared, method_options = _split_settings(options.parse_set(set_))
    settings = options.given(
        data=data,
        objective=objective,
        network=network,
        weights=weights,
        finetune=finetune,
        size=size,
        split=split,
        imbalance=imbalance,
        validation=validation,
        augment=augment,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        device=device,
        skip_broken=skip_broken,
        exclude=exclude,
        data_root=data_root,
    )
    base = {"validation": STUDY_VALIDATION} | (read_config(config) if config else {})
    study_config = make_config(settings | shared, base=make_config(base))
    options.find_modules_here(*wanted, study_config.network)
    with Display(
        quiet=json_,
        interrupted="Stopped. Finished runs and epochs are kept; run the same command to resume.",
    ) as display:
        study = cosen.compare(
            config=study_config,
            methods=wanted,
            options=method_options,
            seeds=seeds,
            out=out,
            workers=workers,
            cluster=cluster,
            callbacks=display.compare_callbacks(),
        )
    if json_:
        found = {
            "study": str(study.path),
            "choice": study.choice.model_dump(mode="json"),
            "leaderboard": study.leaderboard.model_dump(mode="json"),
        }
        typer.echo(json.dumps(found, indent=2))
    else:
        _print_study(study)
    if failed := display.failed_runs:
        shown = ", ".join(failed[:3]) + (", ..." if len(failed) > 3 else "")
        raise RunError(
            f"the study is not complete: {len(failed)} of its runs failed ({shown}); run the same "
            "command again to repeat them"
        )


def split_methods(text: str) -> tuple[str, ...]:
    """Split at commas outside parentheses; ``all`` gives all methods.

    Example:
        >>> split_methods("cosen, cosen(margin=4,tau=1)")
        ('cosen', 'cosen(margin=4,tau=1)')
    """
    from cosen.methods import METHODS

    if text.strip() == "all":
        return tuple(name for name in METHODS if name != "fixed-costs")  # it needs a file
    names = (name.strip() for name in re.split(r",(?![^()]*\))", text))
    return tuple(dict.fromkeys(name for name in names if name))


def _split_settings(
    settings: Mapping[str, str],
) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return settings that all runs share, and options by method."""
    from cosen.errors import InputError
    from cosen.methods import plain_value

    shared: dict[str, str] = {}
    by_method: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        method, dot, option = name.rpartition(".")
        if method == "options":
            raise InputError(f"options.{option} names no method: use --set METHOD.{option}={value}")
        if name in ("method", "seed"):
            raise InputError(f"{name} differs between runs: use --methods and --seeds")
        if dot and method != "network_options":
            by_method.setdefault(method, {})[option] = plain_value(value)
        else:
            shared[name] = value
    return shared, by_method


def _print_study(study: "Study") -> None:
    from rich.console import Console
    from rich.text import Text

    from cosen.comparing.leaderboard_table import leaderboard_table

    board, choice = study.leaderboard, study.choice
    console = Console(highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH_OF_FILES
    console.print(leaderboard_table(board, width=console.width))
    console.print()
    console.print(Text(" ".join([choice.sentence, *choice.caveats])))
    for row in board.rows:
        folders = (study.folder.run(row.method, seed).path for seed in row.failures)
        traces = [
            path for path in (folder / "traceback.txt" for folder in folders) if path.exists()
        ]
        if traces:
            typer.echo(f"Traceback of {row.method}: {traces[0]}")
    typer.echo(f"The study is in {study.path}")
