"""Tests that every network must pass."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn import functional

from cosen.errors import InputError
from cosen.networks import NETWORKS, Network, NetworkOutput, build_network, find_network
from cosen.networks.small import Head, ResidualBlock

CLASSES = 5
# fully connected layers of 24 units, to make the paper's network small
CASES = {
    "paper": ({"width": 24}, (3, 32, 32)),
    "paper two-extra": ({"width": 24, "reading": "two-extra"}, (3, 32, 32)),
    "resnet32": ({}, (3, 16, 16)),
    "resnet32 grey": ({"channels": 1}, (1, 9, 12)),
    "small-cnn": ({}, (3, 8, 8)),
    "small-cnn grey": ({"channels": 1}, (1, 28, 28)),
    "head": ({"in_features": 12}, (12,)),
    "head narrow": ({"in_features": 12, "width": 7, "dropout": 0.5}, (12,)),
    "linear": ({"in_features": 12}, (12,)),
}
WIDTHS = {
    "paper": 24,
    "resnet32": 64,
    "small-cnn": 128,
    "head": 512,
    "head narrow": 7,
    "linear": 12,
}


def build(case, *, seed=0):
    torch.manual_seed(seed)
    return build_network(case.split()[0], num_classes=CLASSES, **CASES[case][0])


def inputs_for(case, count=4):
    return torch.randn(count, *CASES[case][1], generator=torch.Generator().manual_seed(1))


def width_of(case):
    return WIDTHS.get(case, WIDTHS[case.split()[0]])


def test_the_battery_has_every_network():
    assert {case.split()[0] for case in CASES} == NETWORKS.keys()


@pytest.mark.parametrize("case", CASES)
def test_logits_and_features_in_one_pass(case):
    network = build(case)
    assert isinstance(network, Network)
    result = network(inputs_for(case))
    assert isinstance(result, NetworkOutput)
    assert result.logits.shape == (4, CLASSES)
    assert result.features.shape == (4, width_of(case))


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_features_are_what_the_output_layer_sees(case, mode):
    network = build(case).train(mode)
    logits, features = network(inputs_for(case))
    assert isinstance(network.output_layer, nn.Linear)
    assert torch.equal(network.output_layer(features), logits)


@pytest.mark.parametrize("case", CASES)
def test_gradients_reach_every_parameter(case):
    network = build(case)
    logits, _ = network(inputs_for(case, 16))
    functional.cross_entropy(logits, torch.arange(16) % CLASSES).backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("case", CASES)
def test_a_state_dict_carries_everything(case):
    network, other = build(case).train(), build(case, seed=1)
    network(inputs_for(case))  # changes the statistics of batch normalisation
    other.load_state_dict(network.state_dict())
    images = inputs_for(case)
    for ours, theirs in zip(network.eval()(images), other.eval()(images), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("case", CASES)
def test_a_seed_decides_the_weights(case):
    one, same, other = build(case), build(case), build(case, seed=1)
    weights = one.state_dict()
    assert all(torch.equal(weights[name], value) for name, value in same.state_dict().items())
    assert not torch.equal(weights["output.weight"], other.state_dict()["output.weight"])


@pytest.mark.parametrize("case", CASES)
def test_in_evaluation_an_image_does_not_depend_on_its_batch(case):
    network = build(case).eval()
    images = inputs_for(case)
    with torch.no_grad():
        together = network(images)
        alone = [network(image[None]) for image in images]
    for field in ("logits", "features"):
        separate = torch.cat([getattr(output, field) for output in alone])
        assert torch.allclose(getattr(together, field), separate, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_random_networks_tell_images_apart(case):
    """Activations neither vanish nor explode in deep layers."""
    with torch.no_grad():
        network = build(case).train()
        for module in network.modules():
            if isinstance(module, nn.Dropout):
                module.eval()
        features = network(inputs_for(case, 16)).features
    assert 0.03 < features.std(0).mean() < 30


@pytest.mark.parametrize("case", CASES)
def test_copies_and_pickles_are_the_same_network(case):
    network = build(case).eval()
    images = inputs_for(case)
    for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert torch.equal(twin(images).logits, network(images).logits)


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_input_is_named(case):
    shape = CASES[case][1]
    with pytest.raises(InputError, match=r"but got \(4,\)"):
        build(case)(torch.zeros(4))
    with pytest.raises(InputError, match=rf"batch, {shape[0]}"):
        build(case)(torch.zeros(2, shape[0] + 1, *shape[1:]))


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("small-cnn", [(4, 4), (8, 8), (28, 28), (33, 17), (64, 64)]),
        ("resnet32", [(1, 1), (8, 8), (31, 33), (32, 32), (64, 48)]),
        ("paper", [(32, 32), (50, 70), (64, 64)]),
    ],
)
def test_any_size(name, sizes):
    for channels in find_network(name).channels:
        options = {"width": 8} if name == "paper" else {}
        network = build_network(name, num_classes=3, channels=channels, **options).eval()
        for size in sizes:
            with torch.no_grad():
                assert network(torch.zeros(1, channels, *size)).logits.shape == (1, 3)


@pytest.mark.parametrize(("name", "least"), [("small-cnn", 4), ("paper", 32)])
def test_images_that_are_too_small_are_named(name, least):
    with torch.device("meta"):
        network = build_network(name, num_classes=2)
        images = torch.zeros(1, 3, least - 1, 64)
    with pytest.raises(InputError, match=rf"at least {least} x {least} pixels.*{least - 1} x 64"):
        network(images)


@pytest.mark.parametrize("classes", [10, 100])
def test_numbers_of_parameters(classes):
    def count(name, **options):
        network = build_network(name, num_classes=classes, **options)
        return sum(parameter.numel() for parameter in network.parameters())

    assert count("resnet32") == 463_504 + 65 * classes  # 0.46 million, as He et al. say
    assert count("small-cnn", channels=1) == 129_888 + 129 * classes
    assert count("head", in_features=4096) == 4097 * 512 + 513 * classes


def test_shortcuts_take_every_second_pixel_and_add_zeros():
    block = ResidualBlock(2, 4, stride=2).eval()
    nn.init.zeros_(block.conv2.weight)
    maps = torch.rand(1, 2, 5, 6)
    with torch.no_grad():
        shortcut = block(maps)
    assert torch.equal(shortcut[:, :2], maps[:, :, ::2, ::2])
    assert torch.equal(shortcut[:, 2:], torch.zeros(1, 2, 3, 3))


def test_the_head_is_one_hidden_layer():
    head = Head(6, 3, width=4).eval()
    features = torch.randn(5, 6)
    first = head.hidden[0]
    hidden = (features @ first.weight.T + first.bias).clamp(min=0)
    assert torch.allclose(head(features).features, hidden)


def test_a_head_that_normalises_does_not_see_the_size_of_features():
    head = Head(6, 3, width=4, normalise=True).eval()
    features = torch.rand(5, 6)
    scaled = features / features.square().mean(1, keepdim=True).sqrt()
    plain = Head(6, 3, width=4).eval()
    plain.load_state_dict(head.state_dict())
    assert torch.allclose(head(features).logits, plain(scaled).logits, atol=1e-6)
    assert torch.allclose(head(100 * features).logits, head(features).logits, atol=1e-5)
    assert torch.isfinite(head(torch.zeros(1, 6)).logits).all()


def test_unknown_names_list_the_choices():
    with pytest.raises(InputError, match=r"did you mean 'resnet32' or 'resnet50'"):
        build_network("resnet", num_classes=2)
    with pytest.raises(InputError, match=r"choose from tf_efficientnet_lite0, paper, resnet32"):
        build_network("xyz", num_classes=2)
    with pytest.raises(InputError, match="no network 'vgg16-features'"):
        find_network("vgg16-features")


def test_options_are_checked():
    with pytest.raises(InputError, match="head has no option 'widht': did you mean 'width'"):
        build_network("head", num_classes=2, in_features=3, widht=4)
    with pytest.raises(InputError, match="small-cnn has no option 'width': there are none"):
        build_network("small-cnn", num_classes=2, width=4)
    with pytest.raises(InputError, match="set in_features to their width"):
        build_network("head", num_classes=2)
    with pytest.raises(InputError, match="takes images, not features"):
        build_network("resnet32", num_classes=2, in_features=4)
    with pytest.raises(InputError, match="takes images of 3 channels, but they have 1"):
        build_network("paper", num_classes=2, channels=1)
    with pytest.raises(InputError, match="takes images of 1 or 3 channels, but they have 4"):
        build_network("small-cnn", num_classes=2, channels=4)
    with pytest.raises(InputError, match="num_classes must be at least 1, but is 0"):
        build_network("small-cnn", num_classes=0)
