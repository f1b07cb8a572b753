import copy

import pytest
import torch
from torch import nn

from cosen.errors import InputError
from cosen.networks import CosineOutput, NetworkOutput, as_network, build_network


def sequential():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6), nn.ReLU(), nn.Linear(6, 3)
    )


class Tower(nn.Module):
    """Several fully connected layers; the last in module order may not be the last to run."""

    def __init__(self, result="logits", *, by_keyword=False):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 3)
        self.spare = nn.Linear(2, 2)
        self.result = result
        self.by_keyword = by_keyword

    def forward(self, x):
        hidden = self.first(x).relu()
        logits = self.last(input=hidden) if self.by_keyword else self.last(hidden)
        return {
            "logits": logits,
            "pair": (logits, hidden),
            "output": NetworkOutput(logits, hidden),
            "three": (logits, hidden, hidden),
            "dict": {"logits": logits},
            "flat": logits[:, 0],
            "scalar": logits.sum(),
        }[self.result]


def test_features_of_a_sequential():
    own = sequential()
    images = torch.randn(2, 1, 8, 8)
    logits, features = as_network(own)(images)
    assert torch.equal(logits, own(images))
    assert torch.equal(features, own[:5](images))


def test_features_of_a_single_layer_are_its_input():
    own, x = nn.Linear(4, 3), torch.randn(2, 4)
    result = as_network(own)(x)
    assert torch.equal(result.logits, own(x))
    assert torch.equal(result.features, x)


@pytest.mark.parametrize("by_keyword", [False, True])
def test_the_output_layer_can_be_named(by_keyword):
    own, x = Tower(by_keyword=by_keyword), torch.randn(2, 4)
    network = as_network(own, output="last")
    assert network.output_layer is own.last
    logits, features = network(x)
    assert torch.equal(features, own.first(x).relu())
    assert torch.equal(logits, own(x))


def test_a_last_layer_that_never_ran_is_named():
    with pytest.raises(InputError, match=r"'spare' of Tower did not run.*output=\.\.\."):
        as_network(Tower())(torch.randn(2, 4))


def test_a_module_without_linear_layers_says_what_to_do():
    own = nn.Sequential(nn.Conv2d(1, 3, 8), nn.Flatten())
    with pytest.raises(InputError, match="no linear layer"):
        as_network(own)(torch.randn(2, 1, 8, 8))
    features = as_network(own, output="0")(torch.randn(2, 1, 8, 8)).features
    assert features.shape == (2, 64)


def test_an_output_layer_of_cosines_is_found():
    own = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), CosineOutput(8, 3))
    network, x = as_network(own), torch.randn(5, 4)
    assert network.output_layer is own[2]
    assert torch.equal(network(x).features, own[:2](x))
    assert as_network(own[2]).output_layer is own[2]


def test_a_last_layer_that_does_not_give_the_logits_is_named():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.classifier = nn.Conv1d(6, 3, 1)
            self.gate = nn.Linear(6, 6)

        def forward(self, x):
            return self.classifier((x * self.gate(x).sigmoid())[..., None])[..., 0]

    x = torch.randn(2, 6)
    with pytest.raises(InputError, match=r"Gated, 'gate', has 6 outputs, but there are 3 logits"):
        as_network(Gated())(x)
    assert as_network(Gated(), output="gate")(x).features.shape == (2, 6)


def test_only_modules_can_be_wrapped():
    with pytest.raises(InputError, match="needs a torch module, but got NoneType"):
        as_network(None)


def test_an_unknown_output_layer_lists_the_choices():
    with pytest.raises(InputError, match=r"did you mean 'last'.*first, last, spare"):
        as_network(Tower(), output="lst")


@pytest.mark.parametrize("result", ["pair", "output"])
def test_modules_that_give_features_are_taken_at_their_word(result):
    own, x = Tower(result), torch.randn(2, 4)
    output = as_network(own)(x)
    assert isinstance(output, NetworkOutput)
    assert torch.equal(output.features, own.first(x).relu())
    assert torch.equal(output.logits, own(x)[0])


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("three", "returned tuple"),
        ("dict", "returned dict"),
        ("flat", r"\(batch, classes\), but Tower returned \(2,\)"),
        ("scalar", r"\(batch, classes\), but Tower returned \(\)"),
    ],
)
def test_other_results_are_refused(result, message):
    with pytest.raises(InputError, match=message):
        as_network(Tower(result), output="last")(torch.randn(2, 4))


def test_networks_of_our_own_stay_as_they_are():
    network = build_network("head", num_classes=2, in_features=3)
    assert as_network(network) is network
    wrapped = as_network(sequential())
    assert as_network(wrapped) is wrapped


def test_weights_stay_the_modules_own():
    own = sequential()
    network = as_network(own)
    assert [*network.parameters()] == [*own.parameters()]
    assert list(network.state_dict()) == [f"module.{name}" for name in own.state_dict()]
    network(torch.randn(2, 1, 8, 8)).logits.sum().backward()
    assert own[0].weight.grad.abs().sum() > 0


def test_gradients_flow_through_the_features():
    own = sequential()
    as_network(own)(torch.randn(2, 1, 8, 8)).features.sum().backward()
    assert own[0].weight.grad is not None
    assert own[5].weight.grad is None


def test_copies_share_nothing():
    own = sequential()
    network = as_network(own)
    images = torch.randn(2, 1, 8, 8)
    twin = copy.deepcopy(network)
    with torch.no_grad():
        twin.module[0].weight.zero_()
    assert not torch.equal(network(images).features, twin(images).features)
    assert not own[5]._forward_pre_hooks  # no hook remains


def test_a_failing_pass_leaves_no_hook():
    own = sequential()
    with pytest.raises(RuntimeError):
        as_network(own)(torch.randn(2, 1, 9, 9))
    assert not own[5]._forward_pre_hooks


@pytest.mark.parametrize("mode", [True, False])
def test_wrapping_keeps_the_mode(mode):
    own = sequential().train(mode)
    assert as_network(own).training is mode
    assert own.training is mode
