import base64
import io
import json
import time

import numpy as np
import pytest
from PIL import Image

from cosen.data.labelled import LabelledImages
from cosen.data.stores import ImageArray
from cosen.errors import RunError
from cosen.training import thumbnails
from cosen.training.run_folder import RunFolder
from cosen.training.task import make_task
from cosen.training.thumbnails import (
    FILE,
    make_thumbnail,
    read_thumbnails,
    taken_in_turns,
    write_thumbnails,
)

pytestmark = pytest.mark.training


def decoded(thumbnail):
    head, data = thumbnail.image.split(",")
    image = Image.open(io.BytesIO(base64.b64decode(data)))
    assert head == f"data:image/{image.format.lower()};base64"
    assert image.size == (thumbnail.width, thumbnail.height)
    return image


def write(folder, labels, predicted, class_counts, *, pixels=None, rows=None, **options):
    """Write the pictures of a test split; without pixels, image 3 has the brightness 3."""
    run, labels = RunFolder(folder), np.asarray(labels)
    folder.mkdir(exist_ok=True)
    rows = np.arange(len(labels)) if rows is None else np.asarray(rows)
    if pixels is None:
        pixels = np.zeros((rows.max() + 1, 2, 2, 1), np.uint8)
        pixels += (np.arange(len(pixels)) % 256).astype(np.uint8)[:, None, None, None]
    names = tuple(map(str, range(len(class_counts))))
    test = LabelledImages(ImageArray(pixels), rows, labels, names, "photos")
    predicted = np.asarray(predicted)
    write_thumbnails(run, pixels, test, predicted=predicted, class_counts=class_counts, **options)
    return read_thumbnails(run)


def test_a_run_keeps_wrong_images_and_some_of_each_class(finished_runs):
    run = finished_runs["baseline"]
    found, test = read_thumbnails(run), run.predictions()["test"]
    target, predicted = test.target, test.logits.argmax(1)
    wrong = (target != predicted).nonzero().flatten().tolist()
    assert set(wrong) <= set(found), "there are fewer than may be kept"
    right = sorted(set(found) - set(wrong))
    per_class = np.bincount(target[right], minlength=10)
    possible = np.bincount(target[target == predicted], minlength=10)
    assert per_class.tolist() == np.minimum(possible, 2).tolist()
    task = make_task(run.record().config)
    for row in (wrong[0], right[-1]):
        pixels = task.decoded.pixels[task.splits.test.rows[row]]
        np.testing.assert_array_equal(np.asarray(decoded(found[row])), pixels[..., 0])
    assert all(found[row].map.startswith("data:image/png;base64,") for row in wrong[:3])
    assert not found[right[0]].map
    assert (run.path / FILE).stat().st_size < 150_000


def test_a_method_without_a_model_keeps_pictures_too(quick_train):
    run = quick_train(epochs=1, method="wrf", options={"trees": 5})
    assert read_thumbnails(run)
    assert read_thumbnails(RunFolder(run.path / "baseline"))


def test_wrong_images_of_all_classes_have_maps(tmp_path, monkeypatch):
    monkeypatch.setattr(thumbnails, "MOST_MAPS", 4)
    labels, asked = [0] * 8 + [1] * 2, []

    def maps(rows):
        asked.extend(rows.tolist())
        return [f"map of {row}" for row in rows]

    found = write(tmp_path, labels, [2] * 10, [8, 2, 1], rows=np.arange(10) + 5, maps=maps)
    assert len(asked) == 4
    assert {13, 14} < set(asked)  # the rare class
    assert {row + 5 for row, one in found.items() if one.map} == set(asked)
    assert found[8].map == "map of 13"


def test_rows_of_the_test_split_are_found_in_the_store(tmp_path):
    found = write(tmp_path, [0, 1, 1], [1, 1, 0], [5, 9], rows=[40, 7, 99])
    assert {row: decoded(picture).getpixel((0, 0)) for row, picture in found.items()} == {
        0: 40,
        1: 7,
        2: 99,
    }


def test_rare_classes_come_first_but_do_not_take_all(tmp_path, monkeypatch):
    monkeypatch.setattr(thumbnails, "MOST_WRONG", 20)
    labels = np.repeat([0, 1, 2], 50)
    found = write(tmp_path, labels, (labels + 1) % 3, [90, 4, 30])
    taken = np.bincount(labels[list(found)], minlength=3)
    assert taken.tolist() == [6, 8, 6]  # six in turn, and the rest for the rarest
    assert labels[list(found)].tolist() == [1] * 8 + [2] * 6 + [0] * 6


def test_the_number_of_pictures_is_limited(tmp_path):
    labels = np.repeat(np.arange(100), 8)
    predicted = np.where(np.arange(800) % 2, labels, (labels + 1) % 100)
    found = write(tmp_path, labels, predicted, np.arange(1, 101).tolist())
    rows = np.array(list(found))
    wrong = rows[labels[rows] != predicted[rows]]
    assert len(wrong) == thumbnails.MOST_WRONG
    assert len(rows) - len(wrong) == thumbnails.MOST_RIGHT


@pytest.mark.parametrize("channels", [1, 3])
def test_it_is_small_and_quick_even_for_noise(tmp_path, channels):
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (800, 48, 48, channels), dtype=np.uint8)
    labels = np.arange(800) % 100
    predicted = np.where(np.arange(800) < 500, (labels + 1) % 100, labels)
    start = time.process_time()
    found = write(tmp_path, labels, predicted, [9] * 100, pixels=pixels)
    assert time.process_time() - start < 10  # a second on a busy machine
    assert (tmp_path / FILE).stat().st_size < 600_000
    right = [row for row in found if predicted[row] == labels[row]]
    assert len(found) > 200
    assert len(right) > 50, "those that are wrong leave them some room"
    assert set(labels[list(found)]) == set(range(100)), (
        "what there is no room for is of all classes"
    )


def test_pictures_are_made_smaller_but_never_larger():
    noise = np.random.default_rng(0).integers(0, 256, (120, 60, 3), dtype=np.uint8)
    assert decoded(make_thumbnail(noise)).size == (24, 48)
    small = noise[:5, :9]
    assert decoded(make_thumbnail(small)).size == (9, 5)
    grey = make_thumbnail(noise[:8, :8, :1])
    assert decoded(grey).format == "PNG"
    np.testing.assert_array_equal(np.asarray(decoded(grey)), noise[:8, :8, 0])
    assert decoded(make_thumbnail(noise)).format == "JPEG", "noise is no good as PNG"


def test_turns():
    assert taken_in_turns(np.array([], int), 5).tolist() == []
    ranks = np.array([0] * 5 + [1] + [2] * 4)
    assert taken_in_turns(ranks, 6, at_once=2).tolist() == [0, 1, 2, 5, 6, 7]
    assert taken_in_turns(ranks, 99, at_once=2).tolist() == list(range(10))
    assert taken_in_turns(ranks[::-1], 3, at_once=1).tolist() == [5, 4, 0]


def test_a_run_without_any_and_one_with_a_damaged_file(tmp_path):
    run = RunFolder(tmp_path)
    assert read_thumbnails(run) is None
    for text in ("{", "[]", json.dumps({"images": {"x": {}}}), json.dumps({"images": {"1": {}}})):
        (tmp_path / FILE).write_text(text)
        with pytest.raises(RunError, match=r"thumbnails\.json is damaged"):
            read_thumbnails(run)


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    (tmp_path / "run" / FILE).mkdir(parents=True)
    with pytest.raises(RunError, match="cannot write"):
        write(tmp_path / "run", [0, 1], [1, 0], [5, 9])
