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

    from cosen.errors import OUT_OF_MEMORY, CosenError, escape_controls, is_out_of_memory
    from cosen.memory import reuse_memory

    class Formatter(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return escape_controls(super().format(record), keep="\n")

    handler = logging.StreamHandler()
    handler.setFormatter(Formatter("cosen: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    reuse_memory()
    try:
        app()
    except BrokenPipeError:
        sys.exit(0)  # the reader, such as head, has closed the pipe
    except (CosenError, OSError, MemoryError, RuntimeError) as error:
        if isinstance(error, CosenError):
            text = str(error)
        elif is_out_of_memory(error):
            text = OUT_OF_MEMORY
        elif isinstance(error, OSError) and error.strerror and error.filename is not None:
            text = f"cannot use {error.filename}: {error.strerror}"
        else:
            raise
        typer.echo(f"cosen: {escape_controls(text, keep=chr(10))}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
