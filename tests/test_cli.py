"""Commands as users type them. Those that import little run in their own process."""

import json
import subprocess
import sys

import pytest

import cosen
from commands import Done, run_command
from cosen.data.decoding import Preprocess
from cosen.data.image_cache import decode_images
from cosen.data.sources import from_folder


def start(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cosen", *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs a command in this process, which has imported torch: ``run("inspect", "digits")``."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Done:
        return run_command(capsys, monkeypatch, *arguments)

    return call


def test_help():
    done = start("--help")
    assert done.returncode == 0
    assert "imbalanced image classification" in done.stdout


def test_version():
    done = start("--version")
    assert done.stdout == f"cosen {cosen.__version__}\n"


def test_a_wrong_option_gives_a_message():
    done = start("--no-such-option")
    assert done.returncode == 2
    assert "--no-such-option" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_imports_nothing_heavy():
    program = (
        "import sys; sys.argv = ['cosen', '--help']\n"
        "from cosen.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'sklearn', 'PIL'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_inspect(run, make_folder):
    done = run("inspect", str(make_folder(cat=8, dog=2)))
    assert done.returncode == 0, done.stderr
    assert "10 images, 2 classes" in done.stdout
    assert "largest class 4.0 times the smallest" in done.stdout


def test_inspect_as_json(run, make_folder):
    done = run("inspect", str(make_folder(cat=3, dog=2)), "--json")
    assert json.loads(done.stdout)["counts"] == {"all": [3, 2]}


def test_inspect_uses_digits_by_default(run):
    assert "1797 images, 10 classes" in run("inspect").stdout


@pytest.mark.training
def test_a_method_with_options(run, tmp_path):
    command = ("train", "digits", "--epochs=1", "--imbalance=odd:0.1", "--device=cpu")
    done = run(*command, "--method=cosen(margin=4,tau=1)", "--set=options.cost_lr=0.2", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert set(found) == {"run", "val", "test"}
    assert found["run"] == "runs/digits-cosen-0"
    settings = json.loads((tmp_path / found["run"] / "run.json").read_text())["config"]
    assert settings["method"] == "cosen"
    assert settings["options"] == {"margin": 4, "tau": 1, "cost_lr": 0.2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("inspect", "no/such/folder"), "neither a folder, nor a CSV, nor a dataset's name"),
        (("inspect", "mnist", "--data-root", "nowhere"), "mnist"),
        (("train", "--resume", "x", "--epochs", "3"), "remove epochs"),
        (("train", "digits", "--device", "cuda"), "no cuda device"),
        (("train", "digits", "--config", "."), "cannot read"),
        (("train", "digits", "--set", "epochs"), "--set takes NAME=VALUE"),
        (("fetch", "mnits"), "did you mean 'mnist'"),
        (("fetch", "dil"), "Edinburgh"),
    ],
)
def test_a_mistake_gives_a_message_and_no_traceback(run, arguments, message):
    done = run(*arguments)
    assert done.returncode == 1
    assert done.stderr.startswith("cosen: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_in_its_own_process():
    done = start("inspect", "no/such/folder")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("cosen: ")
    assert "neither a folder, nor a CSV, nor a dataset's name" in done.stderr
    assert "Traceback" not in done.stderr


def test_cache_is_shown_and_cleared(run, make_folder):
    decode_images(from_folder(make_folder(cat=2, dog=2)), Preprocess(8, 8))
    shown = run("cache")
    assert "images: 4 images" in shown.stdout
    assert "in 1 entries" in shown.stdout
    assert len(json.loads(run("cache", "--json").stdout)["entries"]) == 1
    assert "Freed" in run("cache", "--clear").stdout
    assert "in 0 entries" in run("cache").stdout
