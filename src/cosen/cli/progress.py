"""Progress: a bar on a terminal, in a log a line now and then, or silence."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

READING = "Reading images"
"""What comes first in most commands: decoding images, and computing features of them."""

SECONDS_BETWEEN_LINES = 60.0
"""In a log; what is over earlier is not told at all."""


@contextmanager
def progress_bar(title: str, *, quiet: bool = False) -> Iterator[Callable[[int, int], None] | None]:
    """A function to be told how many of how many are done; None where nobody watches."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def occasional_lines(title: str, console: "Console") -> Callable[[int, int], None]:
    """A function to be told how many of how many are done, for a log, where no bar can move."""
    before = time.monotonic()

    def told(done: int, total: int) -> None:
        nonlocal before
        now = time.monotonic()
        if now - before >= SECONDS_BETWEEN_LINES:
            before = now
            console.print(f"{title}: {done} of {total}", soft_wrap=True)

    return told
