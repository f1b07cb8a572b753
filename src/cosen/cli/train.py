"""Commands that train: train."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosen.cli.data import DataRoot, Exclude, Json

if TYPE_CHECKING:
    from rich.console import Console

    from cosen.training.run_folder import RunFolder


def train(
    data: Annotated[
        str | None,
        typer.Argument(
            help="A folder of class folders, a CSV of path and label, or a name; else digits.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with the run in this folder; nothing else counts.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings.")] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="A finished baseline, for methods that start from one.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="A method's name; cosen methods lists them.")
    ] = None,
    network: Annotated[str | None, typer.Option(help="A network's name, or auto.")] = None,
    weights: Annotated[str | None, typer.Option(help="A file of pre-trained weights.")] = None,
    size: Annotated[int | None, typer.Option(help="Pixels of a side.")] = None,
    split: Annotated[str | None, typer.Option(help="official, fraction:0.6, fold:1/3, ...")] = None,
    imbalance: Annotated[str | None, typer.Option(help="odd:0.1, longtail:100, ...")] = None,
    objective: Annotated[str | None, typer.Option(help="overall or balanced.")] = None,
    augment: Annotated[str | None, typer.Option(help="crop,flip,colour,randaugment,mixup.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training set.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images in a batch.")] = None,
    lr: Annotated[float | None, typer.Option(help="The learning rate.")] = None,
    patience: Annotated[int | None, typer.Option(help="Epochs to wait for improvement.")] = None,
    seed: Annotated[int | None, typer.Option(help="Fixes split, weights and order.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")] = None,
    devices: Annotated[int | None, typer.Option(help="Processes, one a device.")] = None,
    skip_broken: Annotated[
        bool, typer.Option("--skip-broken", help="Leave out images that do not decode.")
    ] = False,
    exclude: Exclude = None,
    data_root: DataRoot = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other setting, name=value; options.cost_lr=0.2."),
    ] = None,
    json_: Json = False,
) -> None:
    """Train on images, and say what the test set says of it.

    Examples:

        cosen train photos/

        cosen train mnist --imbalance odd:0.1 --method cosen --epochs 6 --out runs/mnist

        cosen train --resume runs/mnist

        cosen train photos/ --config settings.toml --set options.acceptance=revert
    """
    from cosen.cli.modules import find_modules_here
    from cosen.errors import InputError
    from cosen.training.config import TrainConfig, make_config, read_config
    from cosen.training.run import train as run_training

    find_modules_here()
    given: dict[str, Any] = {
        "data": data,
        "method": method,
        "network": network,
        "weights": weights,
        "size": size,
        "split": split,
        "imbalance": imbalance,
        "objective": objective,
        "augment": augment,
        "epochs": epochs,
        "batch_size": batch_size,
        "lr": lr,
        "patience": patience,
        "seed": seed,
        "device": device,
        "devices": devices,
        "skip_broken": skip_broken or None,
        "exclude": tuple(exclude) if exclude else None,
        "data_root": str(data_root) if data_root else None,
    }
    given = {name: value for name, value in given.items() if value is not None}
    given |= dict(setting(text) for text in set_ or [])
    if resume is not None:
        flags = {"out": out, "config": config, "baseline": baseline}
        extra = [*given, *(name for name, value in flags.items() if value)]
        if extra:
            raise InputError(
                f"--resume goes on as the run was started: leave out {', '.join(extra)}"
            )
        settings, folder = TrainConfig(), resume
    else:
        settings = make_config(read_config(config) if config else {})
        settings = make_config(given, base=settings)
        folder = out or _free_folder(settings.data, settings.method, settings.seed)
    with _watched(json_) as (watcher, progress):
        try:
            run = run_training(
                settings,
                folder,
                resume=resume is not None,
                baseline=baseline,
                watcher=watcher,
                progress=progress,
            )
        except KeyboardInterrupt:
            typer.echo(
                f"\nStopped; the epochs that were over are saved.\n"
                f"Go on with: cosen train --resume {folder}",
                err=True,
            )
            sys.exit(130)
    if _is_first_process():
        report(run, json_=json_)


def report(run: "RunFolder", *, json_: bool, metrics: dict[str, Any] | None = None) -> None:
    """Print what the test set says, as stored or as given."""
    from rich.console import Console

    metrics = metrics or run.metrics()
    if json_:
        typer.echo(json.dumps({"run": str(run.path), **metrics}, indent=2))
    else:
        _print_metrics(run, metrics["test"], Console(highlight=False, soft_wrap=True))


def _print_metrics(run: "RunFolder", test: dict[str, Any], console: "Console") -> None:
    from rich.table import Table
    from rich.text import Text

    about = run.about()
    table = Table("class", box=None, pad_edge=False)
    for title in ("trained on", "tested on", "recall", "precision"):
        table.add_column(title, justify="right")
    counts = about["class_counts"]
    order = sorted(range(len(about["class_names"])), key=lambda label: counts["train"][label])
    for label in order:
        recall = test["class_recall"][label]
        table.add_row(
            Text(about["class_names"][label]),
            str(counts["train"][label]),
            str(counts["test"][label]),
            "-" if recall is None else f"{100 * recall:.1f}",
            f"{100 * test['class_precision'][label]:.1f}",
        )
    console.print(table)
    rare = "-" if test["rare_recall"] is None else f"{100 * test['rare_recall']:.2f} %"
    console.print(
        f"accuracy {100 * test['accuracy']:.2f} %, mean recall {100 * test['mean_recall']:.2f} %, "
        f"rarest third {rare}, error {100 * test['error']:.2f} %, on {test['samples']} test images"
    )
    untested = [about["class_names"][label] for label in order if not counts["test"][label]]
    if untested:
        names = ", ".join(map(repr, untested))
        console.print(Text(f"No test image of {names}: recall is unknown there, and left out."))
    console.print(Text(f"Everything is in {run.path}"))


def setting(text: str) -> tuple[str, str]:
    """The name and the value in a ``--set name=value``."""
    from cosen.errors import InputError

    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set takes name=value, but was given {text!r}")
    return name, value


def _free_folder(data: str, method: str, seed: int) -> Path:
    """A folder below ``runs`` that is not there yet."""
    import os

    from cosen.errors import InputError

    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise InputError("name the run folder with --out, so that all processes use the same")
    if "COSEN_OUT" in os.environ:  # this process was started by the first one
        return Path(os.environ["COSEN_OUT"])
    base = f"{Path(data.replace(':', '-')).stem}-{method.replace(':', '-')}-{seed}"
    folder, number = Path("runs") / base, 2
    while folder.exists():
        folder, number = Path("runs") / f"{base}-{number}", number + 1
    os.environ["COSEN_OUT"] = str(folder)
    return folder


def _is_first_process() -> bool:
    import os

    return os.environ.get("LOCAL_RANK", "0") == "0" and os.environ.get("RANK", "0") == "0"


def _watched(quiet: bool) -> Any:
    from cosen.cli.training_progress import watched

    return watched(quiet=quiet or not _is_first_process())
