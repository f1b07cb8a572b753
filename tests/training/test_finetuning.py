"""Pretrained networks in every mode, with the embedded weights on small images."""

import json
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import cosen
from cosen.data import features as features_module
from cosen.data.sources import from_arrays
from cosen.errors import InputError, RunError
from cosen.networks import build_network
from cosen.networks.pretrained import EMBEDDED
from cosen.training.config import TrainConfig
from cosen.training.finetuning import (
    choose_mode,
    parameter_groups,
    prepare,
    start_at_class_means,
    with_defaults,
)
from cosen.training.loop import Callbacks, LoopSettings, learning_rate
from cosen.training.network_choice import choose_network
from cosen.training.tuning import tune
from small_study import run_here

MODES = ("none", "light", "last", "all")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Colour photographs of 80 pixels: two frequent classes and a rare one."""
    root, generator = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for name, count, colour in (("cat", 20, 0), ("dog", 16, 1), ("eel", 8, 2)):
        (root / name).mkdir()
        for number in range(count):
            pixels = generator.integers(0, 120, (80, 80, 3), dtype=np.uint8)
            pixels[20:60, 20:60, colour] += 100
            Image.fromarray(pixels).save(root / name / f"{number:02d}.png")
    return root


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Settings of a network with few parameters, for tests that do not depend on its size."""
    network = build_network("test_efficientnet", num_classes=3, size=(32, 32))
    path = tmp_path_factory.mktemp("weights") / "tiny.safetensors"
    save_file(network.module.state_dict(), path)
    return {"network": "test_efficientnet", "weights": str(path)}


@pytest.fixture
def train(photos, tmp_path):
    def run(out="run", **settings):
        settings = {"size": 32, "device": "cpu", "epochs": 2, "data": str(photos)} | settings
        data = settings.pop("data")
        return cosen.train(data, out=tmp_path / out, **settings)

    return run


@pytest.mark.training
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_trains_predicts_and_exports(train, photos, tmp_path, mode):
    said = []
    run = train(finetune=mode, callbacks=Callbacks(phase=said.append))
    assert said[0].startswith("EfficientNet-Lite0 (ImageNet), 32 pixels; ")
    assert "on this machine" in said[0]
    assert said[1].startswith("Output layer: ")
    record = run.record
    assert record.config.finetune == mode
    assert record.head.output in ("linear", "cosine")
    assert record.prepared.network == EMBEDDED
    info = json.loads((run.path / "model.json").read_text())
    assert info["normalise"]["mean"] == [127 / 255] * 3
    assert info["preprocess"]["interpolation"] == "bicubic"
    assert info["preprocess"]["share"] == 0.875
    names = run.folder.image_names().test
    predicted = run.predict([photos / name for name in names], top=3, calibrated=False)
    logits = run.folder.predictions()["test"].logits.softmax(1)
    for row, prediction in zip(logits, predicted, strict=True):
        # float16 activations are close to the float32 ones of predict
        assert prediction.top[0].probability == pytest.approx(float(row.max()), abs=0.02)
    if mode == "last":  # the other modes are exported below, with a tiny network
        assert run.export(tmp_path / "model.onnx").largest_difference < 1e-3
        hub = run.export(tmp_path / "hub")  # checked with timm if the output layer is linear
        assert (hub.path / "config.json").exists() == (record.head.output == "linear")
    run.report(tmp_path / "report.html")
    assert run.evaluate(photos).samples == 44


@pytest.mark.training
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_resumes_bit_for_bit_and_exports(train, tiny, tmp_path, mode):
    settings = {"finetune": mode, "method": "cosen", "epochs": 3, **tiny}
    whole = train("whole", **settings)

    def stop(record):
        if record.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train("stopped", **settings, callbacks=Callbacks(epoch=stop))
    resumed = cosen.train(resume=tmp_path / "stopped")
    expected = load_file(whole.path / "model.safetensors")
    for name, tensor in load_file(resumed.path / "model.safetensors").items():
        assert torch.equal(tensor, expected[name]), name
    assert resumed.metrics == whole.metrics
    assert resumed.record.head.output == whole.record.head.output
    if mode in ("none", "all"):  # the structure of light is that of all
        assert whole.export(tmp_path / "model.onnx").largest_difference < 1e-3


@pytest.mark.training
def test_what_each_mode_changes(train):
    before = build_network(EMBEDDED, num_classes=3, size=(32, 32))
    from cosen.networks.pretrained import load_pretrained

    load_pretrained(before, EMBEDDED)
    original = before.state_dict()
    for mode in ("light", "all"):
        run = train(mode, finetune=mode)
        state = load_file(run.path / "model.safetensors")
        changed = {
            name.removeprefix("network.")
            for name, tensor in state.items()
            if name.removeprefix("network.") in original
            and not torch.equal(tensor, original[name.removeprefix("network.")])
        }
        assert not any("running" in name for name in changed), "batch statistics are frozen"
        body = {name for name in changed if "classifier" not in name}
        if mode == "light":
            assert body
            assert all(original[name].ndim == 1 for name in body)
        else:
            assert "module.conv_stem.weight" in body


@pytest.mark.training
@pytest.mark.parametrize("mode", ["none", "last"])
@pytest.mark.parametrize(
    "method",
    ["baseline", "balanced-softmax", "ldam-drw", "crt", "logit-adjustment", "smote", "wsvm"],
)
def test_methods_of_every_kind(train, tiny, mode, method):
    options = {"neighbours": 2} if method == "smote" else {}
    run = train(finetune=mode, method=method, options=options, **tiny)
    assert 0 <= run.metrics.mean_recall <= 1
    assert (run.record.seconds or 0) > 0


@pytest.mark.training
def test_photographs_start_from_pretrained_weights_by_default(photos, tmp_path):
    run = cosen.train(photos, out=tmp_path / "run", epochs=1, device="cpu", size=32)
    assert run.record.prepared.network == EMBEDDED
    assert run.record.config.finetune == "last"


@pytest.mark.parametrize(
    ("shape", "network", "size"),
    [
        ((28, 28), "small-cnn", 28),
        ((16, 16, 3), "small-cnn", 16),
        ((32, 32, 3), EMBEDDED, 128),
        ((80, 80), EMBEDDED, 224),
        ((80, 80, 3), EMBEDDED, 224),
    ],
)
def test_the_default_network(shape, network, size):
    data = from_arrays(np.zeros((4, *shape), np.uint8), np.array([0, 0, 1, 1]))
    name, preprocess, _ = choose_network(TrainConfig(), data, is_own=False)
    assert (name, preprocess.height) == (network, size)


def test_the_default_mode():
    auto, few = TrainConfig(), 1000 * 224 * 224
    assert choose_mode(auto, "cpu", name=EMBEDDED, pixels=few) == "last"
    assert choose_mode(auto, "cpu", name=EMBEDDED, pixels=10 * few) == "none"
    assert choose_mode(auto, "cpu", name="resnet50", pixels=few) == "none"
    assert choose_mode(auto, "cuda", name="resnet50", pixels=10 * few) == "all"
    assert choose_mode(TrainConfig(finetune="light"), "cpu", name=EMBEDDED, pixels=0) == "light"


@pytest.mark.training
def test_your_own_network_by_name(photos, tmp_path, monkeypatch):
    code = "from torch import nn\ndef make(num_classes):\n    return nn.Sequential(nn.Flatten(), "
    code += "nn.Linear(8 * 8 * 3, 16), nn.ReLU(), nn.Linear(16, num_classes))\n"
    (tmp_path / "my_networks.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = {"network": "my_networks:make", "size": 8, "epochs": 1, "device": "cpu"}
    run = cosen.train(photos, out=tmp_path / "run", **settings)
    assert run.record.config.network == "my_networks:make"
    again = cosen.load(tmp_path / "run", network="my_networks:make")
    assert len(again.predict(photos / "eel")) == 8
    (tmp_path / "run" / "metrics.json").unlink()
    with pytest.raises(RunError, match=r"name it again \(--network my_networks:make\)"):
        cosen.train(resume=tmp_path / "run")
    resumed = cosen.train(resume=tmp_path / "run", network="my_networks:make")
    assert resumed.metrics.samples > 0
    with pytest.raises(InputError, match="has no 'nothing'"):
        cosen.train(photos, network="my_networks:nothing")
    sys.modules.pop("my_networks")


@pytest.mark.training
def test_a_comparison_shares_features(photos, tmp_path, monkeypatch):
    monkeypatch.setattr("cosen.comparing.grid.run_locally", run_here)
    study = cosen.compare(
        photos,
        methods=["cosen"],
        seeds=1,
        out=tmp_path / "study",
        network=EMBEDDED,
        **{"size": 32, "epochs": 2, "device": "cpu"},
    )
    assert {row.method for row in study.leaderboard.rows} == {"baseline", "cosen"}
    study.report(tmp_path / "report.html")
    assert len(study.best.predict(photos / "eel")) == 8


@pytest.mark.training
def test_mistakes(train):
    with pytest.raises(InputError, match="finetune is for pretrained networks"):
        train(network="small-cnn", finetune="last")
    with pytest.raises(InputError, match="images can only be mirrored"):
        train(finetune="last", augment="crop,flip")
    with pytest.raises(InputError, match="features are computed once: remove --augment"):
        train(finetune="none", augment="flip")
    with pytest.raises(InputError, match="has no network_options: remove width"):
        train(network=EMBEDDED, network_options={"width": 3})
    with pytest.raises(InputError, match="finetune must be one of"):
        train(finetune="some")


def test_defaults_fill_only_what_is_missing():
    config = with_defaults(TrainConfig(lr=0.3), "last")
    assert config.lr == 0.3
    assert config.augment == ("flip",)
    assert config.epochs == 12
    assert with_defaults(TrainConfig(augment=()), "all").augment == ()
    scratch = with_defaults(TrainConfig(), "scratch")
    assert (scratch.epochs, scratch.lr, scratch.weight_decay) == (30, 0.05, 5e-4)


def test_groups_of_parameters():
    network = build_network("mobilenetv3_small_050", num_classes=3)
    prepare(network, "all")
    config = with_defaults(TrainConfig(pretrained_lr=0.1, lr=1.0), "all")
    groups = parameter_groups(network, config, output_decay=0.5)
    assert sum(len(group["params"]) for group in groups) == len(list(network.parameters()))
    for group in groups:
        is_output = any(p is network.output_layer.weight for p in group["params"])
        assert group["lr_factor"] == (1.0 if is_output else 0.1)
        if is_output:
            assert group["weight_decay"] == 0.5
        else:
            assert (group["weight_decay"] == 0) == all(p.ndim <= 1 for p in group["params"])


def test_warm_up():
    settings = LoopSettings(epochs=1, lr=1.0, schedule="constant", warmup=0.5)
    rates = [learning_rate(settings, progress) for progress in (0, 0.25, 0.5, 1)]
    assert rates == pytest.approx([0.1, 0.55, 1, 1])


def test_cosines_start_at_class_means():
    features = torch.tensor([[2.0, 0], [4.0, 0], [0, 5.0]])
    head = build_network("linear", num_classes=3, in_features=2, output="cosine")
    unused = head.output.weight[2].clone()
    start_at_class_means(head.output, features, torch.tensor([0, 0, 1]))
    torch.testing.assert_close(head.output.weight[:2], torch.eye(2))
    assert torch.equal(head.output.weight[2], unused)


@pytest.mark.training
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_a_compiled_network_trains_as_the_plain_one(photos, tmp_path):
    def make():
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 3))

    settings = {"network": make, "size": 8, "epochs": 2, "device": "cpu"}
    plain = cosen.train(photos, out=tmp_path / "plain", **settings)
    compiled = cosen.train(photos, out=tmp_path / "compiled", compile=True, **settings)
    losses = [[epoch.train_loss for epoch in run.history] for run in (compiled, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.training
def test_features_are_shared_whatever_the_state_of_the_random_numbers(train, monkeypatch):
    computed = []

    def compute(network, *args, **options):
        computed.append(network)
        return original(network, *args, **options)

    original = features_module._compute
    monkeypatch.setattr(features_module, "_compute", compute)
    weights = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        run = train(out=f"run{seed}", finetune="none")
        weights.append((run.folder.path / "model.safetensors").read_bytes())
    assert len(computed) == 1
    assert weights[0] == weights[1]


@pytest.mark.training
def test_tuning_uses_frozen_features(photos, tmp_path):
    config = TrainConfig(data=str(photos), size=32, device="cpu", epochs=1, finetune="last")
    tuned = tune(config, tmp_path / "tuning", trials=1, folds=2)
    assert tuned.path.exists()


@pytest.mark.training
def test_a_comparison_of_a_function_that_takes_the_number_of_classes(photos, tmp_path):
    def make(num_classes):
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, num_classes))

    def fail(num_classes):
        raise ValueError(f"no network for {num_classes} classes")

    settings = {"methods": ["baseline"], "seeds": 1, "size": 8, "epochs": 1, "device": "cpu"}
    study = cosen.compare(photos, out=tmp_path / "study", network=make, **settings)
    assert [row.method for row in study.leaderboard.rows] == ["baseline"]
    with pytest.raises(InputError, match="makes the network failed: ValueError: no network for 3"):
        cosen.compare(photos, out=tmp_path / "other", network=fail, **settings)


@pytest.mark.training
def test_a_network_that_does_not_fit_is_reported_before_training(photos, tmp_path):
    def narrow():
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(7, 3))

    def wide():
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 8 * 8, 4))

    settings = {"size": 8, "epochs": 1, "device": "cpu", "out": tmp_path / "run"}
    with pytest.raises(InputError, match=r"failed on images of the shape \(1, 3, 8, 8\): mat1"):
        cosen.train(photos, network=narrow, **settings)
    with pytest.raises(InputError, match=r"to \(1, 3\), one output per class, .* \(1, 4\)"):
        cosen.train(photos, network=wide, **settings)


@pytest.mark.training
@pytest.mark.parametrize("mode", ["none", "last"])
def test_a_run_can_start_from_another(train, mode):
    first = train(out="first", finetune=mode, epochs=1)
    weights = str(first.folder.path / "model.safetensors")
    said = []
    train(out="second", finetune="none", weights=weights, callbacks=Callbacks(phase=said.append))
    assert said[0].startswith("EfficientNet-Lite0 (model.safetensors), ")


def test_images_are_not_too_small_for_a_pretrained_network(train):
    with pytest.raises(InputError, match=r"8 x 8 pixels are too few .* use --size 32 or more"):
        train(network=EMBEDDED, size=8)


@pytest.mark.training
def test_methods_can_keep_the_linear_layer(train, caplog):
    run = train(method="cosen(output=linear)", finetune="none")
    assert run.folder.record().head.output == "linear"
    run = train(out="other", method="baseline", head="cosine", finetune="none")
    assert run.folder.record().head.output == "linear"
    assert "method baseline needs a linear output layer: head=cosine has no effect" in caplog.text


@pytest.mark.processes
@pytest.mark.parametrize("mode", ["last", "all"])
def test_two_processes(photos, tmp_path, mode):
    network = build_network("test_vit", num_classes=3, size=(32, 32))
    save_file(network.module.state_dict(), tmp_path / "vit.safetensors")
    settings = {"size": 32, "epochs": 1, "device": "cpu", "devices": 2, "finetune": mode}
    if mode == "last":
        settings |= {"network": "test_vit", "weights": str(tmp_path / "vit.safetensors")}
    run = cosen.train(photos, out=tmp_path / "run", **settings)
    assert run.metrics.samples > 0
    assert len(run.folder.checkpoint()["processes"]) == 2
