"""Jobs: their order, and how one of them runs.

Hand-written: TopologicalSorter orders jobs, but has no priorities and no failed jobs.
"""

import logging
import math
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, TypeAlias

from cosen.errors import OUT_OF_MEMORY, CosenError, is_out_of_memory

REPORT_SECONDS = 0.25
"""The shortest time between two progress reports of a job."""

_log = logging.getLogger("cosen")


@dataclass(frozen=True)
class JobProgress:
    """A message from a running job: its progress."""

    done: int
    total: int


@dataclass(frozen=True)
class Event:
    """A message from a running job: any other value for the caller."""

    value: Any


Report: TypeAlias = Callable[[JobProgress | Event], None]
"""Sends a message from a running job; progress is sent only a few times a second."""

Work: TypeAlias = Callable[[Any, Path, tuple[Path, ...], Report], None]
"""The function of a job: ``work(payload, out, reads, report)``."""


@dataclass(frozen=True)
class Job:
    """A function call in another process or on another machine.

    Attributes:
        name: A unique name, such as ``"smote/0"``.
        work: The function to call. It must use the folders passed to it, not those below: on a
            cluster they are elsewhere.
        payload: Its first argument: anything that cloudpickle can pickle.
        out: The folder it writes. If the folder exists, the job resumes from an earlier attempt.
        after: Names of the jobs that must succeed before this one starts.
        reads: Folders of other jobs that it reads.
    """

    name: str
    work: Work
    payload: Any
    out: Path
    after: tuple[str, ...] = ()
    reads: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Note:
    """A message from a running job: a log message or a warning."""

    level: int
    text: str


@dataclass(frozen=True)
class Outcome:
    """The result of a job, and its last message.

    Attributes:
        name: The name of the job.
        reason: Why it failed; None if it succeeded.
    """

    name: str
    reason: str | None = None


Message: TypeAlias = JobProgress | Event | Note | Outcome


class Schedule:
    """Decides which job starts next, and handles the messages of running jobs.

    Jobs that other jobs depend on start first, the rest in the given order.

    Args:
        jobs: All jobs.
        on_progress: Callback for progress: name of the job, done, total.
        on_outcome: Callback for the outcome of each job, including jobs that never start.
        on_event: Callback for the events of jobs: name of the job, value.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        on_progress: Callable[[str, int, int], None],
        on_outcome: Callable[[Outcome], None],
        on_event: Callable[[str, Any], None] = lambda _, __: None,
    ) -> None:
        needed = {name for job in jobs for name in job.after}
        self._jobs = {job.name: job for job in jobs}
        self._order = sorted(self._jobs, key=lambda name: name not in needed)
        self._sorter = TopologicalSorter({job.name: job.after for job in jobs})
        self._sorter.prepare()
        self._ready: list[str] = []
        self._outcomes: dict[str, Outcome] = {}
        self._logged: set[str] = set()
        self._on_progress = on_progress
        self._on_outcome = on_outcome
        self._on_event = on_event

    @property
    def is_over(self) -> bool:
        return len(self._outcomes) == len(self._jobs)

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes so far, in the order in which the jobs were given."""
        return [self._outcomes[name] for name in self._jobs if name in self._outcomes]

    def next_job(self) -> Job | None:
        """Remove and return the next job that can start; None if there is none now."""
        self._ready = sorted([*self._ready, *self._sorter.get_ready()], key=self._order.index)
        return self._jobs[self._ready.pop(0)] if self._ready else None

    def handle(self, name: str, message: Message) -> None:
        """Handle a message of a job. A note that several jobs send is logged once."""
        match message:
            case JobProgress(done, total):
                self._on_progress(name, done, total)
            case Event(value):
                self._on_event(name, value)
            case Note(level, text) if text not in self._logged:
                self._logged.add(text)
                _log.log(level, "%s: %s", name, text)
            case Outcome(_, reason):
                self._outcomes[name] = message
                self._on_outcome(message)
                if reason is None:
                    self._sorter.done(name)
                    return
                for job in self._jobs.values():  # without done() they never become ready
                    if name in job.after and job.name not in self._outcomes:
                        skipped = Outcome(job.name, f"not started because {name} failed")
                        self.handle(job.name, skipped)


def run_job(job: Job, send: Callable[[Message], None]) -> None:
    """Run a job in this process and send its messages, the outcome last.

    Log messages and warnings are sent instead of printed. For errors other than
    :class:`CosenError`, ``traceback.txt`` is written to the job's folder.
    """
    trace = job.out / "traceback.txt"
    last_report = -math.inf

    def report(message: JobProgress | Event) -> None:
        nonlocal last_report
        now = time.monotonic()
        is_due = now - last_report >= REPORT_SECONDS
        if isinstance(message, Event) or message.done >= message.total or is_due:
            last_report = now
            send(message)

    reason = None
    try:
        trace.unlink(missing_ok=True)  # from an earlier attempt
        with _send_notes(send):
            job.work(job.payload, job.out, job.reads, report)
    except (Exception, SystemExit) as error:
        reason = reason_for(error)
        if not isinstance(error, CosenError) and not is_out_of_memory(error):
            with suppress(OSError):  # for example a full disk
                job.out.mkdir(parents=True, exist_ok=True)
                trace.write_text(traceback.format_exc(), "utf-8", "backslashreplace")
    send(Outcome(job.name, reason))


def reason_for(error: BaseException) -> str:
    """Describe an error in one line: its message, with its type unless it is a CosenError."""
    if isinstance(error, CosenError):
        return str(error)
    if is_out_of_memory(error):
        return OUT_OF_MEMORY
    lines = str(error).strip().splitlines()
    return ": ".join([type(error).__name__, *lines[:1]])


@contextmanager
def _send_notes(send: Callable[[Message], None]) -> Iterator[None]:
    """Send the log messages of cosen and all warnings, each text once."""
    sent = set()

    def send_once(note: Note) -> None:
        if note.text not in sent:
            sent.add(note.text)
            send(note)

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            send_once(Note(record.levelno, record.getMessage()))

    def show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        send_once(Note(logging.WARNING, f"{category.__name__}: {message}"))

    before = _log.handlers, _log.propagate
    _log.handlers, _log.propagate = [Handler()], False
    try:
        with warnings.catch_warnings():
            warnings.showwarning = show_warning
            yield
    finally:
        _log.handlers, _log.propagate = before
