"""Labels to check: in the report, and as a page of their own."""

import sys

import numpy as np
import pytest
from PIL import Image

from cosen.data.inspection import LabelProblem
from cosen.data.sources import from_folder
from cosen.report import label_page, label_section, run_data
from cosen.report.contents import read_contents
from cosen.report.label_page import render, write_label_problems
from report.example_contents import HOSTILE
from report.small_runs import write_run, write_study

TARGET = (0,) * 10 + (1,) * 10 + (2,) * 10
PREDICTED = (1, *TARGET[1:20], 0, *TARGET[21:])
"""The first cat looks like a dog, the first elk like a cat."""


def sure(predicted):
    """Logits of a model that is sure, most of all if the label is wrong."""
    logits = 8.0 * np.eye(3, dtype=np.float32)[list(predicted)]
    return np.where(np.array(predicted)[:, None] == np.array(TARGET)[:, None], 1, 1.5) * logits


@pytest.fixture
def run(tmp_path):
    import torch

    logits = torch.from_numpy(sure(PREDICTED).astype(np.float32))
    return write_run(tmp_path / "run", PREDICTED, target=TARGET, logits=logits, train=(9, 9, 9))


def test_a_run(run):
    found = read_contents(run.path)["labels"]
    listed = {one["name"]: (one["label"], one["suggested"]) for one in found["problems"]}
    assert listed == {"split/0.png": ("cat", "dog"), "split/20.png": ("elk", "cat")}
    assert all(one["picture"]["image"].startswith("data:image/") for one in found["problems"])
    assert found["note"].startswith(
        "Labels that the predictions of cosen contradict: 2 of 30 validation and test images. "
    )


def test_the_most_suspicious_are_shown(run, monkeypatch):
    monkeypatch.setattr(label_section, "MOST_LISTED", 1)
    found = read_contents(run.path)["labels"]
    assert len(found["problems"]) == 1
    assert "2 of 30 validation and test images, the 1 most suspicious are shown." in found["note"]


def test_a_study_joins_its_seeds(tmp_path):
    study = write_study(
        tmp_path / "study", {"cosen": TARGET}, runs={"cosen": {"target": TARGET}}, seeds=(0, 1)
    )
    found = read_contents(study.path)["labels"]
    assert found["problems"] == []
    assert "contradict: 0 of 60 validation and test images." in found["note"]


def test_images_without_a_picture(tmp_path):
    run = write_run(tmp_path / "run", PREDICTED, target=TARGET, temperature=0.5, pictures=False)
    assert all(one["picture"] is None for one in read_contents(run.path)["labels"]["problems"])


def test_thousands_of_classes_are_not_checked(run, monkeypatch):
    for module in (label_section, run_data):
        monkeypatch.setattr(module, "MOST_CHECKED", 2)
    found = read_contents(run.path)["labels"]
    assert found["problems"] == []
    assert found["note"].startswith("Not checked with more than 2 classes")


def test_without_cleanlab(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "cleanlab.filter", None)
    assert read_contents(run.path)["labels"] == {
        "problems": [],
        "note": 'Not checked: finding label problems needs cleanlab: pip install "cosen[labels]".',
    }


def test_the_page_groups_problems_by_label(make_folder, tmp_path):
    data = from_folder(make_folder(cat=3, dog=2))
    problems = [
        LabelProblem("dog/001.png", "dog", "cat", 0.9, 0.01),
        LabelProblem("cat/002.png", "cat", "dog", 0.8, 0.02),
        LabelProblem("dog/000.png", "dog", "cat", 0.7, 0.03),
    ]
    (data.images.root / "dog" / "000.png").write_bytes(b"damaged since")
    table, page = write_label_problems(tmp_path / "out", problems, data)
    assert len(table.read_text().splitlines()) == 4
    text = page.read_text()
    assert text.count("<h2") == text.count('<img src="data:image/') == 2
    assert text.index("cat/002.png") < text.index("dog/001.png") < text.index("dog/000.png")
    assert "3 images have a label that predictions contradict." in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "")


def test_the_page_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(label_page, "MOST_PICTURES", 3)
    folder = tmp_path / "images"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        noise = np.random.default_rng(0).integers(0, 256, (300, 200, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / name / "0.png")
    problems = [LabelProblem("cat/0.png", "cat", "dog", 0.9, 0.01)] * 4
    _, page = write_label_problems(tmp_path, problems, from_folder(folder))
    text = page.read_text()
    assert text.count('<img src="data:image/') == 3
    assert "This page shows the 3 most suspicious; the CSV lists all." in text
    assert len(text) < 30_000 + 3 * 30_000  # noise compresses worst


def test_hostile_names_are_text():
    shown = [
        {"label": name, "suggested": name, "probability": 0.5, "name": name, "picture": None}
        for name in HOSTILE
    ]
    text = render(HOSTILE[0], shown, total=len(shown))
    for name in HOSTILE[:5]:
        assert name not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    text.encode("utf-8")
