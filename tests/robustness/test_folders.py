"""Run and study folders with damaged files: a flipped bit is noticed, and errors are sentences."""

import json
import os
import shutil

import pytest
import torch
from hypothesis import given

from cosen.errors import RunError
from cosen.inference.evaluate_run import stored_metrics
from cosen.report import write_report
from cosen.training import checksums
from cosen.training.config import TrainConfig
from cosen.training.model_file import load_model
from cosen.training.run import train_run
from cosen.training.run_folder import RunFolder
from cosen.training.thumbnails import read_thumbnails
from robustness.damage import changed_json, damaged, flipped, fuzz, survives

pytestmark = pytest.mark.training

READERS = {
    "run.json": RunFolder.record,
    "metrics.json": RunFolder.metrics,
    "history.csv": RunFolder.history,
    "predictions.json": RunFolder.image_names,
    "predictions.safetensors": RunFolder.predictions,
    "thumbnails.json": read_thumbnails,
    "model.json": lambda run: load_model(run.path),
    "model.safetensors": lambda run: load_model(run.path),
    "checkpoint.pt": RunFolder.checkpoint,
    "costs/0001.safetensors": lambda run: write_report(run.path, run.path / "page.html"),
}
JSON_FILES = [name for name in READERS if name.endswith(".json")]
STUDY_READERS = {
    "study.json": lambda study: study.record(),
    "failures.json": lambda study: study.failures(),
    "leaderboard.json": lambda study: study.leaderboard(),
    "choice.json": lambda study: study.choice(),
}


def forget_checksums(path):
    known = path.parent / checksums.FILE
    if known.is_dir():
        known.rmdir()
    known.unlink(missing_ok=True)


def read_all(run):
    """Everything that later commands read."""
    for read in READERS.values():
        survives(lambda read=read: read(run))
    survives(lambda: stored_metrics(run.path))


@pytest.mark.parametrize("name", READERS)
def test_every_file_has_a_checksum_and_a_flipped_bit_is_noticed(run, name):
    path = run.path / name
    content = path.read_bytes()
    assert survives(lambda: READERS[name](run))

    @fuzz(5 if name.startswith("costs") else 25)
    @given(flipped(content))
    def check(wrong):
        path.write_bytes(wrong)
        with pytest.raises(RunError, match=rf"{path.name} is damaged"):
            READERS[name](run)

    check()


@pytest.mark.parametrize("name", STUDY_READERS)
def test_a_flipped_bit_in_a_study_is_noticed(study, name):
    path = study.path / name

    @fuzz(25)
    @given(flipped(path.read_bytes()))
    def check(wrong):
        path.write_bytes(wrong)
        with pytest.raises(RunError, match=rf"{path.name} is damaged"):
            STUDY_READERS[name](study)

    check()


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_without_a_checksum(run, name):
    path = run.path / name
    forget_checksums(path)

    @fuzz(10 if name.startswith("costs") else 60)
    @given(damaged(path.read_bytes()))
    def check(content):
        path.write_bytes(content)
        survives(lambda: READERS[name](run))

    check()


@pytest.mark.parametrize("name", JSON_FILES)
def test_json_with_other_values(run, name):
    path = run.path / name
    value = json.loads(path.read_bytes())
    forget_checksums(path)

    @fuzz(80)
    @given(changed_json(value))
    def check(changed):
        path.write_text(json.dumps(changed))
        survives(lambda: READERS[name](run))

    check()


@pytest.mark.parametrize("name", STUDY_READERS)
def test_studies_with_other_values(study, name):
    path = study.path / name
    value = json.loads(path.read_bytes())
    forget_checksums(path)

    @fuzz(80)
    @given(changed_json(value))
    def check(changed):
        path.write_text(json.dumps(changed))
        survives(lambda: STUDY_READERS[name](study))

    check()


@pytest.mark.parametrize("name", ["run.json", "metrics.json", "predictions.json", "model.json"])
def test_a_report_of_other_values(run, name):
    """The values are valid for a reader, but may contradict other files."""
    path = run.path / name
    value = json.loads(path.read_bytes())
    forget_checksums(path)

    @fuzz(12)
    @given(changed_json(value))
    def check(changed):
        path.write_text(json.dumps(changed))
        survives(lambda: write_report(run.path, run.path / "page.html"))
        survives(lambda: stored_metrics(run.path))

    check()


@pytest.mark.parametrize("name", [*READERS, checksums.FILE])
@pytest.mark.parametrize("kind", ["folder", "pipe", "link to itself", "empty", "not UTF-8", "bomb"])
def test_files_of_the_wrong_kind(run, name, kind):
    path = run.path / name
    path.unlink()
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "link to itself":
        path.symlink_to(path.name)
    else:
        contents = {"empty": b"", "not UTF-8": b"\xff\xfe\x00", "bomb": b"[" * 100_000}
        path.write_bytes(contents[kind])
    read_all(run)
    for keep in (True, False):
        if not keep:
            forget_checksums(run.path / "any")
        survives(lambda: write_report(run.path, run.path / "page.html"))


def resume(run):
    return train_run(TrainConfig(), run.path, resume=True)


@pytest.mark.parametrize("content", ['{"metrics.json": []}', '{"run.json": [[1]]}', "[]", "3"])
def test_damaged_checksums(run, content):
    (run.path / checksums.FILE).write_text(content)
    with pytest.raises(RunError, match=r"checksums\.json is damaged: remove it"):
        run.metrics()
    with pytest.raises(RunError, match=r"checksums\.json is damaged: remove it"):
        resume(run)


@pytest.mark.parametrize(
    "state", [{}, [], torch.zeros(3), {"fingerprint": 1}, "text", {"network": {}, "order": None}]
)
def test_a_checkpoint_that_is_something_else(run, state):
    (run.path / "metrics.json").unlink()
    torch.save(state, run.path / "checkpoint.pt")
    forget_checksums(run.path / "checkpoint.pt")
    with pytest.raises(RunError, match=r"checkpoint\.pt is damaged: to resume from the one before"):
        resume(run)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("network", value) for value in ({}, None, [1])),
        *(("optimizer", value) for value in ({}, None, {"state": {}, "param_groups": []})),
        *(("loss", value) for value in ({}, 3)),
        *(("history", value) for value in (None, [{}], [{"epoch": 1}], 4)),
        *(("processes", value) for value in (None, [], [{}], [{"noise": 1, "torch": 2}])),
        *(("order", value) for value in (None, torch.zeros(2))),
        ("fingerprint", None),
    ],
)
def test_a_checkpoint_with_wrong_parts(run, name, value):
    state = run.checkpoint()
    (run.path / "metrics.json").unlink()
    torch.save(state | {name: value}, run.path / "checkpoint.pt")
    forget_checksums(run.path / "checkpoint.pt")
    with pytest.raises(RunError):
        resume(run)


def test_the_checkpoint_before_is_offered_only_if_it_is_intact(run):
    (run.path / "metrics.json").unlink()
    for name in ("checkpoint.pt", "checkpoint-before.pt"):
        path = run.path / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
        advice = "resume from the one before it, remove checkpoint.pt"
        if name == "checkpoint-before.pt":
            advice = "start a new run in another folder"
        with pytest.raises(RunError, match=rf"checkpoint\.pt is damaged: .*{advice}"):
            resume(run)


def test_a_model_needs_no_checksums(run, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    for name in ("model.json", "model.safetensors"):
        shutil.copy(run.path / name, alone)
    load_model(alone)
