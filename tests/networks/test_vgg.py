import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from cosen.errors import DataError, InputError
from cosen.networks.layer_table import layer_table, table_totals
from cosen.networks.vgg import PaperNetwork, VGG16Features
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


READINGS = ["whole-vgg", "two-extra"]


def on_meta(classes=10, **options):
    """The whole network, which takes no memory there."""
    with torch.device("meta"):
        return PaperNetwork(classes, **options)


@pytest.mark.parametrize("classes", [2, 10, 102])
@pytest.mark.parametrize(
    ("reading", "before_output"), [("whole-vgg", 142_457_640), ("two-extra", 167_823_168)]
)
def test_eighteen_weight_layers_and_the_number_of_parameters(reading, before_output, classes):
    totals = table_totals(layer_table(on_meta(classes, reading=reading), (3, 224, 224)))
    assert totals.weight_layers == 18
    assert totals.parameters == before_output + 4097 * classes


def test_vgg16_is_in_it_with_its_published_size():
    network = on_meta()
    own = [*network.features.parameters(), *network.classifier.parameters()]
    assert sum(parameter.numel() for parameter in own) == 138_357_544


@pytest.mark.parametrize("size", [(32, 32), (224, 224), (300, 200)])
@pytest.mark.parametrize("reading", READINGS)
def test_4096_features_at_any_size(reading, size):
    logits, features = on_meta(7, reading=reading)(torch.zeros(2, 3, *size, device="meta"))
    assert logits.shape == (2, 7)
    assert features.shape == (2, 4096)


@pytest.mark.parametrize("reading", READINGS)
def test_a_relu_between_every_two_weight_layers(reading):
    rows = layer_table(on_meta(reading=reading), (3, 64, 64))
    kinds = [row.kind for row in rows if row.is_weight_layer or row.kind == "ReLU"]
    assert kinds == ["Conv2d", "ReLU"] * 13 + ["Linear", "ReLU"] * 4 + ["Linear"]


@pytest.mark.parametrize("reading", READINGS)
def test_dropout_after_every_wide_layer(reading):
    rows = layer_table(on_meta(reading=reading), (3, 64, 64))
    kinds = [(row.kind, row.output_shape) for row in rows]
    for place, (kind, shape) in enumerate(kinds):
        if kind == "Linear" and shape == (4096,):
            assert kinds[place + 2] == ("Dropout", (4096,))
    modules = on_meta(reading=reading, dropout=0.2).modules()
    dropouts = [module for module in modules if isinstance(module, nn.Dropout)]
    assert len(dropouts) == (3 if reading == "whole-vgg" else 4)
    assert all(dropout.p == 0.2 for dropout in dropouts)


def test_an_unknown_reading_lists_both():
    with pytest.raises(InputError, match=r"did you mean 'two-extra'.*whole-vgg, two-extra"):
        on_meta(reading="two_extra")


def test_the_smallest_image_gives_every_weight_of_fc6_a_gradient():
    torch.manual_seed(0)
    network = PaperNetwork(3, width=8, dropout=0)
    network(torch.randn(4, 3, 32, 32)).logits.square().sum().backward()
    gradient = network.classifier[0].weight.grad.reshape(8, 512, 49)
    # at 32 pixels all 7 x 7 positions have the same value
    assert torch.allclose(gradient, gradient[:, :, :1].expand_as(gradient))
    assert gradient.abs().sum() > 0
