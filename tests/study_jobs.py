"""Jobs for the tests of the engine, in a module that other processes can import."""

import logging
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

from cosen.comparing.jobs import Job, JobProgress
from cosen.errors import DataError


def job(name, work, folder, payload=None, **options):
    return Job(name, work, payload, Path(folder) / name, **options)


def write(payload, out, reads, report):
    """Appends to its file: the texts of the folders it reads, then its payload."""
    out.mkdir(parents=True, exist_ok=True)
    text = "".join((folder / "text").read_text() for folder in reads)
    earlier = (out / "text").read_text() if (out / "text").exists() else ""
    (out / "text").write_text(earlier + text + str(payload))
    report(JobProgress(1, 1))


def write_process(payload, out, reads, report):
    """Writes the process ID and the numbers of threads for torch and in the environment."""
    import torch  # not at the top: programs that do not use it start fast

    threads = [torch.get_num_threads(), os.environ["OMP_NUM_THREADS"]]
    write([os.getpid(), *map(int, threads)], out, reads, report)


def meet(payload, out, reads, report):
    """Ends only if another job runs at the same time: each waits for the file of the other."""
    here, there = payload
    Path(here).touch()
    deadline = time.monotonic() + 120
    while not Path(there).exists():
        if time.monotonic() > deadline:
            raise TimeoutError("alone")
        time.sleep(0.01)


def refuse(payload, out, reads, report):
    raise DataError("class 'melanoma' has no training image")


def stumble(payload, out, reads, report):
    raise ZeroDivisionError("a first line\nand a second")


def leave(payload, out, reads, report):
    sys.exit("enough")


def die(payload, out, reads, report):
    os.kill(os.getpid(), signal.SIGKILL)


def die_as_a_parent(payload, out, reads, report):
    """Dies, and leaves a child that inherits the pipes to the parent."""
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    die(payload, out, reads, report)


def print_and_read(payload, out, reads, report):
    """Prints, also from a child, and finds nothing on stdin."""
    print("from Python", flush=True)
    subprocess.run([sys.executable, "-c", "print('from a child')"], check=True)
    assert sys.stdin.read() == ""
    report(JobProgress(1, 1))


def exit_at_once(payload, out, reads, report):
    os._exit(payload)


def chatter(payload, out, reads, report):
    """Repeats the same messages for half a second."""
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        logging.getLogger("cosen").warning("few images of %s", "melanoma")
        logging.getLogger("cosen").info("below the log level")
        warnings.warn("old data", UserWarning, stacklevel=1)
        report(JobProgress(1, 3))
        time.sleep(0.001)
    report(JobProgress(3, 3))


def sleep(payload, out, reads, report):
    """Writes its process ID, and sleeps without a report."""
    out.mkdir(parents=True)
    (out / "pid.part").write_text(str(os.getpid()))
    (out / "pid.part").rename(out / "pid")
    time.sleep(600)


def train_for_long(payload, out, reads, report):
    """Keeps busy, like training. Writes the name of its folder to the file in its payload."""
    Path(payload).write_text(str(out))
    out.mkdir(parents=True)
    report(JobProgress(1, 2))
    end = time.monotonic() + 600
    while time.monotonic() < end:
        (out / "checkpoint").write_text("what was learned")
