"""Jobs: what they are, the order they run in, and how one is carried out, wherever that is."""

import logging
import math
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypeAlias

from cosen.errors import CosenError, InputError

REPORT_SECONDS = 0.25  # between two reports of a job: a display needs no more

_log = logging.getLogger("cosen")

Report: TypeAlias = Callable[[int, int], None]
"""Told how far a job is: done, total."""

Work: TypeAlias = Callable[[Any, Path, tuple[Path, ...], Report], None]
"""Does a job: ``work(payload, out, reads, report)``."""


@dataclass(frozen=True)
class Job:
    """One thing to do, in a process of its own or on another machine.

    Attributes:
        name: Unique, such as ``"smote/0"``.
        work: A function at the top of a module. It must use the folders that it is handed, not
            those below: on a cluster they are elsewhere.
        payload: Its first argument; anything that can be pickled.
        out: The folder that it writes. One that exists is an earlier attempt to go on from.
        after: Names of the jobs that must have succeeded before.
        reads: Folders of other jobs that it reads.
    """

    name: str
    work: Work
    payload: Any
    out: Path
    after: tuple[str, ...] = ()
    reads: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        name: The job's.
        reason: Why it failed; None where it succeeded.
    """

    name: str
    reason: str | None = None


class Schedule:
    """Deals out jobs once those that they wait for have succeeded.

    Of the jobs that could start, the one at the head of the longest chain of waiting jobs goes
    first, so that no core is idle at the end; among equals, the first given.

    Args:
        jobs: All of them.
        on_outcome: Told how each ended, also those that were never started.
    """

    def __init__(self, jobs: Sequence[Job], on_outcome: Callable[[Outcome], None]) -> None:
        chains = _chain_lengths(jobs)
        self._order = [job.name for job in jobs]
        self._waiting = sorted(jobs, key=lambda job: -chains[job.name])
        self._outcomes: dict[str, Outcome] = {}
        self._on_outcome = on_outcome

    @property
    def is_over(self) -> bool:
        return len(self._outcomes) == len(self._order)

    @property
    def outcomes(self) -> list[Outcome]:
        """How the jobs ended, in the order in which they were given."""
        return [self._outcomes[name] for name in self._order if name in self._outcomes]

    def ready(self) -> list[Job]:
        """The jobs that could start now, the most urgent first."""
        return [job for job in self._waiting if all(map(self._succeeded, job.after))]

    def take(self) -> Job | None:
        """Hand out the most urgent job that could start; None where there is none."""
        job = next(iter(self.ready()), None)
        if job is not None:
            self._waiting.remove(job)
        return job

    def end(self, name: str, reason: str | None) -> None:
        """Note how a job ended; where it failed, those that wait for it fail with it."""
        self._outcomes[name] = Outcome(name, reason)
        self._on_outcome(self._outcomes[name])
        if reason is None:
            return
        for job in [job for job in self._waiting if name in job.after]:
            if job in self._waiting:  # not gone meanwhile, by way of another
                self._waiting.remove(job)
                self.end(job.name, f"its starting point {name} failed")

    def _succeeded(self, name: str) -> bool:
        return name in self._outcomes and self._outcomes[name].reason is None


def _chain_lengths(jobs: Sequence[Job]) -> dict[str, int]:
    """How many jobs follow one another from each job on; bad sets of jobs are refused."""
    after: dict[str, tuple[str, ...]] = {}
    for job in jobs:
        if job.name in after:
            raise InputError(f"two jobs are called {job.name!r}: give each a name of its own")
        after[job.name] = job.after
    for job in jobs:
        for name in job.after:
            if name not in after:
                raise InputError(f"{job.name} waits for {name!r}, which is not among the jobs")
    try:
        order = list(TopologicalSorter(after).static_order())
    except CycleError as error:
        raise InputError(f"jobs wait for each other: {' after '.join(error.args[1])}") from error
    lengths = dict.fromkeys(order, 1)
    for name in reversed(order):
        for earlier in after[name]:
            lengths[earlier] = max(lengths[earlier], lengths[name] + 1)
    return lengths


@dataclass(frozen=True)
class Progress:
    """How far a job is."""

    done: int
    total: int


@dataclass(frozen=True)
class Note:
    """A log message or a warning from within a job."""

    level: int
    text: str


News: TypeAlias = Progress | Note


class Listener:
    """Passes on what jobs tell: progress as it comes, each distinct note once.

    Args:
        on_progress: Told a job's name, done and total.
    """

    def __init__(self, on_progress: Callable[[str, int, int], None]) -> None:
        self._on_progress = on_progress
        self._noted: set[str] = set()

    def hear(self, name: str, news: News) -> None:
        match news:
            case Progress(done, total):
                self._on_progress(name, done, total)
            case Note(level, text) if text not in self._noted:
                self._noted.add(text)
                _log.log(level, "%s: %s", name, text)


def carry_out(job: Job, tell: Callable[[News], None]) -> str | None:
    """Do a job in this process, whose log messages and warnings are told instead of printed.

    Returns:
        Why it failed, or None. An error that nobody foresaw leaves ``traceback.txt`` in the
        job's folder.
    """
    trace = job.out / "traceback.txt"
    try:
        trace.unlink(missing_ok=True)  # of an earlier attempt
        with _told_notes(tell):
            job.work(job.payload, job.out, job.reads, _seldom(tell))
    except (Exception, SystemExit) as error:
        if not isinstance(error, CosenError):
            with suppress(OSError):  # a full disk, say: the reason remains
                job.out.mkdir(parents=True, exist_ok=True)
                trace.write_text(traceback.format_exc(), "utf-8", "backslashreplace")
        return reason_for(error)
    return None


def reason_for(error: BaseException) -> str:
    """An error as a reason: cosen's own as they stand, others by kind and first line."""
    if isinstance(error, CosenError):
        return str(error)
    lines = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])


def _seldom(tell: Callable[[News], None]) -> Report:
    """Reports a few times a second at most, and the end always."""
    last = -math.inf

    def report(done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done >= total or now - last >= REPORT_SECONDS:
            last = now
            tell(Progress(done, total))

    return report


@contextmanager
def _told_notes(tell: Callable[[News], None]) -> Iterator[None]:
    """Tell what cosen logs and what anyone warns of, each text once."""
    told = set()

    def note(level: int, text: str) -> None:
        if text not in told:
            told.add(text)
            tell(Note(level, text))

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            note(record.levelno, record.getMessage())

    def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        note(logging.WARNING, f"{category.__name__}: {message}")

    before = _log.handlers, _log.propagate
    _log.handlers, _log.propagate = [Handler()], False
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_warning
            yield
    finally:
        _log.handlers, _log.propagate = before
