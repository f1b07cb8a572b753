"""Several processes, for real, over gloo."""

import os
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file

from cosen.networks.vgg import VGG16Features
from cosen.training.run_folder import RunFolder


def cosen(*arguments, launcher=(sys.executable, "-m", "cosen")):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
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
    """A deterministic case: the head has neither dropout nor batch normalisation."""
    torch.manual_seed(0)
    save_file(VGG16Features().state_dict(), tmp_path / "vgg.safetensors")
    root = make_folder(cat=43, dog=29, eel=11)
    return [
        str(root),
        "--network=head",
        f"--weights={tmp_path / 'vgg.safetensors'}",
        "--size=32",
        "--epochs=3",
        "--batch-size=16",
        "--device=cpu",
        "--set=costs.separability_std=1",
        "--set=precision=float32",
    ]


def test_two_processes_give_what_one_gives(settings, tmp_path):
    outs = {name: tmp_path / name for name in ("one", "two", "torchrun")}
    finish(cosen(*settings, f"--out={outs['one']}"))
    finish(cosen(*settings, "--devices=2", f"--out={outs['two']}"))
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m", "cosen")
    finish(cosen(*settings, f"--out={outs['torchrun']}", launcher=torchrun))
    one = RunFolder(outs["one"])
    for name in ("two", "torchrun"):
        other = RunFolder(outs[name])
        for step, again in zip(one.cost_steps(), other.cost_steps(), strict=True):
            for key in step:
                torch.testing.assert_close(again[key], step[key], atol=1e-4, rtol=1e-4)
        assert other.metrics()["test"]["accuracy"] == one.metrics()["test"]["accuracy"]
        assert other.metrics()["val"]["confusion"] == one.metrics()["val"]["confusion"]
        for row, again in zip(one.history(), other.history(), strict=True):
            assert float(again["train_loss"]) == pytest.approx(float(row["train_loss"]), rel=1e-4)
            assert again["train_error"] == row["train_error"]
        assert len(other.checkpoint()["processes"]) == 2


def test_ten_runs_of_two_processes_end_with_0(tmp_path):
    """A gloo process group can abort the interpreter at exit if anything holds on to it."""
    quick = ["digits", "--epochs=1", "--batch-size=512", "--device=cpu", "--devices=2"]
    for first in range(0, 10, 2):
        pair = [cosen(*quick, f"--out={tmp_path / str(first + i)}") for i in range(2)]
        for process in pair:
            finish(process)


def test_a_mistake_in_several_processes_ends_all_of_them(tmp_path):
    process = cosen(
        "digits", "--devices=2", "--device=cpu", "--method=magic", f"--out={tmp_path / 'x'}"
    )
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "there is no method 'magic'" in errors


def test_a_folder_in_use_is_refused_before_processes_start(tmp_path):
    with RunFolder(tmp_path / "run").in_use():
        process = cosen("digits", "--devices=2", "--device=cpu", f"--out={tmp_path / 'run'}")
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert errors.count("in use by another process") == 1
