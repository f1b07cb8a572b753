import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosen.data.imbalance import parse_imbalance
from cosen.data.sources import from_arrays
from cosen.data.splits import (
    CountSplit,
    FoldSplit,
    FractionSplit,
    OfficialSplit,
    _choose,
    _units,
    fold_of_each,
    split_images,
    split_off_test,
    split_off_validation,
)
from cosen.errors import DataError, InputError


def data_of(*counts, groups=None, parts=None):
    labels = np.repeat(np.arange(len(counts)), counts)
    images = np.zeros((len(labels), 1, 1), dtype=np.uint8)
    data = from_arrays(images, labels, groups=groups)
    if parts is not None:
        object.__setattr__(data, "parts", np.array(parts))
    return data


def rows(*parts):
    return [set(part.rows.tolist()) for part in parts]


class_sizes = st.lists(st.integers(1, 60), min_size=2, max_size=6)


@given(class_sizes, st.integers(0, 99), st.sampled_from([0.05, 0.2, 0.5]))
def test_validation_is_stratified_and_leaves_every_class_to_train_on(counts, seed, share):
    train, val = split_off_validation(data_of(*counts), share=share, seed=seed)
    in_train, in_val = rows(train, val)
    assert not in_train & in_val
    assert len(in_train | in_val) == sum(counts)
    for label, count in enumerate(counts):
        held_out = val.class_counts[label]
        assert train.class_counts[label] >= 1
        if count >= 4:
            assert held_out == max(2, round(share * count))
        else:
            assert held_out == (count == 3)


@given(class_sizes, st.integers(0, 99), st.sampled_from([0.3, 0.6, 2 / 3]))
def test_a_fraction_is_stratified(counts, seed, share):
    train, test = split_off_test(data_of(*counts), FractionSplit(share), seed=seed)
    assert not set.intersection(*rows(train, test))
    for label, count in enumerate(counts):
        assert train.class_counts[label] + test.class_counts[label] == count
        if count >= 2:
            assert abs(train.class_counts[label] - share * count) <= 1
            assert test.class_counts[label] >= 1
        assert train.class_counts[label] >= 1


@given(class_sizes, st.integers(2, 5), st.integers(0, 99))
def test_folds_share_out_every_class(counts, folds, seed):
    data = data_of(*counts)
    fold = fold_of_each(data, folds=folds, seed=seed)
    for label in range(len(counts)):
        per_fold = np.bincount(fold[data.labels == label], minlength=folds)
        assert per_fold.max() - per_fold.min() <= 1
    sizes = np.bincount(fold, minlength=folds)
    assert sizes.max() - sizes.min() <= len(counts)


def test_seeds_take_the_folds_of_one_division_in_turn():
    data = data_of(30, 12, 7)
    tested = [rows(split_off_test(data, FoldSplit(3, None), seed=seed)[1])[0] for seed in range(6)]
    assert set.union(*tested[:3]) == set.union(*tested[3:]) == set(range(49))
    assert sum(map(len, tested)) == 2 * 49, "three seeds are one whole cross-validation"
    assert {frozenset(test) for test in tested[:3]} != {frozenset(test) for test in tested[3:]}
    for seed in range(3):
        fixed = split_off_test(data, FoldSplit(3, seed), seed=0)[1]
        assert rows(fixed)[0] == tested[seed]


@given(st.integers(0, 30), st.integers(12, 40))
@settings(max_examples=30)
def test_groups_are_never_torn_apart(seed, num_groups):
    generator = np.random.default_rng(seed)
    groups = generator.integers(num_groups, size=200)
    labels = (groups % 3 + (generator.random(200) < 0.1)) % 3
    data = from_arrays(np.zeros((200, 1, 1), np.uint8), labels, groups=groups)
    splits = split_images(data, FoldSplit(3, 1), seed=seed)
    parts = [set(part.groups.tolist()) for part in (splits.train, splits.val, splits.test)]
    assert not parts[0] & parts[1]
    assert not parts[0] & parts[2]
    assert not parts[1] & parts[2]
    train, test = split_off_test(data, FractionSplit(0.6), seed=seed)
    assert not set(train.groups.tolist()) & set(test.groups.tolist())
    assert 0.35 < len(train) / 200 < 0.85
    for label in range(3):
        assert train.class_counts[label] > 0


def test_a_class_in_one_group_stays_in_training():
    groups = [0] * 10 + list(range(1, 21))
    data = data_of(10, 20, groups=groups)
    train, val = split_off_validation(data, share=0.2, seed=0)
    assert train.class_counts[0] == 10
    assert val.class_counts[1] == 4


def test_counts_a_class():
    train, test = split_off_test(data_of(40, 100, 31), CountSplit(30, test=50), seed=0)
    assert train.class_counts.tolist() == [30, 30, 30]
    assert test.class_counts.tolist() == [10, 50, 1]
    with pytest.raises(DataError, match=r"none are left for testing in 2 \(31\)"):
        split_off_test(data_of(40, 100, 31), CountSplit(31), seed=0)


def test_official_parts_are_kept():
    parts = ["train"] * 8 + ["val"] * 2 + ["test"] * 2 + ["train"] * 8 + ["val"] * 2 + ["test"] * 2
    splits = split_images(data_of(12, 12, parts=parts), OfficialSplit(), seed=0)
    assert [len(splits.train), len(splits.val), len(splits.test)] == [16, 4, 4]
    without_val = [part.replace("val", "train") for part in parts]
    splits = split_images(data_of(12, 12, parts=without_val), OfficialSplit(), seed=0)
    assert splits.val.class_counts.tolist() == [2, 2]
    with pytest.raises(DataError, match="no official training split"):
        split_images(data_of(3, 3), OfficialSplit(), seed=0)


def test_the_test_set_stays_whole_and_validation_is_of_the_imbalanced_set():
    whole = split_images(data_of(100, 100), FractionSplit(0.5), seed=3)
    thin = split_images(
        data_of(100, 100), FractionSplit(0.5), seed=3, imbalance=parse_imbalance("odd:0.1")
    )
    assert rows(whole.test) == rows(thin.test)
    assert (thin.train.class_counts + thin.val.class_counts).tolist() == [50, 5]
    assert thin.val.class_counts.tolist() == [2, 2]


def test_the_same_seed_is_the_same_split_everywhere():
    """Fixed numbers: they must be the same on every machine."""
    splits = split_images(data_of(12, 8), FractionSplit(0.5), seed=7)
    assert splits.test.rows.tolist() == [1, 3, 4, 5, 6, 7, 12, 13, 17, 18]
    assert splits.val.rows.tolist() == [0, 8, 16, 19]
    other = split_images(data_of(12, 8), FractionSplit(0.5), seed=8)
    assert other.test.rows.tolist() != splits.test.rows.tolist()


def test_adding_an_image_moves_few_others():
    """The order depends on names only: an additional image does not change the rest."""
    before = fold_of_each(data_of(500), folds=5, seed=0)
    train, _ = split_off_test(data_of(500), FractionSplit(0.5), seed=0)
    more, _ = split_off_test(data_of(501), FractionSplit(0.5), seed=0)
    assert len(before) == 500
    assert len(rows(train)[0] ^ rows(more)[0]) <= 4


@pytest.mark.parametrize(
    "how", [FractionSplit(0.0), FractionSplit(1.0), CountSplit(0), FoldSplit(1), FoldSplit(3, 3)]
)
def test_impossible_splits_are_refused(how):
    with pytest.raises(InputError):
        split_images(data_of(10, 10), how, seed=0)


def test_an_impossible_validation_share_is_refused():
    with pytest.raises(InputError, match="validation share"):
        split_off_validation(data_of(10, 10), share=1.0, seed=0)


def slow_choice(data, wanted, *, seed, purpose):
    """The rule of whole groups, checking every group for every class."""
    units = _units(data, seed=seed, purpose=purpose)
    counts = [np.bincount(data.labels[u], minlength=data.num_classes) for u in units]
    groups_left = (np.array(counts) > 0).sum(0)
    missing, chosen = wanted.copy(), np.zeros(len(data), dtype=bool)
    for label in np.argsort(data.class_counts.numpy(), kind="stable"):
        for unit, count in zip(units, counts, strict=True):
            gain = (np.abs(missing) - np.abs(missing - count)) / data.class_counts.numpy()
            takes = missing[label] > 0 and count[label] and not chosen[unit[0]] and gain.sum() > 0
            if takes and (groups_left[count > 0] > 1).all():
                chosen[unit] = True
                missing -= count
                groups_left -= count > 0
    return chosen


@given(st.integers(0, 99), st.integers(2, 7), st.integers(3, 60))
def test_whole_groups_are_chosen_by_the_rule(seed, classes, num_groups):
    generator = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(classes), generator.integers(classes, size=80)])
    groups = generator.integers(num_groups, size=len(labels))
    data = from_arrays(np.zeros((len(labels), 1, 1), np.uint8), labels, groups=groups)
    wanted = data.class_counts.numpy() // 3
    np.testing.assert_array_equal(
        _choose(data, wanted, seed=seed, purpose="test"),
        slow_choice(data, wanted, seed=seed, purpose="test"),
    )
