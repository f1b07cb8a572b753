"""The ``cosen`` command and ``python -m cosen``: the commands of cli/ and paper/."""

import sys

import typer

from cosen.cli import app
from cosen.paper.figures_command import figures_app
from cosen.paper.reproduce_command import reproduce_app

app.add_typer(figures_app)
app.add_typer(reproduce_app)


def main() -> None:
    """Run the command; print errors of cosen as one message, without a traceback."""
    import logging

    from cosen.errors import CosenError

    logging.basicConfig(format="cosen: %(message)s", level=logging.WARNING)
    try:
        app()
    except CosenError as error:
        typer.echo(f"cosen: {error}", err=True)
        sys.exit(1)
    except BrokenPipeError:
        sys.exit(0)  # the reader, such as head, has closed the pipe


if __name__ == "__main__":
    main()
