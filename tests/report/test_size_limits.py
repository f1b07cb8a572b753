"""Size limits with many classes, test images or epochs, and packed numbers."""

import base64
import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from cosen.report import contents, cost_steps, tradeoff, write_report
from cosen.report.contents import read_contents
from cosen.report.cost_steps import MAX_STEPS, included_steps
from cosen.report.gallery import MAX_EXAMPLES, MAX_PICTURES
from cosen.report.packing import STEPS, pack, packed_size
from cosen.report.tradeoff import MAX_SAMPLES, max_samples, packable, sample_rows
from report.example_contents import contents_of, page_of, unpack
from report.small_runs import COSTLY, cost_step, write_run

CLASSES = 102
SHAPES = array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)
NUMBERS = st.floats(-(2.0**99), 2.0**99, width=32)


def size_of(value):
    return len(json.dumps(value))


@pytest.fixture(scope="module")
def many_classes(tmp_path_factory):
    """Two runs on 6000 noisy colour images of 102 classes, 40 epochs of learned costs."""
    folder = tmp_path_factory.mktemp("many")
    generator = np.random.default_rng(0)
    target = generator.integers(0, CLASSES, 6000)
    pixels = generator.integers(0, 256, (6000, 48, 48, 3), dtype=np.uint8)
    for name in ("baseline", "cosen"):
        logits = generator.normal(size=(6000, CLASSES)).astype(np.float32)
        logits[np.arange(6000), target] += 2
        write_run(
            folder / name,
            logits.argmax(1).tolist(),
            target=target.tolist(),
            logits=torch.from_numpy(logits),
            names=tuple(f"class <b>{label}</b>" for label in range(CLASSES)),
            train=tuple(range(5, 5 + CLASSES)),
            method=name,
            pixels=pixels,
            steps=[cost_step(n, CLASSES) for n in range(1, 41)] if name == "cosen" else (),
            history=40,
        )
    return folder


def test_a_report_of_102_classes_is_within_its_bounds(many_classes):
    found = read_contents(many_classes / "cosen", against=many_classes / "baseline")
    assert size_of(found["tradeoff"]) < 1_510_000
    assert size_of(found["costs"]) < 2_010_000
    samples = found["tradeoff"]["samples"]
    assert f"a sample of {samples} of the 6000 test images" in found["tradeoff"]["note"]
    epochs = found["costs"]["epochs"]
    assert (epochs[0], epochs[-1]) == (1, 40)
    assert 10 < len(epochs) < 40
    assert found["costs"]["costs"]["shape"] == [len(epochs), CLASSES, CLASSES]
    expected = np.broadcast_to(1 / np.array(epochs)[:, None, None], (len(epochs), 102, 102))
    np.testing.assert_allclose(unpack(found["costs"]["costs"]), expected, rtol=1e-3)
    assert len(found["costs"]["steps"]) == 40
    gallery = found["gallery"]
    assert len(gallery["gained"]) == len(gallery["lost"]) == MAX_PICTURES
    assert len(gallery["examples"]) <= MAX_EXAMPLES
    pictured = {
        picture["label"] for kind in ("gained", "lost", "examples") for picture in gallery[kind]
    }
    assert pictured == set(range(CLASSES))
    assert size_of(found) < 6_000_000


def test_its_page_is_within_its_bound(many_classes, tmp_path):
    page = write_report(
        many_classes / "cosen", tmp_path / "page.html", against=many_classes / "baseline"
    )
    assert page.stat().st_size < 8_000_000


def test_a_page_of_thousands_of_classes_is_within_its_bound():
    found = contents_of("thousands")
    assert len(page_of("thousands")) < 8_000_000
    cells = np.reshape(found["confusion"]["chosen"]["cells"], (-1, 3))
    assert cells[:, 2].sum() == 2200
    assert found["confusion"]["chosen"]["left_out"] == 0
    train = np.array([one["train"] for one in found["classes"]])
    sizes = [(train > 100).sum(), ((train >= 20) & (train <= 100)).sum(), (train < 20).sum()]
    assert [group["classes"] for group in found["groups"]] == sizes
    recalls = [one["recall"]["chosen"] for one in found["classes"] if one["train"] < 20]
    few = found["groups"][2]
    assert few["recall"]["chosen"]["mean"] == pytest.approx(np.mean(recalls))
    assert few["train"] == train[train < 20].sum()
    assert found["costs"]["costs"] is found["tradeoff"] is None
    assert found["costs"]["strengths"]["tau"] == [1.2, 1.2]


def test_the_rarest_confusions_are_left_out_first(monkeypatch):
    monkeypatch.setattr("cosen.report.contents.MATRIX_UP_TO", 2)
    monkeypatch.setattr("cosen.report.contents.MAX_CELLS", 4)
    counts = torch.tensor([[1, 5, 2], [1, 2, 0], [3, 0, 1]])
    found = contents._confusion(counts)
    cells = np.reshape(found["cells"], (-1, 3)).tolist()
    assert sorted(cells) == [[0, 0, 1], [0, 1, 5], [1, 1, 2], [2, 2, 1]]
    assert found["left_out"] == 6


def test_ten_classes_and_many_epochs(tmp_path):
    generator = np.random.default_rng(0)
    target = generator.integers(0, 10, 12_000)
    logits = generator.normal(size=(12_000, 10)).astype(np.float32)
    write_run(
        tmp_path / "run",
        logits.argmax(1).tolist(),
        target=target.tolist(),
        logits=torch.from_numpy(logits),
        names=tuple("abcdefghij"),
        train=tuple(range(5, 15)),
        pixels=generator.integers(0, 256, (12_000, 32, 32, 3), dtype=np.uint8),
        steps=[cost_step(n, 10) for n in range(1, 301)],
        history=300,
    )
    found = read_contents(tmp_path / "run")
    assert len(found["costs"]["epochs"]) == MAX_STEPS
    assert len(found["costs"]["steps"]) == 300
    assert 9950 < found["tradeoff"]["samples"] <= MAX_SAMPLES
    assert size_of(found) < 1_400_000, "charts take 1.5 MB, and all is to be within 3 MB"


def test_too_many_classes_for_matrices_and_scores(tmp_path, monkeypatch):
    monkeypatch.setattr(cost_steps, "MAX_CHARACTERS", 200)
    monkeypatch.setattr(tradeoff, "MAX_CHARACTERS", 20)
    write_run(tmp_path / "run", COSTLY, steps=[cost_step(1), cost_step(2)])
    found = read_contents(tmp_path / "run")
    assert found["costs"] is found["tradeoff"] is None
    assert found["caveats"] == [
        "The cost matrices of 3 classes are too large for the page.",
        "The trade-off of 3 classes is too large for the page.",
    ]


# Which steps


@given(st.integers(1, 3000), st.integers(2, 280))
def test_first_and_last_step_are_always_shown(steps, classes):
    shown = included_steps(steps, classes)
    assert (shown[0], shown[-1]) == (0, steps - 1)
    assert shown == sorted(set(shown))
    numbers = np.zeros((classes, classes))
    matrices = 4 * len(shown) + 1
    assert matrices * len(pack(numbers)["data"]) <= 2_000_000


# Which samples


@given(
    st.lists(st.integers(1, 400), min_size=1, max_size=20),
    st.integers(20, 500),
    st.randoms(use_true_random=False),
)
def test_a_sample_has_the_same_share_of_each_class(counts, most, random):
    target = np.repeat(np.arange(len(counts)), counts)
    random.shuffle(target)
    rows = sample_rows(target, most)
    assert len(rows) <= most
    assert rows.tolist() == sorted(set(rows.tolist()))
    if sum(counts) <= most:
        assert len(rows) == sum(counts)
        return
    share = (most - len(counts)) / sum(counts)
    taken = np.bincount(target[rows], minlength=len(counts))
    wanted = np.array(counts) * share
    assert ((taken >= 1) & (taken >= wanted - 1e-9) & (taken <= np.maximum(1, wanted + 1))).all()


def test_a_sample_is_spread_over_all_images():
    rows = sample_rows(np.zeros(1000, int), 101)
    assert len(rows) == 100
    assert np.diff(rows).tolist() == [10] * 99


def test_so_many_samples_fit():
    assert max_samples(10) == MAX_SAMPLES
    for classes in (102, 500):
        most = max_samples(classes)
        data = [pack(np.zeros((most, classes))), pack(np.zeros(most, int))]
        assert 1_480_000 < sum(len(packed["data"]) for packed in data) <= 1_500_000


# Which decisions


@given(arrays(np.float32, (7, 4), elements=st.floats(-50, 50, width=32)))
def test_packed_logits_decide_as_the_model(logits):
    found = unpack(pack(packable(logits.astype(np.float64))))
    assert found.argmax(1).tolist() == logits.argmax(1).tolist()
    below = logits.astype(np.float64) - logits.max(1, keepdims=True)
    np.testing.assert_allclose(found, below, atol=100 * 1.01 / 65534)


def test_shifted_decisions_are_those_of_the_logits():
    generator = np.random.default_rng(0)
    logits = 5 * generator.normal(size=(5000, 10))
    log_frequencies = np.log(np.geomspace(1, 100, 10) / 300)
    found = unpack(pack(packable(logits)))
    for shift in (-1.0, 0.0, 0.5, 1.0, 2.0):
        decided = (found - shift * log_frequencies).argmax(1)
        expected = (logits - shift * log_frequencies).argmax(1)
        assert (decided != expected).mean() <= (0.001 if shift else 0)


def test_logits_far_below_lose_no_precision_for_the_others(tmp_path):
    logits = torch.zeros(8, 3)
    logits[torch.arange(8), torch.tensor(COSTLY)] = 1e-2
    logits[0, 2] = -1e30
    write_run(tmp_path / "run", COSTLY, logits=logits)
    found = read_contents(tmp_path / "run")["tradeoff"]
    values = unpack(found["logits"])
    assert values.argmax(1).tolist() == list(COSTLY)
    assert values[1].tolist() == pytest.approx(
        [0, -0.005, -0.005], abs=2e-3
    )  # at a temperature of 2


# Packed numbers


@given(arrays(np.float32, SHAPES, elements=NUMBERS))
def test_numbers_come_back_to_half_a_step(array):
    packed = pack(array)
    found = unpack(packed)
    assert found.shape == array.shape
    half = (packed["high"] - packed["low"]) / STEPS / 2
    np.testing.assert_allclose(found, array, rtol=1e-9, atol=half * 1.001)
    if array.size:
        assert (packed["low"], packed["high"]) == (array.min(), array.max())


@given(arrays(np.float64, SHAPES, elements=st.floats(1e-6, 1.0)))
def test_logarithms_keep_the_share(array):
    found = unpack(pack(array, log=True))
    np.testing.assert_allclose(found, array, rtol=2e-4)  # six powers of ten in 65535 steps


@given(arrays(np.int64, SHAPES, elements=st.integers(-(2**15), 2**15 - 1)))
def test_whole_numbers_come_back_exactly(array):
    np.testing.assert_array_equal(unpack(pack(array)), array)


@given(arrays(np.float32, SHAPES, elements=st.floats(width=32)), st.booleans())
def test_whatever_it_is_it_can_be_written(array, log):
    with np.errstate(over="ignore"):
        packed = pack(array, log=log)
        assert unpack(packed).shape == array.shape
    json.dumps(packed, allow_nan=False)


def test_what_is_not_finite_is_drawn_to_the_ends():
    found = unpack(pack([np.nan, -np.inf, 1.0, 3.0, np.inf]))
    np.testing.assert_allclose(found, [1, 1, 1, 3, 3])
    np.testing.assert_allclose(
        unpack(pack([0.0, -1.0, 0.01, 1.0], log=True)), [0.01, 0.01, 0.01, 1]
    )


def test_a_constant_and_nothing_known_at_all():
    np.testing.assert_array_equal(unpack(pack([0.3, 0.3])), [0.3, 0.3])
    np.testing.assert_array_equal(unpack(pack([np.nan, np.nan])), [0.0, 0.0])
    assert unpack(pack(np.zeros((0, 3)))).shape == (0, 3)


def test_bytes_are_as_the_page_reads_them():
    packed = pack([0.0, 0.5, 1.0])
    assert base64.b64decode(packed["data"]) == b"\x00\x00\x00\x80\xff\xff"  # the low byte first
    assert packed_size(3) == len(packed["data"])
