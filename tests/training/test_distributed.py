"""Runs of several processes, over gloo."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import save_file

from cosen.__main__ import app
from cosen.data.cache_folder import CacheFolder
from cosen.errors import RunError
from cosen.networks.vgg import VGG16Features
from cosen.training.run_folder import RunFolder
from run_contents import cost_steps

pytestmark = pytest.mark.processes

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def cosen(*arguments, launcher=(sys.executable, "-m", "cosen"), **more):
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | more
    return subprocess.Popen(
        [*launcher, "train", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def finish(process):
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return errors


@pytest.fixture
def settings(make_folder, tmp_path):
    """Settings of a deterministic run: the head has no dropout and no batch normalisation."""
    torch.manual_seed(0)
    save_file(VGG16Features().state_dict(), tmp_path / "vgg.safetensors")
    root = make_folder(cat=43, dog=29, eel=11)
    return [
        str(root),
        "--network=head",
        f"--weights={tmp_path / 'vgg.safetensors'}",
        "--size=32",
        "--epochs=2",
        "--batch-size=16",
        "--device=cpu",
        "--method=cosen-paper",
        "--set=options.separability_std=1",
        "--set=precision=float32",
    ]


def test_two_processes_give_what_one_gives(settings, tmp_path):
    outs = {name: tmp_path / name for name in ("one", "two", "torchrun")}
    app(["train", *settings, f"--out={outs['one']}"], standalone_mode=False)  # in this process
    processes = [
        cosen(*settings, "--devices=2", f"--out={outs['two']}"),
        cosen(*settings, f"--out={outs['torchrun']}", launcher=(*TORCHRUN, "-m", "cosen")),
    ]
    for process in processes:
        finish(process)
    one = RunFolder(outs["one"])
    for name in ("two", "torchrun"):
        other = RunFolder(outs[name])
        for step, again in zip(cost_steps(one), cost_steps(other), strict=True):
            for key in step:
                # ratios of small distances between features of an untrained network
                loose = 1e-5 if key == "confusion" else 1e-2
                torch.testing.assert_close(again[key], step[key], atol=loose, rtol=loose)
        assert other.metrics().test.accuracy == one.metrics().test.accuracy
        assert other.metrics().val.confusion == one.metrics().val.confusion
        for row, again in zip(one.history(), other.history(), strict=True):
            assert again.train_loss == pytest.approx(row.train_loss, rel=1e-4)
            assert again.train_error == row.train_error
        assert len(other.checkpoint()["processes"]) == 2


@pytest.fixture
def on_two_hosts(tmp_path):
    """Start ``cosen train`` on two "hosts", each with its own cache; only folders are shared."""
    started = []

    def start(*arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        hosts = []
        for rank in range(2):
            launcher = [
                *(sys.executable, "-m", "torch.distributed.run", "--nnodes=2"),
                *(f"--node-rank={rank}", "--nproc-per-node=1"),
                *("--master-addr=127.0.0.1", f"--master-port={port}", "-m", "cosen"),
            ]
            cache = str(tmp_path / f"cache{rank}")
            hosts.append(cosen(*arguments, launcher=launcher, COSEN_CACHE=cache))
        started.extend(hosts)
        return hosts

    yield start
    for process in started:
        process.kill()


def worker_of(host):
    """The training process that torchrun has started."""
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(host.pid)], capture_output=True, text=True, check=True
    )
    return int(listed.stdout.split()[0])


def test_two_hosts_share_only_the_run_folder(make_folder, on_two_hosts, tmp_path):
    """One is killed: the other ends with one sentence, and both can be resumed."""
    root = make_folder(cat=40, dog=20)
    settings = [str(root), "--network=small-cnn", "--size=16", "--epochs=40", "--device=cpu"]
    out = tmp_path / "two"
    hosts = on_two_hosts(*settings, f"--out={out}")
    while not (out / "history.csv").exists() and hosts[0].poll() is None:
        time.sleep(0.05)
    os.kill(worker_of(hosts[1]), signal.SIGKILL)
    messages = [host.communicate(timeout=120)[1] for host in hosts]
    assert all(host.returncode == 1 for host in hosts)
    said = [line for line in messages[0].splitlines() if line.startswith("cosen:")]
    assert said == [f"cosen: another process of this run has failed; resume with --resume {out}"]
    assert len(RunFolder(out).history()) < 40
    for host in on_two_hosts(f"--resume={out}"):
        finish(host)
    for rank in range(2):
        assert CacheFolder(tmp_path / f"cache{rank}").entries()
    assert len(RunFolder(out).history()) == 40
    assert RunFolder(out).is_finished


def test_a_mistake_in_several_processes_ends_all_of_them(tmp_path):
    """Each process opens the data after all have started; the first to fail may end the other."""
    process = cosen("no/such", "--devices=2", "--device=cpu", f"--out={tmp_path / 'x'}")
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "no/such is neither a folder" in errors
    assert "Traceback" not in errors


@pytest.fixture
def no_processes(monkeypatch):
    """Starting a worker is a failure."""
    monkeypatch.setattr("cosen.devices.run_locally", lambda *_, **__: pytest.fail("it started"))


def test_a_folder_in_use_is_refused_before_processes_start(tmp_path, no_processes):
    command = ["train", "digits", "--devices=2", "--device=cpu", f"--out={tmp_path / 'run'}"]
    with (
        RunFolder(tmp_path / "run").in_use(),
        pytest.raises(RunError, match="in use by another process"),
    ):
        app(command, standalone_mode=False)


FAILS_IN_ONE = """
import os
import cosen
from cosen.methods import NetworkMethod

class Fails(NetworkMethod):
    name = "fails"
    description = "fails in one process"

    def begin_epoch(self, loss, setting, progress):
        if os.environ["RANK"] == "1" and progress:
            raise ZeroDivisionError("no more")

cosen.train("digits", method=Fails(), epochs=2, devices=2, device="cpu", out="{out}")
"""


def test_one_process_that_fails_ends_the_others(tmp_path):
    """From a script without a main guard, with a method that the script defines."""
    program = FAILS_IN_ONE.format(out=tmp_path / "run")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 1
    assert "ZeroDivisionError: no more" in done.stderr.splitlines()[-1]
    assert RunFolder(tmp_path / "run").history()[-1].epoch == 1


def test_a_folder_with_a_run_is_refused_before_processes_start(tmp_path, no_processes):
    quick = ["train", "digits", "--epochs=1", "--device=cpu", f"--out={tmp_path / 'run'}"]
    app(quick, standalone_mode=False)
    with pytest.raises(RunError, match="already holds a run"):
        app([*quick, "--devices=2"], standalone_mode=False)
