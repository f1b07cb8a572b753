import subprocess
import sys
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cosen.errors import DataError, InputError
from cosen.methods import Setting, make_method
from cosen.methods.resampling import (
    check_neighbours,
    in_lower_approximation,
    smote,
    smote_rsb,
    under_sample,
)

SAMPLERS = [smote, under_sample, smote_rsb]


def samples_of(*counts, width=3, dtype=np.float64, seed=0):
    """Random samples in a random order, each class around its own centre."""
    generator = np.random.default_rng(seed)
    labels = generator.permutation(np.repeat(np.arange(len(counts)), counts))
    features = generator.normal(size=(len(labels), width)) + labels[:, None]
    return features.astype(dtype), labels


def kept_of(synthetic, synthetic_labels, features, labels, **options):
    """As lists; a number is a sample of one feature."""
    synthetic, features = (
        np.array(given, dtype=float).reshape(len(given), -1) for given in (synthetic, features)
    )
    classes = np.array(synthetic_labels), np.array(labels)
    return in_lower_approximation(synthetic, classes[0], features, classes[1], **options).tolist()


def kept_by_loops(synthetic, synthetic_labels, features, labels):
    """SMOTE-RSB* as described, in exact fractions."""
    synthetic, features = (
        [[Fraction(number) for number in sample] for sample in np.asarray(given).tolist()]
        for given in (synthetic, features)
    )
    width = len(features[0])
    ranges = [max(column) - min(column) for column in zip(*features, strict=True)]

    def similarity(one, other):
        total = Fraction(0)
        for i in range(width):
            total += 1 - abs(one[i] - other[i]) / ranges[i] if ranges[i] else 1
        return total / width

    kept = [True] * len(synthetic)
    for label in set(synthetic_labels):
        own = [row for row, its in enumerate(synthetic_labels) if its == label]
        others = [sample for sample, its in zip(features, labels, strict=True) if its != label]
        for twentieths in range(8, 19):  # 0.4, 0.45, ..., 0.9
            threshold = Fraction(twentieths, 20)
            lower = [
                row
                for row in own
                if not any(similarity(synthetic[row], other) >= threshold for other in others)
            ]
            if lower:
                for row in own:
                    kept[row] = row in lower
                break
    return kept


# One feature from 0 to 10, class 0 at 0: a sample at x is 1 - x / 10 like class 0.
@pytest.mark.parametrize(
    ("synthetic", "expected"),
    [
        ([5, 6.5, 7], [False, True, True]),  # 0.5, 0.35, 0.3: kept below 0.4
        ([6, 6.5], [False, True]),  # 0.4, 0.35: one at the threshold is similar
        ([5, 5.2], [False, True]),  # 0.5, 0.48: none below 0.4 or 0.45, one below 0.5
        ([5, 5.2, 4.8], [False, True, False]),  # 0.52 too: the search ends at 0.5
        ([4, 3.9], [True, True]),  # 0.6, 0.61: at 0.6 none, though 0.4 + 4 * 0.05 > 0.6 in floats
        ([1, 1.2], [False, True]),  # 0.9, 0.88: 0.9 is tried
        ([1, 0.5], [True, True]),  # 0.9, 0.95: none is ever kept, so all are
        ([0, 4, 10], [False, False, True]),  # copies of given samples: 1, 0.6, 0
    ],
)
def test_what_is_kept_of_one_feature(synthetic, expected):
    kept = kept_of(synthetic, [1] * len(synthetic), [0, 4, 10], [0, 1, 1])
    assert kept == expected


def test_each_feature_counts_by_its_own_range():
    features = [[0, 0], [10, 100]]
    # (0 + 0.8) / 2 = 0.4 and (0 + 0.7) / 2 = 0.35; unscaled, both would be far from class 0.
    assert kept_of([[10, 20], [10, 30]], [1, 1], features, [0, 1]) == [False, True]
    assert kept_of([[2, 100], [3, 100]], [1, 1], features, [0, 1]) == [False, True]


def test_a_constant_feature_counts_as_equal():
    # (0 + 1) / 2 = 0.5 and (0.1 + 1) / 2 = 0.55; without the constant, both are kept below 0.4.
    assert kept_of([[10, 7], [9, 7]], [1, 1], [[0, 7], [10, 7]], [0, 1]) == [True, False]
    assert kept_of([10, 9], [1, 1], [0, 10], [0, 1]) == [True, True]
    # Even if a sample differs in it: 0.5 twice.
    assert kept_of([[10, 7], [10, 8]], [1, 1], [[0, 7], [10, 7]], [0, 1]) == [True, True]


def test_only_constant_features_make_all_alike_so_that_all_are_kept():
    assert kept_of([3, 3], [1, 1], [3, 3, 3], [0, 1, 1]) == [True, True]


def test_ranges_are_those_of_the_given_samples():
    # 6.5 is 0.35 like class 0 in the range 0 to 10; it would be 0.675 in the range 0 to 20.
    assert kept_of([20, 6.5], [1, 1], [0, 10], [0, 1]) == [True, True]


def test_the_nearest_of_several_other_samples_decides():
    # 9 is 0.1 like the sample at 0 and 0.9 like that at 10, both of class 0; 5 is 0.5 like both.
    assert kept_of([9, 5], [1, 1], [0, 10, 5], [0, 0, 1]) == [False, True]


def test_each_class_has_its_own_threshold_and_is_compared_with_all_others():
    features, labels = [0, 10, 2], [0, 1, 2]
    # Class 1 at 10 is 0.2 like class 2: kept below 0.4. Class 2 at 3 and at 1 is 0.7 and 0.9 like
    # class 0: kept below 0.75. Class 1 at 7 is 0.3 like class 0, but 0.5 like class 2.
    assert kept_of([10, 3, 1, 7], [1, 2, 2, 1], features, labels) == [True, True, False, False]


def test_synthetic_samples_of_other_classes_are_not_compared_with():
    features, labels = [0, 10, 0.5], [0, 1, 2]
    # Class 1 at 7 and 5 is 0.35 and 0.55 like class 2, but 0.99 and 0.81 like a synthetic one.
    assert kept_of([7, 5, 6.9], [1, 1, 2], features, labels) == [True, False, True]


def test_the_first_threshold_can_be_set():
    two = [5.2, 4.8], [1, 1], [0, 10], [0, 1]  # 0.48, 0.52
    assert kept_of(*two, similarity=0.5) == [True, False]
    assert kept_of(*two, similarity=0.6) == [True, True]


def test_nothing_synthetic_needs_no_decision():
    nothing = np.empty((0, 1)), np.empty(0, dtype=int)
    kept = in_lower_approximation(*nothing, np.array([[0.0], [1.0]]), np.array([0, 1]))
    assert kept.shape == (0,)


@st.composite
def whole_numbers(draw):
    """Few different values, so ties and constant features are common; classes 0 and 1 exist."""
    width = draw(st.integers(1, 3))
    sample = st.lists(st.integers(0, 8), min_size=width, max_size=width)
    features = draw(st.lists(sample, min_size=2, max_size=8))
    labels = [0, 1, *draw(st.lists(st.integers(0, 2), min_size=6, max_size=6))][: len(features)]
    synthetic = draw(st.lists(sample, min_size=1, max_size=8))
    synthetic_labels = draw(st.lists(st.integers(0, 2), min_size=8, max_size=8))[: len(synthetic)]
    return synthetic, synthetic_labels, features, labels


@settings(max_examples=200)
@given(whole_numbers(), st.sampled_from([np.float32, np.float64]))
def test_what_is_kept_is_what_slow_loops_keep(drawn, dtype):
    synthetic, synthetic_labels, features, labels = drawn
    kept = in_lower_approximation(
        np.array(synthetic, dtype=dtype),
        np.array(synthetic_labels),
        np.array(features, dtype=dtype),
        np.array(labels),
    )
    assert kept.tolist() == kept_by_loops(*drawn)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shift", [0, 1000])
def test_smote_rsb_is_smote_without_what_the_loops_leave_out(dtype, shift):
    features, labels = samples_of(20, 8, 6, width=2, dtype=dtype)
    features += dtype(shift)
    more, more_labels = smote(features, labels, seed=3)
    kept = kept_by_loops(more[34:], more_labels[34:], features, labels)
    assert 0 < sum(kept) < len(kept)
    cleaned, cleaned_labels = smote_rsb(features, labels, seed=3)
    assert (cleaned == np.concatenate([features, more[34:][kept]])).all()
    assert (cleaned_labels == np.concatenate([labels, more_labels[34:][kept]])).all()


@pytest.mark.parametrize("options", [{"neighbours": 2}, {"similarity": 0.9}])
def test_smote_rsb_hands_its_options_on(options):
    features, labels = samples_of(20, 8, width=2)
    cleaned = smote_rsb(features, labels)[0]
    assert len(cleaned) < len(smote(features, labels)[0])
    assert not np.array_equal(cleaned, smote_rsb(features, labels, **options)[0])


def test_chunks_give_what_all_distances_at_once_give():
    generator = np.random.default_rng(0)
    synthetic, features = generator.random((700, 8)), generator.random((900, 8))
    synthetic_labels, labels = np.repeat([0, 1], 350), generator.integers(0, 3, 900)
    scaled = np.abs(synthetic[:, None] - features) / np.ptp(features, axis=0)  # (700, 900, 8)
    similar = np.where(synthetic_labels[:, None] == labels, -np.inf, 1 - scaled.mean(axis=2))
    expected = similar.max(axis=1) < 0.87
    kept = in_lower_approximation(synthetic, synthetic_labels, features, labels, similarity=0.87)
    assert 0 < expected[:350].sum() < 350
    assert 0 < expected[350:].sum() < 350
    assert (kept == expected).all()


def test_memory_does_not_grow_with_the_pairs():
    generator = np.random.default_rng(0)
    synthetic, features = generator.random((2, 6000, 2))
    labels = np.zeros(6000, dtype=int)
    labels[0] = 1
    ones = np.ones(6000, dtype=int)
    in_lower_approximation(synthetic[:2], ones[:2], features, labels)  # imports are not counted
    tracemalloc.start()
    try:
        in_lower_approximation(synthetic, ones, features, labels)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6000 * 6000  # a byte for each pair; a matrix of float32 has four


@pytest.mark.parametrize("counts", [(12, 7), (7, 12), (6, 9, 12), (8, 8), (12, 8, 12)])
def test_smote_brings_every_class_up_to_the_largest(counts):
    features, labels = samples_of(*counts)
    more, more_labels = smote(features, labels)
    assert np.bincount(more_labels).tolist() == [max(counts)] * len(counts)
    assert (more[: len(labels)] == features).all()
    assert (more_labels[: len(labels)] == labels).all()


def test_a_synthetic_sample_lies_between_two_of_its_class():
    features, labels = samples_of(20, 7, 9)
    more, more_labels = smote(features, labels, neighbours=3)
    assert len(more) == 60
    for sample, label in zip(more[36:], more_labels[36:], strict=True):
        own = features[labels == label]
        to_sample = np.linalg.norm(own - sample, axis=1)
        apart = np.linalg.norm(own[:, None] - own, axis=2)
        detour = to_sample[:, None] + to_sample - apart  # (own, own), zero on the line
        assert detour[~np.eye(len(own), dtype=bool)].min() < 1e-9


def test_smote_uses_no_more_neighbours_than_it_is_told():
    features = np.array([[0.0], [1], [10], [11], [50], [60], [70], [80], [90], [99]])
    labels = np.repeat([0, 1], [4, 6])
    more, _ = smote(features, labels, neighbours=1)
    made = more[10:, 0]
    assert (((made >= 0) & (made <= 1)) | ((made >= 10) & (made <= 11))).all()


@pytest.mark.parametrize("counts", [(12, 7), (3, 9, 1), (5, 5)])
def test_under_sampling_brings_every_class_down_to_the_smallest(counts):
    _, labels = samples_of(*counts)
    features = np.arange(2.0 * len(labels)).reshape(-1, 2)  # rising, each row unlike the others
    left, left_labels = under_sample(features, labels)
    assert np.bincount(left_labels).tolist() == [min(counts)] * len(counts)
    assert (np.diff(left[:, 0]) > 0).all()  # the old order, none twice
    rows = (left[:, 0] / 2).astype(int)
    assert (features[rows] == left).all()
    assert (labels[rows] == left_labels).all()


@pytest.mark.parametrize("sample", SAMPLERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_stay(sample, dtype):
    features, labels = samples_of(20, 8, dtype=dtype)
    labels = labels.astype(np.int32)
    changed, changed_labels = sample(features, labels)
    assert changed.dtype == dtype
    assert changed_labels.dtype == np.int32


@pytest.mark.parametrize("sample", SAMPLERS)
def test_the_seed_decides(sample):
    features, labels = samples_of(30, 12)
    before = features.copy(), np.random.get_state()  # noqa: NPY002
    first, again, other = (sample(features, labels, seed=seed)[0] for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(features, before[0])
    for old, new in zip(before[1], np.random.get_state(), strict=True):  # noqa: NPY002
        assert np.array_equal(old, new)


@pytest.mark.parametrize("sample", [smote, smote_rsb])
def test_too_many_neighbours_are_refused_with_the_class(sample):
    features, labels = samples_of(9, 5, 3)
    with pytest.raises(InputError, match="at least 6 samples of a class, but class 2 has 3"):
        sample(features, labels)
    with pytest.raises(InputError, match="at least 4 samples of a class, but class 2 has 3"):
        sample(features, labels, neighbours=3)
    assert len(smote(features, labels, neighbours=2)[0]) == 27


NAMES = ["nevus", "melanoma", "basal cell"]


def test_the_largest_class_needs_no_neighbours():
    features, labels = samples_of(4, 4)
    check_neighbours(np.array([4, 4]), method="smote", class_names=["a", "b"], neighbours=5)
    assert len(smote(features, labels, neighbours=5)[0]) == 8


def message_of(counts, *, neighbours):
    with pytest.raises(DataError) as caught:
        check_neighbours(np.array(counts), method="smote", class_names=NAMES, neighbours=neighbours)
    return str(caught.value)


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ((0, 4, 0), "images of at least two classes, but has one class only: 'melanoma'"),
        ((0, 0, 0), "images of at least two classes, but has none"),
        ((5, 4, 0), "images of every class, but class 'basal cell' has none: add some, or remove "),
    ],
)
def test_empty_classes_are_refused(counts, message):
    with pytest.raises(DataError, match=f"method smote needs training {message}"):
        make_method("smote").check(Setting(torch.tensor(counts), tuple(NAMES)))


def test_a_class_too_small_for_its_neighbours():
    assert message_of((9, 3, 9), neighbours=5) == (
        "method smote needs at least 6 training samples of a class for its 5 neighbours, but class "
        "'melanoma' has 3: lower them with --set options.neighbours=2 (in cosen compare, "
        "smote.neighbours=2), or remove the class with "
        "--exclude melanoma"
    )


def test_of_several_small_classes_the_smallest_is_named_so_that_its_advice_works():
    message = message_of((9, 5, 3), neighbours=5)
    assert "class 'basal cell' has 3: lower them with --set options.neighbours=2" in message
    check_neighbours(np.array([9, 5, 3]), method="smote", class_names=NAMES, neighbours=2)


def test_a_class_of_one_sample():
    assert message_of((9, 1, 3), neighbours=1) == (
        "method smote interpolates between samples of a class, but class 'melanoma' has only one: "
        "add another, or remove the class with --exclude melanoma"
    )


def test_counts_alone_tell_whether_neighbours_fit():
    check_neighbours(np.array([9, 6, 0]), method="smote", class_names=NAMES, neighbours=5)
    with pytest.raises(DataError, match="class 'melanoma' has 5"):
        check_neighbours(np.array([9, 5, 0]), method="smote", class_names=NAMES, neighbours=5)


def test_imbalanced_learn_is_loaded_only_when_it_is_used():
    program = "import sys, cosen.methods.resampling; assert 'imblearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
