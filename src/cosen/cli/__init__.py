"""The commands: parse options, call the public functions, print. Heavy imports are inside them."""

from typing import Annotated

import typer

import cosen
from cosen.cli import compare, data, models, networks, train

app = typer.Typer(
    name="cosen",
    help="Cost-sensitive deep learning for imbalanced image classification.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(train.train)
app.command()(compare.compare)
app.command()(compare.methods)
app.command()(models.report)
app.command()(train.tune)
app.command()(models.evaluate)
app.command()(models.predict)
app.command()(models.serve)
app.command()(models.export)
app.command()(networks.network)
app.command()(data.inspect)
app.command()(data.fetch)
app.command()(data.cache)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cosen {cosen.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Cost-sensitive deep learning for imbalanced image classification."""
