import copy
import pickle

import pytest
import torch
from torch import nn

from cosen.errors import InputError
from cosen.networks import as_network, build_network
from cosen.networks.freezing import freeze, frozen_but_output
from cosen.networks.vgg import PaperNetwork


def paper(**options):
    with torch.device("meta"):
        return PaperNetwork(3, **options)


def trained(network):
    return [name for name, parameter in network.named_parameters() if parameter.requires_grad]


@pytest.mark.parametrize(
    ("up_to", "first_trained", "count"),
    [
        ("features.0", "features.2.weight", 2),
        ("features", "classifier.0.weight", 26),
        ("classifier.3", "classifier.6.weight", 30),
        ("classifier", "extra.1.weight", 32),
        ("extra", "output.weight", 34),
        ("classifier.0.weight", "classifier.0.bias", 27),
    ],
)
def test_everything_up_to_the_layer_is_frozen(up_to, first_trained, count):
    network = paper()
    names = [name for name, _ in network.named_parameters()]
    assert freeze(network, up_to) == names[:count]
    assert trained(network) == names[count:]
    assert trained(network)[0] == first_trained


def test_a_layer_is_a_whole_name():
    """``features.1`` has no parameters, and does not contain ``features.10``."""
    with pytest.raises(InputError, match=r"no layer 'features\.1' with parameters"):
        freeze(paper(), "features.1")


def test_an_unknown_layer_lists_the_choices():
    with pytest.raises(InputError, match=r"did you mean 'classifier'.*features\.28.*extra.*output"):
        freeze(paper(), "clasifier")


@pytest.mark.parametrize("up_to", ["output", "output.bias"])
def test_something_must_be_left_to_train(up_to):
    network = paper()
    with pytest.raises(InputError, match="nothing to train"):
        freeze(network, up_to)
    assert len(trained(network)) == 36


def test_a_module_of_the_users_is_wrapped_first():
    own = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    with pytest.raises(InputError, match="freeze as_network"):
        freeze(own, "0")
    assert freeze(as_network(own), "module.1") == [
        f"module.{name}" for name in ("0.weight", "0.bias", "1.weight", "1.bias")
    ]
    assert not own[0].weight.requires_grad


def frozen_small_cnn():
    network = build_network("small-cnn", num_classes=3, channels=1)
    freeze(network, "features.8")
    return network


def batch_norms(network):
    return [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]


@pytest.mark.parametrize(
    "renew",
    [
        lambda network: network,
        copy.deepcopy,
        lambda network: pickle.loads(pickle.dumps(network)),
        lambda network: copy.deepcopy(nn.ModuleList([network])).train()[0],
    ],
)
def test_frozen_batch_normalisation_keeps_its_statistics(renew):
    network = renew(frozen_small_cnn())
    network.load_state_dict(build_network("small-cnn", num_classes=3, channels=1).state_dict())
    network.eval().train()
    assert [norm.training for norm in batch_norms(network)] == [False, False, False, True]
    before = copy.deepcopy(network.state_dict())
    optimiser = torch.optim.SGD([p for p in network.parameters() if p.requires_grad], lr=0.1)
    network(torch.randn(8, 1, 8, 8)).logits.square().sum().backward()
    optimiser.step()
    changed = [
        name for name, value in network.state_dict().items() if not torch.equal(value, before[name])
    ]
    assert {name.rpartition(".")[0] for name in changed} == {"features.11", "features.12", "output"}
    assert all(p.grad is None for p in network.parameters() if not p.requires_grad)


def test_a_wrapper_that_sets_modes_does_not_wake_frozen_modules():
    network = frozen_small_cnn()
    whole = nn.Sequential(network)
    whole.eval()
    assert not network.training
    whole.train()
    assert network.training
    assert not batch_norms(network)[0].training


def test_frozen_dropout_does_nothing():
    network = PaperNetwork(3, width=16)
    freeze(network, "extra")
    network.train()
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(network(images).features, network(images).features)


def test_dropout_after_the_layer_stays_on():
    network = paper()
    freeze(network, "classifier.3")
    assert [network.classifier[n].training for n in (2, 5)] == [False, True]
    assert network.extra[3].training


def test_freezing_leaves_the_mode_of_the_rest():
    network = build_network("small-cnn", num_classes=3).eval()
    freeze(network, "features.0")
    assert not any(module.training for module in network.modules())


def test_freezing_twice_adds():
    network = paper()
    freeze(network, "features")
    freeze(network, "classifier.0")
    assert trained(network)[0] == "classifier.3.weight"
    freeze(network, "features.0")
    assert trained(network)[0] == "classifier.3.weight"
    assert not network.train().features.training


@pytest.mark.parametrize(
    ("name", "up_to", "expected"),
    [
        ("paper", "classifier", False),
        ("paper", "extra", True),
        ("paper", "extra.1", False),  # its dropout would still change the features
        ("resnet32", "stem", False),
        ("resnet32", "stages.1", False),
        ("resnet32", "stages", True),
        ("small-cnn", "features.11", False),
        ("small-cnn", "features", True),
    ],
)
def test_when_features_can_come_from_a_cache(name, up_to, expected):
    with torch.device("meta"):
        network = build_network(name, num_classes=3)
    assert not frozen_but_output(network)
    freeze(network, up_to)
    assert frozen_but_output(network) is expected
    assert frozen_but_output(copy.deepcopy(network)) is expected


def test_when_features_of_an_own_module_can_come_from_a_cache():
    own = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2))
    assert not frozen_but_output(own)
    network = as_network(own)
    assert not frozen_but_output(network)
    freeze(network, "module.1")
    assert frozen_but_output(network)
    network.requires_grad_(False)
    assert not frozen_but_output(network)
