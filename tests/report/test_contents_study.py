"""A study, also with missing methods or without a baseline."""

import json

import numpy as np
import pytest

from cosen.comparing.study_folder import StudyFolder
from cosen.errors import InputError, RunError
from cosen.report.contents import read_contents
from report.small_runs import COSTLY, PLAIN, TARGET, cost_step, write_study

LARGE = tuple(np.repeat([0, 1, 2], 40).tolist())
POOR = tuple([0] * 40 + [0] * 30 + [1] * 10 + [2] * 40)
"""The dogs are wrong three times in four."""


def contents(study):
    found = read_contents(study.path)
    json.dumps(found, allow_nan=False)
    return found


def large(**given):
    """Runs with 120 test images: differences are beyond noise."""
    return {method: {"target": LARGE, **more} for method, more in given.items()}


@pytest.fixture
def study(tmp_path):
    """cosen is better beyond noise; smote failed."""
    return write_study(
        tmp_path / "study",
        {"baseline": POOR, "cosen": LARGE},
        failures={"smote": {0: "too few elks", 1: "too few elks"}},
        runs=large(baseline={}, cosen={"steps": [cost_step(1), cost_step(2)]}),
    )


def test_a_study(study):
    found = contents(study)
    choice = json.loads((study.path / "choice.json").read_text())
    assert choice["method"] == "cosen"
    assert (found["kind"], found["title"], found["seeds"]) == ("study", "photos", [0, 1])
    assert found["verdict"] == choice["sentence"]
    assert found["caveats"] == choice["caveats"]
    assert found["methods"] == {"baseline": "baseline", "chosen": "cosen"}
    assert found["confusion"]["chosen"] == [[80, 0, 0], [0, 80, 0], [0, 0, 80]]  # of both seeds
    assert found["confusion"]["baseline"][1] == [60, 20, 0]
    assert found["classes"][1]["recall"] == {"baseline": 0.25, "chosen": 1.0}
    assert found["classes"][1]["spread"] == {"baseline": 0.0, "chosen": 0.0}
    assert found["classes"][1]["test"] == 40
    assert found["costs"]["method"] == "cosen"
    assert found["command"] == "cosen compare photos/"
    assert {(curve["role"], curve["seed"]) for curve in found["curves"]} == {
        (role, seed) for role in ("chosen", "baseline") for seed in (0, 1)
    }
    figures = {entry["name"]: entry for entry in found["figures"]}
    assert figures["mean class recall"]["baseline"] == "75.0 ± 0.0 %"
    assert figures["training time"]["chosen"] == "10.5 ± 0.7 s"
    assert found["tradeoff"]["note"] == "cosen, seed 0: all 120 test images."


def test_means_and_spreads_over_seeds(tmp_path):
    study = write_study(
        tmp_path / "study", {"baseline": {0: PLAIN, 1: TARGET}, "cosen": {0: COSTLY, 1: TARGET}}
    )
    cat, dog, elk = contents(study)["classes"]
    assert cat["recall"]["chosen"] == pytest.approx((0.75 + 1) / 2)
    assert dog["recall"]["baseline"] == pytest.approx(0.75)
    assert elk["spread"]["baseline"] == pytest.approx(np.std([0, 1], ddof=1))


def test_the_leaderboard_with_a_method_that_failed(study):
    board = contents(study)["leaderboard"]
    assert board["headings"][:3] == ["method", "accuracy", "mean recall"]
    assert [(row["method"], row["role"]) for row in board["rows"]] == [
        ("cosen", "chosen"),
        ("baseline", "baseline"),
        ("smote", None),
    ]
    assert all(len(row["cells"]) == len(board["headings"]) - 1 for row in board["rows"])
    assert board["rows"][0]["cells"][:2] == ["100.0 ± 0.0", "100.0 ± 0.0"]
    assert set(board["rows"][2]["cells"]) == {"-"}
    assert board["notes"][1:] == ["smote failed: too few elks"]


def test_where_the_choice_is_the_baseline_the_best_other_is_shown(tmp_path):
    study = write_study(
        tmp_path / "study",
        {"baseline": LARGE, "focal": LARGE, "poor": POOR},
        runs=large(baseline={}, focal={}, poor={}),
    )
    choice = json.loads((study.path / "choice.json").read_text())
    assert (choice["method"], choice["challenger"]) == ("baseline", "focal")
    found = contents(study)
    assert found["methods"] == {"baseline": "baseline", "chosen": "focal"}
    assert found["verdict"] == choice["sentence"]
    assert "Choice for mean class recall: baseline." in found["verdict"]
    assert found["caveats"][-1].endswith(
        "compared here with focal, the best other method on validation."
    )
    roles = {row["method"]: row["role"] for row in found["leaderboard"]["rows"]}
    assert roles == {"baseline": "baseline", "focal": "challenger", "poor": None}


def test_without_a_baseline(tmp_path):
    study = write_study(
        tmp_path / "study",
        {"cosen": LARGE, "focal": POOR},
        failures={"baseline": {0: "no memory", 1: "no memory"}},
        runs=large(cosen={}, focal={}),
    )
    found = contents(study)
    assert found["methods"] == {"baseline": None, "chosen": "cosen"}
    assert found["confusion"]["baseline"] is None
    assert found["gallery"]["gained"] == found["gallery"]["lost"] == []
    assert "no baseline to compare with" in found["verdict"]
    assert found["leaderboard"]["notes"][-1] == "baseline failed: no memory"


def test_only_the_baseline_has_finished(tmp_path):
    failures = {"cosen": {0: "the loss is not finite", 1: "the loss is not finite"}}
    study = write_study(tmp_path / "study", {"baseline": PLAIN}, failures=failures)
    found = contents(study)
    assert found["methods"] == {"baseline": None, "chosen": "baseline"}
    assert found["gallery"]["wrong"]
    assert found["costs"] is None


def test_seeds_that_the_shown_methods_share(tmp_path):
    study = write_study(
        tmp_path / "study",
        {"baseline": POOR, "cosen": LARGE},
        seeds=(3, 4, 5),
        failures={"baseline": {4: "killed"}},
        runs=large(baseline={}, cosen={}),
    )
    found = contents(study)
    assert found["seeds"] == [3, 5]
    assert sum(map(sum, found["confusion"]["chosen"])) == 240


@pytest.mark.parametrize(
    ("with_costs", "named"),
    [(["cosen-mse", "cosen"], "cosen"), (["cosen-mse"], "cosen-mse"), ([], None)],
    ids=["cosen first", "another", "none"],
)
def test_costs_of_another_method_where_the_chosen_has_none(tmp_path, with_costs, named):
    methods = ("baseline", "focal", "cosen-mse", "cosen")
    study = write_study(
        tmp_path / "study",
        {method: LARGE if method == "focal" else POOR for method in methods},
        runs=large(
            **{method: {"steps": [cost_step(1)] * (method in with_costs)} for method in methods}
        ),
    )
    found = contents(study)
    assert found["methods"]["chosen"] == "focal"
    assert (found["costs"] and found["costs"]["method"]) == named


def test_provenance_of_a_study(study):
    provenance = {entry["name"]: entry["value"] for entry in contents(study)["provenance"]}
    assert provenance["seeds"] == "0, 1"
    assert provenance["fingerprint"] == "split-0 (seed 0), split-1 (seed 1)"
    assert provenance["method"] == "baseline, cosen, smote"


def test_a_study_of_a_table_of_the_paper_has_its_command(tmp_path):
    words = ("cosen", "reproduce", "mnistexp", "--row", "10%) of odd", "--seeds", "2")
    study = write_study(tmp_path / "study", {"baseline": PLAIN, "cosen": COSTLY}, command=words)
    assert contents(study)["command"] == "cosen reproduce mnistexp --row '10%) of odd' --seeds 2"


def test_a_study_that_is_not_finished_is_refused(study):
    for name in ("choice.json", "leaderboard.json"):
        (study.path / name).unlink()
        with pytest.raises(RunError, match=f"has no {name}: the study is not finished"):
            read_contents(study.path)


def test_a_damaged_choice_is_refused(study):
    for text in ("{", "{}", "[]"):
        (study.path / "choice.json").write_text(text)
        with pytest.raises(RunError, match=r"choice\.json is damaged"):
            read_contents(study.path)


def test_a_study_is_not_compared_with_a_run(study):
    run = StudyFolder(study.path).run("baseline", 0).path
    with pytest.raises(InputError, match="is a study and has its own baseline"):
        read_contents(study.path, against=run)
    with pytest.raises(InputError, match="is a study: name one of its runs"):
        read_contents(run, against=study.path)


def test_runs_of_a_study_can_be_compared(study):
    runs = [study.run(method, 1).path for method in ("cosen", "baseline")]
    found = read_contents(runs[0], against=runs[1])
    assert found["methods"] == {"baseline": "baseline", "chosen": "cosen"}
    assert found["seeds"] == [1]
