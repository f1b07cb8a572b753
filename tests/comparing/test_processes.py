"""Real processes, and what may happen to them."""

import json
import os
import signal
import subprocess
import sys
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

HERE = Path(study_jobs.__file__).parent

SLEEPERS = """
import sys
import study_jobs
from cosen.comparing.processes import run_locally

if __name__ == "__main__":
    jobs = [study_jobs.job(name, study_jobs.sleep, sys.argv[1]) for name in sys.argv[2:]]
    run_locally(jobs, workers=2, on_progress=print, on_outcome=print)
"""

UNGUARDED = """
import sys
import study_jobs
from cosen.errors import CosenError
from cosen.comparing.processes import run_locally

jobs = [study_jobs.job(str(n), study_jobs.write, sys.argv[1]) for n in range(4)]
try:
    run_locally(jobs, workers=2, on_progress=print, on_outcome=print)
except CosenError as error:
    print("refused:", error)
"""


@pytest.fixture
def run():
    """Runs jobs, and returns their reasons by name and what was reported, in order."""

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
        assert only_the_tracker_is_left()
        return {outcome.name: outcome.reason for outcome in outcomes}, told

    return run_jobs


def only_the_tracker_is_left():
    """multiprocessing keeps one small process of its own for as long as the program runs."""
    children = psutil.Process().children(recursive=True)
    return all("resource_tracker" in " ".join(child.cmdline()) for child in children)


def start(tmp_path, program, *names):
    script = tmp_path / "script.py"
    script.write_text(program)
    return subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), *names],
        env=os.environ | {"PYTHONPATH": str(HERE)},
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
    """The processes below one that runs SLEEPERS, once all its jobs have left their files."""
    wait_until(lambda: process.poll() is not None or all(file.exists() for file in files))
    assert process.poll() is None, process.communicate()
    family = psutil.Process(process.pid).children(recursive=True)
    assert {int(file.read_text()) for file in files} <= {each.pid for each in family}
    return family


def test_one_worker_does_many_jobs_and_survives_what_they_do(tmp_path, run, caplog, capfd):
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
        "after-stumble": "its starting point stumble failed",
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


def test_a_worker_that_dies_takes_only_its_job_along(tmp_path, run):
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
        "killed": "its process was killed by signal 9, perhaps for lack of memory",
        "gone": "its process ended with exit code 3",
        "end": None,
    }
    assert (tmp_path / "end" / "text").read_text() == "base end"


def test_an_interrupt_ends_all_processes_at_once(tmp_path):
    process = start(tmp_path, SLEEPERS, "a", "b")
    family = sleeping(process, tmp_path / "a" / "pid", tmp_path / "b" / "pid")
    began = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # to all of them, as a terminal does
    output, errors = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1, "of the parent alone"
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert output == ""
    assert psutil.wait_procs(family, timeout=5)[1] == []


def test_an_interrupt_while_workers_start_is_the_parents_alone(tmp_path):
    process = start(tmp_path, SLEEPERS, "a")
    parent = psutil.Process(process.pid)
    wait_until(lambda: len(parent.children()) >= 2)  # the tracker, and a worker that imports
    family = parent.children()
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1, errors
    assert psutil.wait_procs(family, timeout=5)[1] == []


def test_workers_do_not_outlive_a_parent_that_is_killed(tmp_path):
    process = start(tmp_path, SLEEPERS, "a")
    family = sleeping(process, tmp_path / "a" / "pid")
    process.kill()
    process.communicate(timeout=30)
    assert psutil.wait_procs(family, timeout=5)[1] == []


def test_a_script_without_a_guard_is_told_so(tmp_path):
    process = start(tmp_path, UNGUARDED)
    output, errors = process.communicate(timeout=60)
    assert output == (
        "refused: a worker process could not be started (it ended with exit code 1); if this is a "
        "script, put its code under if __name__ == '__main__':\n"
    )
    assert errors == ""
    assert process.returncode == 0


def test_no_workers_are_refused():
    with pytest.raises(InputError, match="1 or more, got 0"):
        run_locally([], workers=0, on_progress=lambda *_: None, on_outcome=print)
