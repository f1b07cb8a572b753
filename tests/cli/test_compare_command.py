"""The output of ``cosen compare`` and ``cosen methods``."""

import json
import re
import sys
from pathlib import Path

import pytest
from PIL import Image

from commands import Done, run_command, words
from cosen.methods import METHODS
from small_study import ARGUMENTS, run_here

pytestmark = pytest.mark.training


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs a command in this process, in an empty folder: ``run("compare", "digits")``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("cosen.comparing.grid.run_locally", run_here)
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments: str) -> Done:
        return run_command(capsys, monkeypatch, *arguments)

    return call


def test_it_prints_the_table_the_choice_and_the_folder(run, tmp_path):
    folder = tmp_path / "a-study-whose-folder-has-a-name-that-is-longer-than-a-line-of-80-columns"
    command = ("compare", *ARGUMENTS, "--imbalance=1=5", "--seeds=1", f"--out={folder}")
    command += ("--methods=focal,smote,small_study:Stumbles",)
    done = run(*command)
    assert done.returncode == 1, "stumbles/0 failed; smote does not support this data"
    rows = json.loads((folder / "leaderboard.json").read_text())["rows"]
    assert {row["method"] for row in rows} == {"baseline", "focal", "smote", "stumbles"}
    for row in rows:
        line = next(line for line in done.stdout.splitlines() if line.startswith(row["method"]))
        figures = row["test"] and f"{100 * row['test']['accuracy']['mean']:.1f}"
        assert line.split()[1] == (figures or "-")
    choice = json.loads((folder / "choice.json").read_text())
    assert " ".join([choice["sentence"], *choice["caveats"]]) in words(done.stdout)
    assert done.stdout.endswith(f"The study is in {folder}\n"), "on one line, to be copied"
    trace = folder / "runs" / "stumbles" / "0" / "traceback.txt"
    assert f"Traceback of stumbles: {trace}\n" in done.stdout

    reason = json.loads((folder / "failures.json").read_text())["failures"]["smote"]["0"]
    assert f"smote failed: {reason}" in words(done.stdout)
    assert "stumbles failed: ZeroDivisionError: no image of" in words(done.stdout)
    assert "…" not in done.stdout + done.stderr
    assert done.stderr.splitlines() == [
        f"smote/0 failed: {reason}",
        "3 runs",
        "baseline/0 (1 of 3)",
        "focal/0 (2 of 3)",
        "stumbles/0 failed: ZeroDivisionError: no image of",
        "cosen: the study is not complete: 1 of its runs failed (stumbles/0); run the same command "
        "again to repeat them",
    ]


def test_a_second_time_nothing_is_trained_and_json_is_valid(run, tmp_path):
    command = ("compare", *ARGUMENTS, "--methods=focal", "--seeds=1", "--out=study")
    first = run(*command)
    again = run(*command)
    assert again.stderr == "2 runs, 2 already finished\n"
    assert again.stdout == first.stdout
    plain = run(*command, "--json")
    assert plain.stderr == ""
    found = json.loads(plain.stdout)
    assert found["study"] == "study"
    assert found["choice"] == json.loads((tmp_path / "study" / "choice.json").read_text())
    assert {row["method"] for row in found["leaderboard"]["rows"]} == {"baseline", "focal"}


def test_a_file_has_one_line_per_method(run, monkeypatch):
    command = ("compare", *ARGUMENTS, "--methods=focal", "--seeds=1", "--out=study")
    monkeypatch.delenv("COLUMNS")
    heading, first, second, note, *_ = run(*command).stdout.splitlines()
    assert heading.split()[-2:] == ["change", "seconds"]
    assert {first.split()[0], second.split()[0]} == {"baseline", "focal"}
    assert note.startswith("On test, in per cent")


def test_a_method_in_the_current_folder(run, tmp_path, monkeypatch):
    (tmp_path / "my_method.py").write_text(
        "from small_study import Smoothed\n\n\nclass Mine(Smoothed):\n    name = 'mine'\n"
    )
    monkeypatch.delitem(sys.modules, "my_method", raising=False)
    done = run(
        *("compare", *ARGUMENTS, "--seeds=1", "--out=study", "--methods=my_method:Mine"),
        "--set=my_method:Mine.amount=0.3",
    )
    sys.modules.pop("my_method", None)
    assert done.returncode == 0, done.stderr
    assert "mine/0 (2 of 2)" in done.stderr
    methods = json.loads((tmp_path / "study" / "study.json").read_text())["methods"]
    assert methods["mine"] == {"method": "my_method:Mine", "options": {"amount": 0.3}}


def test_a_method_with_and_without_options(run, tmp_path):
    command = ("compare", *ARGUMENTS, "--seeds=1", "--out=study")
    done = run(*command, "--methods=focal, cosen(margin=4,tau=1),focal(gamma=3)")
    assert done.returncode == 0, done.stderr
    assert "cosen(margin=4,tau=1)/0 (3 of 4)" in done.stderr
    methods = json.loads((tmp_path / "study" / "study.json").read_text())["methods"]
    assert list(methods) == ["baseline", "focal", "cosen(margin=4,tau=1)", "focal(gamma=3)"]
    assert methods["cosen(margin=4,tau=1)"] == {
        "method": "cosen",
        "options": {"margin": 4, "tau": 1},
    }


def test_misclassification_costs_are_an_objective(run, tmp_path):
    (tmp_path / "costs.csv").write_text(",0,1,2\n0,0,1,1\n1,5,0,2\n2,1,1,0\n")
    done = run(
        *("compare", *ARGUMENTS, "--methods=focal", "--seeds=1", "--out=study"),
        "--objective=costs.csv",
    )
    assert done.returncode == 0, done.stderr
    assert "Choice for mean misclassification cost: " in words(done.stdout)
    assert "cost" in done.stdout.splitlines()[1].split(), "a column of its own"


# Mistakes

MISTAKES = {
    "no-folder": (("no/such/folder",), "neither a folder, nor a CSV, nor a dataset's name"),
    "no-seeds": (("digits", "--seeds=0"), "seeds must be at least 1, but is 0"),
    "no-workers": (("digits", "--workers=0"), "workers must be at least 1, but is 0"),
    "nobody": ((*ARGUMENTS, "--cluster=127.0.0.1:1"), "cannot use Ray at '127.0.0.1:1'"),
    "no-address": ((*ARGUMENTS, "--cluster=no address"), "cannot use Ray at 'no address'"),
    "a-file": (("digits", "--out=a-file"), "the folder a-file: File exists"),
    "a-run": (("digits", "--out=a-run"), "a-run holds a single run, not a study"),
    "no-method": (("digits", "--methods=cosin"), "there is no method 'cosin': did you mean"),
    "no-module": (("digits", "--methods=nowhere:Mine"), "there is no module 'nowhere'"),
    "not-there": (("digits", "--methods=small_study:Mine"), "'small_study' has no 'Mine'"),
    "not-one": (("digits", "--methods=small_study:not_a_method"), "is not a method: derive it"),
    "nameless": (("digits", "--methods=small_study:Nameless"), "Nameless needs a name"),
    "whose": (("digits", "--set=options.x=1"), "options.x names no method: use --set METHOD.x=1"),
    "not-asked": (("digits", "--methods=cosen", "--set=smote.x=1"), "options are given for smote"),
    "no-option": (("digits", "--methods=focal", "--set=focal.x=1"), "focal has no option 'x'"),
    "no-setting": (("digits", "--set=epoch=1"), "did you mean 'epochs'?"),
    "varies": (("digits", "--set=method=smote"), "method differs between runs: use --methods"),
    "objective": (
        ("digits", "--objective=balence"),
        "objective must be overall, balanced or a CSV",
    ),
    "no-costs": ((*ARGUMENTS, "--objective=costs.csv"), "there is no cost file costs.csv"),
    "devices": (("digits", "--set=devices=2"), "each run of a comparison uses one device"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(run, tmp_path, mistake):
    arguments, message = MISTAKES[mistake]
    if "--cluster" in str(arguments):
        pytest.importorskip("ray")
    (tmp_path / "a-file").touch()
    (tmp_path / "a-run").mkdir()
    (tmp_path / "a-run" / "run.json").write_text("{}")
    out = [] if "--out" in str(arguments) else ["--out=study"]
    done = run("compare", *arguments, *out)
    assert done.returncode == 1
    assert done.stdout == ""
    told = [line for line in done.stderr.splitlines() if not re.fullmatch(r"\d+ runs", line)]
    assert len(told) == 1, done.stderr
    assert told[0].startswith("cosen: ")
    assert message in told[0]
    if mistake not in ("nobody", "no-address"):  # found before the study is written
        assert not (tmp_path / "study" / "study.json").exists()


def test_without_ray_the_message_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    done = run("compare", *ARGUMENTS, "--cluster=local", "--out=study")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("pip install ray")


# On a terminal


def on_screen(written, columns=80):
    """The lines that a terminal shows at the end."""
    lines, row, column = [""], 0, 0
    for erase, up, other, character in re.findall(
        r"(\x1b\[2K)|\x1b\[(\d+)A|(\x1b\[[?\d;]*[a-zA-Z])|(.)", written, re.S
    ):
        if erase:
            lines[row] = ""
        elif up:
            row -= int(up)
        elif character == "\r":
            column = 0
        elif character == "\n" or (character and column == columns):
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        if character and character not in "\r\n":
            line = lines[row].ljust(column)
            lines[row] = line[:column] + character + line[column + 1 :]
            column += 1
        assert other in ("", "\x1b[?25l", "\x1b[?25h") or other.endswith("m"), repr(other)
    return [line.rstrip() for line in lines]


@pytest.fixture
def terminal(monkeypatch):
    """Standard error is a terminal of 80 columns."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


def test_bars_on_a_terminal_leave_only_messages(run, terminal):
    command = ("compare", *ARGUMENTS, "--imbalance=1=5", "--seeds=2", "--out=study")
    command += ("--methods=focal,smote",)
    done = run(*command)
    assert done.returncode == 0, "no run failed: smote does not support this data"
    assert re.search(r"\d of 4 runs", done.stderr)
    reason = json.loads(Path("study/failures.json").read_text())["failures"]["smote"]["0"]
    assert (
        words(" ".join(on_screen(done.stderr)))
        == f"smote/0 failed: {reason} smote/1 failed: {reason}"
    )
    assert done.stderr.count("\x1b[?25l") == done.stderr.count("\x1b[?25h") == 1, "the cursor"
    assert "\x1b[2K" not in done.stdout


def test_warnings_are_above_the_bars_once(run, terminal, make_folder):
    images = make_folder(cat=12, dog=12)
    for path in images.rglob("*.png"):
        Image.open(path).resize((80, 80)).save(path)
    (images / "cat" / "000.png").write_bytes(b"no image")
    done = run(
        *("compare", str(images), "--network=small-cnn", "--epochs=1", "--seeds=2"),
        *("--device=cpu", "--methods=baseline", "--out=study", "--skip-broken"),
    )
    assert done.returncode == 0
    shown = words(" ".join(on_screen(done.stderr)))
    assert shown.startswith("cosen: ")
    assert shown.count("skipped 1 broken files of 24") == 1


def test_an_interrupt_on_a_terminal_says_how_to_resume(run, terminal, monkeypatch):
    def interrupted(jobs, *, on_progress, **_):
        on_progress(jobs[0].name, 1, 2)
        raise KeyboardInterrupt

    monkeypatch.setattr("cosen.comparing.grid.run_locally", interrupted)
    done = run("compare", *ARGUMENTS, "--methods=focal", "--seeds=1", "--out=study")
    assert done.returncode == 130
    assert [line for line in on_screen(done.stderr) if line] == [
        "Stopped. Finished runs and epochs are kept; run the same command to resume.",
    ]


# The methods


def test_methods_has_one_line_per_method(run):
    done = run("methods")
    lines = done.stdout.splitlines()
    assert len(lines) == len(METHODS) + 1
    for line, (name, method) in zip(lines, METHODS.items(), strict=False):
        assert line.split()[0] == name
        assert line.endswith(f"  {method.description}")
    assert " * " in lines[list(METHODS).index("smote")], "compared by default"
    assert json.loads(run("methods", "--json").stdout) == {
        name: method.description for name, method in METHODS.items()
    }
