"""Comparisons as a user makes them, in Python; those that are cut off, as commands."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import interrupts
import small_study
from cosen.__main__ import app
from cosen.comparing.compare import compare
from cosen.comparing.study_folder import StudyFolder
from cosen.errors import DataError, InputError, RunError
from cosen.methods import METHODS, NetworkMethod
from cosen.training.config import TrainConfig
from small_study import Dies, Nameless, Picky, Smoothed, run_here, run_study

HERE = Path(small_study.__file__).parent


@pytest.fixture
def here(monkeypatch):
    """Runs are made in this process: starting another takes seconds."""
    monkeypatch.setattr("cosen.comparing.compare.run_locally", run_here)


def rows_of(comparison):
    return {row.method: row for row in comparison.leaderboard.rows}


def times_of_change(folder):
    """When each file below a folder was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


# What a study leaves


def test_a_comparison_leaves_a_study_folder(tmp_path, here):
    told = run_study(tmp_path / "study", ["cosen"], seeds=2)
    comparison = told.comparison
    assert told.started == [(4, 0)]
    assert told.outcomes == dict.fromkeys(["baseline/0", "cosen/0", "baseline/1", "cosen/1"])

    study = StudyFolder.existing(tmp_path / "study")
    assert comparison.folder.path == study.path
    assert {path.name for path in study.path.iterdir()} == {
        *("study.json", "failures.json", "leaderboard.json", "leaderboard.csv", "leaderboard.md"),
        *("choice.json", "runs", ".lock"),
    }
    assert list(study.about()["methods"]) == ["baseline", "cosen"]
    assert study.about()["seeds"] == [0, 1]
    assert study.about()["config"]["epochs"] == 1
    assert study.failures() == {}
    assert study.leaderboard() == comparison.leaderboard
    choice = json.loads((study.path / "choice.json").read_text())
    assert choice["method"] == comparison.choice.method
    assert comparison.choice.sentence in (study.path / "leaderboard.md").read_text()

    runs = study.finished_runs()
    assert {method: list(by_seed) for method, by_seed in runs.items()} == {
        "baseline": [0, 1],
        "cosen": [0, 1],
    }
    rows = rows_of(comparison)
    with (study.path / "leaderboard.csv").open(newline="") as file:
        lines = {line["method"]: line for line in csv.DictReader(file)}
    assert set(rows) == set(lines) == set(runs)
    for method, row in rows.items():
        assert row.seeds == (0, 1)
        recalls = [run.metrics()["test"]["mean_recall"] for run in runs[method].values()]
        assert row.test["mean_recall"].mean == pytest.approx(np.mean(recalls))
        assert float(lines[method]["test_mean_recall"]) == pytest.approx(np.mean(recalls))


def test_runs_of_one_seed_share_the_split_and_seeds_do_not(tmp_path, here):
    study = run_study(tmp_path, ["focal"], seeds=2).comparison.folder
    runs = study.finished_runs()

    def seen(method, seed):
        _, names = runs[method][seed].predictions()
        return runs[method][seed].about()["fingerprint"], names["val"], names["test"]

    for seed in (0, 1):
        assert seen("baseline", seed) == seen("focal", seed)
    assert all(one != other for one, other in zip(seen("focal", 0), seen("focal", 1), strict=True))


def test_a_folder_without_a_study_says_so(tmp_path):
    with pytest.raises(RunError, match=r"is not a study folder: there is no study\.json"):
        StudyFolder.existing(tmp_path)
    with pytest.raises(RunError, match=r"no leaderboard\.json: the study is not finished"):
        StudyFolder(tmp_path).leaderboard()


def test_an_experts_costs_are_the_objective(tmp_path, here):
    costs = torch.tensor([[0.0, 1, 1], [5, 0, 2], [1, 1, 0]])
    (tmp_path / "costs.csv").write_text(",0,1,2\n0,0,1,1\n1,5,0,2\n2,1,1,0\n")
    told = run_study(tmp_path / "study", ["focal"], expert=str(tmp_path / "costs.csv"))
    board = told.comparison.leaderboard
    assert (board.measure.objective, board.measure.largest_cost) == ("expert", 5)
    for method, row in rows_of(told.comparison).items():
        tensors, _ = told.comparison.folder.run(method, 0).predictions()
        paid = costs[tensors["test_target"].long(), tensors["test_logits"].argmax(1)]
        assert 5 * row.test["error"].mean == pytest.approx(float(paid.mean()))
    assert "the expert's costs" in told.comparison.choice.sentence


# Going on


def test_what_is_finished_is_not_done_again(tmp_path, here):
    first = run_study(tmp_path, ["focal"])
    written = times_of_change(tmp_path / "runs")

    again = run_study(tmp_path, ["focal"])
    assert again.started == [(2, 2)]
    assert again.outcomes == {}
    assert again.comparison.leaderboard == first.comparison.leaderboard
    assert times_of_change(tmp_path / "runs") == written

    more = run_study(tmp_path, ["class-weights"], seeds=2)
    assert more.started == [(6, 2)]
    assert set(more.outcomes) == {"baseline/1", "focal/1", "class-weights/0", "class-weights/1"}
    assert {path: times_of_change(tmp_path / "runs").get(path) for path in written} == written
    rows = rows_of(more.comparison)
    assert {name: row.seeds for name, row in rows.items()} == dict.fromkeys(rows, (0, 1))
    assert set(rows) == {"baseline", "focal", "class-weights"}


def test_other_settings_are_refused_by_name(tmp_path, here):
    run_study(tmp_path, ["focal", Smoothed()], options={"focal": {"gamma": 1.0}})
    written = times_of_change(tmp_path)
    with pytest.raises(InputError, match=r"with other settings \(epochs, lr\): use another --out"):
        run_study(tmp_path, ["focal"], options={"focal": {"gamma": 1.0}}, epochs=2, lr=0.1)
    with pytest.raises(InputError, match=r"\(options of focal\)"):
        run_study(tmp_path, ["focal"], options={"focal": {"gamma": 2.0}})
    with pytest.raises(InputError, match=r"\(options of focal\)"):
        run_study(tmp_path, ["focal"])
    with pytest.raises(InputError, match=r"\(options of smoothed\)"):
        run_study(tmp_path, [Smoothed(0.3)])
    assert times_of_change(tmp_path) == written
    again = run_study(tmp_path, ["focal", Smoothed()], options={"focal": {"gamma": 1.0}})
    assert again.outcomes == {}


def test_a_run_has_as_many_threads_when_few_are_left(tmp_path, monkeypatch):
    crews = []

    def run(jobs, *, workers, **told):
        crews.append((len(jobs), workers))
        return run_here(jobs, workers=workers, **told)

    monkeypatch.setattr("cosen.comparing.compare.run_locally", run)
    run_study(tmp_path, ["focal"], workers=2)
    shutil.rmtree(tmp_path / "runs" / "focal" / "0")
    run_study(tmp_path, ["focal"], workers=2)
    assert crews == [(2, 2), (1, 2)]  # else it would not end as one that was never cut off


def test_images_that_changed_are_noticed_before_training(tmp_path, here, make_folder):
    images = make_folder(cat=20, dog=12)
    settings = {"data": str(images), "exclude": (), "imbalance": None}
    run_study(tmp_path / "study", ["focal"], **settings)
    (images / "dog" / "000.png").unlink()
    with pytest.raises(RunError, match=r"the data has changed since .*baseline.0 was trained"):
        run_study(tmp_path / "study", ["class-weights"], **settings)
    assert not (tmp_path / "study" / "runs" / "class-weights").exists()


# What cannot work, and what fails


def test_a_method_that_cannot_work_is_reported_before_training_and_the_rest_goes_on(
    tmp_path, monkeypatch
):
    trained = []

    def run(jobs, **told):
        trained.extend(job.name for job in jobs)
        assert (tmp_path / "runs" / "smote").exists() is False
        return run_here(jobs, **told)

    monkeypatch.setattr("cosen.comparing.compare.run_locally", run)
    told = run_study(tmp_path, ["smote", "focal"], imbalance="1=5")
    assert trained == ["baseline/0", "focal/0"]
    assert told.started == [(2, 0)]
    assert list(told.outcomes) == ["smote/0", "baseline/0", "focal/0"]
    reason = told.outcomes["smote/0"]
    assert "smote" in reason
    assert "class '1' has 3" in reason
    assert told.comparison.folder.failures() == {"smote": {0: reason}}
    smote = rows_of(told.comparison)["smote"]
    assert (smote.seeds, smote.failures, smote.has_failed) == ((), {0: reason}, True)
    assert f"smote failed: {reason}" in (tmp_path / "leaderboard.md").read_text()

    # what the reason says to do is done in the same folder
    mended = run_study(tmp_path, ["smote"], options={"smote": {"neighbours": 2}}, imbalance="1=5")
    assert mended.outcomes == {"smote/0": None}
    assert mended.comparison.folder.failures() == {}


def test_methods_of_ones_own_that_fail_do_so_alone(tmp_path, monkeypatch):
    """In processes, one of which dies."""
    methods = [Smoothed(0.2), "small_study:Stumbles", Dies()]
    told = run_study(tmp_path, methods, workers=1)
    reasons = {
        "baseline/0": None,
        "smoothed/0": None,
        "stumbles/0": "ZeroDivisionError: no image of",
        "dies/0": "its process ended with exit code 3",
    }
    assert told.outcomes == reasons
    study = told.comparison.folder
    assert study.failures() == {
        "stumbles": {0: reasons["stumbles/0"]},
        "dies": {0: reasons["dies/0"]},
    }
    rows = rows_of(told.comparison)
    assert {name for name, row in rows.items() if row.has_failed} == {"stumbles", "dies"}
    assert rows["dies"].failures == {0: reasons["dies/0"]}
    assert "make_loss" in (study.run("stumbles", 0).path / "traceback.txt").read_text()
    # a method of which there is no object now keeps its reason
    monkeypatch.setattr("cosen.comparing.compare.run_locally", run_here)
    again = run_study(tmp_path, [Smoothed(0.2)])
    assert set(again.outcomes) == {"stumbles/0"}
    assert rows_of(again.comparison)["dies"].failures == {0: reasons["dies/0"]}


def test_objects_that_cannot_be_used_are_reported(tmp_path, here):
    class Local(NetworkMethod):
        name = "local"
        description = "no other process can import it"

    told = run_study(tmp_path, [Picky(), Local()])
    assert told.outcomes["picky/0"] == "KeyError: 'melanoma'"
    assert "define its class at the top of a module" in told.outcomes["local/0"]
    assert told.outcomes["baseline/0"] is None


def test_where_all_fail_there_is_one_error_and_the_folder_stays_free(tmp_path, here):
    with pytest.raises(RunError) as raised:
        run_study(tmp_path, ["focal", "smote", Picky()], lr=1e30)
    study = StudyFolder(tmp_path)
    reasons = {name: by_seed[0] for name, by_seed in study.failures().items()}
    assert set(reasons) == {"baseline", "focal", "smote", "picky"}
    assert reasons["smote"] == "its starting point baseline/0 failed"
    assert str(raised.value) == (
        f"no run of {tmp_path} has finished; baseline/0 failed: {reasons['baseline']}"
    )
    assert "lower --lr" in reasons["baseline"]
    told = run_study(tmp_path, ["focal"], lr=0.01)
    assert told.outcomes == {"baseline/0": None, "focal/0": None}
    assert set(rows_of(told.comparison)) == {"baseline", "focal"}


MISTAKES = {
    "unknown": (["cosin"], {}, f"did you mean 'cosen'\\? Choose from {', '.join(METHODS)}, or"),
    "twice": (["focal", "focal"], {}, "two methods are called focal: name each once"),
    "two-objects": ([Smoothed(), Smoothed(0.2)], {}, "two methods are called smoothed"),
    "a-class": ([Smoothed], {}, "is not a method: hand over a name, or an object"),
    "nameless": ([Nameless()], {}, "Nameless needs a name that a folder can have"),
    "no-module": (["no_such_module:Mine"], {}, "there is no module 'no_such_module'"),
    "not-in-module": (["small_study:Mine"], {}, "the module 'small_study' has no 'Mine'"),
    "no-method": (["small_study:not_a_method"], {}, "is not a method: derive it from"),
    "options-of-none": (["focal"], {"options": {"smote": {}}}, "for smote, which is not among"),
    "no-option": (["focal"], {"options": {"focal": {"beta": 1}}}, "focal has no option 'beta'"),
    "no-value": (["focal"], {"options": {"focal": {"gamma": Path()}}}, "numbers, texts or lists"),
    "no-seeds": (["focal"], {"seeds": 0}, "seeds must be at least 1, but is 0"),
    "no-workers": (["focal"], {"workers": 0}, "workers must be at least 1, but is 0"),
    "devices": (["focal"], {"devices": 2}, "a run of a comparison takes one device"),
    "network": (["focal"], {"network": "no-such"}, "no-such"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_before_anything_is_written(tmp_path, mistake):
    methods, wish, message = MISTAKES[mistake]
    with pytest.raises(InputError, match=message):
        run_study(tmp_path / "study", methods, **wish)
    assert not (tmp_path / "study").exists()


def test_options_that_are_of_no_one_method_are_refused(tmp_path):
    with pytest.raises(InputError, match="options gamma are of no one method"):
        compare(TrainConfig(options={"gamma": 1}), tmp_path, methods=["focal"])


def test_a_mistake_in_the_data_does_not_occupy_the_folder(tmp_path, here):
    with pytest.raises(InputError, match="split 'fraction' is not known"):
        run_study(tmp_path, ["focal"], split="fraction")
    with pytest.raises(DataError, match="neither a folder, nor a CSV, nor a dataset's name"):
        run_study(tmp_path, ["focal"], data="no/such/folder")
    assert run_study(tmp_path, []).outcomes == {"baseline/0": None}


def test_a_run_folder_is_not_taken_for_a_study(tmp_path, here):
    run_study(tmp_path, [])
    run = tmp_path / "runs" / "baseline" / "0"
    written = times_of_change(run)
    with pytest.raises(RunError, match="holds a single run, not a study: use another --out"):
        run_study(run, [])
    assert times_of_change(run) == written


# Real processes, cut off


def start(*arguments):
    """The command, in the folder of the method's module, which is not on Python's path."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "cosen", "compare", *arguments],
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=interrupts.heeded,
    )
    os.sched_setaffinity(process.pid, [max(os.sched_getaffinity(0))])  # one thread, as here
    return process


def compare_here(*arguments):
    """The same command in this process, which has loaded all that it takes seconds to load."""
    app(["compare", *arguments], standalone_mode=False)


def epochs_done(run):
    history = run / "history.csv"
    return len(history.read_text().splitlines()) - 1 if history.exists() else 0


def family_after_epoch(process, run, epoch):
    """The processes below one that compares, once a run has come so far."""
    deadline = time.monotonic() + 240
    while epochs_done(run) < epoch:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return psutil.Process(process.pid).children(recursive=True)


def test_a_study_interrupted_and_killed_ends_as_one_never_cut_off(tmp_path, here):
    epochs = 6
    command = [
        *small_study.ARGUMENTS,
        f"--epochs={epochs}",
        "--methods=small_study:Unhurried",
        "--seeds=1",
        "--workers=1",
    ]
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run = cut / "runs" / "unhurried" / "0"

    process = start(*command, f"--out={cut}")
    family = family_after_epoch(process, run, 1)
    with pytest.raises(RunError, match="cut is in use by another process: wait for it"):
        compare_here(*command, f"--out={cut}")
    os.killpg(process.pid, signal.SIGINT)  # to all of them, as a terminal does
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert output == ""
    assert f"kept in {cut}.\nGo on with the same command." in errors
    assert "Traceback" not in errors
    assert psutil.wait_procs(family, timeout=20)[1] == []
    interrupted_at = epochs_done(run)
    assert 1 <= interrupted_at < epochs
    trained_before = times_of_change(cut / "runs" / "baseline")

    process = start(*command, f"--out={cut}")
    family = family_after_epoch(process, run, interrupted_at + 1)
    process.kill()
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert psutil.wait_procs(family, timeout=20)[1] == []
    assert interrupted_at < epochs_done(run) < epochs

    compare_here(*command, f"--out={cut}")
    assert times_of_change(cut / "runs" / "baseline") == trained_before
    compare_here(*command, f"--out={whole}")
    for method in ("baseline", "unhurried"):
        expected, names = StudyFolder(whole).run(method, 0).predictions()
        found, found_names = StudyFolder(cut).run(method, 0).predictions()
        assert found_names == names
        assert set(found) == set(expected)
        for name, tensor in found.items():
            assert torch.equal(tensor, expected[name]), (method, name)
    assert figures(StudyFolder(cut).leaderboard()) == figures(StudyFolder(whole).leaderboard())


def figures(board):
    """A leaderboard but for what depends on the machine."""
    return replace(board, rows=tuple(replace(row, seconds=None) for row in board.rows))


# Elsewhere


@pytest.mark.xdist_group("ray")  # two at once would disturb each other
def test_a_cluster_gives_the_same_figures_as_processes_here(tmp_path, monkeypatch, here):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # short, since it holds sockets
    monkeypatch.setenv("PYTHONPATH", str(HERE))  # what the nodes can import
    methods = ["smote", Smoothed(0.2), "small_study:Stumbles"]
    there = run_study(tmp_path / "there", methods, cluster="local")
    near = run_study(tmp_path / "near", methods)
    assert there.outcomes == near.outcomes
    assert figures(there.comparison.leaderboard) == figures(near.comparison.leaderboard)
    assert there.comparison.choice == near.comparison.choice
    # which is finished, wherever it goes on
    assert set(run_study(tmp_path / "there", ["smote"]).outcomes) == {"stumbles/0"}


def test_a_missing_ray_is_told_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="pip install ray"):
        run_study(tmp_path, [], cluster="local")
