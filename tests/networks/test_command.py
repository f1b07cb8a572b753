import json

import pytest
import typer
from typer.testing import CliRunner

from cosen.cli.networks import network
from cosen.errors import InputError
from cosen.networks import NETWORKS

app = typer.Typer()
app.command()(network)


def run(*arguments):
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_all_networks_are_listed():
    *lines, last = run().splitlines()
    shown = [name for name in NETWORKS if name != "linear"]
    assert [line.split()[0] for line in lines] == ["tf_efficientnet_lite0", *shown]
    assert "cosen network 'resnet*'" in last
    listed = json.loads(run("--json"))
    assert list(listed) == ["tf_efficientnet_lite0", *shown]


def test_networks_of_timm_are_searched():
    found = json.loads(run("tf_efficientnet_lite*", "--json"))
    assert found["tf_efficientnet_lite0"] == {"weights": "on this machine"}
    assert "tf_efficientnet_lite1" in found
    lines = run("vit*dinov2*").splitlines()
    assert any("vit_small_patch14_dinov2.lvd142m" in line for line in lines)


@pytest.mark.parametrize(
    ("reading", "parameters"), [("whole-vgg", "142,498,610"), ("two-extra", "167,864,138")]
)
def test_the_papers_network(reading, parameters):
    lines = run("paper", "--reading", reading).splitlines()
    assert lines[-1] == (
        f"18 weight layers, {parameters} parameters "
        "(the paper: 18 weight layers, about 139 million)"
    )
    assert [" ".join(line.split()) for line in lines][2] == "features.0 Conv2d 64 x 224 x 224 1,792"


def test_json():
    found = json.loads(run("paper", "--classes", "7", "--size", "64", "--json"))
    assert found["parameters"] == 142_457_640 + 7 * 4097
    assert found["weight_layers"] == 18
    assert found["paper_parameters"] == 139_000_000
    assert found["reading"] == "whole-vgg"
    assert found["input_shape"] == [3, 64, 64]
    assert sum(layer["parameters"] for layer in found["layers"]) == found["parameters"]
    assert found["layers"][-1] == {
        "name": "output",
        "kind": "Linear",
        "output_shape": [7],
        "parameters": 7 * 4097,
        "is_weight_layer": True,
    }


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network(name):
    lines = run(name, "--classes", "3").splitlines()
    assert "139" not in lines[-1] or name == "paper"
    assert lines[-2].split()[:2] == ["output", "Linear"]


def test_grey_images_and_features():
    assert json.loads(run("small-cnn", "--channels", "1", "--size", "8", "--json"))[
        "input_shape"
    ] == [1, 8, 8]
    assert json.loads(run("head", "--features", "4096", "--json"))["input_shape"] == [4096]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["papr"], "did you mean 'paper'"),
        (["paper", "--reading", "two"], "whole-vgg, two-extra"),
        (["resnet32", "--reading", "two-extra"], "resnet32 has no option 'reading'"),
        (["paper", "--size", "16"], "at least 32 x 32 pixels"),
        (["paper", "--channels", "1"], "takes images of 3 channels"),
    ],
)
def test_mistakes(arguments, message):
    with pytest.raises(InputError, match=message):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
