import csv
import io
import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import cosen
from commands import run_command
from cosen.data.inspection import LabelProblem
from cosen.data.sources import from_arrays
from cosen.errors import DataError, InputError, RunError
from cosen.inference.label_problems import (
    MAX_LABEL_PROBABILITY,
    HeldOut,
    find_label_problems,
    held_out_predictions,
    label_problems_csv,
    suspicious,
    with_splits_of,
)
from cosen.training.records import ImageNames
from cosen.training.run_folder import RunFolder
from report.small_runs import write_run
from small_study import EXCLUDED, run_here, run_study

SHARES = np.array([0.9, 0.08, 0.02])


def predicted(classes, confidence=0.98, *, num_classes=3):
    """Probabilities of a model that is sure of these classes."""
    rest = (1 - confidence) / (num_classes - 1)
    rows = np.full((len(classes), num_classes), rest, dtype=np.float32)
    rows[np.arange(len(classes)), classes] = confidence
    return rows


def overlapping_classes(images=6000, wrong=0.05):
    """Labels, whether each is wrong, and the exact densities of three classes on a line."""
    generator = np.random.default_rng(0)
    true = generator.choice(3, images, p=SHARES)
    places = generator.normal(2.5 * true, 1.0)
    densities = np.exp(-((places[:, None] - 2.5 * np.arange(3)) ** 2) / 2)
    is_wrong = generator.random(images) < wrong
    labels = np.where(is_wrong, (true + generator.integers(1, 3, images)) % 3, true)
    return labels, is_wrong, densities


def listed_under(shares):
    labels, is_wrong, densities = overlapping_classes()
    posterior = densities * shares
    posterior /= posterior.sum(1, keepdims=True)
    return labels, is_wrong, suspicious(labels, posterior.astype(np.float32))


def test_wrong_labels_are_found_in_each_class():
    true = np.repeat([0, 1, 2], (200, 40, 8))
    labels = true.copy()
    labels[[0, 1, 200, 240]] = [1, 2, 0, 1]
    assert sorted(suspicious(labels, predicted(true)).tolist()) == [0, 1, 200, 240]


def test_the_least_probable_label_comes_first_and_probable_labels_are_left_out():
    labels, _, densities = overlapping_classes()
    posterior = (densities / densities.sum(1, keepdims=True)).astype(np.float32)
    found = suspicious(labels, posterior)
    own = posterior[found, labels[found]]
    assert len(found) > 100
    assert (np.diff(own) >= 0).all()
    assert own.max() < MAX_LABEL_PROBABILITY


def test_neither_rare_nor_frequent_classes_are_swallowed():
    """Correct labels of rare classes are listed with training shares, of frequent with equal."""
    false = {}
    for power in (0.0, 0.5, 1.0):
        labels, is_wrong, found = listed_under(SHARES**power)
        correct = found[~is_wrong[found]]
        false[power] = np.bincount(labels[correct], minlength=3) / np.bincount(labels[~is_wrong])
    assert false[1.0][1:].max() > 1.5 * false[0.5][1:].max()
    assert false[0.0][0] > 1.5 * false[0.5][0]


@pytest.mark.parametrize("labels", [[1], [0] * 5, [2] * 5, [0, 0, 2], [0, 1, 2]])
def test_few_images_and_missing_classes(labels):
    labels = np.array(labels)
    assert suspicious(labels, predicted(labels)).tolist() == []


def test_the_record_of_a_problem():
    labels = np.array([0] * 10 + [1] * 10)
    rows = predicted(labels, num_classes=2)
    rows[3] = 0.01, 0.99
    held_out = HeldOut(tuple(map(str, range(20))), labels, rows, ("cat", "dog"))
    (problem,) = find_label_problems(held_out)
    assert (problem.image, problem.label, problem.suggested) == ("3", "cat", "dog")
    assert problem.probability == pytest.approx(0.99)
    assert problem.label_probability == pytest.approx(0.01)


def test_without_cleanlab(monkeypatch):
    monkeypatch.setitem(sys.modules, "cleanlab.filter", None)
    with pytest.raises(InputError, match=r'needs cleanlab: pip install "cosen\[labels\]"'):
        suspicious(np.array([0, 1]), predicted([0, 1]))


def test_csv_is_safe_in_a_spreadsheet():
    problems = [LabelProblem("=1+1.png", "cat, black", "dog", 0.91234, 0.02)]
    header, row = csv.reader(io.StringIO(label_problems_csv(problems)))
    assert header == ["image", "label", "suggested", "probability", "label_probability"]
    assert row == ["'=1+1.png", "cat, black", "dog", "0.9123", "0.0200"]


def test_predictions_of_an_image_are_averaged(tmp_path):
    """Against a plain loop over images, runs and splits."""
    generator = torch.Generator().manual_seed(0)
    runs, rows = [], {}
    for number, names in enumerate((["a", "b", "c"], ["c", "b", "d"])):
        logits, train = torch.randn(3, 3, generator=generator), (90, 9, 1)
        target = [{"a": 0, "b": 1, "c": 2, "d": 0}[name] for name in names]
        run = write_run(
            tmp_path / str(number),
            target,
            target=target,
            logits=logits,
            train=train,
            image_names=names,
            temperature=2.0,
        )
        runs.append(run)
        for name, row in zip(names, logits.double(), strict=True):
            # the outputs are for the training shares, so halfway is half of the logarithm less
            scores = row / 2 - 0.5 * torch.tensor(train).double().log()
            rows.setdefault(name, []).append(scores.softmax(0))
    held_out = held_out_predictions(runs)
    assert held_out.names == ("a", "b", "c", "d")
    assert held_out.labels.tolist() == [0, 1, 2, 0]
    wanted = torch.stack([torch.stack(rows[name]).mean(0) for name in held_out.names])
    np.testing.assert_allclose(held_out.probabilities, wanted, atol=1e-6)


def test_damaged_names(tmp_path):
    run = write_run(tmp_path / "run", (0, 1, 2), target=(0, 1, 2))
    ImageNames(val=("a",), test=("a", "b", "c")).write(run.path)
    with pytest.raises(RunError, match="its predictions have 4 names"):
        held_out_predictions([run])


def arrays(labels, names=("cat", "dog", "elk")):
    images = np.random.default_rng(0).integers(0, 256, (len(labels), 40, 40), dtype=np.uint8)
    return from_arrays(images, labels, class_names=names)


def test_labels_of_the_data_replace_those_of_the_run():
    held_out = HeldOut(("0", "2", "7"), np.array([0, 0, 0]), predicted([0, 1, 2]), ("a", "b", "c"))
    found = held_out.relabelled(arrays([0, 0, 1, 2], ("a", "b", "c")))
    assert (found.names, found.labels.tolist()) == (("0", "2"), [0, 1])
    np.testing.assert_array_equal(found.probabilities, predicted([0, 1]))


def test_data_of_another_run():
    held_out = HeldOut(("x/1.png",), np.array([0]), predicted([0]), ("cat", "dog", "elk"))
    with pytest.raises(DataError, match=r"none of the images that the run held out, such as x/1"):
        held_out.relabelled(arrays([0, 1, 2]))
    with pytest.raises(DataError, match="different classes"):
        held_out.relabelled(arrays([0, 1, 2], ("cat", "dog", "eel")))


def test_splits_of_a_run(tmp_path):
    ImageNames(train=("0",), val=("1",), test=("2",)).write(tmp_path)
    data = arrays([0, 1, 2, 0])
    assert with_splits_of(RunFolder(tmp_path), data).parts.tolist() == ["train", "val", "test", ""]
    ImageNames(val=("1",), test=("2",)).write(tmp_path)  # of an older version
    parts = with_splits_of(RunFolder(tmp_path), data).parts.tolist()
    assert parts == ["train", "val", "test", "train"]


@pytest.fixture
def photos(tmp_path):
    """A folder of images, and a run that tested all but one; one cat is labelled as a dog."""
    generator = np.random.default_rng(0)
    true = []
    for name, count in (("cat", 12), ("dog", 6), ("elk", 4)):
        for number in range(count):
            path = tmp_path / "photos" / name / f"{number:02d}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            small = Image.fromarray(generator.integers(0, 256, (6, 8, 3), dtype=np.uint8))
            small.resize((64, 48), Image.Resampling.BICUBIC).save(path)
            true.append((f"{name}/{number:02d}.png", "cat" if number == 5 else name))
    small.resize((60, 45), Image.Resampling.BICUBIC).save(tmp_path / "photos" / "elk" / "99.png")
    numbers = {"cat": 0, "dog": 1, "elk": 2}
    names = [name for name, _ in true]
    target = [numbers[name.split("/")[0]] for name in names]
    run = write_run(
        tmp_path / "run",
        [numbers[label] for _, label in true],
        target=target,
        logits=12 * torch.eye(3)[[numbers[label] for _, label in true]],
        image_names=names,
        train=(5, 3, 2),
    )
    ImageNames(train=("elk/99.png",), val=names, test=names).write(run.path)
    return tmp_path / "photos", run.path


@pytest.fixture
def inspect(capsys, monkeypatch):
    """Run ``cosen inspect``: ``inspect("photos", "--json")``."""
    return lambda *arguments: run_command(capsys, monkeypatch, "inspect", *map(str, arguments))


def test_the_command(inspect, photos):
    folder, run = photos
    text = inspect(folder, "--run", run).stdout
    assert "Labels to check: 1 of 22 images with predictions" in text
    assert "  image       label  suggested  probability" in text
    assert "  dog/05.png  dog    cat               99 %" in text
    assert "Near-duplicates across splits:\n  elk/03.png ~ elk/99.png" in text
    assert "Labels were checked for 22 of 23 images" in text
    assert text.splitlines()[-1].startswith("Wrote ")
    problems = (run / "label-problems.csv").read_text().splitlines()
    assert len(problems) == 2
    assert problems[1].startswith("dog/05.png,dog,cat,0.9")
    assert (run / "label-problems.html").read_text().count('<img src="data:image/') == 1


def test_the_command_as_json(inspect, photos, tmp_path):
    folder, run = photos
    out = tmp_path / "new" / "folder"
    plain = json.loads(inspect(folder, "--run", run, "--out", out, "--json").stdout)
    assert [problem["image"] for problem in plain["label_problems"]] == ["dog/05.png"]
    assert plain["held_out"] == 22
    assert plain["files"] == [str(out / f"label-problems.{end}") for end in ("csv", "html")]
    assert all((out / f"label-problems.{end}").is_file() for end in ("csv", "html"))
    assert plain["near_leaks"][0]["parts"] == ["test", "train"]


def test_a_corrected_label_is_no_longer_listed(photos):
    folder, run = photos
    (folder / "dog" / "05.png").rename(folder / "dog" / "moved.png")
    found = cosen.inspect(folder, run=run, quiet=True)
    assert (found.label_problems, found.held_out) == ((), 21)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("photos", "--out", "there"), "--out is for label problems, which need a run"),
        (("photos", "--run", "nothing"), "nothing is neither a run nor a study"),
        (("digits", "--run", "run"), "digits and the run have different classes"),
    ],
)
def test_bad_input_gets_one_sentence(inspect, photos, monkeypatch, arguments, message):
    monkeypatch.chdir(photos[0].parent)
    done = inspect(*arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_unfinished_run(inspect, photos):
    folder, run = photos
    (run / "predictions.safetensors").unlink()
    assert "has no predictions yet: resume it" in inspect(folder, "--run", run).stderr


@pytest.mark.training
def test_folds_cover_every_image(tmp_path, monkeypatch):
    monkeypatch.setattr("cosen.comparing.grid.run_locally", run_here)
    study = run_study(tmp_path / "study", ["baseline"], seeds=3, split="fold:seed/3").folder
    options = {"exclude": EXCLUDED, "quiet": True}
    found = cosen.inspect("digits", run=study.path, **options)
    assert found.held_out == sum(map(sum, found.counts.values()))
    assert not any("Labels were checked" in text for text in found.suggestions)
    one = cosen.inspect("digits", run=study.run("baseline", 0).path, **options)
    counts = {part: sum(numbers) for part, numbers in one.counts.items()}
    assert one.held_out == counts["val"] + counts["test"] < found.held_out
    assert counts["all"] > 0  # removed by --imbalance
    assert "cosen compare digits --methods baseline --split fold:seed/3" in one.suggestions[-1]
