"""Real processes, killed and interrupted."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch
from safetensors.torch import load_file

import interrupts
from cosen.__main__ import app
from cosen.data.cache_folder import CacheFolder
from cosen.errors import RunError
from cosen.training.run_folder import RunFolder
from run_contents import cost_steps, history_without_times

pytestmark = pytest.mark.training

EPOCHS = 10
COMMAND = [sys.executable, "-m", "cosen", "train"]
SETTINGS = [
    f"--epochs={EPOCHS}",
    "--network=small-cnn",
    "--size=16",
    "--batch-size=16",
    "--augment=crop",
    "--device=cpu",
    "--set=ema=0.9",
    "--method=cosen-paper",
    "--set=options.separability_std=1",
    "--set=options.acceptance=revert",
]


def start(*arguments, **environment):
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,  # as here: sums are the same
        preexec_fn=interrupts.heeded,
    )


def train_here(*arguments):
    """Run the same command in this process, which has already imported everything."""
    app(["train", *arguments], standalone_mode=False)


def epochs_done(path):
    history = path / "history.csv"
    return len(history.read_text().splitlines()) - 1 if history.exists() else 0


def wait_for_epoch(process, path, epoch):
    while epochs_done(path) < epoch and process.poll() is None:
        time.sleep(0.01)


def test_a_run_killed_at_random_moments_ends_as_one_never_interrupted(make_folder, tmp_path):
    """Also if its images do not fit in the cache at first, and are decoded in each epoch."""
    settings = [str(make_folder(cat=60, dog=30, eel=15)), *SETTINGS]
    whole, killed, small = tmp_path / "whole", tmp_path / "killed", tmp_path / "small"
    train_here(*settings, f"--out={whole}")

    chance = random.Random(0)
    attempts = [
        ([*settings, f"--out={killed}"], {"COSEN_CACHE": str(small), "COSEN_CACHE_BYTES": "1000"}),
        ([f"--resume={killed}"], {}),
    ]
    for arguments, environment in attempts:
        process = start(*arguments, **environment)
        wait_for_epoch(process, killed, epochs_done(killed) + 2)
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, f"it ended before it was killed: {errors}"
    assert 4 <= epochs_done(killed) < EPOCHS
    assert [entry.size for entry in CacheFolder(small).entries()] == [0]
    train_here(f"--resume={killed}")

    one, two = RunFolder(whole), RunFolder(killed)
    expected = load_file(whole / "model.safetensors")
    for name, tensor in load_file(killed / "model.safetensors").items():
        assert torch.equal(tensor, expected[name]), name
    states = one.checkpoint(), two.checkpoint()
    for name, tensor in states[0]["network"].items():
        assert torch.equal(tensor, states[1]["network"][name]), name
    assert len(cost_steps(one)) == len(cost_steps(two)) == EPOCHS
    for step, again in zip(cost_steps(one), cost_steps(two), strict=True):
        assert all(torch.equal(step[name], again[name]) for name in step)
    assert history_without_times(one) == history_without_times(two)
    assert one.metrics() == two.metrics()


def test_a_running_run_is_locked_and_can_be_interrupted(make_folder, tmp_path):
    out = tmp_path / "run"
    process = start(
        str(make_folder(cat=20, dog=10)),
        "--size=16",
        "--epochs=10000",
        "--device=cpu",
        f"--out={out}",
    )
    wait_for_epoch(process, out, 1)
    with pytest.raises(RunError, match="in use by another process"):
        train_here(f"--resume={out}")
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert f"cosen train --resume {out}" in errors
    assert "Traceback" not in errors
    assert RunFolder(out).checkpoint() is not None
