"""Tables without lines, for the terminal."""

from typing import Any


def plain_table(*headings: str, right_from: int) -> Any:
    """A table without lines; columns from ``right_from`` on are numbers."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number >= right_from else "left")
    return table
