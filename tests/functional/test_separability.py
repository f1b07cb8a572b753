import subprocess
import sys

import numpy as np
import pytest
import torch

import reference
from cosen import functional as F
from cosen.errors import InputError


def clusters(samples=60, classes=4, dimensions=7, seed=0, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    target = torch.arange(samples) % classes
    target = target[torch.randperm(samples, generator=generator)]
    centres = torch.randn(classes, dimensions, generator=generator, dtype=torch.float64)
    noise = torch.randn(samples, dimensions, generator=generator, dtype=torch.float64)
    return centres[target] + noise + shift, target


@pytest.mark.parametrize("block_size", [1, 7, 60, 1024])
@pytest.mark.parametrize("classes", [2, 4, 9])
def test_equals_reference(block_size, classes):
    features, target = clusters(classes=classes)
    expected = reference.separability(features.numpy(), target.tolist(), classes)
    actual = F.class_separability(features, target, num_classes=classes, block_size=block_size)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_float32_keeps_its_digits_far_from_the_origin():
    features, target = clusters(shift=1000.0)
    expected = reference.separability(features.float().double().numpy(), target.tolist(), 4)
    actual = F.class_separability(features.float(), target, num_classes=4)
    np.testing.assert_allclose(actual, expected, rtol=1e-4)


def test_near_neighbours_in_spread_classes_keep_their_digits():
    """Distances a thousand times smaller than the norms: the matrix product is too inexact."""
    generator = torch.Generator().manual_seed(2)
    pairs = 100 * torch.randn(30, 5, generator=generator, dtype=torch.float64)
    features = torch.cat([pairs, pairs + 0.01, pairs + 0.03])
    target = torch.cat([torch.zeros(60), torch.ones(30)]).long()
    expected = reference.separability(features.float().double().numpy(), target.tolist(), 2)
    actual = F.class_separability(features.float(), target, num_classes=2)
    np.testing.assert_allclose(actual, expected, rtol=1e-3)


@pytest.mark.parametrize(("spread", "tolerance"), [(1e-2, 1e-4), (1e-3, 1e-3), (1e-4, 1e-2)])
@pytest.mark.parametrize("dimensions", [8, 512])
def test_tight_clusters_find_their_neighbours(spread, tolerance, dimensions):
    """Four classes in two places: neighbours differ by far less than the norms."""
    generator = torch.Generator().manual_seed(5)
    places = torch.randn(2, dimensions, generator=generator)
    target = torch.arange(80) % 4
    features = places[target // 2] + spread * torch.randn(80, dimensions, generator=generator)
    expected = reference.separability(features.double().numpy(), target.tolist(), 4)
    actual = F.class_separability(features, target, num_classes=4, block_size=32)
    np.testing.assert_allclose(actual, expected, rtol=tolerance)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e19, 1e38])
def test_no_scale_overflows(scale):
    features, target = clusters()
    features = scale * (features / features.abs().max()).float()
    expected = reference.separability(features.double().numpy(), target.tolist(), 4)
    actual = F.class_separability(features, target, num_classes=4)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_the_features_stay_as_they_were():
    features, target = clusters()
    before = features.clone()
    F.class_separability(features, target, num_classes=4)
    assert torch.equal(features, before)


@pytest.mark.parametrize(
    "labels",
    [
        [0, 0, 0, 1, 1, 2, 2, 3],  # one sample
        [0, 0, 0, 1, 1, 2, 2, 2],  # none
        [0, 0, 0, 0, 1, 1, 2, 5],  # some of each
        [0, 0, 0, 0, 0, 0, 0, 1],  # one full row alone
        [0, 1, 2, 3, 4, 5, 6, 7],  # no row at all
    ],
)
def test_classes_with_one_or_no_sample_equal_reference(labels):
    features = torch.randn(8, 3, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    expected = reference.separability(features.numpy(), labels, 8)
    actual = F.class_separability(features, torch.tensor(labels).to(torch.uint8), num_classes=8)
    np.testing.assert_allclose(actual, expected, rtol=1e-9)


def test_by_hand_apart_and_mixed():
    apart = torch.tensor([[0.0], [1.0], [100.0], [101.0]])
    separability = F.class_separability(apart, torch.tensor([0, 0, 1, 1]), num_classes=2)
    torch.testing.assert_close(separability[0, 1], torch.tensor((1 / 100 + 1 / 99) / 2))
    assert separability[0, 0] == separability[1, 1] == 1


def test_duplicates_give_no_nan():
    features = torch.tensor([[0.0, 0], [0, 0], [1, 1], [0, 0], [5, 5]])
    target = torch.tensor([0, 0, 0, 1, 1])
    separability = F.class_separability(features, target, num_classes=2, ceiling=50.0)
    expected = reference.separability(features.double().numpy(), target.tolist(), 2, ceiling=50.0)
    np.testing.assert_allclose(separability, expected, rtol=1e-5)
    same = F.class_separability(torch.ones(6, 3), torch.tensor([0, 1] * 3), num_classes=2)
    assert torch.equal(same, torch.ones(2, 2))


def test_a_class_with_one_sample_has_the_average_row():
    features, target = clusters(classes=3)
    features = torch.cat([features, features.mean(0, keepdim=True)])
    target = torch.cat([target, torch.tensor([3])])
    separability = F.class_separability(features, target, num_classes=4)
    assert separability.isfinite().all()
    for column in range(3):
        others = [row for row in range(3) if row != column]
        torch.testing.assert_close(separability[3, column], separability[others, column].mean())
    assert separability[3, 3] == 1


def test_a_class_with_no_sample_has_averages():
    features, target = clusters(classes=3)
    separability = F.class_separability(features, target, num_classes=4)
    torch.testing.assert_close(separability[0, 3], separability[0, 1:3].mean())
    assert separability.isfinite().all()


@pytest.mark.parametrize(("samples", "classes"), [(0, 3), (1, 3), (2, 2), (1, 1)])
def test_with_nothing_to_compare_all_is_one(samples, classes):
    separability = F.class_separability(
        torch.randn(samples, 4), torch.arange(samples), num_classes=classes
    )
    assert torch.equal(separability, torch.ones(classes, classes))


def test_half_precision_features_give_float32():
    features, target = clusters()
    separability = F.class_separability(features.bfloat16(), target, num_classes=4)
    assert separability.dtype == torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = F.class_separability(features.float(), target, num_classes=4)
    torch.testing.assert_close(
        under_autocast, F.class_separability(features.float(), target, num_classes=4)
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": torch.zeros(2)}, "features must be floating point"),
        ({"features": torch.full((2, 3), torch.inf)}, "sample 0 has NaN or infinity"),
        (
            {"target": torch.zeros(3, dtype=torch.long)},
            r"target must be class indices of the shape \(2,\)",
        ),
        ({"target": torch.tensor([0, 5])}, r"0\.\.1, but runs from 0 to 5"),
        ({"num_classes": 0}, "num_classes must be at least 1"),
        ({"block_size": 0}, "block_size and ceiling"),
        ({"target": torch.zeros(2, device="meta").long()}, "target and features must be on one"),
    ],
)
def test_bad_input_is_named(change, message):
    inputs = {"features": torch.zeros(2, 3), "target": torch.tensor([0, 1]), "num_classes": 2}
    with pytest.raises(InputError, match=message):
        F.class_separability(**(inputs | change))


MEMORY_PROGRAM = """
import torch
from cosen.functional import class_separability
torch.set_num_threads(1)
generator = torch.Generator().manual_seed(0)
features = torch.randn(20_000, 64, generator=generator)
target = torch.randint(100, (20_000,), generator=generator)
def peak():
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
class_separability(features[:200], target[:200], num_classes=100)
before = peak()
class_separability(features, target, num_classes=100)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
def test_twenty_thousand_samples_take_less_than_a_gigabyte():
    """All distances at once would take 1.6 GB for any number of dimensions."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY_PROGRAM], capture_output=True, text=True, check=True
    )
    assert 0 < int(done.stdout) < 1e9


def spread_example(seed=0):
    generator = torch.Generator().manual_seed(seed)
    target = torch.tensor([0] * 6 + [1] * 4 + [2])  # class 2 has one sample
    features = torch.randn(11, 5, generator=generator).double()
    return features, target, torch.randn(3, 5, generator=generator).double()


def test_the_spread_within_classes_equals_reference():
    features, target, _ = spread_example()
    spread = F.within_class_spread(features, target, size=5)
    expected = torch.tensor(reference.within_class_covariance(features.tolist(), target.tolist()))
    torch.testing.assert_close(spread @ spread.T, expected.double())


def test_few_directions_are_the_largest_ones():
    features, target, _ = spread_example()
    features[:, 0] *= 100
    spread = F.within_class_spread(features, target, size=1)
    assert (spread[0] / spread.norm()).abs() > 0.999
    torch.testing.assert_close(
        spread @ spread.T,
        (whole := F.within_class_spread(features, target, size=9)) @ whole.T,
        atol=100,
        rtol=0.01,
    )


def test_spread_margins_equal_reference_and_have_gradients():
    features, target, weight = spread_example()
    spread = F.within_class_spread(features, target, size=5)
    covariance = reference.within_class_covariance(features.tolist(), target.tolist())
    found = F.spread_margins(weight, spread, torch.arange(3))
    for true in range(3):
        for output in range(3):
            expected = reference.spread_margin(weight.tolist(), covariance, true, output)
            assert float(found[true, output]) == pytest.approx(expected)
    mixed = F.spread_margins(weight, spread, torch.tensor([[0.5, 0.5, 0.0]]).double())
    torch.testing.assert_close(mixed[0], (found[0] + found[1]) / 2)
    weight.requires_grad_()
    torch.autograd.gradcheck(lambda w: F.spread_margins(w, spread, torch.tensor([0, 2])), weight)


def test_a_loss_with_spread_margins_bounds_the_loss_of_features_that_vary():
    """The bound of Wang et al. (2019): Jensen's inequality for the moments of a normal variable."""
    generator = torch.Generator().manual_seed(0)
    weight, spread = torch.randn(3, 4, generator=generator), torch.randn(4, 4, generator=generator)
    feature, target = torch.randn(1, 4, generator=generator), torch.tensor([1])
    noise = torch.randn(50_000, 4, generator=generator) @ spread.T
    varied = torch.nn.functional.cross_entropy((feature + noise) @ weight.T, target.expand(50_000))
    margins = F.spread_margins(weight, spread, target)
    bound = torch.nn.functional.cross_entropy(feature @ weight.T + margins, target)
    assert varied <= bound
    small = F.spread_margins(weight, 0.01 * spread, target)
    plain = torch.nn.functional.cross_entropy(feature @ weight.T, target)
    assert plain < torch.nn.functional.cross_entropy(feature @ weight.T + small, target) < bound
