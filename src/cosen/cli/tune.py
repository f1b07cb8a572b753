"""The command that tunes: cross-validates the numbers of the paper's algorithm."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from cosen.cli.data import Data, DataRoot, Exclude, Json
from cosen.cli.train import setting


def tune(
    data: Data = "digits",
    out: Annotated[
        Path | None, typer.Option(help="The folder; one that holds a study goes on with it.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="A file of VGG-16's weights, for its features.")
    ] = None,
    trials: Annotated[int, typer.Option(help="Candidates in all, earlier ones included.")] = 30,
    folds: Annotated[int, typer.Option(help="Parts of the training images.")] = 3,
    epochs: Annotated[int, typer.Option(help="Passes over the training part of a fold.")] = 15,
    objective: Annotated[
        str | None, typer.Option(help="overall, balanced, or a CSV of an expert's costs.")
    ] = None,
    imbalance: Annotated[str | None, typer.Option(help="odd:0.1, longtail:100, ...")] = None,
    split: Annotated[str | None, typer.Option(help="official, fraction:0.6, fold:1/3, ...")] = None,
    seed: Annotated[int, typer.Option(help="Fixes split, folds, weights and search.")] = 0,
    exclude: Exclude = None,
    data_root: DataRoot = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting; options.acceptance=revert fixes that one."),
    ] = None,
    json_: Json = False,
) -> None:
    """Find the numbers of the paper's algorithm that suit the data, by cross-validation.

    It is the method cosen-paper that is tuned. The test images take no part. Run again, it goes on
    where it stopped; use what it found with cosen train DATA --config OUT/tuned.toml.

    Examples:

        cosen tune photos/ --weights vgg16.pth --objective balanced

        cosen tune mnist --imbalance odd:0.1 --trials 60 --folds 5 --out runs/tuned

        cosen tune photos/ --set options.acceptance=revert --set lr=0.02
    """
    from cosen.training.config import make_config
    from cosen.training.tuning import tune as run_tuning

    given: dict[str, Any] = {
        "data": data,
        "weights": weights,
        "imbalance": imbalance,
        "split": split,
        "epochs": epochs,
        "seed": seed,
        "exclude": tuple(exclude) if exclude else None,
        "data_root": str(data_root) if data_root else None,
    }
    if objective is not None:
        given["expert" if objective.lower().endswith(".csv") else "objective"] = objective
    settings = make_config({name: value for name, value in given.items() if value is not None})
    settings = make_config(dict(setting(text) for text in set_ or []), base=settings)
    name = Path(settings.data.replace(":", "-")).stem
    folder = out or Path("runs") / f"{name}-tune-{settings.seed}"
    with _watched(quiet=json_) as progress:
        try:
            tuned = run_tuning(settings, folder, trials=trials, folds=folds, progress=progress)
        except KeyboardInterrupt:
            typer.echo(
                f"\nStopped; the trials that were over are kept in {folder}.\n"
                "Go on with the same command.",
                err=True,
            )
            sys.exit(130)
    if json_:
        typer.echo(json.dumps(tuned.as_json(), indent=2))
        return
    typer.echo(tuned.sentence())
    same = {"weights": weights, "split": split, "imbalance": imbalance, "seed": seed or None}
    flags = "".join(f" --{name} {value}" for name, value in same.items() if value is not None)
    typer.echo(f"Use it with: cosen train {settings.data}{flags} --config {tuned.path}")


@contextmanager
def _watched(*, quiet: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """A bar that names what is being done; None where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TimeRemainingColumn

    from cosen.cli.progress import READING

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = ("{task.description}", BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(READING, total=None)
        yield lambda title, done, total: bar.update(
            task, description=title, completed=done, total=total
        )
