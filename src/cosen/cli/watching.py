"""Watching a run on a terminal: a bar for the epoch at work, a line for each that is over."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TimeRemainingColumn

from cosen.training.loop import Watcher
from cosen.training.run_folder import EpochRecord

HEADER = "epoch     loss  val error  mean recall  rare recall  images/s"


@contextmanager
def watched(*, quiet: bool) -> Iterator[tuple[Watcher, Callable[[int, int], None] | None]]:
    """A watcher for training, and a function for what comes before; silent if nobody watches."""
    console = Console(stderr=True, highlight=False)
    if quiet or not console.is_terminal:
        yield Watcher(), None
        return
    columns = ("{task.description}", BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("Reading images", total=None)
        said_header = False
        cost_lr: float | None = None  # γ of the epoch before

        def advance(title: str) -> Callable[[int, int], None]:
            return lambda done, total: bar.update(
                task, description=title, completed=done, total=total
            )

        def epoch(record: EpochRecord) -> None:
            nonlocal said_header, cost_lr
            if not said_header:
                console.print(HEADER)
                said_header = True
            before, cost_lr = cost_lr, record.cost_lr
            is_slower = before is not None and cost_lr is not None and cost_lr < before
            console.print(
                f"{record.epoch:5d} {record.train_loss:8.4f} {100 * record.val_error:8.2f} % "
                f"{100 * record.mean_recall:10.2f} % {100 * record.rare_recall:10.2f} % "
                f"{record.images_per_second:9.0f}{'  best' if record.best else ''}"
                f"{'  costs slowed' if is_slower else ''}"
            )
            bar.reset(task)

        def phase(title: str) -> None:
            nonlocal said_header, cost_lr
            console.print(title)
            said_header, cost_lr = False, None

        yield (
            Watcher(batch=advance("Training"), epoch=epoch, phase=phase),
            advance("Reading images"),
        )
