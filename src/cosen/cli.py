"""The ``cosen`` command: parses, calls, prints. Heavy imports happen inside the commands."""

import sys
from typing import Annotated

import typer

import cosen

app = typer.Typer(
    name="cosen",
    help="Cost-sensitive deep learning for imbalanced image classification.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cosen {cosen.__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """What holds for every command."""


def main() -> None:
    """Run the command; a user's mistake is one sentence on standard error, no traceback."""
    from cosen.errors import CosenError

    try:
        app()
    except CosenError as error:
        typer.echo(f"cosen: {error}", err=True)
        sys.exit(1)
