import pytest
import torch
from torch import nn

from cosen.networks import as_network, build_network
from cosen.networks.freezing import freeze
from cosen.networks.layer_table import layer_table, table_totals


def parameters(network):
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize("meta", [False, True])
@pytest.mark.parametrize(
    ("name", "options", "shape", "weight_layers"),
    [
        ("paper", {"width": 16}, (3, 64, 64), 18),
        ("paper", {"width": 16, "reading": "two-extra"}, (3, 32, 48), 18),
        ("resnet32", {}, (3, 32, 32), 32),
        ("small-cnn", {"channels": 1}, (1, 8, 8), 5),
        ("head", {"in_features": 9}, (9,), 2),
    ],
)
def test_totals_are_the_networks_own(name, options, shape, weight_layers, meta):
    with torch.device("meta" if meta else "cpu"):
        network = build_network(name, num_classes=4, **options)
    totals = table_totals(layer_table(network, shape))
    assert totals.parameters == parameters(network)
    assert totals.weight_layers == weight_layers


def test_shapes_are_those_of_a_real_pass():
    network = build_network("small-cnn", num_classes=4, channels=1).eval()
    rows = layer_table(network, (1, 12, 20))
    maps = torch.zeros(1, 1, 12, 20)
    for row, layer in zip(rows, network.features, strict=False):
        maps = layer(maps)
        assert row.output_shape == maps.shape[1:]
        assert row.kind == type(layer).__name__
    assert rows[-1].name == "output"
    assert rows[-1].output_shape == (4,)


def test_the_network_is_left_as_it_was():
    network = build_network("resnet32", num_classes=4).train()
    freeze(network, "stem")
    before = {name: value.clone() for name, value in network.state_dict().items()}
    modes = [module.training for module in network.modules()]
    layer_table(network, (3, 8, 8))
    assert [module.training for module in network.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert not any(module._forward_hooks for module in network.modules())
    assert all(parameter.device.type == "cpu" for parameter in network.parameters())


class Unusual(nn.Module):
    """A parameter of its own, a layer that runs twice, one that never runs, one with a tuple."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.twice = nn.Linear(3, 3)
        self.idle = nn.Linear(5, 5)
        self.recurrent = nn.GRU(3, 2)
        self.output = nn.Linear(2, 2)

    def forward(self, x):
        hidden, _ = self.recurrent(self.twice(self.twice(x * self.scale)) + torch.ones(3))
        return self.output(hidden)


@pytest.mark.parametrize("wrap", [lambda module: module, lambda module: as_network(module)])
def test_unusual_modules_add_up(wrap):
    network = wrap(Unusual())
    rows = layer_table(network, (3,))
    totals = table_totals(rows)
    assert totals.parameters == parameters(network)
    assert totals.weight_layers == 3
    by_name = {row.name.removeprefix("module.").removeprefix("module"): row for row in rows}
    assert by_name["idle"].output_shape is None
    assert by_name["recurrent"].output_shape == (2,)
    assert by_name[""].parameters == 3
    assert [row.parameters for row in rows if row.name.endswith("twice")] == [12, 0]
