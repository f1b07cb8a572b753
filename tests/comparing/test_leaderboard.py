import csv
import io
import shutil
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from cosen.comparing.bootstrap import paired_change
from cosen.comparing.leaderboard import CHANGES, METRICS, Leaderboard, make_leaderboard, read_grid
from cosen.costs import BALANCED, OVERALL, Objective
from cosen.errors import RunError
from cosen.networks.network import Outputs
from cosen.training.calibration import make_calibration
from cosen.training.config import TrainConfig
from cosen.training.evaluation import summarise
from cosen.training.records import (
    DataRecord,
    ImageNames,
    RunMetrics,
    RunRecord,
    SplitCounts,
)
from cosen.training.run_folder import RunFolder

CLASS_COUNTS = torch.tensor([100, 50, 5])
COSTS = Objective.of([[0.0, 1.0, 2.0], [5.0, 0.0, 1.0], [8.0, 3.0, 0.0]])


def write_run(
    path, *, val, test, seconds=None, fingerprint="split", names=None, objective=BALANCED
):
    """Write a finished run, given true and predicted classes of each part."""
    run = RunFolder(path)
    path.mkdir(parents=True)
    outputs = {}
    for part, (target, predicted) in {"val": val, "test": test}.items():
        logits = 4 * torch.nn.functional.one_hot(torch.tensor(predicted), len(CLASS_COUNTS)).float()
        outputs[part] = Outputs(logits, logits, torch.tensor(target))
    metrics = {
        part: summarise(
            found, objective=objective, calibration=make_calibration(1.0, (), CLASS_COUNTS)
        )
        for part, found in outputs.items()
    }
    RunRecord(
        version="0.1.0",
        started="2026-11-16T02:32:04+00:00",
        command=("cosen",),
        config=TrainConfig(),
        versions={},
        platform="Linux",
        seconds=seconds,
        data=DataRecord(
            fingerprint=fingerprint,
            class_names=("cat", "dog", "elk"),
            class_counts=SplitCounts(train=CLASS_COUNTS, val=CLASS_COUNTS, test=CLASS_COUNTS),
            network="small-cnn",
            size=(8, 8, 1),
        ),
    ).write(path)
    named = names or [f"{fingerprint}/{row}" for row in range(999)]
    run.write_predictions(outputs, ImageNames(val=named, test=named))
    RunMetrics(**metrics).write(path)
    return run


def board_of(runs, failures=None, **options):
    return make_leaderboard(read_grid(runs), failures or {}, **options)


def random_part(generator, share, *, counts=(60, 40, 20)):
    """True classes, and predicted classes with this accuracy."""
    target = np.repeat(np.arange(len(counts)), counts)
    right = generator.random(len(target)) < share
    return target, np.where(right, target, (target + generator.integers(1, 3, len(target))) % 3)


def random_runs(folder, shares, *, seeds=(0, 1, 2), seconds=None, **parts):
    """Finished runs of methods with these accuracies on validation and test."""
    return {
        method: {
            seed: write_run(
                folder / f"{method}-{seed}",
                val=random_part(np.random.default_rng([seed, number, 0]), share, **parts),
                test=random_part(np.random.default_rng([seed, number, 1]), share, **parts),
                seconds=None if seconds is None else seconds[method] + seed,
                fingerprint=f"split-{seed}",
            )
            for seed in seeds
        }
        for number, (method, share) in enumerate(shares.items())
    }


def row_of(board, method):
    (row,) = [row for row in board.rows if row.method == method]
    return row


def test_hand_worked(tmp_path):
    target = [0, 0, 0, 0, 1, 1, 2, 2]
    plain = {0: [0, 0, 0, 0, 1, 0, 0, 0], 1: [0, 0, 0, 0, 0, 0, 0, 2]}
    costs = {0: [0, 0, 0, 1, 1, 1, 2, 0], 1: [0, 0, 0, 0, 1, 1, 2, 2]}
    runs = {
        method: {
            seed: write_run(
                tmp_path / f"{method}-{seed}",
                val=(target, given),
                test=(target, given),
                seconds=10.0 + seed,
                fingerprint=str(seed),
            )
            for seed, given in by_seed.items()
        }
        for method, by_seed in {"baseline": plain, "cosen": costs}.items()
    }
    board = board_of(runs, objective=BALANCED)
    assert [row.method for row in board.rows] == ["cosen", "baseline"]
    assert (board.baseline, board.seeds) == ("baseline", (0, 1))
    row, reference = board.rows
    assert row.seeds == (0, 1)
    assert row.seconds == 10.5
    # recalls of seed 0: 3/4, 2/2, 1/2; of seed 1: all 1
    assert row.test["accuracy"].mean == pytest.approx((6 / 8 + 1) / 2)
    assert row.test["accuracy"].deviation == pytest.approx(np.std([6 / 8, 1], ddof=1))
    assert row.test["mean_recall"].mean == pytest.approx((0.75 + 1) / 2)
    assert row.test["g_mean"].mean == pytest.approx(((0.75 * 1 * 0.5) ** (1 / 3) + 1) / 2)
    assert row.test["rare_recall"].mean == pytest.approx(0.75)  # the elk
    assert row.test["error"].mean == pytest.approx(0.125)
    assert row.val["error"] == row.test["error"]
    # the baseline has the recalls 1, 1/2, 0 and 1, 0, 1/2
    assert reference.test["mean_recall"].mean == pytest.approx(0.5)
    assert reference.changes == {}
    assert row.changes["mean_recall"].mean == pytest.approx(0.875 - 0.5)
    assert row.changes["accuracy"].mean == pytest.approx((1 / 8 + 3 / 8) / 2)
    assert row.changes["objective"] == row.changes["mean_recall"]


@pytest.mark.parametrize("objective", [OVERALL, BALANCED, COSTS], ids=lambda each: each.name)
def test_the_error_is_that_of_the_objective(tmp_path, objective):
    runs = random_runs(tmp_path, {"baseline": 0.6, "cosen": 0.8})
    board = board_of(runs, objective=objective)
    for row in board.rows:
        confusions = [
            torch.tensor(run.metrics().test.confusion) for run in runs[row.method].values()
        ]
        errors = [objective.error(confusion) for confusion in confusions]
        assert row.test["error"].mean == pytest.approx(np.mean(errors))
        assert row.test["error"].deviation == pytest.approx(np.std(errors, ddof=1))
    row, reference = board.rows
    gain = reference.test["error"].mean - row.test["error"].mean
    assert row.changes["objective"].mean == pytest.approx(gain)
    assert set(row.changes) == set(CHANGES)
    assert set(row.test) == set(row.val) == set(METRICS)


def test_the_order_is_by_the_objective_on_test_and_failures_are_last(tmp_path):
    runs = random_runs(tmp_path, {"poor": 0.4, "good": 0.9, "baseline": 0.6})
    failures = {"smote": {0: "no memory", 1: "no memory", 2: "no memory"}}
    board = board_of({"gone": {}} | runs, failures, objective=OVERALL)
    assert [row.method for row in board.rows] == ["good", "baseline", "poor", "gone", "smote"]
    failed = row_of(board, "smote")
    assert failed.has_failed
    assert (failed.test, failed.val, failed.changes, failed.seconds) == ({}, {}, {}, None)
    assert failed.failures == failures["smote"]


def test_some_seeds_failed(tmp_path):
    runs = random_runs(tmp_path, {"baseline": 0.6, "cosen": 0.8})
    del runs["cosen"][1], runs["baseline"][0]
    failures = {"cosen": {1: "the loss is not finite", 2: "killed, then finished"}}
    row = row_of(board_of(runs, failures, objective=OVERALL), "cosen")
    assert row.seeds == (0, 2)
    assert row.failures == {1: "the loss is not finite"}
    both = row_of(board_of(random_subset(runs, [2]), objective=OVERALL), "cosen")
    assert row.changes == both.changes  # over the one seed that both have
    del runs["baseline"][2]
    assert row_of(board_of(runs, objective=OVERALL), "cosen").changes == {}


def random_subset(runs, seeds):
    return {method: {seed: by_seed[seed] for seed in seeds} for method, by_seed in runs.items()}


def test_without_a_baseline_there_are_no_changes(tmp_path):
    runs = random_runs(tmp_path, {"cosen": 0.8, "smote": 0.7})
    board = board_of(runs, objective=BALANCED)
    assert board.baseline is None
    assert all(row.changes == {} for row in board.rows)
    board = board_of(runs, objective=BALANCED, baseline="smote")
    assert board.baseline == "smote"
    assert row_of(board, "cosen").changes["objective"].mean > 0


def test_one_seed_has_no_spread(tmp_path):
    runs = random_runs(tmp_path, {"baseline": 0.6, "cosen": 0.8}, seeds=(3,))
    row = board_of(runs, objective=BALANCED).rows[0]
    assert row.test["accuracy"].deviation is None
    assert row.changes["accuracy"].low < row.changes["accuracy"].mean


def test_a_class_that_is_not_tested(tmp_path):
    runs = random_runs(tmp_path, {"baseline": 0.6, "cosen": 0.8}, counts=(60, 40))
    board = board_of(runs, objective=BALANCED)
    row = board.rows[0]
    assert row.test["rare_recall"] is None  # there is no elk
    assert row.test["mean_recall"].mean == pytest.approx(1 - row.test["error"].mean, abs=1e-6)
    assert " - |" in board.markdown()
    assert Leaderboard.model_validate_json(board.model_dump_json()) == board


def test_seconds_are_none_where_runs_do_not_say(tmp_path):
    runs = random_runs(tmp_path, {"baseline": 0.6})
    assert board_of(runs, objective=BALANCED).rows[0].seconds is None


def test_the_same_test_samples_in_all_seeds_are_drawn_together(tmp_path):
    generator = np.random.default_rng(0)
    parts = {method: random_part(generator, 0.7) for method in ("baseline", "cosen")}
    names = list(map(str, range(120)))
    runs = {
        method: {
            seed: write_run(tmp_path / f"{method}-{seed}", val=part, test=part, names=names)
            for seed in range(3)
        }
        for method, part in parts.items()
    }
    change = row_of(board_of(runs, objective=OVERALL), "cosen").changes["accuracy"]
    (target, plain), (_, own) = parts["baseline"], parts["cosen"]
    for names, same in ("aaa", True), ("abc", False):
        first, second = (
            [SimpleNamespace(names=[name], target=target, predicted=given) for name in names]
            for given in (own, plain)
        )
        assert (change == paired_change(first, second, OVERALL)) is same


def test_runs_of_different_splits_are_refused(tmp_path):
    target, given = random_part(np.random.default_rng(0), 0.7)
    part = (target, given)
    first = write_run(tmp_path / "a", val=part, test=part)
    for name, second in {
        "fingerprint": {"val": part, "test": part, "fingerprint": "other"},
        "test": {"val": part, "test": (target[::-1].copy(), given)},
        "val": {"val": (target[:-1], given[:-1]), "test": part},
    }.items():
        other = write_run(tmp_path / name, **second)
        with pytest.raises(RunError, match=f"a and .*{name} have different splits: compare again"):
            read_grid({"a": {0: first}, "b": {0: other}})
        read_grid({"a": {0: first}, "b": {1: other}})


def test_a_run_that_is_not_finished_is_refused(tmp_path):
    runs = random_runs(tmp_path, {"cosen": 0.8}, seeds=(0,))
    (tmp_path / "cosen-0" / "metrics.json").unlink()
    with pytest.raises(RunError, match="not finished"):
        board_of(runs, objective=OVERALL)


@pytest.fixture
def board(tmp_path):
    """Two methods that finished, one with a failure, and one that failed."""
    seconds = {"baseline": 100.0, "cosen": 4.0, "ldam": 1.0}
    runs = random_runs(tmp_path, {"baseline": 0.6, "cosen": 0.8, "ldam": 0.7}, seconds=seconds)
    del runs["ldam"][1]
    failures = {"ldam": {1: "no\nmemory"}, "smote": dict.fromkeys(range(3), "too few cats")}
    made = board_of(runs, failures, objective=BALANCED)
    shutil.rmtree(tmp_path)  # the files are not needed any more
    return made


def test_it_is_read_back_as_it_was(board, tmp_path):
    tmp_path.mkdir()
    for written in (board, board.changed(objective="costs", largest_cost=8.0)):
        written.write(tmp_path)
        assert Leaderboard.read(tmp_path) == written
    text = (tmp_path / "leaderboard.json").read_text().replace('"costs"', '"cost"')
    (tmp_path / "leaderboard.json").write_text(text)
    with pytest.raises(RunError, match=r"leaderboard\.json is damaged: it does not match its"):
        Leaderboard.read(tmp_path)
    (tmp_path / "checksums.json").unlink()
    with pytest.raises(RunError, match=r"leaderboard\.json is damaged: objective must be one of"):
        Leaderboard.read(tmp_path)


def test_csv(board):
    lines = list(csv.DictReader(io.StringIO(board.csv())))
    assert [line["method"] for line in lines] == ["cosen", "ldam", "baseline", "smote"]
    cosen, ldam, baseline, smote = lines
    row = row_of(board, "cosen")
    for name in METRICS:
        assert float(cosen[f"test_{name}"]) == row.test[name].mean
        assert float(cosen[f"val_{name}_std"]) == row.val[name].deviation
    change = asdict(row.changes["objective"])
    assert [float(cosen[f"change_objective{end}"]) for end in ("", "_low", "_high")] == list(
        change.values()
    )
    assert ldam["seeds"] == "0 2"
    assert ldam["failures"] == "seed 1: no\nmemory"
    assert baseline["change_accuracy"] == smote["test_accuracy"] == smote["seconds"] == ""
    assert cosen["seconds"] == "5.0"


def test_many_classes_are_grouped_by_their_size(board, monkeypatch, tmp_path):
    monkeypatch.setattr("cosen.comparing.leaderboard.GROUPED_FROM", 3)
    part = ([0, 0, 1, 1, 2, 2], [0, 0, 1, 0, 2, 0])
    run = write_run(tmp_path / "run", val=part, test=part)
    grouped = make_leaderboard(read_grid({"baseline": {0: run}}), {}, objective=BALANCED)
    means = grouped.rows[0].test  # 100 and 50 images are medium shot, 5 are few shot
    assert means["many_recall"] is None
    assert (means["medium_recall"].mean, means["few_recall"].mean) == (0.75, 0.5)
    lines = grouped.markdown().splitlines()
    assert lines[0] == (
        "| method | accuracy | mean recall | many shot | medium shot | few shot | "
        "change | seconds |"
    )
    assert lines[2].startswith("| baseline | 66.7 | 66.7 | - | 75.0 | 50.0 | - |")
    assert "classes with more than 100, 20 to 100, and fewer than 20 training images" in lines[4]
    assert next(csv.DictReader(io.StringIO(grouped.csv())))["test_few_recall"] == "0.5"
    assert "few_recall" not in board.rows[0].test


def test_markdown(board):
    lines = board.markdown().splitlines()
    assert lines[0] == (
        "| method | accuracy | mean recall | G-mean | macro F1 | rarest third | change | seconds |"
    )
    assert lines[1] == "| --- |" + " ---: |" * 7
    accuracy = row_of(board, "cosen").test["accuracy"]
    assert lines[2].startswith(
        f"| cosen | {100 * accuracy.mean:.1f} ± {100 * accuracy.deviation:.1f} | "
    )
    assert lines[5] == "| smote |" + " - |" * 7
    assert lines[7:] == [
        "On test, in per cent, mean ± standard deviation over 3 seeds. Change in mean class "
        "recall against baseline, with 95 % interval.",
        "",
        "ldam has 2 of 3 seeds; failed: seed 1: no memory",
        "",
        "smote failed: too few cats",
    ]


def test_no_run_at_all():
    board = board_of({}, objective=OVERALL)
    assert board.rows == ()
    assert board.csv() == "\n"
