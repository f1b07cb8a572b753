"""Commands about data: inspect, fetch, cache."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosen.cli.progress import progress_bar

if TYPE_CHECKING:
    from rich.console import Console

    from cosen.data.inspection import Inspection, Twins

Data = Annotated[
    str, typer.Argument(help="A folder of class folders, a CSV of path and label, or a name.")
]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", help="Where named datasets are (else COSEN_DATA)."),
]
Exclude = Annotated[list[str] | None, typer.Option("--exclude", help="A class to leave out.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for machines.")]


def inspect(
    data: Data = "digits", data_root: DataRoot = None, exclude: Exclude = None, json_: Json = False
) -> None:
    """Say what is in a dataset, and what to mend before training on it.

    Examples:

        cosen inspect photos/

        cosen inspect lesions.csv --exclude unknown

        cosen inspect mnist --data-root ~/data --json
    """
    from rich.console import Console

    from cosen.data.inspection import inspect_data
    from cosen.data.open import open_data

    found = open_data(data, root=data_root, exclude=tuple(exclude or ()))
    with progress_bar("Looking at images", quiet=json_) as progress:
        inspection = inspect_data(found, progress=progress)
    if json_:
        typer.echo(json.dumps(inspection.as_json(), indent=2))
    else:
        _print_inspection(inspection, Console(highlight=False, soft_wrap=True))


def _print_inspection(inspection: "Inspection", console: "Console") -> None:
    from rich.table import Table
    from rich.text import Text

    total = sum(sum(counts) for counts in inspection.counts.values())
    classes = len(inspection.class_names)
    what = f"files, {len(inspection.broken)} of them broken" if inspection.broken else "images"
    console.print(Text(f"{inspection.source}: {total} {what}, {classes} classes"))
    table = Table("class", box=None, pad_edge=False)
    for part in inspection.counts:
        table.add_column("images" if part == "all" else part, justify="right")
    for label, name in enumerate(inspection.class_names):
        table.add_row(Text(name), *(str(counts[label]) for counts in inspection.counts.values()))
    console.print(table)
    facts = [
        f"imbalance     largest class {inspection.imbalance_ratio:.1f} times the smallest; "
        f"as diverse as {inspection.effective_classes:.1f} equal classes",
        f"image sizes   {_sizes(inspection)}",
        f"twins         {len(inspection.twins)} contents stand more than once; "
        f"{len(inspection.leaks)} across splits, {len(inspection.conflicts)} across classes",
    ]
    if inspection.groups is not None:
        facts.append(f"groups        {inspection.groups}, kept whole in every split")
    for fact in facts:
        console.print(Text(fact))
    for title, found in (
        ("Across splits", inspection.leaks),
        ("Across classes", inspection.conflicts),
    ):
        _print_twins(title, found, console)
    if inspection.broken:
        console.print("Broken:")
        for name, reason in inspection.broken.items():
            console.print(Text(f"  {name}: {reason}"))
    for suggestion in inspection.suggestions:
        console.print(Text(f"- {suggestion}"))


def _print_twins(title: str, found: "tuple[Twins, ...]", console: "Console") -> None:
    from rich.text import Text

    most = 20

    if found:
        console.print(f"{title}:")
    for twins in found[:most]:
        console.print(Text("  " + " = ".join(twins.names)))
    if len(found) > most:
        console.print(f"  and {len(found) - most} more (all with --json)")


def _sizes(inspection: "Inspection") -> str:
    if inspection.num_sizes == 1:
        (width, height), _ = inspection.sizes[0]
        return f"all {width} x {height}"
    low, high = inspection.size_range
    shown = ", ".join(f"{width} x {height} ({n})" for (width, height), n in inspection.sizes)
    return f"{inspection.num_sizes} sizes, sides {low} to {high}; commonest {shown}"


def fetch(
    name: Annotated[
        str, typer.Argument(help="mnist, fashion-mnist, cifar10, cifar100, caltech101.")
    ],
    data_root: DataRoot = None,
) -> None:
    """Download a dataset, check it, and put it where the other commands find it.

    Examples:

        cosen fetch mnist

        cosen fetch caltech101 --data-root ~/data
    """
    from cosen.data.fetch import fetch as download
    from cosen.data.named import data_root as default_root

    root = data_root or default_root()
    with progress_bar(f"Fetching {name}") as progress:
        download(
            name,
            root,
            progress=progress and (lambda _, come, expected: progress(come, expected or come)),
        )
    typer.echo(f"{name} is under {root}")


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove everything in it.")] = False,
    json_: Json = False,
) -> None:
    """Show what is kept of decoded images and features, or clear it.

    Its place is COSEN_CACHE (else ~/.cache/cosen), its bound COSEN_CACHE_BYTES (else 20 GiB).

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
        f"{total / 2**20:10.1f} MiB in {len(entries)} entries under {folder.root}, "
        f"at most {folder.bound / 2**30:.0f} GiB"
    )
