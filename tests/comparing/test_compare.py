"""Comparisons in Python; interrupted comparisons run as commands."""

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import interrupts
import small_study
from cosen.__main__ import app
from cosen.comparing.grid import compare_methods, make_task
from cosen.comparing.study_folder import StudyFolder
from cosen.errors import DataError, InputError, RunError
from cosen.methods import METHODS, NetworkMethod
from cosen.methods.resampling import Smote
from cosen.training.config import TrainConfig
from small_study import ClassWise, Dies, Locked, Nameless, Picky, Smoothed, run_here, run_study

pytestmark = pytest.mark.training

HERE = Path(small_study.__file__).parent


@pytest.fixture
def here(monkeypatch):
    """Train in this process: starting another takes seconds."""
    monkeypatch.setattr("cosen.comparing.grid.run_locally", run_here)


def rows_of(compared):
    return {row.method: row for row in compared.leaderboard.rows}


def times_of_change(folder):
    """Return when each file below a folder was written."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


# The files of a study


def test_a_comparison_leaves_a_study_folder(tmp_path, here):
    compared = run_study(tmp_path / "study", ["cosen"], seeds=2)
    assert compared.started == [(4, 0)]
    assert compared.outcomes == dict.fromkeys(["baseline/0", "cosen/0", "baseline/1", "cosen/1"])

    study = StudyFolder.existing(tmp_path / "study")
    assert compared.folder.path == study.path
    assert {path.name for path in study.path.iterdir()} == {
        *(
            "study.json",
            "failures.json",
            "checksums.json",
            "leaderboard.json",
            "leaderboard.csv",
            "leaderboard.md",
        ),
        *("choice.json", "runs", ".lock"),
    }
    record = study.record()
    assert list(record.methods) == ["baseline", "cosen"]
    assert record.seeds == (0, 1)
    assert record.config.epochs == 1
    assert study.failures() == {}
    choice = study.choice()
    assert choice.method in record.methods
    assert choice.seeds == (0, 1)
    assert choice.sentence in (study.path / "leaderboard.md").read_text()

    runs = study.finished_runs()
    assert {method: list(by_seed) for method, by_seed in runs.items()} == {
        "baseline": [0, 1],
        "cosen": [0, 1],
    }
    rows = rows_of(compared)
    with (study.path / "leaderboard.csv").open(newline="") as file:
        lines = {line["method"]: line for line in csv.DictReader(file)}
    assert set(rows) == set(lines) == set(runs)
    for method, row in rows.items():
        assert row.seeds == (0, 1)
        recalls = [run.metrics().test.mean_recall for run in runs[method].values()]
        assert row.test["mean_recall"].mean == pytest.approx(np.mean(recalls))
        assert float(lines[method]["test_mean_recall"]) == pytest.approx(np.mean(recalls))


def test_runs_of_one_seed_share_the_split_and_seeds_do_not(tmp_path, here, monkeypatch):
    made = []

    def counted(*arguments, **options):
        made.append(1)
        return make_task(*arguments, **options)

    monkeypatch.setattr("cosen.comparing.grid.make_task", counted)
    runs = run_study(tmp_path, ["focal"], seeds=2).folder.finished_runs()
    assert len(made) == 1  # the runs create their own, from the caches

    def split(method, seed):
        run = runs[method][seed]
        names = run.image_names()
        return run.record().prepared.fingerprint, names.val, names.test

    for seed in (0, 1):
        assert split("baseline", seed) == split("focal", seed)
    assert all(
        one != other for one, other in zip(split("focal", 0), split("focal", 1), strict=True)
    )


def test_a_folder_without_a_study_has_an_error(tmp_path):
    with pytest.raises(RunError, match=r"is not a study folder: it has no study\.json"):
        StudyFolder.existing(tmp_path)
    with pytest.raises(RunError, match=r"no leaderboard\.json: the study is not finished"):
        StudyFolder(tmp_path).leaderboard()


def test_misclassification_costs_are_the_objective(tmp_path, here):
    costs = torch.tensor([[0.0, 1, 1], [5, 0, 2], [1, 1, 0]])
    path = tmp_path / "costs.csv"
    path.write_text(",0,1,2\n0,0,1,1\n1,5,0,2\n2,1,1,0\n")
    compared = run_study(tmp_path / "study", ["focal"], objective=str(path))
    board = compared.leaderboard
    assert (board.objective, board.largest_cost) == ("costs", 5)
    for method, row in rows_of(compared).items():
        outputs = compared.folder.run(method, 0).predictions()["test"]
        paid = costs[outputs.target, outputs.logits.argmax(1)]
        assert 5 * row.test["error"].mean == pytest.approx(float(paid.mean()))
    assert "mean misclassification cost" in compared.choice.sentence
    # the leaderboard uses the costs of the first start; other costs count as other data
    path.write_text(",0,1,2\n0,0,1,1\n1,9,0,2\n2,1,1,0\n")
    with pytest.raises(RunError, match="images, labels, costs or layers differ"):
        run_study(tmp_path / "study", ["class-weights"], objective=str(path))


# Shared data


def test_each_image_is_decoded_once_for_all_processes(tmp_path, monkeypatch, make_folder):
    """The parent also decodes 20 images to choose the network."""
    images = make_folder(cat=24, dog=16)
    log = tmp_path / "decoded.txt"
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(LOG_DECODES.format(log=str(log)))
    path = [str(tmp_path / "site"), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    settings = {"exclude": [], "imbalance": None, "epochs": 1, "device": "cpu"}
    arguments = {"data": str(images), "methods": ["focal"], "seeds": 2, "workers": 2, **settings}
    program = f"import cosen; cosen.compare(out={str(tmp_path / 'study')!r}, **{arguments!r})"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)
    lines = [line.split(" ", 1) for line in log.read_text().splitlines()]
    assert len({process for process, _ in lines}) == 1
    times = Counter(name for _, name in lines)
    assert len(times) == 40
    assert Counter(times.values()) == {1: 20, 2: 20}
    study = StudyFolder.existing(tmp_path / "study")
    assert [list(by_seed) for by_seed in study.finished_runs().values()] == [[0, 1], [0, 1]]


LOG_DECODES = """
import os
import PIL.Image
def log(opened, *arguments, _open=PIL.Image.open, **options):
    with open({log!r}, "a") as file:
        file.write(f"{{os.getpid()}} {{opened}}\\n")
    return _open(opened, *arguments, **options)
PIL.Image.open = log
"""


# Continuing


def test_what_is_finished_is_not_done_again(tmp_path, here):
    first = run_study(tmp_path, ["focal"])
    written = times_of_change(tmp_path / "runs")

    again = run_study(tmp_path, ["focal"])
    assert again.started == [(2, 2)]
    assert again.outcomes == {}
    assert again.leaderboard == first.leaderboard
    assert times_of_change(tmp_path / "runs") == written

    more = run_study(tmp_path, ["class-weights"], seeds=2)
    assert more.started == [(6, 2)]
    assert set(more.outcomes) == {"baseline/1", "focal/1", "class-weights/0", "class-weights/1"}
    assert {path: times_of_change(tmp_path / "runs").get(path) for path in written} == written
    rows = rows_of(more)
    assert {name: row.seeds for name, row in rows.items()} == dict.fromkeys(rows, (0, 1))
    assert set(rows) == {"baseline", "focal", "class-weights"}


def test_other_settings_are_refused_by_name(tmp_path, here):
    run_study(tmp_path, ["focal", ClassWise()], options={"focal": {"gamma": 1.0}})
    written = times_of_change(tmp_path)
    with pytest.raises(InputError, match=r"with other settings \(epochs, lr\): use another --out"):
        run_study(tmp_path, ["focal"], options={"focal": {"gamma": 1.0}}, epochs=2, lr=0.1)
    with pytest.raises(InputError, match=r"\(options of focal\)"):
        run_study(tmp_path, ["focal"], options={"focal": {"gamma": 2.0}})
    with pytest.raises(InputError, match=r"\(options of focal\)"):
        run_study(tmp_path, ["focal"])
    with pytest.raises(InputError, match=r"\(options of class-wise\)"):
        run_study(tmp_path, [ClassWise((1.0, 2.0, 1.0))])
    assert times_of_change(tmp_path) == written
    again = run_study(tmp_path, ["focal", ClassWise()], options={"focal": {"gamma": 1.0}})
    assert again.outcomes == {}


# The same method with other options


def test_a_method_with_other_options_is_another_method(tmp_path, here):
    methods = ["smote", "smote(neighbours=1)", "small_study:Smoothed(amount=0.3)", Smoothed(0.2)]
    study = tmp_path / "study"
    first = run_study(study, methods, options={"smote": {"neighbours": 3}})
    labels = ["smote", "smote(neighbours=1)", "smoothed(amount=0.3)", "smoothed(amount=0.2)"]
    assert list(first.folder.record().methods) == ["baseline", *labels]
    assert set(first.outcomes) == {f"{label}/0" for label in ["baseline", *labels]}
    assert set(rows_of(first)) == {"baseline", *labels}
    assert {path.name for path in (study / "runs").iterdir()} == {"baseline", *labels}
    options = {label: first.folder.run(label, 0).record().config.options for label in labels[:3]}
    assert options == {
        "smote": {"neighbours": 3},
        "smote(neighbours=1)": {"neighbours": 1},
        "smoothed(amount=0.3)": {"amount": 0.3},
    }
    markdown = (study / "leaderboard.md").read_text()
    assert all(f"| {label} |" in markdown for label in labels)

    # the same methods again, in another order and with an object for a name: nothing is trained
    again = run_study(
        study,
        [Smoothed(0.2), Smote(neighbours=1), "smote"],
        options={"smote": {"neighbours": 3}},
    )
    assert again.outcomes == {}
    assert again.leaderboard == first.leaderboard
    # more options can be added; the earlier object is missing, but its run is finished
    more = run_study(study, ["smote(neighbours=2)"], options={"smote": {}})
    assert set(more.outcomes) == {"smote(neighbours=2)/0"}
    assert set(rows_of(more)) == {"baseline", *labels, "smote(neighbours=2)"}
    with pytest.raises(InputError, match=r"\(options of smote\)"):
        run_study(study, ["smote"])


def test_objects_with_other_options_are_named_by_them(tmp_path, here):
    first = run_study(tmp_path, [Smote(), Smote(neighbours=3), Smoothed()])
    assert list(first.folder.record().methods) == [
        *("baseline", "smote", "smote(neighbours=3)", "smoothed")
    ]
    # objects of built-in methods are created again by name
    again = run_study(tmp_path, ["smote(neighbours=3)"], seeds=2)
    assert set(again.outcomes) == {"baseline/1", "smote/1", "smote(neighbours=3)/1"}


def test_options_with_paths_have_folders_of_their_own(tmp_path, here):
    paths = [tmp_path / "a" / "costs.csv", tmp_path / "a_costs.csv"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text(",0,1,2\n0,1,1,1\n1,1,0.5,1\n2,1,1,1\n")
    methods = [f"fixed-costs(costs={path})" for path in paths]
    compared = run_study(tmp_path / "study", methods)
    assert compared.outcomes == dict.fromkeys(["baseline/0", *(f"{name}/0" for name in methods)])
    assert set(rows_of(compared)) == {"baseline", *methods}
    folders = [compared.folder.run(name, 0).path for name in methods]
    assert len({folder.parent for folder in folders}) == 2
    assert all(folder.parent.parent == tmp_path / "study" / "runs" for folder in folders)
    assert run_study(tmp_path / "study", methods).outcomes == {}


def test_a_run_has_as_many_threads_when_few_are_left(tmp_path, monkeypatch):
    crews = []

    def run(jobs, *, workers, **callbacks):
        crews.append((len(jobs), workers))
        return run_here(jobs, workers=workers, **callbacks)

    monkeypatch.setattr("cosen.comparing.grid.run_locally", run)
    run_study(tmp_path, ["focal"], workers=2)
    shutil.rmtree(tmp_path / "runs" / "focal" / "0")
    run_study(tmp_path, ["focal"], workers=2)
    assert crews == [(2, 2), (1, 2)]  # else the result would differ from a run without a stop


def test_data_that_changed_is_noticed_before_training(tmp_path, here, make_folder):
    images = make_folder(cat=20, dog=12)
    table = tmp_path / "images.csv"
    lines = [f"{path},{path.parent.name}" for path in sorted(images.rglob("*.png"))]
    table.write_text("\n".join(["path,label", *lines]))
    settings = {"data": str(table), "exclude": (), "imbalance": None}
    run_study(tmp_path / "study", ["focal"], **settings)
    for change in ("label", "image"):
        if change == "label":
            table.write_text(
                "\n".join(["path,label", *lines]).replace("000.png,cat", "000.png,dog")
            )
        else:
            table.write_text("\n".join(["path,label", *lines[1:]]))
        with pytest.raises(RunError, match=r"the data or the network has changed since .*study"):
            run_study(tmp_path / "study", ["class-weights"], **settings)
        assert not (tmp_path / "study" / "runs" / "class-weights").exists()


# Failures


def test_a_method_that_cannot_work_is_reported_before_training_and_others_continue(
    tmp_path, monkeypatch
):
    trained = []

    def run(jobs, **options):
        trained.extend(job.name for job in jobs)
        assert not (tmp_path / "runs" / "smote").exists()
        return run_here(jobs, **options)

    monkeypatch.setattr("cosen.comparing.grid.run_locally", run)
    told = run_study(tmp_path, ["smote", "focal"], imbalance="1=5")
    assert trained == ["baseline/0", "focal/0"]
    assert told.started == [(2, 0)]
    assert list(told.outcomes) == ["smote/0", "baseline/0", "focal/0"]
    reason = told.outcomes["smote/0"]
    assert "smote" in reason
    assert "class '1' has 3" in reason
    assert told.folder.failures() == {"smote": {0: reason}}
    smote = rows_of(told)["smote"]
    assert (smote.seeds, smote.failures, smote.has_failed) == ((), {0: reason}, True)
    assert f"smote failed: {reason}" in (tmp_path / "leaderboard.md").read_text()

    # the fix that the message suggests works in the same folder
    fixed = run_study(tmp_path, ["smote"], options={"smote": {"neighbours": 2}}, imbalance="1=5")
    assert fixed.outcomes == {"smote/0": None}
    assert fixed.folder.failures() == {}


def test_a_user_defined_method_that_fails_does_not_stop_others(tmp_path, monkeypatch):
    """In processes: one method raises, one ends its process, one cannot be pickled."""

    class Local(NetworkMethod):
        name = "local"
        description = "its class is inside a function"

    methods = [Smoothed(0.2), "small_study:Stumbles", Dies(), Locked(), Local(), Picky()]
    told = run_study(tmp_path, methods, workers=1)
    reasons = {
        "picky/0": "KeyError: 'melanoma'",
        "baseline/0": None,
        "smoothed(amount=0.2)/0": None,
        "stumbles/0": "ZeroDivisionError: no image of",
        "dies/0": "its process ended with exit code 3",
        "local/0": None,
    }
    locked = told.outcomes.pop("locked/0")
    assert re.match("it cannot be sent to another process .*pickle", locked)
    assert told.outcomes == reasons
    study = told.folder
    assert study.failures() == {
        "picky": {0: reasons["picky/0"]},
        "stumbles": {0: reasons["stumbles/0"]},
        "dies": {0: reasons["dies/0"]},
        "locked": {0: locked},
    }
    rows = rows_of(told)
    failed = {"stumbles", "dies", "locked", "picky"}
    assert {name for name, row in rows.items() if row.has_failed} == failed
    assert rows["dies"].failures == {0: reasons["dies/0"]}
    assert "make_loss" in (study.run("stumbles", 0).path / "traceback.txt").read_text()
    # a method without its object keeps its reason
    monkeypatch.setattr("cosen.comparing.grid.run_locally", run_here)
    again = run_study(tmp_path, [Smoothed(0.2)])
    assert set(again.outcomes) == set(), "code that is not named again is not run"
    assert rows_of(again)["dies"].failures == {0: reasons["dies/0"]}


def test_where_all_fail_there_is_one_error_and_the_folder_stays_free(tmp_path, here):
    with pytest.raises(RunError) as raised:
        run_study(tmp_path, ["focal", "smote", Picky()], lr=1e30)
    study = StudyFolder(tmp_path)
    reasons = {name: by_seed[0] for name, by_seed in study.failures().items()}
    assert set(reasons) == {"baseline", "focal", "smote", "picky"}
    assert reasons["smote"] == "not started because baseline/0 failed"
    assert str(raised.value) == (
        f"no run of {tmp_path} has finished; baseline/0 failed: {reasons['baseline']}"
    )
    assert "use a lower learning rate (--lr)" in reasons["baseline"]
    told = run_study(tmp_path, ["focal"], lr=0.01)
    assert told.outcomes == {"baseline/0": None, "focal/0": None}
    assert set(rows_of(told)) == {"baseline", "focal"}


MISTAKES = {
    "unknown": (["cosin"], {}, f"did you mean 'cosen'\\? Choose from {', '.join(METHODS)}, or"),
    "twice": (["focal", "focal"], {}, "method focal is given twice: give each method once"),
    "two-objects": ([Smoothed(0.2), Smoothed(0.2)], {}, r"smoothed\(amount=0.2\) is given twice"),
    "name-and-object": (["smote(neighbours=3)", Smote(neighbours=3)], {}, "is given twice"),
    "same-options": (
        ["focal", "focal(gamma=1)"],
        {"options": {"focal": {"gamma": 1}}},
        r"method focal\(gamma=1\) is given twice",
    ),
    "other-order": (
        ["smote-rsb(neighbours=3,similarity=0.5)", "smote-rsb(similarity=0.5, neighbours=3)"],
        {},
        "is given twice",
    ),
    "no-equals": (["smote(3)"], {}, r"'3' in 'smote\(3\)' is not an option: write OPTION=VALUE"),
    "no-bracket": (["smote(neighbours=3"], {}, r"is not a method: write NAME or NAME\("),
    "a-class": ([Smoothed], {}, "is not a method: pass a name, or an object"),
    "options-of-object": ([Smoothed()], {"options": {"smoothed": {}}}, "given by name are"),
    "nameless": ([Nameless()], {}, "Nameless needs a name that is a valid folder name"),
    "no-module": (["no_such_module:Mine"], {}, "there is no module 'no_such_module'"),
    "not-in-module": (["small_study:Mine"], {}, "the module 'small_study' has no 'Mine'"),
    "no-method": (["small_study:not_a_method"], {}, "is not a method: derive it from"),
    "options-of-none": (["focal"], {"options": {"smote": {}}}, "for smote, but the methods"),
    "no-option": (["focal"], {"options": {"focal": {"beta": 1}}}, "focal has no option 'beta'"),
    "no-value": (["focal"], {"options": {"focal": {"gamma": Path()}}}, "numbers, strings or lists"),
    "no-seeds": (["focal"], {"seeds": 0}, "seeds must be at least 1, but is 0"),
    "no-workers": (["focal"], {"workers": 0}, "workers must be at least 1, but is 0"),
    "devices": (["focal"], {"devices": 2}, "each run of a comparison uses one device"),
    "network": (["focal"], {"network": "no-such"}, "no-such"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_refused_before_anything_is_written(tmp_path, mistake):
    methods, wish, message = MISTAKES[mistake]
    with pytest.raises(InputError, match=message):
        run_study(tmp_path / "study", methods, **wish)
    assert not (tmp_path / "study").exists()


def test_options_without_a_method_are_refused(tmp_path):
    with pytest.raises(InputError, match="options gamma belong to no method: use --set"):
        compare_methods(TrainConfig(options={"gamma": 1}), tmp_path, methods=["focal"])


def test_a_mistake_in_the_data_does_not_occupy_the_folder(tmp_path, here):
    with pytest.raises(InputError, match="split 'fraction' is unknown"):
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


# Interruptions


def start(*arguments):
    """Start the command in the folder of the method's module, which is not on the Python path."""
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
    """Run the same command in this process, which has loaded all modules."""
    app(["compare", *arguments], standalone_mode=False)


def epochs_done(run):
    history = run / "history.csv"
    return len(history.read_text().splitlines()) - 1 if history.exists() else 0


def family_after_epoch(process, run, epoch):
    """Return the child processes once a run has finished an epoch."""
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
    assert "Finished runs and epochs are kept; run the same command to resume." in errors
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
        expected, found = (StudyFolder(each).run(method, 0) for each in (whole, cut))
        assert found.image_names() == expected.image_names()
        for part, outputs in found.predictions().items():
            same = expected.predictions()[part]
            assert torch.equal(outputs.logits, same.logits), (method, part)
            assert torch.equal(outputs.target, same.target), (method, part)
    assert figures(StudyFolder(cut).leaderboard()) == figures(StudyFolder(whole).leaderboard())


def figures(board):
    """Return a leaderboard without the training times."""
    rows = [row.model_copy(update={"seconds": None}) for row in board.rows]
    return board.changed(rows=tuple(rows))


# Clusters


@pytest.mark.xdist_group("ray")  # two at once would disturb each other
def test_a_cluster_gives_the_same_figures_as_processes_here(tmp_path, monkeypatch, here):
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_TMPDIR", tempfile.gettempdir())  # short, since it holds sockets
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), *sys.path]))  # for the nodes
    methods = ["smote", Smoothed(0.2), "small_study:Stumbles"]
    there = run_study(tmp_path / "there", methods, cluster="local")
    near = run_study(tmp_path / "near", methods)
    assert there.outcomes == near.outcomes
    assert figures(there.leaderboard) == figures(near.leaderboard)
    assert there.choice == near.choice
    # finished runs from a cluster are not repeated in processes
    again = run_study(tmp_path / "there", ["smote", "small_study:Stumbles"])
    assert set(again.outcomes) == {"stumbles/0"}


def test_a_missing_ray_is_told_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match="pip install ray"):
        run_study(tmp_path, [], cluster="local")
