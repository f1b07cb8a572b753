"""Real processes, killed and interrupted."""

import random
import signal
import subprocess
import sys
import time

import torch
from safetensors.torch import load_file

from cosen.training.run_folder import RunFolder

COMMAND = [sys.executable, "-m", "cosen", "train"]
SETTINGS = [
    "digits",
    "--imbalance=odd:0.1",
    "--epochs=12",
    "--augment=crop",
    "--device=cpu",
    "--set=ema=0.9",
    "--set=costs.separability_std=1",
    "--set=costs.acceptance=revert",
]


def start(*arguments):
    return subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process):
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors


def epochs_done(path):
    history = path / "history.csv"
    return len(history.read_text().splitlines()) - 1 if history.exists() else 0


def wait_for_epoch(process, path, epoch):
    while epochs_done(path) < epoch and process.poll() is None:
        time.sleep(0.01)


def test_a_run_killed_at_random_moments_ends_as_one_never_interrupted(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    finish(start(*SETTINGS, f"--out={whole}"))

    chance = random.Random(0)
    kills = 0
    for epoch in (1, 4, 9):
        resume = [f"--resume={killed}"] if (killed / "run.json").exists() else None
        process = start(*(resume or [*SETTINGS, f"--out={killed}"]))
        wait_for_epoch(process, killed, epoch)
        time.sleep(chance.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills == 3, "the run was over before it was killed: train for longer"
    finish(start(f"--resume={killed}"))

    one, two = RunFolder(whole), RunFolder(killed)
    expected = load_file(whole / "model.safetensors")
    for name, tensor in load_file(killed / "model.safetensors").items():
        assert torch.equal(tensor, expected[name]), name
    states = one.checkpoint(), two.checkpoint()
    for name, tensor in states[0]["network"].items():
        assert torch.equal(tensor, states[1]["network"][name]), name
    assert len(one.cost_steps()) == len(two.cost_steps()) == 12
    for step, again in zip(one.cost_steps(), two.cost_steps(), strict=True):
        assert all(torch.equal(step[name], again[name]) for name in step)
    for row, again in zip(one.history(), two.history(), strict=True):
        times = {"seconds": "", "images_per_second": ""}
        assert row | times == again | times
    assert one.metrics() == two.metrics()


def test_an_interrupt_saves_and_says_how_to_go_on(tmp_path):
    out = tmp_path / "run"
    process = start("digits", "--epochs=1000", "--device=cpu", f"--out={out}")
    wait_for_epoch(process, out, 1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"cosen train --resume {out}" in errors
    assert "Traceback" not in errors
    assert RunFolder(out).checkpoint() is not None


def test_two_processes_do_not_share_a_folder(tmp_path):
    out = tmp_path / "run"
    first = start("digits", "--epochs=1000", "--device=cpu", f"--out={out}")
    wait_for_epoch(first, out, 1)
    second = start(f"--resume={out}")
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 1
    assert "in use by another process" in errors
    first.kill()
    first.communicate()
