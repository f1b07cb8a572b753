"""The command that shows: report."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    path: Annotated[
        Path, typer.Argument(help="A run folder or a study folder.", show_default=False)
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; report.html in the folder if not set.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="A run of the same split to hold the run against.")
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Show a run or a study as one HTML file: which classes got better, which worse, and why.

    The file is complete: it opens from disk, without a network, on any machine.

    Examples:

        cosen report studies/photos

        cosen report runs/cosen --against runs/baseline --out report.html --open
    """
    from cosen.report import write_report

    place = write_report(path, out, against=against)
    typer.echo(f"The report is in {place} ({place.stat().st_size / 1e6:.1f} MB)")
    if open_:
        import webbrowser

        if not webbrowser.open(place.resolve().as_uri()):
            typer.echo("There is no browser here: open the file yourself", err=True)
