"""Output layers: which methods replace them, and which need a linear one."""

from dataclasses import replace

import pytest
import torch

from cosen.errors import InputError
from cosen.methods import Setting, make_method
from cosen.networks.network import Outputs
from cosen.networks.output_layers import CosineOutput
from cosen.networks.small import SmallCNN
from cosen.training.config import TrainConfig
from cosen.training.context import RunContext
from cosen.training.model_file import load_model
from cosen.training.run import Inputs, train_run

pytestmark = pytest.mark.training

CONFIG = {
    "data": "digits",
    "exclude": tuple("456789"),
    "imbalance": "odd:0.2",
    "epochs": 1,
    "device": "cpu",
    "precision": "float32",
}


def test_cosen_has_cosines_where_features_are_learned(tmp_path):
    train_run(TrainConfig(**CONFIG), tmp_path / "auto")
    output = load_model(tmp_path / "auto")[0].network.output
    assert isinstance(output, CosineOutput)
    assert output.scale == 16
    train_run(TrainConfig(**CONFIG, options={"output": "linear"}), tmp_path / "linear")
    assert isinstance(load_model(tmp_path / "linear")[0].network.output, torch.nn.Linear)


@pytest.mark.parametrize(
    ("output", "learns_features", "scale"),
    [
        ("auto", True, 16),
        ("auto", False, None),
        ("linear", True, None),
        ("cosine", False, 16),
    ],
)
def test_cosines_of_cosen_come_with_wider_margins(output, learns_features, scale):
    method = make_method("cosen", {"output": output})
    setting = Setting(torch.tensor([9, 1]), ("a", "b"), learns_features=learns_features)
    assert method.cosine_scale(setting) == scale
    assert method.make_loss(setting).margin_scale == (3 if scale else 1)
    own = make_method("cosen", {"output": output, "margin_scale": 4.0})
    assert own.make_loss(setting).margin_scale == 4


def test_the_output_layer_may_compute_in_bfloat16():
    network = SmallCNN(10, channels=1)
    features = torch.randn(3000, 128)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits = network.output(features).float()
    target = torch.zeros(3000, dtype=torch.long)
    method = make_method("crt")

    def output_with(logits):
        context = object.__new__(RunContext)
        setting = Setting(torch.tensor([9, 1]), ("a", "b"))
        baseline = Outputs(logits, features, target)
        vars(context)["setting_with_baseline"] = replace(setting, baseline=baseline)
        return context.linear_output(method, network)

    assert output_with(logits) is network.output
    with pytest.raises(InputError, match="does more than that layer"):
        output_with(0.9 * logits)


def test_an_output_layer_of_the_users_is_not_replaced(tmp_path):
    wish = CONFIG | {"network_options": {"output": "cosine"}}
    with pytest.raises(InputError, match=r"method cosen has .* remove network_options"):
        train_run(TrainConfig(**wish), tmp_path / "cosen")
    train_run(TrainConfig(**(wish | {"method": "baseline"})), tmp_path / "baseline")
    network = load_model(tmp_path / "baseline")[0].network
    assert isinstance(network.output, CosineOutput)
    assert network.output.scale == 30


def test_cosen_leaves_frozen_and_own_networks_linear(tmp_path):
    frozen = TrainConfig(**(CONFIG | {"freeze": "features.0"}))
    train_run(frozen, tmp_path / "frozen")
    assert isinstance(load_model(tmp_path / "frozen")[0].network.output, torch.nn.Linear)

    def own():
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4))

    train_run(TrainConfig(**CONFIG), tmp_path / "own", inputs=Inputs(network=own))
    parameters = dict(load_model(tmp_path / "own", network=own)[0].named_parameters())
    assert sum(parameter.numel() for parameter in parameters.values()) == 64 * 4 + 4


def test_an_own_network_that_does_more_after_its_features_is_refused(tmp_path):
    class Negated(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(64, 4)

        def forward(self, images):
            return -self.fc(images.flatten(1))

    config = TrainConfig(**(CONFIG | {"method": "crt"}))
    with pytest.raises(InputError, match=r"method crt .*does more than that layer"):
        train_run(config, tmp_path / "run", inputs=Inputs(network=Negated))
