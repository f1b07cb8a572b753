"""A run, alone and compared with another: known numbers in, known numbers out."""

import json
import math
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cosen.comparing.bootstrap import paired_change
from cosen.costs import BALANCED, AdaptiveCosts, CostLearner
from cosen.errors import InputError, RunError
from cosen.report.contents import read_contents
from cosen.training.run_folder import RunFolder
from report.example_contents import unpack
from report.small_runs import COSTLY, NAMES, PLAIN, TARGET, TRAIN, cost_step, write_run

ODD_NAMES = ("<script>alert(1)</script>", "a 'quoted' \"name\"\nof two lines", "καρχαρίας 🦈")


def change_of(target, *predicted):
    """The change of mean class recall between two methods."""
    first, second = (
        [SimpleNamespace(names=[], target=np.array(target), predicted=np.array(each))]
        for each in predicted
    )
    return paired_change(first, second, BALANCED)


def contents(*paths):
    """The contents that the page gets; all numbers are valid JSON."""
    path, *against = paths
    found = read_contents(path, against=against[0] if against else None)
    json.dumps(found, allow_nan=False)
    return found


@pytest.fixture
def alone(tmp_path):
    write_run(tmp_path / "run", COSTLY)
    return contents(tmp_path / "run")


@pytest.fixture
def against(tmp_path):
    write_run(tmp_path / "plain", PLAIN, method="baseline")
    write_run(tmp_path / "costly", COSTLY)
    return contents(tmp_path / "costly", tmp_path / "plain")


def provenance(found):
    return {entry["name"]: entry["value"] for entry in found["provenance"]}


def test_a_run_alone(alone):
    assert (alone["kind"], alone["title"], alone["seeds"]) == ("run", "photos, cosen", [0])
    assert alone["methods"] == {"baseline": None, "chosen": "cosen"}
    assert alone["leaderboard"] is None
    assert alone["by_rarity"] == [2, 1, 0]
    assert alone["confusion"] == {"baseline": None, "chosen": [[3, 1, 0], [0, 2, 0], [1, 0, 1]]}
    assert alone["classes"][0] == {
        "name": "cat",
        "train": 100.0,
        "test": 4.0,
        "recall": {"baseline": None, "chosen": 0.75},
        "spread": {"baseline": None, "chosen": None},
    }
    assert [entry["recall"]["chosen"] for entry in alone["classes"]] == [0.75, 1.0, 0.5]
    assert alone["verdict"] == (
        "Mean class recall is 75.0 % with cosen on 8 test images. Lowest recall: 'elk', 1 of 2 "
        "correct, 1 predicted as 'cat'."
    )
    assert alone["caveats"] == []
    figures = {entry["name"]: entry for entry in alone["figures"]}
    assert figures["mean class recall"] == {
        "name": "mean class recall",
        "chosen": "75.0 %",
        "baseline": None,
    }
    assert figures["training time"]["chosen"] == "10.0 s"


def test_a_run_compared_with_another(against):
    assert against["title"] == "photos, cosen compared with baseline"
    assert against["methods"] == {"baseline": "baseline", "chosen": "cosen"}
    assert against["confusion"]["baseline"] == [[4, 0, 0], [1, 1, 0], [2, 0, 0]]
    assert [entry["recall"] for entry in against["classes"]] == [
        {"baseline": 1.0, "chosen": 0.75},
        {"baseline": 0.5, "chosen": 1.0},
        {"baseline": 0.0, "chosen": 0.5},
    ]
    change = change_of(TARGET, COSTLY, PLAIN)
    low, high = (f"{100 * end:+.1f}" for end in (change.low, change.high))
    outcome = "within noise" if change.within_noise else "better beyond noise"
    assert against["verdict"] == (
        "Mean class recall is 75.0 % with cosen and 50.0 % with baseline (+25.0, 95 % interval "
        f"{low} to {high}): {outcome}. Classes with more correct test images: 'dog' (+1), "
        "'elk' (+1). Classes with fewer: 'cat' (-1)."
    )
    assert against["caveats"] == [
        "There is only one seed: the interval does not include the variation between runs."
    ]
    assert [curve["role"] for curve in against["curves"]] == ["chosen", "baseline"]
    assert provenance(against)["compared with"] == "baseline"


@pytest.mark.parametrize(
    ("other", "classes"),
    [
        (TARGET, "more correct test images: none. Classes with fewer: 'cat' (-1), 'elk' (-1)."),
        (COSTLY, "more correct test images: none. Classes with fewer: none."),
    ],
    ids=["worse", "same"],
)
def test_the_verdict_names_classes(tmp_path, other, classes):
    write_run(tmp_path / "a", COSTLY)
    write_run(tmp_path / "b", other)
    found = contents(tmp_path / "a", tmp_path / "b")
    assert found["verdict"].endswith(classes)
    assert found["methods"] == {"baseline": "cosen (b)", "chosen": "cosen (a)"}


def test_runs_with_different_settings(tmp_path):
    write_run(tmp_path / "a", COSTLY, epochs=30)
    write_run(tmp_path / "b", PLAIN, method="baseline", epochs=3, network="resnet32")
    found = contents(tmp_path / "a", tmp_path / "b")
    assert found["caveats"][1] == (
        "baseline has other settings, which may cause the difference: network=resnet32, epochs=3."
    )
    assert provenance(found)["compared with"] == "baseline, with network=resnet32, epochs=3"


def test_a_difference_beyond_noise(tmp_path):
    target = [0] * 40 + [1] * 40 + [2] * 40
    write_run(tmp_path / "good", target, target=target)
    poor = [0] * 40 + [0] * 20 + [1] * 20 + [2] * 40
    write_run(tmp_path / "poor", poor, target=target, method="baseline")
    good_first = contents(tmp_path / "good", tmp_path / "poor")["verdict"]
    assert "): better beyond noise. " in good_first
    change = change_of(target, target, poor)
    assert f"interval {100 * change.low:+.1f} to {100 * change.high:+.1f})" in good_first
    poor_first = contents(tmp_path / "poor", tmp_path / "good")["verdict"]
    assert "): worse beyond noise. " in poor_first
    assert contents(tmp_path / "good")["verdict"].endswith("on 120 test images. All are correct.")


def test_an_expert_s_costs(tmp_path):
    costs = [[0.0, 1.0, 2.0], [5.0, 0.0, 1.0], [8.0, 3.0, 0.0]]
    write_run(tmp_path / "a", COSTLY, costs=costs)
    write_run(tmp_path / "b", PLAIN, costs=costs, method="baseline")
    found = contents(tmp_path / "a", tmp_path / "b")
    # (1 + 8) / 8 against (5 + 8 + 8) / 8
    assert "Mean cost is 1.12 with cosen and 2.62 with baseline (-1.50, 95 %" in found["verdict"]
    assert found["figures"][0] == {"name": "mean cost", "baseline": "2.62", "chosen": "1.12"}
    assert provenance(found)["objective"] == "mean misclassification cost"


def test_of_equally_bad_classes_the_rarest_is_named(tmp_path):
    write_run(tmp_path / "run", (0, 0, 0, 0, 1, 0, 2, 1))
    verdict = contents(tmp_path / "run")["verdict"]
    assert verdict.endswith("Lowest recall: 'elk', 1 of 2 correct, 1 predicted as 'dog'.")


def test_a_class_that_is_not_tested(tmp_path):
    write_run(tmp_path / "run", COSTLY[:6], target=TARGET[:6])
    found = contents(tmp_path / "run")
    assert found["classes"][2]["recall"]["chosen"] is None
    assert found["caveats"] == ["No test images, so no recall: 'elk'."]
    figures = {entry["name"]: entry["chosen"] for entry in found["figures"]}
    assert figures["recall of the rarest third"] == "-"


def test_curves(against, tmp_path):
    curve = against["curves"][0]
    assert curve == {
        "name": "cosen",
        "role": "chosen",
        "seed": 0,
        "epochs": [1, 2],
        "train_error": [0.5, 0.25],
        "val_error": [0.25, 0.125],
    }
    write_run(tmp_path / "wsvm", COSTLY, method="wsvm", history=0)
    assert contents(tmp_path / "wsvm")["curves"] == []


def test_reliability(alone):
    found = alone["reliability"]
    before = math.exp(4) / (math.exp(4) + 2)
    assert (found["method"], found["temperature"]) == ("cosen", 2.0)
    assert found["error_before"] == pytest.approx(abs(0.75 - before), abs=1e-6)
    assert [entry["count"] for entry in found["before"]] == [0] * 14 + [8]
    # calibrated for the class shares of the test images: 4, 2 and 2 of 8
    ratio = np.array([4, 2, 2]) / np.array(TRAIN)
    scores = np.exp(2 * np.eye(3)[list(COSTLY)]) * ratio
    likely = scores / scores.sum(1, keepdims=True)
    correct = (likely.argmax(1) == TARGET).mean()
    confidence = sum(e["confidence"] * e["count"] for e in found["after"] if e["count"]) / 8
    accuracy = sum(e["accuracy"] * e["count"] for e in found["after"] if e["count"]) / 8
    assert confidence == pytest.approx(likely.max(1).mean(), abs=1e-6)
    assert accuracy == pytest.approx(correct)
    filled = found["before"][14]
    assert filled["confidence"] == pytest.approx(before)
    assert filled["accuracy"] == pytest.approx(0.75)
    assert (filled["low"], filled["high"]) == (pytest.approx(14 / 15), 1.0)
    assert found["before"][0]["confidence"] is None


def test_the_trade_off_decides_as_the_model_does(alone):
    found = alone["tradeoff"]
    assert found["samples"] == 8
    assert unpack(found["target"]).tolist() == list(TARGET)
    assert unpack(found["logits"]).argmax(1).tolist() == list(COSTLY)
    np.testing.assert_allclose(np.exp(found["log_shares"]), np.array(TRAIN) / sum(TRAIN))
    assert len(found["offsets"]) == len(TRAIN)
    assert found["note"] == "cosen, seed 0: all 8 test images."


def test_learned_costs(tmp_path):
    write_run(tmp_path / "run", COSTLY, steps=[cost_step(n) for n in (1, 2, 3)])
    found = contents(tmp_path / "run")["costs"]
    assert (found["method"], found["seed"], found["epochs"]) == ("cosen", 0, [1, 2, 3])
    number = np.array([1, 2, 3])[:, None, None] * np.ones((3, 3, 3))
    np.testing.assert_allclose(unpack(found["costs"]), 1 / number, rtol=1e-4)
    np.testing.assert_allclose(unpack(found["target_costs"]), 0.1 / number, rtol=1e-4)
    np.testing.assert_allclose(unpack(found["confusion"]), [np.eye(3)] * 3, atol=1e-4)
    np.testing.assert_allclose(unpack(found["separability"]), number, rtol=1e-4)
    h = np.array(TRAIN) / sum(TRAIN)
    np.testing.assert_allclose(
        unpack(found["frequencies"]), np.maximum(h[:, None], h)[None], rtol=1e-4
    )
    assert found["steps"][1] == {
        "epoch": 2,
        "accepted": False,
        "val_error": 0.25,
        "best_error": 0.25,
        "cost_lr": 0.3,
    }
    assert found["strengths"] is None


def test_strengths_of_costs(tmp_path):
    strengths = [{"tau": 1.0, "margin": 0.0}, {"tau": 1.25, "margin": 10 / 3}]
    steps = [
        cost_step(number + 1, separability=False, strengths=one)
        for number, one in enumerate(strengths)
    ]
    write_run(tmp_path / "run", COSTLY, steps=steps)
    found = contents(tmp_path / "run")["costs"]
    assert found["strengths"] == {"tau": [1.0, 1.25], "margin": [0.0, 3.33333]}
    assert found["target_costs"] is found["frequencies"] is found["separability"] is None
    np.testing.assert_allclose(unpack(found["costs"])[:, 0, 0], [1, 0.5], rtol=1e-4)
    np.testing.assert_allclose(unpack(found["confusion"]), [np.eye(3)] * 2, atol=1e-4)
    assert [step["val_error"] for step in found["steps"]] == [0.5, 0.25]


def test_the_costs_of_both_learners(tmp_path):
    """Real steps, as training writes them."""
    right, target = 4 * torch.eye(3)[[*TARGET]], torch.tensor(TARGET)
    for learner in (AdaptiveCosts(TRAIN), CostLearner(TRAIN)):
        name = type(learner).__name__
        steps = [learner.step(right, target), learner.step(-right, target)]
        write_run(tmp_path / name, COSTLY, steps=steps)
    adaptive, papers = (
        contents(tmp_path / name)["costs"] for name in ("AdaptiveCosts", "CostLearner")
    )
    # all 8 are correct, then none: log(9 / 1), then log(1 / 9), which is negative
    assert adaptive["strengths"]["margin"] == [pytest.approx(math.log(9), abs=1e-4), 0.0]
    assert adaptive["strengths"]["tau"][0] == 1.0
    assert adaptive["target_costs"] is None
    assert papers["strengths"] is None
    assert papers["target_costs"]["shape"] == [2, 3, 3]


def test_steps_that_were_taken_before_strengths_were_kept(tmp_path):
    steps = [cost_step(1), cost_step(2, strengths={"tau": 1.5, "margin": 2.0})]
    write_run(tmp_path / "run", COSTLY, steps=steps)
    found = contents(tmp_path / "run")["costs"]
    assert found["strengths"] == {"tau": [None, 1.5], "margin": [None, 2.0]}


def test_frequencies_are_those_that_the_method_had(tmp_path):
    steps = [cost_step(1, separability=False)]
    write_run(tmp_path / "hinge", COSTLY, steps=steps, method="cosen-hinge")
    found = contents(tmp_path / "hinge")["costs"]
    assert found["separability"] is None
    np.testing.assert_allclose(np.diagonal(unpack(found["frequencies"])[0]), [1, 0.5, 0.05], 1e-4)


def test_costs_of_the_run_that_it_is_compared_with(tmp_path):
    write_run(tmp_path / "plain", PLAIN, method="focal")
    write_run(tmp_path / "costly", COSTLY, steps=[cost_step(1)])
    assert contents(tmp_path / "plain", tmp_path / "costly")["costs"]["method"] == "cosen"
    assert contents(tmp_path / "plain")["costs"] is None


def test_provenance(tmp_path):
    write_run(
        tmp_path / "run",
        COSTLY,
        imbalance="odd:0.1",
        lr=0.1,
        augment=("crop", "flip"),
        weights="/home/somebody/vgg16.pth",
        data_root="/home/somebody/data",
        options={"cost_lr": 0.2, "misclassification_costs": "/home/somebody/costs.csv"},
        command=("cosen", "train", "my photos/", "--lr", "0.1"),
    )
    found = contents(tmp_path / "run")
    assert found["command"] == "cosen train 'my photos/' --lr 0.1"
    assert found["title"] == "photos, odd:0.1, cosen"
    assert provenance(found) == {
        "data": "photos/",
        "fingerprint": "split",
        "split": "auto: 155 training, 8 validation and 8 test images",
        "imbalance": "odd:0.1",
        "classes": "3, with 5 to 100 training images each (ratio 20.0)",
        "validation": "5 % of the training images, unless the data has its own",
        "seeds": "0",
        "method": "cosen (cost_lr=0.2, misclassification_costs=costs.csv)",
        "objective": "mean class recall",
        "network": "small-cnn, images of 8 × 8 pixels in grey",
        "epochs": "30",
        "other settings": "weights=vgg16.pth, augment=crop,flip, lr=0.1",
        "versions": "cosen 0.1.0, python 3.11.7, torch 2.13.0",
        "platform": "Linux",
        "started": "2026-11-16 02:32 UTC",
    }
    assert "somebody" not in json.dumps(found)


def test_a_run_of_another_program_has_no_command(tmp_path):
    write_run(tmp_path / "run", COSTLY, command=("cosen", "-q", "tests"))
    assert contents(tmp_path / "run")["command"] == ""


def test_names_are_left_as_they_are(tmp_path):
    write_run(tmp_path / "run", COSTLY, names=ODD_NAMES)
    found = contents(tmp_path / "run")
    assert [entry["name"] for entry in found["classes"]] == list(ODD_NAMES)
    assert "'καρχαρίας 🦈', 1 of 2 correct, 1 predicted as '<script>" in found["verdict"]
    write_run(tmp_path / "other", PLAIN, names=ODD_NAMES, method="baseline")
    verdict = contents(tmp_path / "run", tmp_path / "other")["verdict"]
    assert "'a 'quoted' \"name\" of two lines' (+1)" in verdict


def test_long_names_are_cut_in_sentences(tmp_path):
    names = ("cat", "dog", "elk" * 100)
    write_run(tmp_path / "run", COSTLY, names=names)
    found = contents(tmp_path / "run")
    assert len(found["verdict"]) < 300
    assert found["classes"][2]["name"] == names[2]


def test_nothing_but_the_folder_is_read(tmp_path):
    write_run(tmp_path / "run", COSTLY, steps=[cost_step(1)])
    shutil.copytree(tmp_path / "run", tmp_path / "elsewhere" / "run")
    before = contents(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    assert contents(tmp_path / "elsewhere" / "run") == before


# Mistakes


def test_what_is_no_run_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunError, match="is not a run folder or a study folder"):
            read_contents(path)


def test_a_run_that_is_not_finished_is_refused(tmp_path):
    write_run(tmp_path / "run", COSTLY)
    write_run(tmp_path / "cut", COSTLY)
    (tmp_path / "cut" / "metrics.json").unlink()
    for paths in (["cut"], ["run", "cut"]):
        with pytest.raises(RunError, match="cut is not finished: resume it with cosen train"):
            contents(*(tmp_path / name for name in paths))


def test_a_run_of_another_split_is_refused(tmp_path):
    write_run(tmp_path / "run", COSTLY)
    names = [f"split/{row}.png" for row in range(8)]
    write_run(tmp_path / "other", COSTLY, fingerprint="other", image_names=names)
    write_run(tmp_path / "named", COSTLY, image_names=names[::-1])
    write_run(tmp_path / "classes", COSTLY, target=COSTLY)
    for name in ("other", "named", "classes"):
        with pytest.raises(RunError, match="do not have the same split"):
            contents(tmp_path / "run", tmp_path / name)


def test_a_run_is_not_compared_with_itself_or_another_folder(tmp_path):
    write_run(tmp_path / "run", COSTLY)
    with pytest.raises(InputError, match="cannot be compared with itself"):
        contents(tmp_path / "run", tmp_path / "." / "run")
    with pytest.raises(RunError, match=r"nowhere is not a run folder: there is no such folder"):
        contents(tmp_path / "run", tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["predictions.safetensors", "predictions.json", "metrics.json"])
def test_a_damaged_run_is_refused(tmp_path, name):
    write_run(tmp_path / "run", COSTLY)
    (tmp_path / "run" / name).write_text("nonsense")
    with pytest.raises(RunError, match="is damaged"):
        read_contents(tmp_path / "run")


def test_damaged_costs_are_refused(tmp_path):
    run = write_run(tmp_path / "run", COSTLY, steps=[cost_step(1)])
    (run.path / "costs" / "0001.safetensors").write_bytes(b"nonsense")
    with pytest.raises(RunError, match=r"0001\.safetensors is damaged"):
        read_contents(run.path)


def test_builders_are_as_training_leaves_runs(tmp_path):
    """The reference for the tests above: metrics of the example runs, computed by hand."""
    metrics = RunFolder(write_run(tmp_path / "run", COSTLY).path).metrics().test
    assert metrics.accuracy == 0.75
    assert metrics.class_recall == (0.75, 1.0, 0.5)
    assert torch.tensor(metrics.confusion).sum() == len(TARGET)
    assert len(NAMES) == len(TRAIN)
