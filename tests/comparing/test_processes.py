"""Real worker processes: crashes, interrupts and kills."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

import interrupts
import study_jobs
from cosen.comparing.jobs import Outcome
from cosen.comparing.processes import run_locally, usable_cores
from cosen.errors import InputError
from study_jobs import job

pytestmark = pytest.mark.processes

HERE = Path(study_jobs.__file__).parent

SLEEPERS = """
import sys
import study_jobs
from cosen.comparing.processes import run_locally

jobs = [study_jobs.job(name, study_jobs.sleep, sys.argv[1]) for name in sys.argv[2:]]
run_locally(jobs, workers=2, on_progress=print, on_outcome=print)
"""

UNGUARDED = """
import sys
from pathlib import Path
import numpy as np
from cosen.comparing.jobs import Job
from cosen.comparing.processes import run_locally

class Scale:
    def __init__(self, factor):
        self.factor = factor
    def __call__(self, array):
        return self.factor * array

def write_sum(payload, out, reads, report):
    out.mkdir()
    scale, array = payload
    (out / "text").write_text(f"{scale(array).sum()} {isinstance(scale, Scale)}")

scales = Scale(3), lambda array: array, Scale(5)
folder = Path(sys.argv[1])
jobs = [
    Job(f"{n}", write_sum, (scale, np.ones(n + 1)), folder / f"{n}")
    for n, scale in enumerate(scales)
]
print(run_locally(jobs, workers=2, on_progress=print, on_outcome=lambda _: None))
"""
"""A program without ``if __name__ == "__main__":`` that sends its own classes and functions."""


@pytest.fixture
def run():
    """Runs jobs; returns the reasons by name, and all progress and outcomes in order."""

    def run_jobs(*jobs, workers):
        told = []
        outcomes = run_locally(
            jobs,
            workers=workers,
            on_progress=lambda *progress: told.append(progress),
            on_outcome=told.append,
        )
        assert [outcome.name for outcome in outcomes] == [each.name for each in jobs]
        assert sorted(outcomes, key=str) == sorted(
            (each for each in told if isinstance(each, Outcome)), key=str
        )
        assert psutil.Process().children(recursive=True) == []
        return {outcome.name: outcome.reason for outcome in outcomes}, told

    return run_jobs


def start(*arguments, stdin=None):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])},
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=interrupts.heeded,
    )


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def sleeping(process, *files):
    """Returns the children of a process that runs SLEEPERS, after its jobs wrote their files."""
    wait_until(lambda: process.poll() is not None or all(file.exists() for file in files))
    assert process.poll() is None, process.communicate()
    family = psutil.Process(process.pid).children(recursive=True)
    assert {int(file.read_text()) for file in files} <= {each.pid for each in family}
    return family


def test_one_worker_runs_many_jobs_even_if_some_fail(tmp_path, run, caplog, capfd):
    jobs = [
        job("first", study_jobs.write_process, tmp_path),
        job("refuse", study_jobs.refuse, tmp_path),
        job("stumble", study_jobs.stumble, tmp_path),
        job("after-stumble", study_jobs.write, tmp_path, after=("stumble",)),
        job("chatter", study_jobs.chatter, tmp_path),
        job("last", study_jobs.write_process, tmp_path, after=("first",)),
    ]
    reasons, told = run(*jobs, workers=1)
    assert reasons == {
        "first": None,
        "refuse": "class 'melanoma' has no training image",
        "stumble": "ZeroDivisionError: a first line",
        "after-stumble": "not started because stumble failed",
        "chatter": None,
        "last": None,
    }
    assert "and a second" in (tmp_path / "stumble" / "traceback.txt").read_text()
    first, last = (json.loads((tmp_path / name / "text").read_text()) for name in ("first", "last"))
    assert first == last == [first[0], usable_cores(), usable_cores()]
    assert first[0] != os.getpid()
    assert caplog.messages == ["chatter: few images of melanoma", "chatter: UserWarning: old data"]
    assert told.index(("chatter", 1, 3)) < told.index(("chatter", 3, 3))
    assert told.index(("chatter", 3, 3)) < told.index(Outcome("chatter"))
    assert capfd.readouterr() == ("", "")


def test_a_worker_that_dies_loses_only_its_job(tmp_path, run):
    folders = (tmp_path / "base",)
    jobs = [
        job("base", study_jobs.write, tmp_path, "base "),
        job("here", study_jobs.meet, tmp_path, (tmp_path / "1", tmp_path / "2")),
        job("there", study_jobs.meet, tmp_path, (tmp_path / "2", tmp_path / "1")),
        job("killed", study_jobs.die_as_a_parent, tmp_path),
        job("gone", study_jobs.exit_at_once, tmp_path, 3),
        job("end", study_jobs.write, tmp_path, "end", after=("base",), reads=folders),
    ]
    reasons, _ = run(*jobs, workers=2)
    assert reasons == {
        "base": None,
        "here": None,  # two workers run at once
        "there": None,
        "killed": "its process was killed by signal 9, perhaps because memory ran out",
        "gone": "its process ended with exit code 3",
        "end": None,
    }
    assert (tmp_path / "end" / "text").read_text() == "base end"


def test_an_interrupt_ends_all_processes_at_once(tmp_path):
    process = start("-c", SLEEPERS, tmp_path, "a", "b")
    family = sleeping(process, tmp_path / "a" / "pid", tmp_path / "b" / "pid")
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # to the whole group, like a terminal
    output, errors = process.communicate(timeout=30)
    assert time.monotonic() - began < 25, "the jobs sleep for longer"
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1, "only from the parent"
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert output == ""
    assert psutil.wait_procs(family, timeout=30)[1] == []


def test_an_interrupt_while_workers_start_reaches_only_the_parent(tmp_path):
    process = start("-c", SLEEPERS, tmp_path, "a")
    parent = psutil.Process(process.pid)
    wait_until(parent.children)  # a worker that is still importing
    family = parent.children()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1, errors
    assert psutil.wait_procs(family, timeout=5)[1] == []


def test_workers_end_when_the_parent_is_killed(tmp_path):
    process = start("-c", SLEEPERS, tmp_path, "a")
    family = sleeping(process, tmp_path / "a" / "pid")
    process.kill()
    process.communicate(timeout=30)
    assert psutil.wait_procs(family, timeout=5)[1] == []


def test_a_worker_that_is_starting_ends_when_the_parent_is_killed(tmp_path):
    process = start("-c", SLEEPERS, tmp_path, "a")
    parent = psutil.Process(process.pid)
    wait_until(parent.children)
    family = parent.children()
    process.kill()
    process.communicate(timeout=30)
    assert psutil.wait_procs(family, timeout=5)[1] == []


@pytest.mark.parametrize("way", ["script", "command", "stdin"])
def test_a_program_needs_no_guard_and_no_module(tmp_path, way):
    """A notebook is like ``stdin``: its ``__main__`` has no file."""
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    first = {"script": [script], "command": ["-c", UNGUARDED], "stdin": ["-"]}[way]
    with script.open() as file:
        process = start(*first, tmp_path, stdin=file)
        output, errors = process.communicate(timeout=60)
    assert errors == ""
    assert output == f"{[Outcome('0'), Outcome('1'), Outcome('2')]}\n"
    texts = [(tmp_path / str(n) / "text").read_text() for n in range(3)]
    assert texts == ["3.0 True", "2.0 False", "15.0 True"]


def test_a_payload_that_cannot_be_pickled_is_a_failure(tmp_path, run):
    jobs = [
        job("locked", study_jobs.write, tmp_path, threading.Lock()),
        job("unknown", study_jobs.write, tmp_path, FailsToLoad()),
        job("fine", study_jobs.write, tmp_path, 1),
    ]
    reasons, _ = run(*jobs, workers=1)
    assert reasons == {
        "locked": "it cannot be sent to another process "
        "(TypeError: cannot pickle '_thread.lock' object)",
        "unknown": "ModuleNotFoundError: No module named 'nowhere'",
        "fine": None,
    }


class FailsToLoad:
    def __reduce__(self):
        return eval, ("__import__('nowhere')",)


def test_what_a_job_prints_goes_to_stderr(tmp_path, run, capfd):
    """stdout is for the results of the program, and carries the messages of a worker."""
    reasons, told = run(job("printing", study_jobs.print_and_read, tmp_path), workers=1)
    assert reasons == {"printing": None}
    assert told == [("printing", 1, 1), Outcome("printing")]
    assert capfd.readouterr() == ("", "from Python\nfrom a child\n")


def test_zero_workers_raise():
    with pytest.raises(InputError, match="at least 1, got 0"):
        run_locally([], workers=0, on_progress=lambda *_: None, on_outcome=print)
