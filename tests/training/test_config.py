import math

import pytest
from pydantic import TypeAdapter

from cosen.errors import InputError
from cosen.training.config import TrainConfig, make_config, read_config
from cosen.training.loop import LoopSettings, learning_rate


def test_texts_are_converted_to_the_type_of_the_setting():
    config = make_config(
        {
            "epochs": "7",
            "lr": "1e-3",
            "skip_broken": "true",
            "exclude": "a,b",
            "imbalance": "odd:0.1",
            "options.cost_lr": "0.3",
            "options.acceptance": "revert",
            "options.separability_std": "inf",
            "options.learn_tau": "False",
        }
    )
    assert (config.epochs, config.lr, config.skip_broken) == (7, 1e-3, True)
    assert config.exclude == ("a", "b")
    assert config.options == {
        "cost_lr": 0.3,
        "acceptance": "revert",
        "separability_std": math.inf,
        "learn_tau": False,
    }


def test_a_toml_file(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text('epochs = 4\naugment = ["flip"]\n[options]\ncost_lr = 0.5\n')
    config = make_config(read_config(path))
    assert config.epochs == 4
    assert config.augment == ("flip",)
    assert config.options == {"cost_lr": 0.5}
    assert make_config({"options.shrink": "0.5"}, base=config).options == {
        "cost_lr": 0.5,
        "shrink": 0.5,
    }


def test_a_configuration_survives_json():
    config = make_config({"epochs": 3, "exclude": ("x",), "options.cost_lr": "0.2"})
    adapter = TypeAdapter(TrainConfig)
    assert adapter.validate_json(adapter.dump_json(config)) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epoch": 3}, "no setting 'epoch': did you mean 'epochs'"),
        ({"qqq": 3}, "choose from data, data_root"),
        ({"epochs": "many"}, "epochs must be a whole number, but is 'many'"),
        ({"epochs": 2.5}, "epochs must be a whole number, but is 2.5"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"epochs": True}, "epochs must be a number"),
        ({"optimizer": "lion"}, "optimizer must be one of 'sgd' or 'adamw'"),
        ({"skip_broken": "maybe"}, "true or false"),
        ({"ema": 1.0}, "ema must be below 1, but is 1.0"),
        ({"lr": -1}, "lr must be above 0"),
        ({"objective": "recall"}, "objective must be overall, balanced or a CSV"),
    ],
)
def test_mistakes_are_named(values, message):
    with pytest.raises(InputError, match=message):
        make_config(values)


def test_bad_files_are_named(tmp_path):
    with pytest.raises(InputError, match="no configuration"):
        read_config(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("epochs = = 3")
    with pytest.raises(InputError, match="is not TOML"):
        read_config(tmp_path / "bad.toml")


def test_learning_rates():
    step = LoopSettings(epochs=1, lr=1.0, schedule="step")
    assert [learning_rate(step, p) for p in (0.0, 0.49, 0.5, 0.8)] == pytest.approx(
        [1, 1, 0.1, 0.01]
    )
    assert learning_rate(LoopSettings(epochs=1, lr=0.3, schedule="constant"), 0.9) == 0.3
