"""What commands show: progress and warnings on standard error, tables on standard output."""

import logging
import sys
import time
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import typer

from cosen.errors import escape_controls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.progress import TaskID
    from rich.table import Table

    from cosen.comparing.grid import CompareCallbacks
    from cosen.comparing.jobs import Outcome
    from cosen.training.loop import Callbacks
    from cosen.training.records import EpochRecord, Metrics

READING = "Reading images"

SECONDS_BETWEEN_LINES = 60.0
"""Time between two progress lines in a log."""

HEADER = "epoch     loss  val error  mean recall  rare recall  images/s"


class Display:
    """Progress: bars on a terminal, lines in a log, nothing if quiet.

    While it is open, it prints each warning of cosen once, above the bars.

    Args:
        title: Title of the first progress bar.
        quiet: Show no progress, only warnings.
        interrupted: Message after Ctrl-C. The command then exits with code 130.
    """

    def __init__(
        self, title: str = READING, *, quiet: bool = False, interrupted: str | None = None
    ) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self.console = Console(stderr=True, highlight=False)
        self.title, self.quiet, self.interrupted = title, quiet, interrupted
        self._bars: Progress | None = None
        if self.console.is_terminal and not quiet:
            text = TextColumn("{task.description}", markup=False)
            columns = (text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
            self._bars = Progress(*columns, console=self.console, transient=True)
        self._tasks: dict[str, tuple[TaskID, int | None]] = {}  # by name, with their totals
        self._last_line = time.monotonic()
        self.failed_runs: list[str] = []  # of a comparison

    def __enter__(self) -> Self:
        log = logging.getLogger("cosen")
        self._logging = log.handlers, log.propagate
        log.handlers, log.propagate = [_EachWarningOnce(self.console)], False
        if self._bars is not None:
            self._bars.start()
            self.bar(self.title, 0, None)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
        log = logging.getLogger("cosen")
        log.handlers, log.propagate = self._logging
        if kind is KeyboardInterrupt and self.interrupted is not None:
            typer.echo(f"\n{self.interrupted}", err=True)
            sys.exit(130)

    def line(self, text: str) -> None:
        """Print a line above the bars."""
        if not self.quiet:
            _print(self.console, text)

    def progress(self, title: str, done: int, total: int) -> None:
        """Move the bar; in a log, print a line about once a minute."""
        self.bar(title, done, total)
        now = time.monotonic()
        if self._bars is None and now - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = now
            self.line(f"{title}: {done} of {total}")

    def bar(self, title: str, done: float, total: int | None, *, name: str = "") -> None:
        """Move the main bar, or one with a name; a log shows nothing."""
        if self._bars is None:
            return
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(title, total=total), total
        task, known = self._tasks[name]
        if total != known:  # another unit is counted: estimate the time again
            self._bars.reset(task, total=total)
            self._tasks[name] = task, total
        self._bars.update(task, description=title, completed=done, total=total)

    def remove_bar(self, name: str) -> None:
        """Remove a bar, if there is one with this name."""
        task, _ = self._tasks.pop(name, (None, None))
        if self._bars is not None and task is not None:
            self._bars.remove_task(task)

    def callbacks(self) -> "Callbacks":
        """Return callbacks for training: a line per epoch and, on a terminal, a bar."""
        from cosen.training.loop import Callbacks

        table = _EpochTable(self)
        return Callbacks(
            reading=partial(self.progress, READING),
            batch=partial(self.bar, "Training"),
            epoch=table.epoch,
            phase=table.phase,
        )

    def compare_callbacks(self) -> "CompareCallbacks":
        """Return callbacks for comparing: bars for all runs and for each, or a line per run."""
        from cosen.comparing.grid import CompareCallbacks

        runs = _RunCounter(self)
        return CompareCallbacks(
            reading=partial(self.progress, READING),
            started=runs.started,
            progress=runs.progress,
            outcome=runs.outcome,
            phase=self.line,
        )

    @property
    def has_bars(self) -> bool:
        """Whether bars show the progress and lines are not needed."""
        return self._bars is not None


class _EachWarningOnce(logging.Handler):
    """Prints warnings above the bars. Runs of a comparison repeat them, with their names."""

    def __init__(self, console: "Console") -> None:
        super().__init__()
        self.console = console
        self.seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if not any(text == earlier or text.endswith(f": {earlier}") for earlier in self.seen):
            self.seen.add(text)
            _print(self.console, f"cosen: {text}")


class _EpochTable:
    """Prints a line per epoch, with a header per phase."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.has_header = False
        self.cost_lr: float | None = None  # γ of the epoch before

    def epoch(self, record: "EpochRecord") -> None:
        if not self.has_header:
            self.display.line(HEADER)
            self.has_header = True
        before, self.cost_lr = self.cost_lr, record.cost_lr
        is_slower = before is not None and self.cost_lr is not None and self.cost_lr < before
        self.display.line(
            f"{record.epoch:5d} {record.train_loss:8.4f} {percent(record.val_error):>10} "
            f"{percent(record.mean_recall):>12} {percent(record.rare_recall):>12} "
            f"{record.images_per_second:9.0f}{'  best' if record.best else ''}"
            f"{'  costs slowed' if is_slower else ''}"
        )

    def phase(self, title: str) -> None:
        self.display.line(title)
        self.has_header, self.cost_lr = False, None


class _RunCounter:
    """Counts the runs of a comparison that have ended."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.ended, self.total = 0, 0
        self.shares: dict[str, float] = {}  # of runs that are training

    def started(self, total: int, finished: int) -> None:
        self.ended, self.total = finished, total
        if not self.display.has_bars:
            before = f", {finished} already finished" if finished else ""
            self.display.line(f"{total} run{'s' * (total != 1)}{before}")
        self._show()

    def progress(self, name: str, done: int, total: int) -> None:
        self.shares[name] = done / max(1, total)
        self.display.bar(name, done, total, name=name)
        self._show()

    def outcome(self, outcome: "Outcome") -> None:
        self.display.remove_bar(outcome.name)
        self.shares.pop(outcome.name, None)
        if self.total:  # else the method does not support this data, and the run is not counted
            self.ended += 1
            self.display.failed_runs += [outcome.name] * (outcome.reason is not None)
        if outcome.reason is not None:
            self.display.line(f"{outcome.name} failed: {outcome.reason}")
        elif not self.display.has_bars:
            self.display.line(f"{outcome.name} ({self.ended} of {self.total})")
        self._show()

    def _show(self) -> None:
        if self.total:
            done = self.ended + sum(self.shares.values())
            self.display.bar(f"{self.ended} of {self.total} runs", done, self.total)


def plain_table(*headings: str, right_from: int) -> "Table":
    """Return a table without lines; columns from ``right_from`` on are aligned to the right."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number >= right_from else "left")
    return table


def print_metrics(metrics: "Metrics", class_names: "Sequence[str]", class_counts: Any) -> None:
    """Print recall and precision of each class, the rarest first, and a summary.

    Args:
        metrics: The metrics.
        class_names: Names of the classes.
        class_counts: Training images per class.
    """
    from rich.console import Console
    from rich.text import Text

    from cosen import functional as F

    console = Console(highlight=False, soft_wrap=True)
    trained = class_counts.tolist()
    tested = [int(count) for count in F.confusion_sums(metrics.counts).actual.tolist()]
    table = plain_table("class", "trained on", "tested on", "recall", "precision", right_from=1)
    order = sorted(range(len(class_names)), key=lambda label: trained[label])
    for label in order:
        table.add_row(
            Text(escape_controls(class_names[label])),
            str(trained[label]),
            str(tested[label]),
            percent(metrics.class_recall[label], digits=1, unit=""),
            percent(metrics.class_precision[label], digits=1, unit=""),
        )
    console.print(table)
    console.print(
        f"accuracy {percent(metrics.accuracy)}, mean recall {percent(metrics.mean_recall)}, "
        f"rarest third {percent(metrics.rare_recall)}, error {percent(metrics.error)}, "
        f"on {metrics.samples} images"
    )
    untested = ", ".join(repr(class_names[label]) for label in order if not tested[label])
    if untested:
        console.print(Text(f"No test images of {untested}: the means do not include them."))


def percent(share: float | None, *, digits: int = 2, unit: str = " %") -> str:
    """Return a share in per cent, or ``-`` if it is not defined.

    Example:
        >>> percent(0.25), percent(None)
        ('25.00 %', '-')
    """
    return "-" if share is None else f"{100 * share:.{digits}f}{unit}"


def _print(console: "Console", text: str) -> None:
    from rich.text import Text

    console.print(Text(escape_controls(text, keep="\n")), soft_wrap=not console.is_terminal)
