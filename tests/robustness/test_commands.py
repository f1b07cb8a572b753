"""Commands on hostile folders, by mistake or by design: one sentence, an exit code, and no harm."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from commands import run_command
from cosen.errors import RunError
from cosen.training import checksums
from cosen.training.model_file import load_model
from cosen.training.run_folder import RunFolder
from small_study import ARGUMENTS

COSEN = [sys.executable, "-P", "-m", "cosen"]
"""As the installed command: unlike ``python -m``, it does not search the current folder."""

EVIL = (
    "from pathlib import Path\nPath({marker!r}).touch()\nfrom cosen.methods.reweighting import *\n"
)
EVIL += "class M(Baseline):\n    name = 'evil'\n"


@pytest.fixture
def cosen(capsys, monkeypatch, tmp_path):
    """Run a command in a folder of its own, in this process."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_command(capsys, monkeypatch, *map(str, arguments))


def one_sentence(done, *parts):
    assert done.returncode in (1, 2), done
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in done.stderr.replace("\n", " ")


def evil_module(folder, name="evil.py"):
    marker = folder / "ran"
    (folder / name).write_text(EVIL.format(marker=str(marker)))
    return marker


@pytest.mark.processes
def test_modules_in_the_current_folder_are_not_imported(tmp_path):
    markers = [evil_module(tmp_path, name) for name in ("rich.py", "typer.py", "PIL.py", "ray.py")]
    command = ["train", *ARGUMENTS, f"--out={tmp_path / 'run'}"]
    done = subprocess.run([*COSEN, *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not any(marker.exists() for marker in markers)


@pytest.mark.processes
def test_code_that_is_named_is_imported_but_never_instead_of_a_library(tmp_path):
    marker = evil_module(tmp_path)
    (tmp_path / "rich.py").write_text("raise SystemExit('imported')")
    command = ["train", *ARGUMENTS, "--method=evil:M", f"--out={tmp_path / 'run'}"]
    done = subprocess.run([*COSEN, *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert marker.exists()


@pytest.mark.training
def test_a_resumed_run_imports_only_code_that_is_named_again(cosen, run, monkeypatch, tmp_path):
    marker = evil_module(tmp_path)
    record = json.loads((run.path / "run.json").read_text())
    record["config"] |= {"method": "evil:M", "options": {}}
    (run.path / "run.json").write_text(json.dumps(record))
    for name in ("metrics.json", checksums.FILE, "checkpoint.pt", "checkpoint-before.pt"):
        (run.path / name).unlink()
    monkeypatch.syspath_prepend(str(tmp_path))  # even if the module can be found
    done = cosen("train", "--resume", run.path)
    one_sentence(done, "was trained with the code evil:M", "name it again (--method evil:M)")
    one_sentence(cosen("train", "--resume", run.path, "--method=cosen"), "remove method")
    one_sentence(cosen("train", "--resume", run.path, "--method=other:M"), "not with other:M")
    assert not marker.exists()
    assert cosen("train", "--resume", run.path, "--method=evil:M").returncode == 0
    assert marker.exists()


@pytest.mark.training
def test_a_study_imports_only_code_that_is_named_again(cosen, study, tmp_path, monkeypatch):
    marker = evil_module(tmp_path)
    record = json.loads((study.path / "study.json").read_text())
    record["methods"]["evil"] = {"method": "evil:M", "options": {}}
    (study.path / "study.json").write_text(json.dumps(record))
    (study.path / checksums.FILE).unlink()
    monkeypatch.syspath_prepend(str(tmp_path))
    command = ("compare", *ARGUMENTS, "--epochs=2", "--methods=cosen", "--seeds=1")
    done = cosen(*command, f"--out={study.path}")
    assert done.returncode == 0, done.stderr
    assert not marker.exists()


def test_only_allowed_formats_are_opened(cosen, tmp_path, monkeypatch):
    def started(*_, **__):
        raise AssertionError("a program was started")

    monkeypatch.setattr(subprocess, "check_call", started)
    monkeypatch.setattr(subprocess, "Popen", started)
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
    picture = Image.fromarray(np.full((20, 20, 3), 90, np.uint8))
    for number, kind in enumerate(("EPS", "DDS", "PCX", "TGA", "ICO", "SGI", "PDF", "MPO", "PNG")):
        picture.save(tmp_path / "images" / "cat" / f"{number}.png", kind)
    picture.save(tmp_path / "images" / "dog" / "fine.png")
    found = json.loads(cosen("inspect", "images", "--json").stdout)
    refused = {f"cat/{number}.png": "not an image of a supported format" for number in range(7)}
    assert found["broken"] == refused


@pytest.fixture
def strange_folder(make_folder):
    """A folder with a pipe, a socket, a device, a link to itself and a link to nothing."""
    root = make_folder(cat=12, dog=12)
    os.mkfifo(root / "cat" / "pipe.png")
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(root / "cat" / "s.png"))
    (root / "dog" / "device.png").symlink_to("/dev/zero")
    (root / "dog" / "loop.png").symlink_to("loop.png")
    (root / "dog" / "gone.png").symlink_to("nothing")
    yield root
    server.close()


@pytest.mark.training
def test_files_that_are_not_regular_are_reported_and_skipped(cosen, strange_folder):
    command = ("train", strange_folder, "--size=8", "--epochs=1", "--device=cpu", "--out=run")
    one_sentence(cosen(*command), "5 of 29 files", "pipe.png: not a regular file", "device.png")
    assert cosen(*command, "--skip-broken").returncode == 0
    done = cosen("predict", "run", strange_folder, "--skip-broken")
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 25
    one_sentence(cosen("predict", "run", strange_folder / "cat" / "pipe.png"), "pipe.png")


def test_when_all_is_broken_skipping_is_not_suggested(cosen, tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "images" / name).mkdir(parents=True)
        (tmp_path / "images" / name / "a.png").write_bytes(b"no image")
    for options in ((), ("--skip-broken",)):
        done = cosen("train", "images", "--size=8", "--out=run", *options)
        one_sentence(done, "2 of 2 files cannot be used", "fix or remove them")
        assert "--skip-broken" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_links_and_names_that_cannot_exist(cosen, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    long = "x" * 300
    one_sentence(cosen("train", "loop"), "loop is neither a folder")
    one_sentence(cosen("train", *ARGUMENTS, f"--out={long}"), "cannot create", "name too long")
    one_sentence(cosen("compare", *ARGUMENTS, f"--out={long}"), "cannot create", "name too long")
    one_sentence(cosen("train", long), "is neither a folder")
    one_sentence(cosen("train", "--resume", long), "is not a run folder")
    one_sentence(cosen("predict", "loop", "a.png"), "is not a run folder")
    one_sentence(cosen("report", long), "no such folder")
    one_sentence(cosen("train", "~nobody-here/x"), "is neither a folder")
    for command in ("train", "compare", "tune"):
        one_sentence(cosen(command, *ARGUMENTS[:-2], "--out="), "--out is empty")


def test_settings_that_would_have_no_effect_or_break(cosen, tmp_path):
    one_sentence(cosen("train", "--lr=0"), "lr must be above 0")
    one_sentence(cosen("train", "--size=1000000"), "size must be at most 4096")
    (tmp_path / "a.toml").write_text("lr = true\n")
    one_sentence(cosen("train", "--config=a.toml"), "lr must be a number, but is True")
    one_sentence(cosen("train", "--split=fold:4/3"), "fold 4 of 3 does not exist: use 1 to 3")
    one_sentence(cosen("train", "--split=fold:1/1"), "at least 2 folds")
    (tmp_path / "costs.csv").write_text("true;0;1\n0;0;1\n1;1;0\n")
    one_sentence(cosen("train", "--objective=costs.csv"), "separated by semicolons")


@pytest.mark.training
def test_a_model_with_impossible_preprocessing_is_refused(cosen, run):
    path = run.path / "model.json"
    info = json.loads(path.read_text())
    (run.path / checksums.FILE).unlink()
    wrong = {
        "std": info | {"normalise": {"mean": [0.5], "std": [0]}},
        "sides of 1 to 4096": info | {"preprocess": info["preprocess"] | {"width": 10**6}},
        "damaged": info | {"temperature": 0},
    }
    for part, content in wrong.items():
        path.write_text(json.dumps(content))
        one_sentence(cosen("predict", run.path, "nothing.png"), part)
        with pytest.raises(RunError, match=part):
            load_model(run.path)


def test_tables_with_ambiguous_lines(cosen, make_folder):
    root = make_folder(cat=6, dog=6)
    files = [f"{name}/{number:03d}.png,{name}" for name in ("cat", "dog") for number in range(6)]

    def table(*lines):
        (root / "table.csv").write_text("\n".join(["path,label", *files, *lines]))
        return cosen("inspect", root / "table.csv")

    one_sentence(table("cat/000.png,"), "line 14: the label is empty")
    one_sentence(table("ca\0t/000.png,cat"), "do not exist or are not files (1)")
    one_sentence(table("cat/000.png,  "), "line 14: the label is empty")
    one_sentence(table('cat/000.png,"a\x1b[31m"'), "line 14", "control characters")
    two_labels = "lines 2 and 14: ./cat/000.png has the label 'cat' and 'dog'"
    one_sentence(table("./cat/000.png,dog"), two_labels)
    (root / "link.png").symlink_to(root / "dog" / "002.png")
    one_sentence(table(f"{root}/cat/000.png,dog"), "lines 2 and 14")
    one_sentence(table("link.png,cat"), "lines 10 and 14")
    done = table("cat/000.png, cat ", "cat/../dog/001.png,dog", f"{root}/cat/001.png,cat")
    assert done.returncode == 0
    assert "12 images, 2 classes" in done.stdout
    assert "lines 2 and 14, 9 and 15, 3 and 16" in done.stderr
    (root / "table.csv").write_text("path;label\na.png;cat\n")
    one_sentence(cosen("inspect", root / "table.csv"), "separated by semicolons")


@pytest.mark.training
def test_names_are_written_so_that_nothing_runs_them(cosen, make_folder, monkeypatch, tmp_path):
    root = make_folder(**{"=cat": 12, "@dog": 12})
    command = ("train", root, "--size=8", "--epochs=1", "--device=cpu", "--out=run")
    assert cosen(*command).returncode == 0
    new = tmp_path / "new"
    new.mkdir()
    for name in ("=1+1.png", "-a.png", "+b.png", "@c.png", "\x1b[31mred.png", "plain.png"):
        (new / name).write_bytes((root / "=cat" / "000.png").read_bytes())
    monkeypatch.chdir(new)
    names = sorted(path.name for path in new.iterdir())
    done = cosen("predict", "--out=p.csv", "--", "../run", *names)
    assert done.returncode == 0, done.stderr
    lines = Path("p.csv").read_text().splitlines()[1:]
    assert len(lines) == 6
    assert not any(
        cell.startswith(("=", "+", "-", "@")) for line in lines for cell in line.split(",")
    )
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "\x1b" not in cosen("predict", "../run", "\x1b[31mred.png").stdout
    one_sentence(cosen("predict", "../run", "\x1b[31mnone.png"), r"\x1b[31mnone.png")
    (root / "\x1b[31mred").mkdir()
    done = cosen("train", root)
    one_sentence(done, r"\x1b[31mred", "rename it")
    assert "\x1b" not in done.stderr


@pytest.mark.training
def test_temporary_files_of_a_killed_process_are_removed(cosen, run):
    (run.path / "metrics.json").unlink()
    left = [run.path / ".history.csv.123.part", run.path / "costs" / ".0003.safetensors.9.part"]
    for path in left:
        path.touch()
    assert cosen("train", "--resume", run.path).returncode == 0
    assert not any(path.exists() for path in left)


@pytest.mark.training
def test_a_full_disk_in_the_first_epoch_leaves_nothing(cosen, monkeypatch, tmp_path):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    command = ("train", *ARGUMENTS, "--out=run")
    one_sentence(cosen(*command), "No space left on device", "free some space")
    assert not (tmp_path / "run").exists()
    mine = tmp_path / "mine" / "costs" / "notes.csv"
    mine.parent.mkdir(parents=True)
    mine.touch()
    one_sentence(cosen("train", *ARGUMENTS, "--out=mine"), "No space left on device")
    assert {path.name for path in (tmp_path / "mine").iterdir()} <= {"costs", ".lock"}
    assert mine.exists()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert cosen(*command).returncode == 0


@pytest.mark.training
def test_a_run_does_not_write_through_links(cosen, run, tmp_path):
    other = tmp_path / "other"
    (run.path / "costs").rename(other)
    (run.path / "costs").symlink_to(other)
    (run.path / "metrics.json").unlink()
    one_sentence(cosen("train", "--resume", run.path), "costs is a link")


@pytest.mark.training
def test_outputs_that_are_not_finite_are_an_error(cosen, run, make_folder):
    images = make_folder(cat=1)
    path = run.path / "model.json"
    info = json.loads(path.read_text())
    (run.path / checksums.FILE).unlink()
    path.write_text(json.dumps(info | {"normalise": {"mean": [1e38], "std": [1e-38]}}))
    one_sentence(cosen("predict", run.path, images), "not finite")
    path.write_text(json.dumps(info | {"class_names": ["a", "a", "b"]}))
    one_sentence(cosen("predict", run.path, images), "damaged")


def test_pipes_are_not_read_as_settings(cosen, tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    one_sentence(cosen("train", "--config=pipe.csv"), "not a regular file")
    one_sentence(cosen("train", "--objective=pipe.csv"), "not a regular file")


def wait_for(found, process):
    while not found() and process.poll() is None:
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()


def workers_of(process):
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children]


@pytest.mark.processes
def test_a_killed_worker_of_a_comparison(tmp_path):
    out = tmp_path / "study"
    command = ["compare", "digits", "--epochs=10000", "--methods=baseline", "--seeds=1"]
    process = subprocess.Popen(
        [*COSEN, *command, "--workers=2", f"--out={out}"],  # one thread per worker
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: list(out.glob("runs/*/*/checkpoint.pt")), process)
    for worker in workers_of(process):
        os.kill(worker, signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "baseline/0 failed: its process was killed by signal 9" in errors
    assert "Traceback" not in errors


@pytest.mark.processes
def test_a_killed_process_of_a_run_with_several(tmp_path):
    out = tmp_path / "run"
    command = ["train", "digits", "--epochs=10000", "--devices=2", "--device=cpu"]
    process = subprocess.Popen(
        [*COSEN, *command, f"--out={out}"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: RunFolder(out).has_checkpoint, process)
    os.kill(workers_of(process)[1], signal.SIGKILL)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    last = errors.splitlines()[-1]
    assert last.startswith("cosen: a process of the run was killed by signal 9")
    assert last.endswith(f"resume the run with --resume {out}")
    assert "Traceback" not in errors
    assert "gloo" not in errors


@pytest.mark.processes
def test_when_memory_runs_out_the_message_says_what_to_reduce(make_folder, tmp_path):
    """The limit is set after the imports; a batch of large images does not fit."""
    program = (
        "import resource, sys, torch, cosen.api, cosen.__main__\n"
        "import torch.utils.tensorboard, rich.progress, lightning_fabric, kornia\n"
        "from pathlib import Path\n"
        "torch.set_num_threads(1)\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 600 * 2**20,) * 2)\n"
        "cosen.__main__.main()\n"
    )
    root = make_folder(cat=30, dog=30)
    arguments = ["train", root, "--size=512", "--network=resnet32", "--batch-size=60", "--epochs=1"]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments), f"--out={tmp_path / 'run'}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1, done
    assert "cosen: memory ran out: use smaller batches (--batch-size)" in done.stderr
    assert "Traceback" not in done.stderr
