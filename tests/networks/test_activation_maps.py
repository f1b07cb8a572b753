"""Activation maps: their formula, and that they point at what decides."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from cosen.networks import build_network
from cosen.networks.activation_maps import (
    OPACITY,
    find_map_layer,
    logits_and_maps,
    map_picture,
)
from cosen.networks.output_layers import use_cosine_output
from cosen.networks.small import SmallCNN
from cosen.training.model_file import ImageClassifier


def classifier(**options):
    torch.manual_seed(0)
    return ImageClassifier(SmallCNN(3, channels=1, **options)).eval()


def test_the_map_is_that_of_zhou_for_average_pooling_and_a_linear_layer():
    model, images = classifier(), torch.randn(4, 1, 32, 32)
    logits, maps = logits_and_maps(model, find_map_layer(model, images), images)
    with torch.no_grad():
        features = model.network.features(images)  # (B, K, 8, 8)
        assert torch.equal(logits, model(images))
        weights = model.network.output.weight[logits.argmax(1)]  # (B, K)
        expected = torch.einsum("bk,bkhw->bhw", weights, features).clamp(min=0)
        expected /= expected.amax((1, 2), keepdim=True).clamp(min=1e-12)
    assert maps.shape == (4, 8, 8)
    torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-5)


def test_the_map_points_at_what_decides():
    """The network counts bright pixels: class 1 is bright, class 0 is dark."""
    layer = nn.Conv2d(1, 1, 1, bias=False)
    network = nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 2))
    with torch.no_grad():
        layer.weight.fill_(1)
        network[3].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        network[3].bias.zero_()
    image = torch.zeros(1, 1, 8, 8)
    image[..., 1:3, 5:7] = 1
    assert find_map_layer(network, image) is layer
    _, maps = logits_and_maps(network, layer, image)
    assert torch.equal(maps[0], image[0, 0])


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("test_vit", (160, 160)),
        ("test_vit", (96, 160)),
        ("test_efficientnet", (160, 160)),
        ("test_convnext", (96, 160)),
        ("swin_s3_tiny_224", (224, 224)),
    ],
)
def test_networks_of_timm(name, size):
    model = build_network(name, num_classes=3, size=size).eval()
    images = torch.randn(2, 3, *size)
    model = ImageClassifier(model).eval()
    layer = find_map_layer(model, images[:1])
    logits, maps = logits_and_maps(model, layer, images)
    assert torch.equal(logits, model(images).detach())
    assert maps.ndim == 3
    assert min(maps.shape[1:]) >= (4 if min(size) > 100 else 3)
    assert maps.shape[1] / maps.shape[2] == pytest.approx(size[0] / size[1], rel=0.3)
    assert bool((maps.amax((1, 2)) > 0).any())
    assert bool(((maps >= 0) & (maps <= 1)).all())


def test_parameters_keep_their_gradients_and_cosines_have_maps():
    model = classifier()
    use_cosine_output(model.network)
    images = torch.randn(2, 1, 32, 32)
    _, maps = logits_and_maps(model, find_map_layer(model, images), images)
    assert maps.shape == (2, 8, 8)
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_small_images_have_maps_of_an_earlier_layer_and_some_networks_have_none():
    model, images = classifier(), torch.randn(2, 1, 8, 8)
    layer = find_map_layer(model, images)
    assert logits_and_maps(model, layer, images)[1].shape == (2, 4, 4)  # the last has 2 x 2 places
    assert find_map_layer(nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), torch.ones(1, 64)) is None


class Unusual(nn.Module):
    """Uses a layer twice, changes maps in place, and stops gradients if told so."""

    def __init__(self, *, stops):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 2, 1)
        self.relu, self.output, self.stops = nn.ReLU(), nn.Linear(2, 2), stops
        for layer in (self.first, self.second, self.output):
            nn.init.ones_(layer.weight)

    def forward(self, images):
        maps = self.relu(self.second(self.relu(self.first(images))))
        means = nn.functional.relu_(maps).mean((2, 3))
        return self.output(means.detach() if self.stops else means)


@pytest.mark.parametrize("stops", [False, True])
def test_custom_networks(stops):
    model, images = Unusual(stops=stops), torch.ones(2, 1, 32, 32)
    layer = find_map_layer(model, images)
    logits, maps = logits_and_maps(model, layer, images)
    assert torch.equal(logits, model(images).detach())
    assert maps.shape == (2, 30, 30)
    assert bool(maps.any()) != stops
    assert len(map_picture(maps[0])) < 3000


def test_a_picture_is_transparent_where_the_map_is_0():
    found = torch.zeros(4, 5)
    found[1, 2] = 1
    content = base64.b64decode(map_picture(found).partition(",")[2])
    pixels = np.asarray(Image.open(io.BytesIO(content)))
    assert pixels.shape == (4, 5, 4)
    expected = np.zeros((4, 5))
    expected[1, 2] = OPACITY
    np.testing.assert_array_equal(pixels[..., 3], expected)
