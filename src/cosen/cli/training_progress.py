"""Watching a run: a line for each epoch that is over, and on a terminal a bar for the others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TimeRemainingColumn

from cosen.cli.progress import READING, occasional_lines
from cosen.training.loop import Watcher
from cosen.training.run_folder import EpochRecord

HEADER = "epoch     loss  val error  mean recall  rare recall  images/s"


@contextmanager
def watched(*, quiet: bool) -> Iterator[tuple[Watcher, Callable[[int, int], None] | None]]:
    """A watcher for training, and a function for what comes before; silent if nobody watches."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        yield Watcher(), None
    elif not console.is_terminal:
        lines = _EpochLines(console)
        watcher = Watcher(epoch=lines.epoch, phase=lines.phase)
        yield watcher, occasional_lines(READING, console)
    else:
        with _bar(console) as watcher_and_reading:
            yield watcher_and_reading


@contextmanager
def _bar(console: Console) -> Iterator[tuple[Watcher, Callable[[int, int], None]]]:
    lines = _EpochLines(console)
    columns = ("{task.description}", BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(READING, total=None)

        def advance(title: str) -> Callable[[int, int], None]:
            return lambda done, total: bar.update(
                task, description=title, completed=done, total=total
            )

        def epoch(record: EpochRecord) -> None:
            lines.epoch(record)
            bar.reset(task)

        yield (
            Watcher(batch=advance("Training"), epoch=epoch, phase=lines.phase),
            advance(READING),
        )


class _EpochLines:
    """Prints a line for each epoch, below a header for each phase."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.said_header = False
        self.cost_lr: float | None = None  # γ of the epoch before

    def epoch(self, record: EpochRecord) -> None:
        if not self.said_header:
            self._print(HEADER)
            self.said_header = True
        before, self.cost_lr = self.cost_lr, record.cost_lr
        is_slower = before is not None and self.cost_lr is not None and self.cost_lr < before
        self._print(
            f"{record.epoch:5d} {record.train_loss:8.4f} {100 * record.val_error:8.2f} % "
            f"{100 * record.mean_recall:10.2f} % {100 * record.rare_recall:10.2f} % "
            f"{record.images_per_second:9.0f}{'  best' if record.best else ''}"
            f"{'  costs slowed' if is_slower else ''}"
        )

    def phase(self, title: str) -> None:
        self._print(title)
        self.said_header, self.cost_lr = False, None

    def _print(self, line: str) -> None:
        self.console.print(line, soft_wrap=not self.console.is_terminal)
