"""The ``cosen`` command: parses, calls, prints. Heavy imports happen inside the commands."""

import sys
from typing import Annotated

import typer

import cosen
from cosen.cli import compare, data, figures, networks, report, reproduce, train, tune, use

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
app.command()(report.report)
app.add_typer(figures.figures_app)
app.add_typer(reproduce.reproduce_app)
app.command()(tune.tune)
app.command()(use.evaluate)
app.command()(use.predict)
app.command()(use.export)
app.command()(networks.network)
app.command()(data.inspect)
app.command()(data.fetch)
app.command()(data.cache)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cosen {cosen.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Cost-sensitive deep learning for imbalanced image classification."""


def main() -> None:
    """Run the command; a user's mistake is one sentence on standard error, no traceback."""
    import logging

    from cosen.errors import CosenError

    logging.basicConfig(format="cosen: %(message)s", level=logging.WARNING)
    try:
        app()
    except CosenError as error:
        typer.echo(f"cosen: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(0)  # the reader, such as head, has had enough
