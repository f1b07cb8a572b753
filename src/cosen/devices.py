"""Training with several processes, one per device, from a script, a notebook or a command.

The processes are workers of :mod:`cosen.comparing.processes`, with the environment that torchrun
would give them. Lightning's own launcher runs the calling script again, so it does not work in a
notebook or with ``python -c``.
"""

import os
import socket
import sys
from pathlib import Path
from typing import Any

from cosen.comparing.jobs import Event, Job, JobProgress, Report
from cosen.comparing.processes import run_locally
from cosen.errors import RunError
from cosen.training.config import TrainConfig
from cosen.training.loop import Callbacks
from cosen.training.records import EpochRecord
from cosen.training.run import OTHER_FAILED, Inputs, check_free, train_run
from cosen.training.run_folder import RunFolder


def train_on_devices(
    config: TrainConfig, out: Path, *, resume: bool, inputs: Inputs, callbacks: Callbacks | None
) -> None:
    """Train with ``config.devices`` processes on this machine; see :func:`train_run`."""
    callbacks = callbacks or Callbacks()
    with RunFolder(out).in_use():  # raises an error before processes start
        if not resume:
            check_free(out)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {  # as torchrun would set it
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(config.devices),
        "LOCAL_WORLD_SIZE": str(config.devices),
        "TORCHELASTIC_RUN_ID": "cosen",
    }
    jobs = []
    for rank in map(str, range(config.devices)):
        own = environment | {"RANK": rank, "LOCAL_RANK": rank}
        payload = (own, sys.argv, config, resume, inputs)
        jobs.append(Job(f"process {rank}", _train_process, payload, out.absolute()))

    def event(_: str, value: Any) -> None:
        if isinstance(value, EpochRecord):
            callbacks.epoch(value)
        elif isinstance(value, str):
            callbacks.phase(value)
        elif callbacks.reading is not None:
            callbacks.reading(*value)

    outcomes = run_locally(
        jobs,
        workers=config.devices,
        on_progress=lambda _, done, total: callbacks.batch(done, total),
        on_outcome=lambda _: None,
        on_event=event,
        fail_together=True,
    )
    reasons = [outcome.reason for outcome in outcomes if outcome.reason is not None]
    if reasons:
        causes = [reason for reason in reasons if not reason.startswith(OTHER_FAILED)]
        reason = next(iter(causes), reasons[0])
        if reason.startswith("its process"):  # it was killed, or ended by itself
            reason = reason.replace("its process", "a process of the run", 1)
            if RunFolder(out).has_checkpoint:
                reason += f"; resume the run with --resume {out}"
        raise RunError(reason)


def _train_process(
    payload: tuple[dict[str, str], list[str], TrainConfig, bool, Inputs],
    out: Path,
    _: tuple[Path, ...],
    report: Report,
) -> None:
    """Train in a worker process, as one process of the run."""
    environment, command, config, resume, inputs = payload
    os.environ |= environment
    sys.argv = command  # run.json records it
    callbacks = Callbacks(
        reading=lambda done, total: report(Event((done, total))),
        batch=lambda done, total: report(JobProgress(done, total)),
        epoch=lambda record: report(Event(record)),
        phase=lambda title: report(Event(title)),
    )
    train_run(config, out, resume=resume, inputs=inputs, callbacks=callbacks)
