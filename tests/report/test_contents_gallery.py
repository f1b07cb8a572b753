"""The pictures of the gallery: gained and lost, rare classes first, no class takes all."""

import base64
import io
import math

import numpy as np
import pytest
import torch
from PIL import Image

from cosen.report.contents import read_contents
from cosen.report.gallery import MAX_PICTURES
from report.small_runs import COSTLY, PLAIN, TARGET, write_run, write_study

KINDS = ("gained", "lost", "wrong", "examples")


def gallery(path, against=None):
    found = read_contents(path, against=against)["gallery"]
    for kind in KINDS:
        for picture in found[kind]:
            assert len(picture["image"]) < 4000
            assert max(picture["width"], picture["height"]) <= 48
    return found


def brightness(picture):
    """The row of an image in the test split: image 3 has the brightness 3."""
    data = base64.b64decode(picture["image"].split(",")[1])
    return Image.open(io.BytesIO(data)).getpixel((0, 0))


def shown_rows(found):
    return {kind: [brightness(picture) for picture in found[kind]] for kind in KINDS}


def test_gained_and_lost(tmp_path):
    write_run(tmp_path / "plain", PLAIN, method="baseline")
    write_run(tmp_path / "costly", COSTLY)
    found = gallery(tmp_path / "costly", tmp_path / "plain")
    assert shown_rows(found) == {"gained": [6, 5], "lost": [3], "wrong": [], "examples": []}
    elk = found["gained"][0]
    score = pytest.approx(math.exp(2) / (math.exp(2) + 2), abs=1e-4)  # of calibrated logits
    assert elk | {"image": None} == {
        "image": None,
        "width": 8,
        "height": 8,
        "map": "",
        "name": "split/6.png",
        "seed": 0,
        "label": 2,
        "baseline": {"label": 0, "score": score},
        "chosen": {"label": 2, "score": score},
    }
    assert found["note"] == (
        "Test images: 2 gained (2 shown), 1 lost (1 shown). Rare classes come first."
    )


def test_wrong_where_there_is_no_baseline(tmp_path):
    write_run(tmp_path / "run", COSTLY)
    found = gallery(tmp_path / "run")
    assert shown_rows(found)["wrong"] == [7, 3]
    assert found["wrong"][0]["baseline"] is None
    assert found["note"] == "Test images: 2 wrong (2 shown). Rare classes come first."


def test_classes_without_such_pictures_have_examples(tmp_path):
    write_run(tmp_path / "run", COSTLY)
    found = gallery(tmp_path / "run")
    assert shown_rows(found)["examples"] == [4, 5]  # of the dogs, which are all correct
    both_wrong = (0, 0, 0, 0, 1, 1, 0, 0)
    write_run(tmp_path / "a", both_wrong)
    write_run(tmp_path / "b", both_wrong)
    rows = shown_rows(gallery(tmp_path / "a", tmp_path / "b"))
    assert rows == {"gained": [], "lost": [], "wrong": [], "examples": [6, 7, 4, 5, 0, 1]}


def test_the_surest_mistakes_of_a_class_come_first(tmp_path):
    logits = torch.zeros(6, 2)
    logits[:, 1] = torch.tensor([1.0, 3.0, 2.0, -1.0, 5.0, 5.0])
    write_run(
        tmp_path / "run",
        logits.argmax(1).tolist(),
        target=(0, 0, 0, 0, 1, 1),
        logits=logits,
        names=("a", "b"),
        train=(9, 5),
    )
    assert shown_rows(gallery(tmp_path / "run"))["wrong"] == [1, 2, 0]


def test_no_class_takes_all(tmp_path):
    target = np.repeat([0, 1, 2], 100)
    write_run(
        tmp_path / "run",
        ((target + 1) % 3).tolist(),
        target=target.tolist(),
        train=(90, 4, 30),
        temperature=1.0,
    )
    found = gallery(tmp_path / "run")
    labels = [picture["label"] for picture in found["wrong"]]
    assert len(labels) == MAX_PICTURES
    assert labels == sorted(labels, key=[2, 0, 1].__getitem__)
    assert np.bincount(labels).tolist() == [18, 21, 21]
    assert found["note"].startswith("Test images: 300 wrong (60 shown).")


def test_many_classes_all_have_a_picture(tmp_path):
    target = np.repeat(np.arange(50), 10)
    write_run(
        tmp_path / "run",
        ((target + 1) % 50).tolist(),
        target=target.tolist(),
        names=tuple(map(str, range(50))),
        train=tuple(range(1, 51)),
    )
    labels = [picture["label"] for picture in gallery(tmp_path / "run")["wrong"]]
    assert len(labels) == MAX_PICTURES
    assert set(labels) == set(range(50))
    assert labels == sorted(labels)


def test_pictures_of_all_seeds_but_an_image_once(tmp_path):
    names = [f"{row}.png" for row in range(8)]
    for where, image_names, seen in (("own", None, 4), ("same", names, 2)):
        study = write_study(
            tmp_path / where,
            {"baseline": PLAIN, "cosen": COSTLY},
            runs={name: {"image_names": image_names} for name in ("baseline", "cosen")},
        )
        found = gallery(study.path)
        assert len(found["gained"]) == seen
        assert {picture["seed"] for picture in found["gained"]} == ({0, 1} if seen == 4 else {0})
        assert found["note"].startswith("Test images over 2 seeds: 4 gained")


def test_runs_without_pictures(tmp_path):
    write_run(tmp_path / "old", PLAIN, method="baseline", pictures=False)
    write_run(tmp_path / "new", COSTLY)
    found = gallery(tmp_path / "old")
    assert shown_rows(found) == {kind: [] for kind in KINDS}
    assert found["note"] == (
        "Test images: 3 wrong (0 shown). Rare classes come first. Some runs have no pictures: "
        "train them again to see more."
    )
    found = gallery(tmp_path / "new", tmp_path / "old")
    assert len(found["lost"]) == 1
    assert "Some runs have no pictures" in found["note"]


def test_names_do_not_tell_where_files_were(tmp_path):
    names = [f"/home/somebody/photos/elk/{row}.png" for row in range(len(TARGET))]
    write_run(tmp_path / "run", COSTLY, image_names=names)
    assert gallery(tmp_path / "run")["wrong"][0]["name"] == "…/elk/7.png"
