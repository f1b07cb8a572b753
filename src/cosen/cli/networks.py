"""The command about networks."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosen.cli.data import Json

if TYPE_CHECKING:
    from rich.console import Console

    from cosen.networks.summary import LayerRow


def network(
    name: Annotated[
        str | None, typer.Argument(help="The network to show; all are listed without one.")
    ] = None,
    classes: Annotated[int, typer.Option("--classes", help="How many classes.")] = 10,
    size: Annotated[
        int | None, typer.Option("--size", help="Height and width of the images in pixels.")
    ] = None,
    channels: Annotated[int, typer.Option("--channels", help="1 for grey images, 3 for RGB.")] = 3,
    features: Annotated[
        int, typer.Option("--features", help="Width of the features that head takes.")
    ] = 512,
    reading: Annotated[
        str | None,
        typer.Option("--reading", help="Of the paper's network: whole-vgg or two-extra."),
    ] = None,
    json_: Json = False,
) -> None:
    """Show the layers of a network and how many parameters it has.

    Examples:

        cosen network

        cosen network paper --reading two-extra

        cosen network resnet32 --classes 100 --json
    """
    import torch
    from rich.console import Console

    from cosen.networks import NETWORKS, build_network, find_network
    from cosen.networks.paper import PAPER_PARAMETERS
    from cosen.networks.summary import layer_table, table_totals

    if name is None:
        if json_:
            described = {known: entry.description for known, entry in NETWORKS.items()}
            typer.echo(json.dumps(described, indent=2))
        else:
            for known, entry in NETWORKS.items():
                typer.echo(f"{known:10} {entry.description}")
        return

    entry = find_network(name)
    options: dict[str, Any] = {} if reading is None else {"reading": reading}
    shape: tuple[int, ...]
    if entry.image_size is None:
        shape = (features,)
        options["in_features"] = features
    else:
        side = entry.image_size if size is None else size
        shape = (channels, side, side)
    with torch.device("meta"):  # shapes without values: no memory, no time
        built = build_network(name, num_classes=classes, channels=channels, **options)
    rows = layer_table(built, shape)
    totals = table_totals(rows)
    paper = PAPER_PARAMETERS if name == "paper" else None
    if json_:
        plain: dict[str, Any] = {
            "name": name,
            "classes": classes,
            "input_shape": shape,
            **({"reading": built.reading} if paper else {}),
            "layers": [asdict(row) for row in rows],
            **asdict(totals),
            **({"paper_parameters": paper} if paper else {}),
        }
        typer.echo(json.dumps(plain, indent=2))
        return
    _print_layers(rows, shape, Console(highlight=False))
    line = f"{totals.weight_layers} weight layers, {totals.parameters:,} parameters"
    if paper:
        line += f" (the paper: 18 weight layers, about {paper // 10**6} million)"
    typer.echo(line)


def _print_layers(rows: "list[LayerRow]", shape: tuple[int, ...], console: "Console") -> None:
    from rich.table import Table

    table = Table("layer", "kind", box=None, pad_edge=False)
    table.add_column("output", justify="right")
    table.add_column("parameters", justify="right")
    table.add_row("", "input", _written(shape), "")
    for row in rows:
        parameters = f"{row.parameters:,}" if row.parameters else ""
        table.add_row(row.name, row.kind, _written(row.output_shape), parameters)
    console.print(table)


def _written(shape: tuple[int, ...] | None) -> str:
    return "did not run" if shape is None else " x ".join(str(side) for side in shape)
