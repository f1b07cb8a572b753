"""Networks of timm: the embedded weights, files, the hub, and splitting into parts."""

import copy
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
import requests
import torch
from safetensors.torch import save_file

from cosen.errors import DataError, InputError
from cosen.networks import build_network, find_network
from cosen.networks import pretrained as module
from cosen.networks.pretrained import (
    EMBEDDED,
    Joined,
    build_timm,
    check_size,
    check_split,
    load_pretrained,
    pretrained_input,
    split,
)

SMALL = "mobilenetv3_small_050"


def picture(kind, size):
    line = torch.linspace(0, 1, size)
    y, x = torch.meshgrid(line, line, indexing="ij")
    if kind == "ramp":
        return torch.stack([x, y, 1 - x])
    if kind == "rings":
        return torch.stack([((x - 0.5) ** 2 + (y - 0.5) ** 2).sqrt().mul(40).sin() / 2 + 0.5] * 3)
    return torch.stack([((x * 8).floor() + (y * 8).floor()) % 2, (x * 4).floor() / 4, y])


# From a plain implementation of the architecture that the weights were published for (padding as
# in TensorFlow, epsilon 1e-3), with the weights' own names: the first logits, and the largest.
REFERENCE = {
    ("ramp", 128): ([-0.82406, 0.88457, 0.64762, 0.9508, 2.01022, 2.01011], 818, 6.40275),
    ("rings", 160): ([0.21954, -3.43031, -1.98662, -0.78037, -1.67387, -3.75295], 506, 15.16542),
    ("checks", 224): ([-0.20604, 0.34227, 0.72249, 0.25949, 0.20041, 1.4533], 111, 3.2881),
}


@pytest.fixture(scope="module")
def embedded():
    network = build_timm(EMBEDDED, num_classes=1000)
    load_pretrained(network, EMBEDDED)
    return network.eval()


@pytest.mark.parametrize(("kind", "size"), REFERENCE)
def test_the_logits_are_those_of_the_weights_original_code(embedded, kind, size):
    network = copy.deepcopy(embedded)
    state = module._embedded_state(network.module)
    output = {key: state[f"classifier.{key}"] for key in ("weight", "bias")}
    network.output_layer.load_state_dict(output)
    expected = pretrained_input(EMBEDDED)
    mean, std = (torch.tensor(values)[:, None, None] for values in (expected.mean, expected.std))
    torch.testing.assert_close(mean.flatten(), torch.full((3,), 127 / 255))
    torch.testing.assert_close(std.flatten(), torch.full((3,), 128 / 255))
    with torch.no_grad():
        logits = network((picture(kind, size)[None] - mean) / std).logits[0]
    first, label, largest = REFERENCE[kind, size]
    torch.testing.assert_close(logits[:6], torch.tensor(first), atol=1e-4, rtol=0)
    assert int(logits.argmax()) == label
    assert float(logits.max()) == pytest.approx(largest, abs=1e-4)


def test_a_damaged_package_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "weights.pth"
    content = bytearray(module.embedded_file().read_bytes())
    content[1000] ^= 1
    path.write_bytes(content)
    monkeypatch.setattr(module, "embedded_file", lambda: path)
    with pytest.raises(DataError, match="is damaged: reinstall"):
        load_pretrained(build_timm(EMBEDDED, num_classes=3), EMBEDDED)
    monkeypatch.setattr(module, "embedded_file", lambda: None)
    with pytest.raises(DataError, match="not installed: pip install efficientnet_lite0"):
        load_pretrained(build_timm(EMBEDDED, num_classes=3), EMBEDDED)


def test_the_input_is_that_of_the_networks_own_configuration():
    vit = pretrained_input("vit_small_patch14_dinov2.lvd142m")
    assert vit.size == (518, 518)
    assert vit.is_fixed
    assert vit.interpolation == "bicubic"
    assert pretrained_input("resnet50.a1_in1k").crop == 0.95
    assert find_network("convnext_tiny").image_size == 224


@pytest.mark.parametrize(
    "name", [EMBEDDED, SMALL, "resnet18", "convnext_atto", "vit_tiny_patch16_224", "regnetx_002"]
)
def test_the_parts_together_are_the_network(name):
    torch.manual_seed(0)
    network = build_timm(name, num_classes=4, size=(64, 64)).eval()
    check_split(network, (64, 64))
    lower, upper = split(network)
    joined = Joined(lower, upper).eval()
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(joined(images), network(images), rtol=1e-4, atol=1e-5)
    parts = [sum(p.numel() for p in part.parameters()) for part in (lower, upper)]
    assert min(parts) > 0
    assert sum(parts) <= 1.01 * sum(p.numel() for p in network.parameters())
    pickle.loads(pickle.dumps(joined))


def test_a_network_that_cannot_be_split_says_so():
    with pytest.raises(InputError, match="cannot be split into stages: use --finetune none"):
        check_split(build_timm("inception_v3", num_classes=3), (96, 96))


def test_a_network_without_a_classifier_is_refused():
    with pytest.raises(InputError, match="levit_128 has no single linear classifier"):
        build_network("levit_128", num_classes=3)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_from_a_file(tmp_path, suffix):
    source, path = build_timm(SMALL, num_classes=7), tmp_path / f"weights{suffix}"
    state = source.module.state_dict()
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    network = build_timm(SMALL, num_classes=3)
    load_pretrained(network, SMALL, path)
    for name, tensor in network.module.state_dict().items():
        if not name.startswith("classifier."):
            assert torch.equal(tensor, state[name]), name


def test_weights_of_another_network_are_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file(build_timm("mobilenetv3_small_075", num_classes=3).module.state_dict(), path)
    network = build_timm(SMALL, num_classes=3)
    with pytest.raises(DataError, match=r"other shapes than the network: \w+.*\(\d+.* instead of"):
        load_pretrained(network, SMALL, path)
    save_file({"conv_stem.weight": network.module.conv_stem.weight.detach()}, path)
    with pytest.raises(DataError, match=r"lacks \d+ entries of the network, such as"):
        load_pretrained(network, SMALL, path)


def test_a_hub_that_does_not_answer_is_one_sentence(monkeypatch):
    def refuse(*_, **__):
        raise requests.ConnectionError("no route to host")

    monkeypatch.setattr("requests.head", refuse)
    with pytest.raises(DataError, match=r"resnet18 are not on this machine.*--weights FILE"):
        load_pretrained(build_timm("resnet18", num_classes=3), "resnet18")


def test_an_image_size_that_a_vit_cannot_take():
    network = build_network("vit_tiny_patch16_224", num_classes=3)
    with pytest.raises(InputError, match=r"cannot take images of 40 x 40 pixels: use --size 224"):
        check_size(network, "vit_tiny_patch16_224", (40, 40))


def test_one_channel_is_refused():
    with pytest.raises(InputError, match="takes images of 3 channels, but they have 1"):
        build_network(EMBEDDED, num_classes=3, channels=1)


def test_timm_is_imported_only_when_it_is_needed():
    program = (
        "import sys, cosen.api; from cosen.networks import build_network; "
        "build_network('small-cnn', num_classes=3); "
        "assert not {'timm', 'torchvision'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_nothing_else_depends_on_torchvision():
    source = Path(module.__file__).parent.parent
    uses = re.compile(r"^\s*(import|from) torchvision", re.MULTILINE)
    users = [path.name for path in source.rglob("*.py") if uses.search(path.read_text())]
    assert users == ["timm_import.py"]
