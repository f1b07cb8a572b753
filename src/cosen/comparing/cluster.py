"""Jobs on a Ray cluster, whose nodes need cosen, the data at the same place, and no shared files.

A job runs in a temporary folder of its node. The folders that it reads, and what an earlier
attempt has left, are sent there; what it writes comes back when it ends, well or not.
"""

import logging
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cosen.comparing.jobs import Job, Listener, News, Outcome, Schedule, carry_out, reason_for
from cosen.comparing.processes import limit_threads, usable_cores
from cosen.comparing.shipping import pack, unpack
from cosen.errors import CosenError, InputError, RunError

LAST_STARTED = Path("/tmp/ray/ray_current_cluster")  # where Ray itself looks for "auto"
NEWS_SECONDS = 0.5  # between two looks for progress
CONNECT_SECONDS = 10.0  # for a cluster to answer
GRACE_SECONDS = 3.0  # for a job to end before it is killed


def run_on_ray(
    jobs: Sequence[Job],
    *,
    address: str,
    on_progress: Callable[[str, int, int], None],
    on_outcome: Callable[[Outcome], None],
) -> list[Outcome]:
    """Run jobs on a Ray cluster, each on one core.

    A job that fails, or whose node dies, fails alone, with those that wait for it.

    Args:
        jobs: What to do.
        address: ``local`` for a Ray of its own on this machine; else as ``ray.init`` takes it,
            such as ``auto``, ``host:port`` or ``ray://host:port``.
        on_progress: Told a job's name, done and total, about twice a second; in this process.
        on_outcome: Told how each job ended; in this process.

    Returns:
        How each job ended, in the order given.
    """
    schedule, listener = Schedule(jobs, on_outcome), Listener(on_progress)
    with _connected(address) as ray:
        grid = _Grid(ray)
        try:
            while not schedule.is_over:
                grid.submit(schedule)
                grid.listen(schedule, listener)
        finally:
            grid.cancel()
    return schedule.outcomes


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """The module ``ray``, connected; as before afterwards."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError as error:
        raise InputError(
            "running on a cluster needs Ray, which is not installed: pip install ray"
        ) from error
    if ray.is_initialized():  # by the program that called: it stays as it is
        yield ray
        return
    # At least two at once, so that one long job does not hold up the rest.
    own: dict[str, Any] = {"num_cpus": max(2, usable_cores()), "include_dashboard": False}
    try:
        try:
            _check_that_someone_answers(address)
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


def _check_that_someone_answers(address: str) -> None:
    """Raise at once where nobody does: Ray itself would try for many minutes."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "") or _started_here() or address
    place = urlsplit(address if "://" in address else f"//{address}")
    if place.hostname and place.port:
        socket.create_connection((place.hostname, place.port), timeout=CONNECT_SECONDS).close()


def _started_here() -> str:
    """The address that ``ray start`` noted on this machine, perhaps long ago."""
    try:
        return LAST_STARTED.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


@dataclass(frozen=True)
class _Return:
    """What comes back from a node."""

    reason: str | None
    out: bytes | None


class _Mailbox:
    """Lives on the cluster; jobs put their news in, the driver takes them out."""

    def __init__(self) -> None:
        self._news: list[tuple[str, News]] = []

    def put(self, name: str, news: News) -> None:
        self._news.append((name, news))

    def take(self) -> list[tuple[str, News]]:
        news, self._news = self._news, []
        return news


class _Grid:
    """The jobs on the cluster, as the driver sees them."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._mailbox = ray.remote(num_cpus=0, max_restarts=-1)(_Mailbox).remote()
        self._do = ray.remote(num_cpus=1, max_retries=0)(_do_on_node)
        self._jobs: dict[Any, Job] = {}  # by the reference to what they will return

    def submit(self, schedule: Schedule) -> None:
        """Send jobs that could start: two for each core, so that none is idle meanwhile.

        More would fill the memory with folders; and with fewer no cluster would grow.
        """
        if not schedule.ready():
            return
        room = max(2, 2 * int(self._ray.cluster_resources().get("CPU", 0)))
        while len(self._jobs) < room and (job := schedule.take()) is not None:
            try:
                out = pack(job.out) if job.out.exists() else None
                reads = [pack(folder) for folder in job.reads]
            except (CosenError, OSError) as error:
                schedule.end(job.name, reason_for(error))
            else:
                self._jobs[self._do.remote(job, out, reads, self._mailbox)] = job

    def listen(self, schedule: Schedule, listener: Listener) -> None:
        """Wait a moment for a job to end; hear what the others have to say."""
        if not self._jobs:
            return
        with redirect_stdout(sys.stderr):  # where Ray announces a process that died
            ended, _ = self._ray.wait(list(self._jobs), timeout=NEWS_SECONDS)
        for name, news in self._news():
            listener.hear(name, news)
        for reference in ended:
            job = self._jobs.pop(reference)
            schedule.end(job.name, self._bring_home(job, reference))

    def cancel(self) -> None:
        """End what still runs; kindly at first, so that it takes its temporary folder along."""
        references = list(self._jobs)
        for reference in references:
            self._ray.cancel(reference)
        if references:
            count = len(references)
            _, references = self._ray.wait(references, num_returns=count, timeout=GRACE_SECONDS)
        for reference in references:
            self._ray.cancel(reference, force=True)

    def _news(self) -> list[tuple[str, News]]:
        try:
            news: list[tuple[str, News]] = self._ray.get(self._mailbox.take.remote())
        except self._ray.exceptions.RayError:  # its node is gone: it starts again elsewhere
            return []
        return news

    def _bring_home(self, job: Job, reference: Any) -> str | None:
        """Write the folder of a job that has ended, and say why it failed, if so."""
        problems = self._ray.exceptions
        try:
            result: _Return = self._ray.get(reference)
            if result.out is not None:
                unpack(result.out, job.out)
        except problems.OutOfMemoryError:
            return "its node was short of memory, and ended it"
        except problems.WorkerCrashedError:
            return "its process on the cluster died, perhaps for lack of memory"
        except problems.RayTaskError as error:
            return reason_for(error.cause)
        except (problems.RayError, CosenError) as error:
            return reason_for(error)
        return result.reason


def _do_on_node(job: Job, out: bytes | None, reads: list[bytes], mailbox: Any) -> _Return:
    """Do a job on a node of the cluster, in a folder of its own."""
    import ray

    limit_threads(1)
    sent: list[Any] = []

    def tell(news: News) -> None:
        sent[:] = [mailbox.put.remote(job.name, news)]

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
        reason = carry_out(moved, tell)
        if sent:
            ray.wait(sent, timeout=5)  # news is not to come later than the end
        return _Return(reason, pack(moved.out) if moved.out.exists() else None)
