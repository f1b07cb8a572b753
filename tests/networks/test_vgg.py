import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from cosen.errors import DataError
from cosen.networks.vgg import VGG16Features
from cosen.networks.weights import load_weights, read_weights


def test_thirteen_convolutions_with_the_published_number_of_weights():
    network = VGG16Features()
    assert sum(isinstance(layer, nn.Conv2d) for layer in network.features) == 13
    assert sum(p.numel() for p in network.parameters()) == 14_714_688
    assert list(network.state_dict())[:2] == ["features.0.weight", "features.0.bias"]
    assert "features.28.bias" in network.state_dict()


@pytest.mark.parametrize("size", [(32, 32), (64, 48), (50, 70)])
def test_any_size_gives_512_features(size):
    with torch.no_grad():
        assert VGG16Features().eval()(torch.zeros(2, 3, *size)).shape == (2, 512)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_are_loaded_and_the_rest_is_listed(tmp_path, suffix):
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(2, 3)
            self.last = nn.Linear(3, 4)

    given = {
        "first.weight": torch.ones(3, 2),
        "first.bias": torch.ones(3),
        "last.weight": torch.ones(9, 3),  # another number of classes
        "extra": torch.ones(1),
    }
    path = tmp_path / f"weights{suffix}"
    if suffix == ".pth":
        torch.save(given, path)
    else:
        save_file(given, path)
    network = Whole()
    loaded = load_weights(network, path)
    assert torch.equal(network.first.weight, torch.ones(3, 2))
    assert loaded.loaded == ("first.weight", "first.bias") or set(loaded.loaded) == {
        "first.weight",
        "first.bias",
    }
    assert loaded.random == ("last.weight", "last.bias")
    assert set(loaded.unused) == {"last.weight", "extra"}


def test_code_in_a_weights_file_never_runs(tmp_path):
    class Attack:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"x": Attack()}, tmp_path / "evil.pth")
    with pytest.raises(DataError, match="more than tensors"):
        read_weights(tmp_path / "evil.pth")
    assert not (tmp_path / "ran").exists()


def test_bad_weights_files_are_named(tmp_path):
    with pytest.raises(DataError, match="there is no weights file"):
        read_weights(tmp_path / "none.pth")
    (tmp_path / "bad.safetensors").write_bytes(b"xxxx")
    with pytest.raises(DataError, match="cannot read weights"):
        read_weights(tmp_path / "bad.safetensors")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(DataError, match="not a state dict"):
        read_weights(tmp_path / "list.pth")
    torch.save({"other": torch.ones(1)}, tmp_path / "other.pth")
    with pytest.raises(DataError, match=r"no entry of .* fits the network"):
        load_weights(nn.Linear(2, 2), tmp_path / "other.pth")


@pytest.mark.skipif("COSEN_DATA" not in os.environ, reason="COSEN_DATA names no real weights")
def test_real_vgg_weights_load_whole():
    path = Path(os.environ["COSEN_DATA"]) / "vgg16_features.safetensors"
    if not path.exists():
        pytest.skip(f"no {path.name} there")
    loaded = load_weights(VGG16Features(), path)
    assert len(loaded.loaded) == 26
    assert loaded.random == ()
