"""The network command: list networks, and the layers of one."""

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer

from cosen.cli.display import plain_table
from cosen.cli.options import Json, Size


def network(
    name: Annotated[
        str | None,
        typer.Argument(
            help="Network, or a pattern to search timm; default: list the built-in ones.",
            show_default=False,
        ),
    ] = None,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 10,
    size: Size = None,
    channels: Annotated[int, typer.Option(help="1 for grey images, 3 for RGB.")] = 3,
    features: Annotated[int, typer.Option(help="Number of input features of head.")] = 512,
    reading: Annotated[
        str | None, typer.Option(help="Variant of the paper's network: whole-vgg or two-extra.")
    ] = None,
    json_: Json = False,
) -> None:
    """List the networks, search those of timm, or show the layers of one.

    Weights that are on this machine need no network access.

    Examples:

        cosen network

        cosen network 'vit*dino*'

        cosen network paper --reading two-extra

        cosen network resnet32 --classes 100 --json
    """
    import torch
    from rich.console import Console

    from cosen.networks import NETWORKS, build_network, find_network
    from cosen.networks.layer_table import layer_table, table_totals
    from cosen.networks.pretrained import EMBEDDED
    from cosen.networks.vgg import PAPER_PARAMETERS

    if name is None:
        described = {EMBEDDED: "EfficientNet-Lite0, pretrained, installed; the default for photos"}
        described |= {known: entry.description for known, entry in NETWORKS.items()}
        del described["linear"]  # chosen with --finetune none
        if json_:
            typer.echo(json.dumps(described, indent=2))
            return
        width = max(map(len, described))
        for known, description in described.items():
            typer.echo(f"{known:{width}}  {description}")
        typer.echo("All networks of timm can be used, too: cosen network 'resnet*'")
        return
    if "*" in name or "?" in name:
        _search(name, json_=json_)
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
        if entry.is_pretrained:
            options["size"] = (side, side)
    with torch.device("meta"):  # shapes only
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
    table = plain_table("layer", "kind", "output", "parameters", right_from=2)
    table.add_row("", "input", _shape_text(shape), "")
    for row in rows:
        parameters = f"{row.parameters:,}" if row.parameters else ""
        table.add_row(row.name, row.kind, _shape_text(row.output_shape), parameters)
    Console(highlight=False).print(table)
    line = f"{totals.weight_layers} weight layers, {totals.parameters:,} parameters"
    if paper:
        line += f" (the paper: 18 weight layers, about {paper // 10**6} million)"
    typer.echo(line)


def _search(pattern: str, *, json_: bool) -> None:
    """List the networks of timm that match a pattern, and which weights are on this machine."""
    from rich.console import Console

    from cosen.errors import InputError
    from cosen.networks.pretrained import has_weights, is_on_this_machine, search_timm

    found = {
        name: "on this machine"
        if is_on_this_machine(name)
        else ("on the hub" if has_weights(name) else "none")
        for name in search_timm(pattern)
    }
    if not found:
        raise InputError(f"timm has no network that matches {pattern!r}: try a shorter pattern")
    if json_:
        typer.echo(json.dumps({name: {"weights": where} for name, where in found.items()}))
        return
    table = plain_table("network", "weights", right_from=9)
    for name, where in found.items():
        table.add_row(name, where)
    Console(highlight=False).print(table)
    if "on this machine" not in found.values():
        typer.echo(
            "None of these weights are on this machine. They are downloaded when needed; without "
            "network access, give the file with --weights FILE."
        )


def _shape_text(shape: tuple[int, ...] | None) -> str:
    return "did not run" if shape is None else " x ".join(map(str, shape))
