import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cosen.data.inspection import inspect_data
from cosen.data.sources import from_arrays, from_folder, from_table, open_data


def test_counts_imbalance_and_sizes(make_folder):
    inspection = inspect_data(from_folder(make_folder(cat=8, dog=2)))
    assert inspection.counts == {"all": [8, 2]}
    assert inspection.imbalance_ratio == 4
    entropy = -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))
    assert inspection.effective_classes == pytest.approx(math.exp(entropy))
    assert inspection.sizes == (((16, 12), 10),)
    assert inspection.too_small == ("dog",)
    assert "4 times the images" in " ".join(inspection.suggestions)


def test_counts_by_split_and_ratio_of_training(make_folder):
    make_folder("set/train", cat=6, dog=3)
    root = make_folder("set/test", cat=1, dog=1).parent
    inspection = inspect_data(from_folder(root))
    assert inspection.counts == {"train": [6, 3], "test": [1, 1]}
    assert inspection.imbalance_ratio == 2


def test_leaks_and_conflicts(make_folder):
    make_folder("set/train", cat=4, dog=4)
    root = make_folder("set/test", eel=0, cat=0).parent
    train = root / "train"
    (root / "test" / "cat").mkdir(parents=True)
    (root / "test" / "dog").mkdir()
    shutil.copy(train / "dog" / "000.png", root / "test" / "dog" / "leak.png")
    Image.open(train / "cat" / "001.png").save(root / "test" / "cat" / "resaved.tiff")
    Image.open(train / "cat" / "002.png").save(train / "dog" / "conflict.bmp")
    inspection = inspect_data(from_folder(root))
    assert {frozenset(group.names) for group in inspection.leaks} == {
        frozenset({"train/dog/000.png", "test/dog/leak.png"}),
        frozenset({"train/cat/001.png", "test/cat/resaved.tiff"}),
    }
    (conflict,) = inspection.conflicts
    assert set(conflict.classes) == {"cat", "dog"}
    said = " ".join(inspection.suggestions)
    assert "Images in more than one split: 2;" in said
    assert "Images in more than one class: 1;" in said
    lines = str(inspection).splitlines()
    assert lines[1:4] == ["class  train  test", "cat        4     1", "dog        5     1"]
    assert "duplicates    3 groups of duplicates, 2 across splits, 1 across classes" in lines
    assert "Duplicates across splits:" in lines
    assert "  train/dog/000.png = test/dog/leak.png" in lines or (
        "  test/dog/leak.png = train/dog/000.png" in lines
    )
    assert lines[-len(inspection.suggestions) :] == [f"- {text}" for text in inspection.suggestions]


def test_broken_and_animated_files(make_folder):
    root = make_folder(cat=4, dog=4)
    (root / "cat" / "bad.jpg").write_bytes(b"x")
    frames = [Image.new("L", (8, 8), value) for value in (0, 99)]
    frames[0].save(root / "dog" / "moving.gif", save_all=True, append_images=frames[1:])
    inspection = inspect_data(from_folder(root))
    assert inspection.broken == {"cat/bad.jpg": "not an image of a supported format"}
    assert inspection.animated == ("dog/moving.gif",)
    text = str(inspection)
    assert ": 10 files, 1 of them broken, 2 classes\n" in text
    assert "\nduplicates    none\n" in text
    assert "\nBroken files:\n  cat/bad.jpg: not an image of a supported format\n" in text


def test_groups_are_counted(make_folder):
    root = make_folder(cat=2, dog=2)
    lines = ["path,label,group"]
    lines += [f"{name}/00{i}.png,{name},{name}" for name in ("cat", "dog") for i in (0, 1)]
    (root / "t.csv").write_text("\n".join(lines))
    inspection = inspect_data(from_table(root / "t.csv"))
    assert inspection.groups == 2
    assert "\ngroups        2, each kept in one split\n" in str(inspection)


def test_the_summary_aligns_wide_names_and_shortens_long_lists():
    images = np.repeat(np.arange(25, dtype=np.uint8), 2)[:, None, None] * np.ones((1, 4, 4), "u1")
    data = from_arrays(images, np.arange(50) % 2, class_names=("日本", "cat"))
    lines = str(inspect_data(data)).splitlines()
    assert lines[0] == "arrays: 50 images, 2 classes"
    assert lines[1:4] == ["class  images", "日本       25", "cat        25"]
    assert "duplicates    25 groups of duplicates, 25 across classes" in lines
    assert "  0 = 1" in lines
    assert "  and 5 more (--json lists all)" in lines


def test_as_json_is_plain():
    images = np.zeros((4, 3, 3), np.uint8)
    plain = inspect_data(from_arrays(images, [0, 0, 1, 1])).as_json()
    assert json.loads(json.dumps(plain))["conflicts"][0]["classes"] == ["0", "0", "1", "1"]


@pytest.mark.skipif("COSEN_DATA" not in os.environ, reason="COSEN_DATA names no real data")
def test_rsmas_has_two_test_images_in_train():
    root = Path(os.environ["COSEN_DATA"])
    if not (root / "rsmas").is_dir():
        pytest.skip(f"no rsmas under {root}")
    leaks = inspect_data(open_data("rsmas", root=root)).leaks
    assert {name for group in leaks for name in group.names if name.startswith("test")} == {
        "test/ACER/T68.jpg",
        "test/MCAV/T30.jpg",
    }
