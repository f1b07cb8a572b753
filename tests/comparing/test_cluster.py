"""A real Ray on this machine; what its nodes would not share is kept apart."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

import interrupts
import study_jobs
from cosen.comparing.cluster import run_on_ray
from cosen.comparing.jobs import Outcome
from cosen.errors import InputError, RunError
from study_jobs import job

HERE = Path(study_jobs.__file__).parent

pytestmark = pytest.mark.xdist_group("ray")  # two at once would disturb each other


@pytest.fixture(autouse=True)
def own_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # short, since it holds sockets
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a job that is killed leaves its folder there
    monkeypatch.setenv("PYTHONPATH", str(HERE))  # what the nodes can import


def ray_processes():
    return [each for each in psutil.Process().children(recursive=True) if "ray" in each.name()]


def test_jobs_run_on_a_cluster_that_shares_no_files(tmp_path, caplog):
    pytest.importorskip("ray")
    reads = (tmp_path / "base",)
    jobs = [
        job("base", study_jobs.write, tmp_path, "base "),
        job("on-top", study_jobs.write, tmp_path, "on top", after=("base",), reads=reads),
        job("threads", study_jobs.write_process, tmp_path),
        job("refuse", study_jobs.refuse, tmp_path),
        job("stumble", study_jobs.stumble, tmp_path),
        job("after-stumble", study_jobs.write, tmp_path, after=("stumble",)),
        job("killed", study_jobs.die, tmp_path),
        job("unread", study_jobs.write, tmp_path, reads=(tmp_path / "nowhere",)),
        job("chatter", study_jobs.chatter, tmp_path),
        job("here", study_jobs.meet, tmp_path, (tmp_path / "1", tmp_path / "2")),
        job("there", study_jobs.meet, tmp_path, (tmp_path / "2", tmp_path / "1")),
    ]
    (tmp_path / "on-top").mkdir()
    (tmp_path / "on-top" / "text").write_text("interrupted, ")
    told = []
    outcomes = run_on_ray(
        jobs,
        address="local",
        on_progress=lambda *progress: told.append(progress),
        on_outcome=told.append,
    )
    assert {outcome.name: outcome.reason for outcome in outcomes} == {
        "base": None,
        "on-top": None,
        "threads": None,
        "refuse": "class 'melanoma' has no training image",
        "stumble": "ZeroDivisionError: a first line",
        "after-stumble": "its starting point stumble failed",
        "killed": "its process on the cluster died, perhaps for lack of memory",
        "unread": f"there is no folder {tmp_path / 'nowhere'} to send",
        "chatter": None,
        "here": None,  # two jobs run at once
        "there": None,
    }
    assert (tmp_path / "on-top" / "text").read_text() == "interrupted, base on top"
    assert "and a second" in (tmp_path / "stumble" / "traceback.txt").read_text()
    process, *threads = json.loads((tmp_path / "threads" / "text").read_text())
    assert process != os.getpid()
    assert threads == [1, 1]
    assert sorted(caplog.messages) == [
        "chatter: UserWarning: old data",
        "chatter: few images of melanoma",
    ]
    assert told.index(("chatter", 3, 3)) < told.index(Outcome("chatter"))
    assert ray_processes() == []


PROGRAM = """
import sys
import study_jobs
from cosen.comparing.cluster import run_on_ray

print("started", flush=True)
run_on_ray(
    [study_jobs.job("long", study_jobs.train_for_long, sys.argv[1], sys.argv[1] + "/where")],
    address="local",
    on_progress=lambda *progress: print(*progress, flush=True),
    on_outcome=print,
)
"""


def test_an_interrupt_leaves_no_process_and_no_folder_behind(tmp_path):
    pytest.importorskip("ray")
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=interrupts.heeded,
    )
    assert process.stdout.readline() == "started\n"
    assert process.stdout.readline() == "long 1 2\n", process.stderr.read()
    out = Path((tmp_path / "where").read_text())
    assert out.exists()
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # to all of them, as a terminal does
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert errors.count("Traceback") == 1, errors
    assert psutil.wait_procs(family, timeout=10)[1] == []
    assert not out.exists()


def test_a_cluster_that_is_not_there_is_named():
    pytest.importorskip("ray")
    with pytest.raises(RunError, match=r"cannot use Ray at '127.0.0.1:1' .* use 'local'"):
        run_on_ray([], address="127.0.0.1:1", on_progress=print, on_outcome=print)


def test_ray_is_asked_for_by_name_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="pip install ray"):
        run_on_ray([], address="local", on_progress=print, on_outcome=print)
