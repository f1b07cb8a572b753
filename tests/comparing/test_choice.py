import numpy as np
import pytest

from comparing.test_leaderboard import COSTS, random_part, random_runs, write_run
from cosen.comparing import choice as module
from cosen.comparing.choice import Choice
from cosen.comparing.leaderboard import read_grid
from cosen.costs import BALANCED, OVERALL


def choose(runs, **options):
    return module.choose(read_grid(runs), **options)


def runs_with(folder, *, right_on_val, right_on_test, seeds=(0, 1, 2), seconds=None, samples=60):
    """Runs of methods with these correct samples of each class, the same in each seed.

    A number n means the first n samples.
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
    choice = choose(runs, objective=BALANCED)
    assert choice.method == choice.challenger == "cosen"  # on validation, and named before smote
    assert choice.within_noise == ("smote",)
    assert choice.validation.mean == pytest.approx(18 / 60)
    assert choice.test.mean == pytest.approx(12 / 60)
    gain, test = (
        [f"{100 * end:+.1f}" for end in (change.low, change.high)]
        for change in (choice.validation, choice.test)
    )
    assert choice.sentence == (
        "Choice for mean class recall: cosen. On validation images: 80.0 %, baseline 50.0 % "
        f"(+30.0, 95 % interval {gain[0]} to {gain[1]}). Within noise of it: smote. On test "
        "images, which were not used to choose: 75.0 %, baseline 55.0 % (+20.0, 95 % interval "
        f"{test[0]} to {test[1]}). This is better beyond noise."
    )
    assert choice.caveats == ()
    assert choice.seeds == (0, 1, 2)
    assert str(choice) == choice.sentence
    choice.write(tmp_path)
    assert Choice.read(tmp_path) == choice


def test_test_has_no_part_in_the_choice(tmp_path):
    shares = {"baseline": 40, "cosen": 55, "smote": 50}
    chosen = set()
    for number, on_test in enumerate([(0, 0, 60), (60, 0, 0), (30, 30, 30)]):
        right = dict(zip(shares, on_test, strict=True))
        folder = tmp_path / str(number)
        runs = runs_with(folder, right_on_val=shares, right_on_test=right)
        chosen.add(choose(runs, objective=OVERALL).method)
    assert chosen == {"cosen"}


def test_what_test_does_not_confirm_is_said(tmp_path):
    val = {"baseline": 30, "cosen": 50}
    same = runs_with(tmp_path / "a", right_on_val=val, right_on_test={"baseline": 30, "cosen": 30})
    assert choose(same, objective=OVERALL).sentence.endswith(
        ": 50.0 %, baseline 50.0 % (+0.0, 95 % interval +0.0 to +0.0). This difference is within "
        "noise."
    )
    worse = runs_with(tmp_path / "b", right_on_val=val, right_on_test={"baseline": 50, "cosen": 30})
    assert choose(worse, objective=OVERALL).sentence.endswith("). This is worse beyond noise.")


def test_the_baseline_stays_where_nothing_is_better_beyond_noise(tmp_path):
    runs = runs_with(
        tmp_path,
        right_on_val={"baseline": 50, "cosen": range(9, 60), "smote": 40},
        right_on_test={"baseline": 50, "cosen": range(9, 60), "smote": 40},
    )
    choice = choose(runs, objective=OVERALL)
    assert choice.method == "baseline"
    assert choice.challenger == "cosen"
    assert choice.within_noise == ("cosen",)
    assert choice.sentence.startswith(
        "Choice for overall accuracy: baseline. No method is better beyond noise. The best on "
        "validation images is cosen: 85.0 %, baseline 83.3 % (+1.7, 95 % interval -"
    )
    assert choice.sentence.endswith("). This difference is within noise.")
    assert "which were not used to choose: 85.0 %, baseline 83.3 % (+1.7" in choice.sentence


def test_test_may_be_surer_than_validation(tmp_path):
    runs = runs_with(
        tmp_path,
        right_on_val={"baseline": 50, "cosen": range(9, 60)},
        right_on_test={"baseline": 30, "cosen": 51},
    )
    choice = choose(runs, objective=OVERALL)
    assert choice.method == "baseline"
    assert choice.sentence.endswith("). This is better beyond noise.")


def test_the_best_that_is_beyond_noise_is_taken(tmp_path):
    """The choice is not the overall best, which may be better by chance."""
    target = np.repeat([0, 1, 2], 40)
    generator = np.random.default_rng(0)
    plain = np.where(generator.random(120) < 0.7, target, (target + 1) % 3)
    wrong, right = np.flatnonzero(plain != target), np.flatnonzero(plain == target)
    steady = plain.copy()
    steady[wrong[:8]] = target[wrong[:8]]  # 8 more are correct, and none is lost
    lost = right[: len(wrong) - 9]
    risky = target.copy()
    risky[lost] = (target[lost] + 1) % 3  # all others are correct, 9 more in total
    runs = {
        name: {0: write_run(tmp_path / name, val=(target, given), test=(target, given))}
        for name, given in {"baseline": plain, "steady": steady, "risky": risky}.items()
    }
    choice = choose(runs, objective=OVERALL)
    assert choice.method == "steady"
    assert choice.within_noise == ("risky",)


def test_the_baseline_is_best(tmp_path):
    right = {"cosen": 40, "baseline": 54, "smote": 54}
    runs = runs_with(tmp_path, right_on_val=right, right_on_test=right)
    choice = choose(runs, objective=OVERALL)
    assert choice.method == "baseline"  # if equal
    assert choice.challenger == "smote"
    assert choice.sentence == (
        "Choice for overall accuracy: baseline. No other method is better on validation images: "
        "90.0 %. Within noise of it: smote. On test images, which were not used to choose: 90.0 %."
    )


def test_at_most_three_are_named(tmp_path):
    right = {"baseline": 20, **dict.fromkeys("abcdef", 50)}
    runs = runs_with(tmp_path, right_on_val=right, right_on_test=right, seeds=(0, 1))
    choice = choose(runs, objective=OVERALL)
    assert choice.within_noise == ("b", "c", "d", "e", "f")
    assert " Within noise of it: b, c, d, 2 more. " in choice.sentence


def test_no_baseline(tmp_path):
    right = {"cosen": 48, "smote": 30, "ldam": range(13, 60)}
    runs = runs_with(tmp_path, right_on_val=right, right_on_test=right)
    choice = choose(runs, objective=BALANCED)
    assert (choice.method, choice.challenger, choice.validation) == ("cosen", None, None)
    assert choice.sentence == (
        "Choice for mean class recall: cosen. It is the best of 3 methods on validation images: "
        "80.0 %. Within noise of it: ldam. There is no baseline to compare with. On test images, "
        "which were not used to choose: 80.0 %."
    )
    other = choose(runs, objective=BALANCED, baseline="smote")
    assert "On validation images: 80.0 %, smote 50.0 % (+30.0" in other.sentence


def test_misclassification_costs_are_written_as_costs(tmp_path):
    # a wrong cat costs 1, a wrong dog 1, a wrong elk 8: each wrong class is the next
    right = {"baseline": 30, "cosen": 54}
    runs = runs_with(tmp_path, right_on_val=right, right_on_test=right)
    choice = choose(runs, objective=COSTS)
    assert choice.method == "cosen"
    low, high = choice.validation.low, choice.validation.high
    assert choice.validation.mean == pytest.approx(24 / 60 * 10 / 3 / 8)
    assert low > 0
    assert choice.sentence.startswith(
        "Choice for mean misclassification cost: cosen. On validation images: 0.33, baseline 1.67 "
        f"(-1.33, 95 % interval {-8 * high:.2f} to {-8 * low:.2f}). On test images, which were not "
        "used to choose: 0.33, baseline 1.67 (-1.33, "
    )
    assert choice.sentence.endswith("This is better beyond noise.")
    worse = runs_with(
        tmp_path / "worse", right_on_val={"baseline": 30, "cosen": 20}, right_on_test=right
    )
    assert choose(worse, objective=COSTS).sentence == (
        "Choice for mean misclassification cost: baseline. No other method is better on validation "
        "images: 1.67. On test images, which were not used to choose: 1.67."
    )


def test_only_one_method(tmp_path):
    runs = random_runs(tmp_path, {"baseline": 1.0})
    choice = choose({**runs, "smote": {}}, objective=OVERALL)
    assert choice.method == "baseline"
    assert choice.sentence == (
        "Only baseline has finished all seeds, so there is nothing to compare. Its overall "
        "accuracy: 100.0 % on validation images, 100.0 % on test images."
    )


def test_nothing_finished():
    choice = choose({"baseline": {}, "cosen": {}}, objective=OVERALL)
    assert choice.method is None
    assert choice.sentence == "No run has finished, so there is no choice."


def test_a_method_that_lacks_a_seed_has_no_part(tmp_path):
    runs = random_runs(tmp_path, {"baseline": 0.5, "cosen": 0.7, "lucky": 0.9})
    del runs["lucky"][0]
    choice = choose(runs, objective=OVERALL)
    assert choice.method == "cosen"
    assert choice.caveats == ("Not considered, because seeds are missing: lucky.",)
    del runs["baseline"][0]  # only its remaining seeds are used
    choice = choose(runs, objective=OVERALL)
    assert (choice.method, choice.seeds, choice.caveats) == ("lucky", (1, 2), ())
    del runs["cosen"][1], runs["lucky"][1]
    choice = choose(runs, objective=OVERALL)
    assert choice.method == "baseline"
    assert choice.sentence.startswith("Only baseline has finished all seeds, so")
    del runs["baseline"]
    assert choose(runs, objective=OVERALL).method == "cosen"  # lucky has fewer seeds


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
    assert choose(runs, objective=BALANCED).caveats == (
        "There is one seed: the intervals ignore how much training runs vary.",
        "Classes without validation images are ignored: 'elk'.",
    )


def test_many_methods_have_a_caveat(tmp_path):
    right = {"baseline": 20, **dict.fromkeys("abcdefghij", 30)}
    runs = runs_with(tmp_path, right_on_val=right, right_on_test=right, seeds=(0, 1))
    (caveat,) = choose(runs, objective=OVERALL).caveats
    assert caveat.startswith("11 methods were compared: one may look better by chance")


def test_few_validation_images_of_the_rarest_class_have_a_caveat(tmp_path):
    runs = {
        method: {
            seed: write_run(
                tmp_path / f"{method}{seed}",
                val=random_part(np.random.default_rng(seed), 0.9, counts=(30, 20, 2)),
                test=random_part(np.random.default_rng(9), 0.9),
            )
            for seed in (0, 1)
        }
        for method in ("baseline", "cosen")
    }
    assert choose(runs, objective=BALANCED).caveats == (
        "Validation has 4 images of the rarest class, over all seeds: it can miss real "
        "differences.",
    )
