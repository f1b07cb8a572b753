"""Run jobs in worker processes on this machine.

A worker runs many jobs, because importing torch takes seconds. It reads jobs from its stdin and
writes messages to its stdout. When the parent process ends for any reason, stdin closes and the
worker exits.

Hand-written: if one worker is killed, concurrent.futures and loky fail the jobs of all workers;
if the parent is killed, their workers keep running.
"""

import gc
import math
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import IO, Any, TypeAlias

import cloudpickle

from cosen.comparing.jobs import Job, Message, Outcome, Schedule, reason_for, run_job
from cosen.errors import InputError
from cosen.memory import reuse_memory

EXIT_SECONDS = 1.0
"""Time for a worker to exit after its stdin was closed."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)

_Worker: TypeAlias = subprocess.Popen[bytes]


def run_locally(
    jobs: Sequence[Job],
    *,
    workers: int,
    on_progress: Callable[[str, int, int], None],
    on_outcome: Callable[[Outcome], None],
    on_event: Callable[[str, Any], None] = lambda _, __: None,
    fail_together: bool = False,
) -> list[Outcome]:
    """Run jobs in worker processes, each on its share of the cores.

    If a job fails or its process dies, the jobs that depend on it fail too; all others run.

    Args:
        jobs: The jobs to run.
        workers: The number of worker processes.
        on_progress: Callback for progress, a few times a second: name of the job, done, total.
        on_outcome: Callback for the outcome of each job.
        on_event: Callback for events of a job: name of the job, value.
        fail_together: Whether one failure ends all jobs, which would wait for the failed one.

    Returns:
        The outcomes, in the order of the jobs.
    """
    if workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}")
    schedule = Schedule(jobs, on_progress, on_outcome, on_event)
    threads = max(1, usable_cores() // workers)
    messages: SimpleQueue[tuple[_Worker, Message]] = SimpleQueue()
    running: dict[_Worker, Job] = {}
    idle: list[_Worker] = []
    started: list[_Worker] = []
    deadline = math.inf
    try:
        while not schedule.is_over and time.monotonic() < deadline:
            while len(running) < workers and (job := schedule.next_job()) is not None:
                idle = [worker for worker in idle if worker.poll() is None]
                if not idle:
                    idle.append(_start_worker(threads))
                    started += idle
                worker = idle.pop()
                running[worker] = job
                # One thread per job: Windows cannot wait for several pipes at once.
                Thread(target=_exchange, args=(worker, job, messages), daemon=True).start()
            try:
                worker, message = messages.get(timeout=1)  # Windows needs a timeout for Ctrl-C
            except Empty:
                continue
            schedule.handle(running[worker].name, message)
            if isinstance(message, Outcome):
                del running[worker]
                idle.append(worker)
                if fail_together and message.reason is not None:  # others may know the cause
                    deadline = min(deadline, time.monotonic() + EXIT_SECONDS)
        for worker in idle:
            _close_pipe(worker.stdin)
        for worker in idle:
            with suppress(subprocess.TimeoutExpired):
                worker.wait(EXIT_SECONDS)
    finally:
        for worker in started:
            worker.kill()
        for worker in started:
            worker.wait()
            if worker not in running:  # else its thread closes the pipes
                _close_pipe(worker.stdin, worker.stdout)
    return schedule.outcomes


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_variables(threads: int) -> dict[str, str]:
    """Return the environment that limits OpenMP and BLAS to a number of threads."""
    return dict.fromkeys(THREAD_VARIABLES, str(threads))


def limit_threads(threads: int) -> None:
    """Limit torch, if the modules of a job import it: it may ignore the environment."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)


def _start_worker(threads: int) -> _Worker:
    """Start a worker as a new program: it does not import the ``__main__`` of this one."""
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        f"from cosen.comparing.processes import serve; serve(threads={threads})"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | thread_variables(threads),
        # Ctrl-C reaches only the parent, which then ends the workers.
        start_new_session=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )


def _exchange(worker: _Worker, job: Job, messages: SimpleQueue[tuple[_Worker, Message]]) -> None:
    """Send a job to a worker and collect its messages until the job has an outcome."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        package = cloudpickle.dumps(job)
    except Exception as error:  # pickling calls code of the user
        reason = f"it cannot be sent to another process ({reason_for(error)})"
        messages.put((worker, Outcome(job.name, reason)))
        return
    try:
        pickle.dump((job.name, package), worker.stdin)
        worker.stdin.flush()
        message: Message | None = None
        while not isinstance(message, Outcome):
            message = pickle.load(worker.stdout)
            messages.put((worker, message))
    except (EOFError, OSError, pickle.UnpicklingError):
        reason = _reason_for_exit(worker.wait())
        _close_pipe(worker.stdin, worker.stdout)
        messages.put((worker, Outcome(job.name, reason)))


def _reason_for_exit(code: int) -> str:
    if code == -9:  # SIGKILL, which does not exist on Windows
        return "its process was killed by signal 9, perhaps because memory ran out"
    if code < 0:
        return f"its process was killed by signal {-code}"
    return f"its process ended with exit code {code}"


def _close_pipe(*pipes: IO[bytes] | None) -> None:
    for pipe in pipes:
        if pipe is not None:
            with suppress(OSError):  # the worker has died
                pipe.close()


def serve(*, threads: int) -> None:
    """Run the jobs that arrive on stdin until it closes: the main function of a worker."""
    reuse_memory()
    inbox, outbox = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)  # jobs read nothing from stdin
    os.dup2(2, 1)  # and print to stderr
    if hasattr(os, "register_at_fork"):  # a child of a job must not keep the pipe open
        os.register_at_fork(after_in_child=lambda: os.dup2(nowhere, outbox.fileno()))
    packages: SimpleQueue[tuple[str, bytes] | None] = SimpleQueue()

    def receive() -> None:
        with suppress(EOFError, OSError, pickle.UnpicklingError):
            while True:
                packages.put(pickle.load(inbox))
        packages.put(None)  # ends an idle worker
        time.sleep(EXIT_SECONDS)
        os._exit(1)  # ends a worker that runs a job: the parent is gone

    Thread(target=receive, daemon=True).start()
    lock = Lock()  # a job may report from several threads

    def send(message: Message) -> None:
        try:
            with lock:
                pickle.dump(message, outbox)
                outbox.flush()
        except OSError:
            os._exit(1)  # the parent is gone

    while (package := packages.get()) is not None:
        _run_package(*package, threads, send)
        del package
        gc.collect()  # free memory for the next job


def _run_package(name: str, package: bytes, threads: int, send: Callable[[Message], None]) -> None:
    try:
        job: Job = pickle.loads(package)
    except Exception as error:  # for example a module that cannot be imported
        send(Outcome(name, reason_for(error)))
    else:
        limit_threads(threads)
        run_job(job, send)
