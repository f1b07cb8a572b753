import pytest
import torch
from torch import nn

from cosen.errors import InputError
from cosen.networks.paper import PaperNetwork
from cosen.networks.summary import layer_table, table_totals

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
    # at 32 pixels all of the 7 x 7 places hold the one value that there is
    assert torch.allclose(gradient, gradient[:, :, :1].expand_as(gradient))
    assert gradient.abs().sum() > 0
