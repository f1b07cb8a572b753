"""Ray on this machine, with jobs that share no folder with the main process."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import psutil
import pytest

import interrupts
import study_jobs
from cosen.comparing.cluster import pack, run_on_ray, unpack
from cosen.comparing.jobs import Outcome
from cosen.errors import DataError, InputError, RunError
from study_jobs import job

HERE = Path(study_jobs.__file__).parent

# two at once would be too slow
pytestmark = [pytest.mark.ray, pytest.mark.xdist_group("ray")]


@pytest.fixture(autouse=True)
def own_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # short, since it holds sockets
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a killed job leaves its folder here
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # but each job has one core
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(HERE), *sys.path])
    )  # for imports on the nodes


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
        "after-stumble": "not started because stumble failed",
        "killed": "its process on the cluster died, perhaps because memory ran out",
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
from cosen.comparing.jobs import JobProgress

def call(payload, out, reads, report):
    payload(report)

print("started", flush=True)
run_on_ray(
    [
        study_jobs.job("own", call, sys.argv[1], lambda report: report(JobProgress(2, 3))),
        study_jobs.job(
            "long", study_jobs.train_for_long, sys.argv[1], sys.argv[1] + "/where", after=("own",)
        ),
    ],
    address="local",
    on_progress=lambda *progress: print(*progress, flush=True),
    on_outcome=lambda outcome: print(outcome, flush=True),
)
"""


def test_an_interrupt_leaves_no_process_and_no_folder(tmp_path):
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
    assert process.stdout.readline() == "own 2 3\n", "functions of __main__ work"
    assert process.stdout.readline() == "Outcome(name='own', reason=None)\n"
    assert process.stdout.readline() == "long 1 2\n", process.stderr.read()
    out = Path((tmp_path / "where").read_text())
    assert out.exists()
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # to the whole group, like a terminal
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt"), errors
    assert errors.count("Traceback") == 1, errors
    assert psutil.wait_procs(family, timeout=10)[1] == []
    assert not out.exists()


def test_an_address_without_a_cluster_raises():
    pytest.importorskip("ray")
    with pytest.raises(RunError, match=r"cannot use Ray at '127.0.0.1:1' .* use 'local'"):
        run_on_ray([], address="127.0.0.1:1", on_progress=print, on_outcome=print)


def test_a_missing_ray_raises(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="pip install ray"):
        run_on_ray([], address="local", on_progress=print, on_outcome=print)


# Folders as bytes


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "folder"
    (folder / "costs").mkdir(parents=True)
    (folder / "empty").mkdir()
    (folder / ".lock").touch()
    (folder / "model.bin").write_bytes(bytes(range(256)))
    (folder / "costs" / "ξ 1.txt").write_text("cost")
    return folder


def test_a_folder_arrives_unchanged(folder, tmp_path):
    there = tmp_path / "not yet" / "there"
    unpack(pack(folder), there)
    assert contents(there) == contents(folder)
    assert (there.stat().st_mode & 0o777) == (folder.stat().st_mode & 0o777)


def test_an_existing_folder_is_replaced(folder, tmp_path):
    there = tmp_path / "there"
    (there / "costs").mkdir(parents=True)
    (there / "costs" / "old.txt").touch()
    unpack(pack(folder), there)
    assert contents(there) == contents(folder)
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "there"}, (
        "no temporary folder is left"
    )


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "costs/../../escaped"])
def test_nothing_is_written_outside_the_folder(name, tmp_path):
    buffer = BytesIO()
    with ZipFile(buffer, "w") as archive:
        archive.writestr(name, "")
    unpack(buffer.getvalue(), tmp_path / "a" / "there")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [
        *(tmp_path / "a" / "there").rglob("escaped")
    ]
    assert not Path("/tmp/escaped").exists()


def test_a_damaged_archive_does_not_change_the_folder(folder):
    before = contents(folder)
    data = bytearray(pack(folder))
    data[data.index(bytes(range(256)))] ^= 1
    with pytest.raises(DataError, match="damaged"):
        unpack(bytes(data), folder)
    with pytest.raises(DataError, match="damaged"):
        unpack(b"", folder)
    assert contents(folder) == before


def test_a_full_disk_does_not_change_the_folder(folder, monkeypatch):
    before = contents(folder)
    data = pack(folder)
    rename = type(folder).rename

    def rename_but_new(path, target):
        if path.name == "new":
            raise OSError(28, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(type(folder), "rename", rename_but_new)
    with pytest.raises(RunError, match=r"cannot write .*folder: No space left"):
        unpack(data, folder)
    assert contents(folder) == before


def test_a_missing_folder_raises(tmp_path):
    with pytest.raises(DataError, match="there is no folder"):
        pack(tmp_path / "nowhere")
