"""Run jobs on a Ray cluster.

The nodes need cosen and the data under the same paths as here, but no shared file system. A job
runs in a temporary folder of its node. The folders it reads, and its own folder from an earlier
attempt, are sent to the node. Its folder is sent back when the job ends, also when it fails.

Hand-written: Ray does not copy folders, report progress, or wait for jobs by name.
"""

import logging
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zipfile import BadZipFile, ZipFile

from cosen.comparing.jobs import Job, Message, Outcome, Schedule, reason_for, run_job
from cosen.comparing.processes import limit_threads, thread_variables, usable_cores
from cosen.errors import DataError, InputError, RunError
from cosen.memory import reuse_memory

LAST_STARTED = Path("/tmp/ray/ray_current_cluster")  # Ray looks up "auto" here
POLL_SECONDS = 0.5  # between two checks for messages
CONNECT_SECONDS = 10.0  # for a cluster to answer
CANCEL_SECONDS = 3.0  # for a cancelled job to end before it is killed


def run_on_ray(
    jobs: Sequence[Job],
    *,
    address: str,
    on_progress: Callable[[str, int, int], None],
    on_outcome: Callable[[Outcome], None],
) -> list[Outcome]:
    """Run jobs on a Ray cluster, each on one core.

    If a job fails or its node dies, the jobs that depend on it fail too; all others run.

    Args:
        jobs: The jobs to run.
        address: ``local`` to start Ray on this machine, or an address for ``ray.init``, such as
            ``auto``, ``host:port`` or ``ray://host:port``.
        on_progress: Callback for progress, about twice a second: name of the job, done, total.
        on_outcome: Callback for the outcome of each job.

    Returns:
        The outcomes, in the order of the jobs.
    """
    schedule = Schedule(jobs, on_progress, on_outcome)
    with _connected(address) as ray:
        from ray.util.queue import Queue

        messages = Queue(actor_options={"num_cpus": 0, "max_restarts": -1})
        environment = {"env_vars": thread_variables(1)}
        run = ray.remote(num_cpus=1, max_retries=0, runtime_env=environment)(_run_on_node)
        running: dict[Any, Job] = {}  # by reference to the future result
        try:
            while not schedule.is_over:
                # Two jobs per core keep the cores busy; more would fill the memory with folders.
                limit = max(2, 2 * int(ray.cluster_resources().get("CPU", 0)))
                while len(running) < limit and (job := schedule.next_job()) is not None:
                    try:
                        out = pack(job.out) if job.out.exists() else None
                        reads = [pack(folder) for folder in job.reads]
                    except (DataError, OSError) as error:
                        schedule.handle(job.name, Outcome(job.name, reason_for(error)))
                    else:
                        running[run.remote(job, out, reads, messages)] = job
                with redirect_stdout(sys.stderr):  # Ray prints to stdout when a process dies
                    ended, _ = ray.wait(list(running), timeout=POLL_SECONDS) if running else ([], 0)
                with suppress(ray.exceptions.RayError):  # the queue's node died; Ray restarts it
                    for name, message in messages.get_nowait_batch(messages.qsize()):
                        schedule.handle(name, message)
                for reference in ended:
                    job = running.pop(reference)
                    reason = _fetch_result(ray, reference, job)
                    schedule.handle(job.name, Outcome(job.name, reason))
        finally:
            _cancel(ray, list(running))
    return schedule.outcomes


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Connect to Ray, yield the module ``ray``, and disconnect."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError as error:
        raise InputError("a cluster needs Ray, which is not installed: pip install ray") from error
    if ray.is_initialized():  # by the calling program: keep its connection
        yield ray
        return
    # At least two jobs at once: one long job does not block the others.
    own: dict[str, Any] = {"num_cpus": max(2, usable_cores()), "include_dashboard": False}
    try:
        try:
            _check_reachable(address)
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **(own if address == "local" else {}),
            )
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            raise RunError(
                f"cannot use Ray at {address!r} ({reason_for(error)}): start it with "
                "'ray start --head', or use 'local'"
            ) from error
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise OSError if nothing answers at an address: Ray would try for many minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "")
        with suppress(OSError):
            address = address or LAST_STARTED.read_text(encoding="utf-8").strip()
    place = urlsplit(address if "://" in address else f"//{address}")
    if place.hostname and place.port:
        socket.create_connection((place.hostname, place.port), timeout=CONNECT_SECONDS).close()


def _fetch_result(ray: Any, reference: Any, job: Job) -> str | None:
    """Write the folder of a job that has ended; return the reason if it failed."""
    reason: str | None
    errors = ray.exceptions
    try:
        reason, out = ray.get(reference)
        if out is not None:
            unpack(out, job.out)
    except errors.OutOfMemoryError:
        return "its process was stopped because its node ran out of memory"
    except errors.WorkerCrashedError:
        return "its process on the cluster died, perhaps because memory ran out"
    except errors.RayTaskError as error:
        return reason_for(error.cause)
    except (errors.RayError, DataError, RunError) as error:
        return reason_for(error)
    return reason


def _cancel(ray: Any, references: list[Any]) -> None:
    """Cancel jobs; first without force, to let them delete their temporary folders."""
    for reference in references:
        ray.cancel(reference)
    if references:
        count = len(references)
        _, references = ray.wait(references, num_returns=count, timeout=CANCEL_SECONDS)
    for reference in references:
        ray.cancel(reference, force=True)


def _run_on_node(
    job: Job, out: bytes | None, reads: list[bytes], messages: Any
) -> tuple[str | None, bytes | None]:
    """Run a job on a node of the cluster; return the reason if it fails, and its folder."""
    from ray.exceptions import RayError

    limit_threads(1)
    reuse_memory()
    reason: str | None = None

    def send(message: Message) -> None:
        nonlocal reason
        if isinstance(message, Outcome):
            reason = message.reason
        else:
            with suppress(RayError):  # the node of the queue has died: messages are lost
                messages.put((job.name, message))

    with tempfile.TemporaryDirectory(prefix="cosen-") as name:
        here = Path(name)
        moved = replace(
            job,
            out=here / "out" / job.out.name,
            reads=tuple(here / str(n) / folder.name for n, folder in enumerate(job.reads)),
        )
        if out is not None:
            unpack(out, moved.out)
        for data, folder in zip(reads, moved.reads, strict=True):
            unpack(data, folder)
        run_job(moved, send)
        return reason, pack(moved.out) if moved.out.exists() else None


def pack(folder: Path) -> bytes:
    """Return a folder as a ZIP archive, without compression: weights hardly shrink."""
    if not folder.is_dir():
        raise DataError(f"there is no folder {folder} to send")
    buffer = BytesIO()
    with ZipFile(buffer, "w", strict_timestamps=False) as archive:
        for path in sorted(folder.rglob("*")):
            archive.write(path, path.relative_to(folder))
    return buffer.getvalue()


def unpack(data: bytes, folder: Path) -> None:
    """Replace a folder by one from :func:`pack`; keep the old one if there is an error."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as name:
            new, old = Path(name) / "new", Path(name) / "old"
            new.mkdir()
            with ZipFile(BytesIO(data)) as archive:
                archive.extractall(new)  # keeps all entries inside
            try:
                if folder.exists():
                    folder.rename(old)
                new.rename(folder)
            finally:
                if old.exists() and not folder.exists():
                    old.rename(folder)
    except BadZipFile as error:
        raise DataError(f"the archive for {folder} is damaged: {error}") from error
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror or error}") from error
