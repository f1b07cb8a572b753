import json

import numpy as np
import pytest
from study.test_leaderboard import COSTS, random_part, random_runs, write_run

from cosen.comparing.choice import choose


def runs_with(folder, *, right_on_val, right_on_test, seeds=(0, 1, 2), seconds=None, samples=60):
    """Runs of methods that are right on these samples of each class, the same in each seed.

    A number stands for that many samples from the first on.
    """

    def part(right):
        target = np.repeat([0, 1, 2], samples)
        found = range(right) if isinstance(right, int) else right
        is_right = np.isin(np.tile(np.arange(samples), 3), found)
        return target, np.where(is_right, target, (target + 1) % 3)

    return {
        method: {
            seed: write_run(
                folder / f"{method}-{seed}",
                val=part(right_on_val[method]),
                test=part(right_on_test[method]),
                seconds=seconds and seconds[method],
                fingerprint=str(seed),
            )
            for seed in seeds
        }
        for method in right_on_val
    }


def test_a_method_that_is_better(tmp_path):
    runs = runs_with(
        tmp_path,
        right_on_val={"baseline": 30, "cosen": 48, "smote": 48, "ldam": 36},
        right_on_test={"baseline": 33, "cosen": 45, "smote": 60, "ldam": 60},
        seconds={"baseline": 1, "cosen": 3, "smote": 2, "ldam": 4},  # which vary from run to run
    )
    choice = choose(runs, objective="balanced")
    assert choice.method == choice.challenger == "cosen"  # on validation, and named before smote
    assert choice.within_noise == ("smote",)
    assert choice.validation.mean == pytest.approx(18 / 60)
    assert choice.test.mean == pytest.approx(12 / 60)
    gain, test = (
        [f"{100 * end:+.1f}" for end in (change.low, change.high)]
        for change in (choice.validation, choice.test)
    )
    assert choice.sentence == (
        "For mean class recall the choice is cosen: 80.0 % on validation against 50.0 % for the "
        f"baseline (+30.0, 95 % interval {gain[0]} to {gain[1]}); smote is within noise of it. On "
        "test, which had no part in the choice, it has 75.0 % against 55.0 % (+20.0, 95 % interval "
        f"{test[0]} to {test[1]})."
    )
    assert choice.caveats == ()
    assert choice.seeds == (0, 1, 2)
    assert json.loads(json.dumps(choice.as_json()))["method"] == "cosen"


def test_test_has_no_part_in_the_choice(tmp_path):
    shares = {"baseline": 40, "cosen": 55, "smote": 50}
    chosen = set()
    for number, on_test in enumerate([(0, 0, 60), (60, 0, 0), (30, 30, 30)]):
        right = dict(zip(shares, on_test, strict=True))
        folder = tmp_path / str(number)
        runs = runs_with(folder, right_on_val=shares, right_on_test=right)
        chosen.add(choose(runs, objective="overall").method)
    assert chosen == {"cosen"}


def test_what_test_does_not_confirm_is_said(tmp_path):
    val = {"baseline": 30, "cosen": 50}
    same = runs_with(tmp_path / "a", right_on_val=val, right_on_test={"baseline": 30, "cosen": 30})
    assert choose(same, objective="overall").sentence.endswith(
        "it has 50.0 % against 50.0 % (+0.0, 95 % interval +0.0 to +0.0), which is within noise."
    )
    worse = runs_with(tmp_path / "b", right_on_val=val, right_on_test={"baseline": 50, "cosen": 30})
    assert choose(worse, objective="overall").sentence.endswith("), which is worse beyond noise.")


def test_the_baseline_stays_where_nothing_is_better_beyond_noise(tmp_path):
    runs = runs_with(
        tmp_path,
        right_on_val={"baseline": 50, "cosen": range(9, 60), "smote": 40},
        right_on_test={"baseline": 50, "cosen": range(9, 60), "smote": 40},
    )
    choice = choose(runs, objective="overall")
    assert choice.method == "baseline"
    assert choice.challenger == "cosen"
    assert choice.within_noise == ("cosen",)
    assert choice.sentence.startswith(
        "No method is better than the baseline beyond noise, so for overall accuracy the choice is "
        "the baseline: the best on validation, cosen, has 85.0 % against 83.3 % (+1.7, 95 % "
        "interval -"
    )
    assert choice.sentence.endswith("), which is within noise.")
    assert "On test, which had no part in the choice, cosen has 85.0 % against" in choice.sentence


def test_test_may_be_surer_than_validation(tmp_path):
    runs = runs_with(
        tmp_path,
        right_on_val={"baseline": 50, "cosen": range(9, 60)},
        right_on_test={"baseline": 30, "cosen": 51},
    )
    choice = choose(runs, objective="overall")
    assert choice.method == "baseline"
    assert choice.sentence.endswith("), which is better beyond noise.")


def test_the_best_that_is_beyond_noise_is_taken(tmp_path):
    """Not the best of all, where luck may have made it so: then the sentence would be untrue."""
    target = np.repeat([0, 1, 2], 40)
    generator = np.random.default_rng(0)
    plain = np.where(generator.random(120) < 0.7, target, (target + 1) % 3)
    wrong, right = np.flatnonzero(plain != target), np.flatnonzero(plain == target)
    steady = plain.copy()
    steady[wrong[:8]] = target[wrong[:8]]  # 8 more are right, and none is lost
    lost = right[: len(wrong) - 9]
    risky = target.copy()
    risky[lost] = (target[lost] + 1) % 3  # all others are right, 9 more in all
    runs = {
        name: {0: write_run(tmp_path / name, val=(target, given), test=(target, given))}
        for name, given in {"baseline": plain, "steady": steady, "risky": risky}.items()
    }
    choice = choose(runs, objective="overall")
    assert choice.method == "steady"
    assert choice.within_noise == ("risky",)


def test_the_baseline_is_best(tmp_path):
    right = {"cosen": 40, "baseline": 54, "smote": 54}
    runs = runs_with(tmp_path, right_on_val=right, right_on_test=right)
    choice = choose(runs, objective="overall")
    assert choice.method == "baseline"  # of equals
    assert choice.challenger == "smote"
    assert choice.sentence == (
        "For overall accuracy the choice is the baseline: no other method is better than its "
        "90.0 % on validation; smote is within noise of it. On test, which had no part in the "
        "choice, it has 90.0 %."
    )


def test_at_most_three_are_named(tmp_path):
    right = {"baseline": 20, **dict.fromkeys("abcdef", 50)}
    runs = runs_with(tmp_path, right_on_val=right, right_on_test=right, seeds=(0, 1))
    choice = choose(runs, objective="overall")
    assert choice.within_noise == ("b", "c", "d", "e", "f")
    assert "; b, c, d and 2 others are within noise of it." in choice.sentence


def test_no_baseline(tmp_path):
    right = {"cosen": 48, "smote": 30, "ldam": range(13, 60)}
    runs = runs_with(tmp_path, right_on_val=right, right_on_test=right)
    choice = choose(runs, objective="balanced")
    assert (choice.method, choice.challenger, choice.validation) == ("cosen", None, None)
    assert choice.sentence == (
        "For mean class recall the choice is cosen, with no baseline to compare with: 80.0 % on "
        "validation, the best of 3 methods; ldam is within noise of it. On test, which had no part "
        "in the choice, it has 80.0 %."
    )
    other = choose(runs, objective="balanced", baseline="smote")
    assert "80.0 % on validation against 50.0 % for smote (+30.0" in other.sentence


def test_an_experts_costs_are_told_as_costs(tmp_path):
    # a wrong cat costs 1, a wrong dog 1, a wrong elk 8: each wrong class is the next
    right = {"baseline": 30, "cosen": 54}
    runs = runs_with(tmp_path, right_on_val=right, right_on_test=right)
    choice = choose(runs, objective=COSTS)
    assert choice.method == "cosen"
    low, high = choice.validation.low, choice.validation.high
    assert choice.validation.mean == pytest.approx(24 / 60 * 10 / 3 / 8)
    assert low > 0
    assert choice.sentence.startswith(
        "For the expert's costs the choice is cosen: a mean cost of 0.33 on validation against "
        f"1.67 for the baseline (-1.33, 95 % interval {-8 * high:.2f} to {-8 * low:.2f}). On test, "
        "which had no part in the choice, it has a mean cost of 0.33 against 1.67 (-1.33, "
    )
    worse = runs_with(
        tmp_path / "worse", right_on_val={"baseline": 30, "cosen": 20}, right_on_test=right
    )
    assert choose(worse, objective=COSTS).sentence == (
        "For the expert's costs the choice is the baseline: no other method is better than its "
        "mean cost of 1.67 on validation. On test, which had no part in the choice, it has a mean "
        "cost of 1.67."
    )


def test_only_one_method(tmp_path):
    runs = random_runs(tmp_path, {"baseline": 1.0})
    choice = choose({**runs, "smote": {}}, objective="overall")
    assert choice.method == "baseline"
    assert choice.sentence == (
        "Only the baseline has a finished run, so there is nothing to choose between: for overall "
        "accuracy it has 100.0 % on validation and 100.0 % on test."
    )


def test_nothing_finished():
    choice = choose({"baseline": {}, "cosen": {}}, objective="overall")
    assert choice.method is None
    assert choice.sentence == "No run finished, so there is nothing to choose from."


def test_a_method_that_lacks_a_seed_has_no_part(tmp_path):
    runs = random_runs(tmp_path, {"baseline": 0.5, "cosen": 0.7, "lucky": 0.9})
    del runs["lucky"][0]
    choice = choose(runs, objective="overall")
    assert choice.method == "cosen"
    assert choice.caveats == ("lucky had no part in the choice: not all seeds have finished.",)
    del runs["baseline"][0]  # then its seeds are those that count
    choice = choose(runs, objective="overall")
    assert (choice.method, choice.seeds, choice.caveats) == ("lucky", (1, 2), ())
    del runs["cosen"][1], runs["lucky"][1]
    choice = choose(runs, objective="overall")
    assert choice.method == "baseline"
    assert choice.sentence.startswith("No other method has finished runs of all seeds of the base")
    del runs["baseline"]
    assert choose(runs, objective="overall").method == "cosen"  # lucky has fewer seeds


def test_caveats(tmp_path):
    runs = {
        method: {
            7: write_run(
                tmp_path / method,
                val=random_part(np.random.default_rng(0), share, counts=(30, 20)),
                test=random_part(np.random.default_rng(1), share),
            )
        }
        for method, share in {"baseline": 0.5, "cosen": 0.9}.items()
    }
    assert choose(runs, objective="balanced").caveats == (
        "There is one seed: intervals do not cover how training itself varies.",
        "Validation has no sample of 'elk': the choice leaves such classes out.",
    )
