"""Jobs in processes on this machine.

A worker is started once and does many jobs, since importing torch takes seconds. Whatever happens
to it, only its job is lost; whatever happens to the parent, no worker outlives it.
"""

import gc
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TypeAlias

from cosen.comparing.jobs import (
    Job,
    Listener,
    News,
    Note,
    Outcome,
    Progress,
    Schedule,
    carry_out,
    reason_for,
)
from cosen.errors import InputError, RunError

WORKER_NAME = "cosen-worker"
GRACE_SECONDS = 3.0  # for a worker to end before it is killed
BAD_STARTS = 3  # in a row, once a worker has been able to start
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)


def run_locally(
    jobs: Sequence[Job],
    *,
    workers: int,
    on_progress: Callable[[str, int, int], None],
    on_outcome: Callable[[Outcome], None],
) -> list[Outcome]:
    """Run jobs in processes here, each on its share of the cores.

    A job that fails, or whose process dies, fails alone, with those that wait for it.

    Args:
        jobs: What to do.
        workers: How many at once.
        on_progress: Told a job's name, done and total, a few times a second; in this process.
        on_outcome: Told how each job ended; in this process.

    Returns:
        How each job ended, in the order given.
    """
    if workers < 1:
        raise InputError(f"workers must be 1 or more, got {workers}")
    if multiprocessing.current_process().name == WORKER_NAME:
        # A script without a guard, imported by its own worker. The parent says what to do.
        raise SystemExit(1)
    schedule, listener = Schedule(jobs, on_outcome), Listener(on_progress)
    crew = _Crew(size=workers, threads=max(1, usable_cores() // workers))
    try:
        while not schedule.is_over:
            crew.deal(schedule)
            crew.listen(schedule, listener)
    except BaseException:
        crew.dismiss(at_once=True)
        raise
    crew.dismiss()
    return schedule.outcomes


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def limit_threads(threads: int) -> None:
    """Let torch, BLAS and OpenMP use so many threads in this process and those that it starts."""
    for name in THREAD_VARIABLES:  # for libraries yet to be loaded
        os.environ[name] = str(threads)
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(threads)
    threadpool_limits(threads)  # for those that are loaded


@dataclass(frozen=True)
class _Ready:
    """A worker has started, and waits for its first job."""


@dataclass(frozen=True)
class _Ended:
    """A worker's job has ended."""

    reason: str | None


_Message: TypeAlias = _Ready | News | _Ended


@dataclass(eq=False)
class _Worker:
    process: SpawnProcess
    connection: Connection
    is_ready: bool = False
    job: Job | None = None


class _Crew:
    """The workers, as the parent sees them."""

    def __init__(self, *, size: int, threads: int) -> None:
        self._size = size
        self._threads = threads
        self._workers: list[_Worker] = []
        self._bad_starts_left = 0  # none until a worker has been able to start

    def deal(self, schedule: Schedule) -> None:
        """Give jobs that could start to workers that are idle, and start workers for the rest."""
        for worker in self._workers:
            if worker.is_ready and worker.job is None:
                worker.job = schedule.take()
                if worker.job is not None:
                    with suppress(OSError):  # it has died, which is noticed when listening
                        worker.connection.send_bytes(pickle.dumps(worker.job))
        starting = sum(not worker.is_ready for worker in self._workers)
        wanted = len(schedule.ready()) - starting
        for _ in range(min(wanted, self._size - len(self._workers))):
            self._start()

    def listen(self, schedule: Schedule, listener: Listener) -> None:
        """Wait for news or a death, and act on it."""
        handles = [worker.connection for worker in self._workers]
        sentinels = [worker.process.sentinel for worker in self._workers]
        # A child of a dead worker may keep both open: so look at the processes now and then.
        wait([*handles, *sentinels], timeout=1)
        for worker in list(self._workers):
            is_dead = not worker.process.is_alive()  # asked first: its last words are read below
            for message in _messages(worker):
                self._act_on(message, worker, schedule, listener)
            if is_dead:
                self._bury(worker, schedule)

    def dismiss(self, *, at_once: bool = False) -> None:
        """End the workers, and kill those that do not."""
        try:
            for worker in self._workers:
                worker.connection.close()  # ends one that waits for a job
                if at_once or not worker.is_ready:
                    worker.process.terminate()
            deadline = time.monotonic() + GRACE_SECONDS
            for worker in self._workers:
                worker.process.join(max(0, deadline - time.monotonic()))
        finally:
            for worker in self._workers:
                worker.process.kill()
                worker.process.join()

    def _start(self) -> None:
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(theirs, self._threads), name=WORKER_NAME, daemon=True
        )
        with theirs, _interrupts_held_back():
            process.start()
            self._workers.append(_Worker(process, ours))

    def _act_on(
        self, message: _Message, worker: _Worker, schedule: Schedule, listener: Listener
    ) -> None:
        match message:
            case _Ready():
                worker.is_ready = True
                self._bad_starts_left = BAD_STARTS
            case _Ended(reason) if worker.job is not None:
                job, worker.job = worker.job, None
                schedule.end(job.name, reason)
            case Progress() | Note() if worker.job is not None:
                listener.hear(worker.job.name, message)

    def _bury(self, worker: _Worker, schedule: Schedule) -> None:
        self._workers.remove(worker)
        worker.connection.close()
        death = _death(worker.process.exitcode)
        if worker.job is not None:
            schedule.end(worker.job.name, f"its process {death}")
        elif not worker.is_ready:
            self._bad_starts_left -= 1
            if self._bad_starts_left < 0:
                raise RunError(
                    f"a worker process could not be started (it {death}); if this is a script, "
                    "put its code under if __name__ == '__main__':"
                )


def _messages(worker: _Worker) -> Iterator[_Message]:
    """What a worker has said so far."""
    try:
        while worker.connection.poll():
            yield worker.connection.recv()
    except (EOFError, OSError):  # it is about to be dead
        worker.process.join(1)


def _death(code: int | None) -> str:
    if code == -9:  # SIGKILL, by number, since Windows has none
        return "was killed by signal 9, perhaps for lack of memory"
    if code is not None and code < 0:
        return f"was killed by signal {-code}"
    return f"ended with exit code {code}"


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Ctrl-C waits, here and in a process that is started: it would print a traceback of its own.

    The process lets go of it in ``_serve``.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing.resource_tracker import ensure_running

    ensure_running()  # it is started with the first process, and would let go of interrupts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(connection: Connection, threads: int) -> None:
    """A worker: does jobs as they come, until the parent has no more or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    limit_threads(threads)
    one_at_a_time = threading.Lock()  # a job may report from several threads

    def tell(message: _Message) -> None:
        try:
            with one_at_a_time:
                connection.send(message)
        except OSError:
            os._exit(1)  # the parent is gone

    tell(_Ready())
    while True:
        try:
            package = connection.recv_bytes()
        except (EOFError, OSError):
            return
        tell(_Ended(_unpack_and_do(package, tell)))
        gc.collect()  # the next job may need what this one leaves lying about


def _unpack_and_do(package: bytes, tell: Callable[[News], None]) -> str | None:
    try:
        job: Job = pickle.loads(package)
    except Exception as error:  # a function of a module that is not to be found, say
        return reason_for(error)
    return carry_out(job, tell)


def _end_with_parent() -> None:
    """End this process once its parent has ended, in whatever way and whatever it is doing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
