"""Presets: valid settings for every protocol."""

import pytest

from cosen.errors import InputError
from cosen.methods.reweighting import Baseline
from cosen.networks import find_network
from cosen.paper.presets import PRESETS, find_preset
from cosen.paper.protocols import PROTOCOLS, protocol
from cosen.training.run import check_config


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_preset_has_settings_for_every_protocol(preset, name):
    record = protocol(name)
    config = preset.config(record, weights="vgg.pth", data_root="here", epochs=2)
    check_config(config, Baseline())
    assert (config.data, config.data_root, config.epochs) == (record.dataset, "here", 2)
    assert (config.imbalance, config.validation) == (record.imbalance, record.validation)
    assert config.objective == "balanced"
    assert find_network(config.network)
    assert config.weights == ("vgg.pth" if config.network in ("head", "paper") else None)
    assert ("VGG-16" in preset.needs(record)) == (config.weights is not None)
    assert preset.needs(record).startswith(record.dataset)


def test_the_presets_are_those_of_the_documentation():
    cpu, paper = PRESETS["cpu"], PRESETS["paper"]
    mnist, cifar, corals = (
        cpu.config(protocol(name)) for name in ("mnist/odd-10", "cifar100/odd-10", "rsmas/standard")
    )
    assert (mnist.network, mnist.batch_size, mnist.lr, mnist.weights) == (
        "small-cnn",
        64,
        None,
        None,
    )
    assert (cifar.network, cifar.finetune, cifar.size) == ("tf_efficientnet_lite0", "none", 128)
    assert (corals.network, corals.finetune, corals.size) == ("tf_efficientnet_lite0", "last", 224)
    frozen = PRESETS["vgg16"].config(protocol("rsmas/standard"))
    assert (frozen.network, frozen.size, frozen.weights) == ("head", 128, "vgg16")
    tuned = paper.config(protocol("mnist/odd-10"))
    assert (tuned.network, tuned.size, tuned.weights) == ("paper", 224, "vgg16")
    assert (tuned.optimizer, tuned.schedule, tuned.augment) == ("sgd", "step", None)


def test_timing_has_settings_of_its_own():
    config = PRESETS["cpu"].timing_config(data_root="here")
    assert (config.data, config.network, config.size) == ("cifar100", "resnet32", 32)
    assert (config.weights, config.data_root) == (None, "here")
    config = PRESETS["paper"].timing_config(weights="vgg.pth")
    assert (config.data, config.network, config.weights) == ("mit67", "paper", "vgg.pth")


def test_times_are_known_for_every_dataset_of_the_presets_for_two_cores():
    for record in PROTOCOLS.values():
        assert PRESETS["cpu"].minutes(record, runs=2) > 0
        assert PRESETS["vgg16"].minutes(record, runs=2) > 0
        assert PRESETS["paper"].minutes(record, runs=2) is None
    vgg16 = PRESETS["vgg16"]
    assert set(vgg16.run_minutes) - set(vgg16.feature_minutes) == {"mnist"}


def test_an_unknown_preset_lists_the_choices():
    with pytest.raises(InputError, match="there is no preset 'gpu': did you mean 'cpu'"):
        find_preset("gpu")
