"""Commands about data: inspect, fetch, cache."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cosen.cli import options
from cosen.cli.display import READING, Display


def inspect(
    data: options.Data = None,
    data_root: options.DataRoot = None,
    exclude: options.Exclude = None,
    run: Annotated[
        Path | None,
        typer.Option(help="Run or study on this data: find wrong labels by its predictions."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for label-problems.csv and .html; default: that of --run."),
    ] = None,
    groups: Annotated[
        Path | None,
        typer.Option(help="Write a CSV to train on, which keeps near-duplicates in one split."),
    ] = None,
    json_: options.Json = False,
) -> None:
    """Summarise a dataset and list problems to fix.

    Examples:

        cosen inspect photos/

        cosen inspect photos/ --run runs/photos

        cosen inspect photos/ --groups photos.csv

        cosen inspect lesions.csv --exclude unknown

        cosen inspect mnist --data-root ~/data --json
    """
    import cosen
    from cosen.errors import InputError
    from cosen.report.label_page import CSV, PAGE

    if out is not None and run is None:
        raise InputError("--out is for label problems, which need a run: give --run")
    folder = out or run
    with Display(quiet=json_) as display:
        inspection = cosen.inspect(
            data or "digits",
            data_root=data_root,
            exclude=exclude or (),
            run=run,
            out=folder,
            groups=groups,
            progress=partial(display.progress, READING),
            quiet=True,
        )
    files = [] if folder is None else [str(folder / CSV), str(folder / PAGE)]
    files += [] if groups is None else [str(groups)]
    if json_:
        typer.echo(json.dumps({**inspection.as_json(), "files": files}, indent=2))
    else:
        typer.echo(str(inspection))
        if files:
            typer.echo(f"Wrote {' and '.join(files)}")


def fetch(
    name: Annotated[
        str, typer.Argument(help="mnist, fashion-mnist, cifar10, cifar100 or caltech101.")
    ],
    data_root: options.DataRoot = None,
) -> None:
    """Download a dataset.

    Examples:

        cosen fetch mnist

        cosen fetch caltech101 --data-root ~/data
    """
    from cosen.data.fetch import fetch as download
    from cosen.data.named import data_root as default_root

    root = data_root or default_root()
    with Display(f"Downloading {name}") as display:
        download(
            name,
            root,
            progress=lambda file, received, expected: display.progress(
                f"Downloading {file}", received, expected or received
            ),
        )
    typer.echo(f"{name} is in {root}")


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove everything.")] = False,
    json_: options.Json = False,
) -> None:
    """Show or clear the cache of decoded images and features.

    The cache is in COSEN_CACHE (default: ~/.cache/cosen) and uses at most COSEN_CACHE_BYTES
    (default: 20 GiB).

    Examples:

        cosen cache

        cosen cache --clear
    """
    from datetime import datetime

    from cosen.data.cache_folder import CacheFolder

    folder = CacheFolder()
    if clear:
        freed = folder.clear()
        typer.echo(json.dumps({"freed": freed}) if json_ else f"Freed {freed / 2**20:.1f} MiB.")
        return
    entries = folder.entries()
    if json_:
        rows = [
            {"kind": e.kind, "bytes": e.size, "used": e.used, "about": e.about} for e in entries
        ]
        plain = {"root": str(folder.root), "bound": folder.bound, "entries": rows}
        typer.echo(json.dumps(plain, indent=2))
        return
    for entry in reversed(entries):
        used = datetime.fromtimestamp(entry.used).strftime("%Y-%m-%d %H:%M")
        typer.echo(f"{entry.size / 2**20:10.1f} MiB  {used}  {entry.kind:8}  {entry.about}")
    total = sum(entry.size for entry in entries)
    typer.echo(
        f"{total / 2**20:10.1f} MiB in {len(entries)} entries in {folder.root}, "
        f"at most {folder.bound / 2**30:.0f} GiB"
    )
