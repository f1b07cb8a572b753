import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from cosen.data import features as features_module
from cosen.data.batches import IMAGENET
from cosen.data.cache_folder import CacheFolder
from cosen.data.decoding import Preprocess
from cosen.data.features import embed, weights_digest
from cosen.data.image_cache import decode_images
from cosen.data.sources import from_arrays
from cosen.errors import DataError, InputError

PIXELS = np.random.default_rng(0).integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)


class Counting(nn.Module):
    """A small network that counts the images it sees and can be made to fail."""

    def __init__(self, fail_after=None):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8 * 8 * 3, 4)
        self.seen = 0
        self.fail_after = fail_after

    def forward(self, images):
        self.seen += len(images)
        if self.fail_after is not None and self.seen > self.fail_after:
            raise KeyboardInterrupt
        return self.layer(images.flatten(1))


@pytest.fixture
def decoded():
    return decode_images(from_arrays(PIXELS, np.arange(20) % 4), Preprocess(8, 8))


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(features_module, "SHARD", 6)


def compute(network, decoded, **options):
    return embed(network, decoded, normalise=IMAGENET, batch_size=4, **options)


def test_features_are_the_networks_and_computed_once(decoded):
    network = Counting()
    first = compute(network, decoded, precision="float32")
    assert first.shape == (20, 4)
    assert first.dtype == torch.float32
    images = torch.from_numpy(PIXELS).permute(0, 3, 1, 2).float() / 255
    with torch.no_grad():
        torch.testing.assert_close(first, network.layer(IMAGENET(images).flatten(1)))
    assert network.seen == 20
    again = compute(network, decoded, precision="float32")
    assert network.seen == 20
    assert torch.equal(first, again)
    assert network.training


def test_other_weights_images_or_precision_are_computed_anew(decoded):
    network = Counting()
    first = compute(network, decoded, precision="float32")
    with torch.no_grad():
        network.layer.bias += 1
    torch.testing.assert_close(compute(network, decoded, precision="float32"), first + 1)
    half = compute(network, decoded, precision="bfloat16")
    assert not torch.equal(half, first + 1)
    torch.testing.assert_close(half, first + 1, atol=0.05, rtol=0.05)
    part = decode_images(decoded.data.take(np.arange(5)), Preprocess(8, 8))
    torch.testing.assert_close(compute(network, part, precision="float32"), first[:5] + 1)


def test_a_computation_that_was_cut_off_goes_on(decoded):
    network = Counting(fail_after=13)
    with pytest.raises(KeyboardInterrupt):
        compute(network, decoded)
    network.fail_after, network.seen = None, 0
    told = []
    features = compute(network, decoded, progress=lambda done, total: told.append((done, total)))
    assert network.seen == 8, "the two finished shards of six were computed again"
    assert told == [(18, 20), (20, 20)]
    fresh = Counting()
    torch.testing.assert_close(
        features, compute(fresh, decoded, cache=CacheFolder(CacheFolder().root / "other"))
    )


def test_a_network_that_gives_no_features_is_refused(decoded):
    class Count(nn.Module):
        def forward(self, images):
            return torch.zeros(len(images))

    with pytest.raises(InputError, match=r"features of shape \(B, D\), but Count returned"):
        compute(Count(), decoded)


def test_activations_are_kept_in_half_precision_and_can_be_mirrored(decoded):
    plain, mirrored = compute(nn.Identity(), decoded), compute(nn.Identity(), decoded, flip=True)
    assert plain.dtype == mirrored.dtype == torch.float16
    assert plain.ndim == 4
    assert torch.equal(plain.flip(-1), mirrored)
    assert not torch.equal(plain, mirrored)


def test_digest_sees_structure_and_weights():
    one, two = nn.Linear(2, 2), nn.Linear(2, 2)
    two.load_state_dict(one.state_dict())
    assert weights_digest(one) == weights_digest(two)
    assert weights_digest(nn.Sequential(one)) != weights_digest(one)
    with torch.no_grad():
        two.bias[0] += 1e-6
    assert weights_digest(one) != weights_digest(two)


@pytest.mark.parametrize("left", [0, 5, 60])
def test_a_shard_that_was_cut_off_is_computed_again(decoded, left):
    network = Counting()
    first = compute(network, decoded)
    shard = sorted(CacheFolder().root.glob("features/*/*.safetensors"))[1]
    shard.write_bytes(shard.read_bytes()[:left])
    network.seen = 0
    assert torch.equal(compute(network, decoded), first)
    assert network.seen == 6
    shard.write_bytes(b"")
    assert len(CacheFolder().entries()) == 1
    CacheFolder().clear()
    assert CacheFolder().entries() == []


def test_features_larger_than_the_cache_are_given_and_others_go(decoded, tmp_path):
    network = Counting()
    cache = CacheFolder(tmp_path / "small", bound=1)
    compute(network, decoded, cache=cache)
    with torch.no_grad():
        network.layer.bias += 1
    features = compute(network, decoded, cache=cache)
    assert features.shape == (20, 4)
    assert not features.is_inference()
    (entry,) = cache.entries()
    network.seen = 0
    assert torch.equal(compute(network, decoded, cache=cache), features)
    assert network.seen == 0, f"{entry} was just used, but not kept"


@pytest.mark.parametrize(
    "problem", [SafetensorError("I/O error: No space left"), OSError(28, "No space left")]
)
def test_a_full_disk_is_an_error_and_leaves_nothing(decoded, monkeypatch, problem):
    def half_written(tensors, path):
        path.write_bytes(b"half")
        raise problem

    monkeypatch.setattr(features_module, "save_file", half_written)
    with pytest.raises(DataError, match=r"No space left.*free some space.*COSEN_CACHE"):
        compute(Counting(), decoded)
    assert list(CacheFolder().root.glob("features/*/*")) == []
