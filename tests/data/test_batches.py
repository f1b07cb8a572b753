import numpy as np
import pytest
import torch

from cosen.data.augmentation import NAMES, Augmentation
from cosen.data.batches import (
    GREY,
    IMAGENET,
    Batches,
    FeatureBatches,
    Share,
    batch_positions,
)
from cosen.data.decoding import Preprocess
from cosen.data.image_cache import decode_images
from cosen.data.sources import from_arrays
from cosen.errors import InputError

RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
LABELS = np.arange(10) % 3


@pytest.fixture
def decoded():
    return decode_images(from_arrays(PIXELS, LABELS), Preprocess(16, 16))


def test_every_image_once_with_its_label(decoded):
    batches = Batches(decoded, decoded.data, batch_size=4, normalise=IMAGENET)
    images, targets, weights, _ = zip(*batches, strict=True)
    assert weights == (1.0, 1.0, 1.0)
    assert [len(target) for target in targets] == [4, 4, 2]
    assert len(batches) == 3
    assert torch.cat(targets).tolist() == LABELS.tolist()
    restored = torch.cat(images) * torch.tensor(IMAGENET.std)[:, None, None]
    restored = 255 * (restored + torch.tensor(IMAGENET.mean)[:, None, None])
    expected = torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float()
    torch.testing.assert_close(restored, expected, atol=1e-3, rtol=0)
    assert images[0].is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(torch.cat(images), IMAGENET(expected / 255))


def test_the_order_is_drawn_anew_from_the_generator(decoded):
    def two_passes(seed):
        order = torch.Generator().manual_seed(seed)
        batches = Batches(decoded, decoded.data, batch_size=3, normalise=IMAGENET, order=order)
        return [torch.cat([batch.target for batch in batches]).tolist() for _ in range(2)]

    first = two_passes(1)
    assert first == two_passes(1)
    assert first[0] != first[1]
    assert sorted(first[0]) == sorted(LABELS.tolist())


def test_a_part_of_the_data(decoded):
    part = decoded.data.take(decoded.data.labels == 2)
    batches = Batches(decoded, part, batch_size=2, normalise=IMAGENET)
    assert len(batches) == 2
    assert [batch.target.tolist() for batch in batches] == [[2, 2], [2]]


def test_no_images_no_batches(decoded):
    nothing = decoded.data.take(np.zeros(0, dtype=int))
    assert list(Batches(decoded, nothing, batch_size=2, normalise=IMAGENET)) == []


def test_what_does_not_fit_is_refused(decoded):
    other = from_arrays(PIXELS, LABELS)
    with pytest.raises(InputError, match="split of the decoded dataset"):
        Batches(decoded, other, batch_size=2, normalise=IMAGENET)
    with pytest.raises(InputError, match="batch_size"):
        Batches(decoded, decoded.data, batch_size=0, normalise=IMAGENET)
    with pytest.raises(InputError, match="3 channels, but normalise has 1"):
        Batches(decoded, decoded.data, batch_size=2, normalise=GREY)


@pytest.mark.parametrize("world", [2, 3, 5])
@pytest.mark.parametrize("count", [10, 9, 8])
def test_processes_share_every_batch(world, count):
    """Each sample is in one process, and the weighted mean over processes is the mean."""
    plans = [batch_positions(count, 4, share=Share(rank, world)) for rank in range(world)]
    values = np.random.default_rng(0).normal(size=count)
    for number, (whole, _) in enumerate(batch_positions(count, 4)):
        parts = [plan[number] for plan in plans]
        own = [positions for positions, weight in parts if weight > 0]
        assert sorted(np.concatenate(own).tolist()) == whole.tolist()
        mean = np.mean([weight * values[positions].mean() for positions, weight in parts])
        assert mean == pytest.approx(values[whole].mean())


def test_feature_batches_are_the_rows():
    features, target = torch.randn(10, 3), torch.arange(10) % 3
    batches = FeatureBatches(features, target, batch_size=4, order=torch.Generator().manual_seed(0))
    rows = torch.cat([batch.inputs for batch in batches])
    assert len(batches) == 3
    assert not torch.equal(rows, features)
    assert torch.equal(rows.sort(0).values, features.sort(0).values)


def augmentation(*names, seed=0, channels=3):
    generator = torch.Generator().manual_seed(seed)
    return Augmentation(names, size=(16, 16), channels=channels, num_classes=3, generator=generator)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("channels", [1, 3])
def test_every_augmentation_keeps_shape_and_changes_pixels(name, channels):
    if name == "randaugment" and channels == 1:
        with pytest.raises(InputError, match="needs RGB"):
            augmentation(name, channels=channels)
        return
    images = torch.rand(6, channels, 16, 16, generator=torch.Generator().manual_seed(0))
    target = torch.tensor([0, 1, 2, 0, 1, 2])
    before = torch.get_rng_state()
    changed, wanted = augmentation(name, channels=channels)(images.clone(), target)
    assert torch.equal(before, torch.get_rng_state()), "the global generator was touched"
    assert changed.shape == images.shape
    assert not torch.equal(changed, images)
    if name == "mixup":
        assert wanted.shape == (6, 3)
        torch.testing.assert_close(wanted.sum(1), torch.ones(6))
        assert (wanted.gather(1, target[:, None]) > 0).any()
    else:
        assert torch.equal(wanted, target)


def test_the_same_generator_the_same_augmentation():
    images, target = torch.rand(4, 3, 16, 16), torch.arange(4) % 3
    one, two = augmentation(*NAMES), augmentation(*NAMES)
    for _ in range(2):
        first, second = one(images, target), two(images, target)
        torch.testing.assert_close(first, second)
    assert not torch.equal(first[0], augmentation(*NAMES, seed=1)(images, target)[0])


def test_mixup_mixes_images_as_it_mixes_targets():
    images = torch.eye(3)[torch.tensor([0, 1, 2, 0])][:, :, None, None].expand(4, 3, 16, 16)
    target = torch.tensor([0, 1, 2, 0])
    mixed, wanted = augmentation("mixup", seed=3)(images, target)
    torch.testing.assert_close(mixed[:, :, 0, 0], wanted)


def test_in_batches(decoded):
    batches = Batches(
        decoded,
        decoded.data,
        batch_size=5,
        normalise=IMAGENET,
        augment=augmentation("flip", "mixup"),
    )
    for images, target, *_ in batches:
        assert images.shape == (5, 3, 16, 16)
        assert target.shape == (5, 3)


def test_an_unknown_augmentation_lists_the_choices():
    with pytest.raises(InputError, match="no augmentation 'warp': choose from crop, flip"):
        augmentation("warp")
