"""Exported models, run by onnxruntime, torch.jit and timm."""

import json
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import cosen
from commands import run_command
from cosen.data.batches import IMAGENET, Normalise
from cosen.data.decoding import Preprocess
from cosen.errors import InputError, RunError
from cosen.inference import export, hub_folder
from cosen.inference.export import export_model
from cosen.inference.predict import predict_images
from cosen.networks.timm_import import import_timm
from cosen.training.config import TrainConfig
from cosen.training.model_file import build_classifier, load_model, save_model
from cosen.training.records import ModelInfo
from cosen.training.run import train_run
from report.small_runs import COSTLY, NAMES, TRAIN, write_run

pytestmark = pytest.mark.training

PAGE = Path(__file__).parents[2] / "docs" / "using-a-model.md"


def make_run(folder, method, **settings):
    """A network trained on noise."""
    generator = np.random.default_rng(0)
    for name, count in (("cat", 16), ("dog", 8)):
        (folder / "noise" / name).mkdir(parents=True)
        for number in range(count):
            pixels = generator.integers(0, 256, (16, 20, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "noise" / name / f"{number}.png")
    config = TrainConfig(
        data=str(folder / "noise"),
        method=method,
        network="small-cnn",
        size=16,
        epochs=2,
        batch_size=8,
        precision="float32",
        device="cpu",
        **settings,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSEN_CACHE", str(folder / "cache"))
        return train_run(config, folder / method).path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("cosen"), "cosen")


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory):
    return export_model(run, tmp_path_factory.mktemp("onnx") / "model.onnx")


def graph_operations(path):
    """How often each operation occurs in the graph of an ONNX file."""
    model = onnx.load(str(path))
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    return Counter(node.op_type for node in nodes)


def session_of(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_onnxruntime_gives_the_logits_of_torch_for_any_batch(run, exported):
    assert exported.largest_difference < 1e-4
    assert exported.batch_sizes == (1, 5)
    classifier, info = load_model(run)
    session = session_of(exported.path)
    for batch in (1, 5, 8):
        images = torch.rand(batch, 3, 16, 16)
        with torch.inference_mode():
            expected = classifier(info.normalise(images))
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        np.testing.assert_allclose(logits, expected.numpy(), atol=1e-4)


def test_a_cost_sensitive_model_has_the_operations_of_a_baseline(exported, tmp_path):
    """The graph has the layers, also those of cosines, and no costs."""
    cosines = {"network_options": {"output": "cosine", "output_scale": 16.0}}
    run = make_run(tmp_path, "baseline", **cosines)
    baseline = export_model(run, tmp_path / "baseline.onnx")
    operations = graph_operations(exported.path)
    assert operations == graph_operations(baseline.path)
    assert operations["Conv"] == 4
    assert operations["ReduceL2"] == 1  # of the features; that of the weights is precomputed


def test_the_metadata_say_how_to_use_it(run, exported):
    meta = session_of(exported.path).get_modelmeta().custom_metadata_map
    plain = json.loads((run / "model.json").read_text())
    found = {name: json.loads(value) for name, value in meta.items()}
    assert found == {
        "class_names": ["cat", "dog"],
        "class_counts": plain["class_counts"],
        "preprocess": {
            **{"height": 16, "width": 16, "channels": 3, "fit": "crop"},
            **{"interpolation": "bilinear", "share": 1.0},
        },
        "temperature": plain["temperature"],
        "offsets": plain["offsets"],
        "cosen_version": cosen.__version__,
    }


def test_features_below_a_head_are_exported_with_it(tmp_path):
    info = ModelInfo(
        network="head",
        options={"in_features": 512},
        class_names=("a", "b", "c"),
        class_counts=torch.tensor([3, 2, 1]),
        preprocess=Preprocess(32, 32),
        normalise=IMAGENET,
        features="vgg16",
    )
    save_model(tmp_path, build_classifier(info), info)
    operations = graph_operations(export_model(tmp_path, tmp_path / "model.onnx").path)
    assert (operations["Conv"], operations["Gemm"]) == (13, 2)


def test_the_program_in_the_documentation_runs(run, exported, tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (program,) = [block for block in blocks if "onnxruntime" in block]
    shutil.copy(exported.path, tmp_path / "lesions.onnx")
    pixels = np.random.default_rng(1).integers(0, 256, (16, 28, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")  # no loss on the way
    monkeypatch.chdir(tmp_path)
    exec(compile(program.replace("photo.jpg", "photo.png"), str(PAGE), "exec"), {})
    name, probability = capsys.readouterr().out.split()
    (expected,) = predict_images(run, "photo.png")
    assert name == expected.decision
    assert float(probability) == pytest.approx(expected.probability, abs=1e-4)


def test_nothing_is_said_and_nothing_left_behind(run, tmp_path, capfd):
    export_model(run, tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["model.onnx"]


def test_outputs_that_differ_are_refused_and_what_was_there_is_kept(run, tmp_path, monkeypatch):
    (tmp_path / "model.onnx").write_text("before")
    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    with pytest.raises(RunError, match=r"differ from PyTorch's by .* on 1 images"):
        export_model(run, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_text() == "before"
    assert len(list(tmp_path.glob("*.part")) + list(tmp_path.glob(".*.part"))) == 0


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_named(run, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RunError, match=f"{package}: pip install onnx onnxruntime onnxscript"):
        export_model(run, tmp_path / "model.onnx")


def test_a_wrong_place_is_refused(run, tmp_path):
    with pytest.raises(RunError, match="a folder that does not exist"):
        export_model(run, tmp_path / "no" / "model.onnx")
    with pytest.raises(RunError, match="is not a run folder"):
        export_model(tmp_path, tmp_path / "model.onnx")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(RunError, match=r"is not empty, it has notes\.txt: give a new folder"):
        export_model(run, tmp_path)
    with pytest.raises(RunError, match=r"is a folder: give a file such as model\.pt"):
        export_model(run, tmp_path, format="torchscript")
    with pytest.raises(RunError, match="is a file: give the name of a new folder"):
        export_model(run, tmp_path / "notes.txt", format="hub")


@pytest.mark.parametrize(
    ("out", "format", "message"),
    [
        ("a.onnx", "torchscript", r"ends in \.pt or \.torchscript: use a\.pt, not a\.onnx"),
        ("a.pt", "onnx", r"--format onnx writes .* use a\.onnx, not a\.pt"),
        ("a.onnx", "hub", r"--format hub writes a folder, but a\.onnx is .* use a$"),
        ("a.pth", None, r"the format of a\.pth is unknown: use a name that ends in \.onnx"),
        ("a.onnx", "onxx", "no format 'onxx': did you mean 'onnx'"),
    ],
)
def test_a_name_and_a_format_that_contradict_each_other(run, out, format, message):
    with pytest.raises(InputError, match=message):
        export_model(run, out, format=format)


def test_torchscript_gives_the_logits_of_torch_for_any_batch(run, tmp_path, capfd):
    check = export_model(run, tmp_path / "model.torchscript")
    assert capfd.readouterr() == ("", "")
    assert (check.format, check.card) == ("torchscript", None)
    classifier, info = load_model(run)
    files = {"model.json": ""}
    with pytest.warns(DeprecationWarning, match="torch.jit.load"):
        model = torch.jit.load(check.path, _extra_files=files)
    for batch in (1, 5, 8):
        images = torch.rand(batch, 3, 16, 16)
        with torch.inference_mode():
            torch.testing.assert_close(model(images), classifier(info.normalise(images)))
    found, plain = json.loads(files["model.json"]), json.loads((run / "model.json").read_text())
    for key in ("class_names", "class_counts", "preprocess", "temperature", "offsets"):
        assert found.pop(key) == plain[key]
    assert found == {"cosen_version": cosen.__version__}


def test_a_network_that_cannot_be_exported(run, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("no such operation")

    monkeypatch.setattr(torch.jit, "trace", fail)
    with pytest.raises(
        RunError, match=r"'small-cnn' cannot be exported with torch .* no such oper"
    ):
        export_model(run, tmp_path / "model.pt")
    assert not list(tmp_path.glob("*.pt"))


LITE, VIT = "tf_efficientnet_lite0", "vit_tiny_patch16_224.augreg_in21k_ft_in1k"
WIDTHS = {LITE: 1280, VIT: 192}
SIZE = {"size": (48, 32)}


@pytest.mark.parametrize(
    ("name", "trained", "below"),
    [
        (VIT, "linear", {}),  # --finetune none
        *((name, "upper", {"part": "lower"}) for name in (LITE, VIT)),  # last
        (LITE, "whole", None),  # all
        (LITE, "linear", {"part": "joined"}),  # a method on the features of last
    ],
)
def test_timm_and_cosen_load_a_folder_for_the_hub(name, trained, below, tmp_path):
    """The parts of a network are joined; here with random weights."""
    is_head = trained == "linear"
    info = ModelInfo(
        network="linear" if is_head else name,
        options={"in_features": WIDTHS[name]} if is_head else SIZE | {"part": trained},
        class_names=("a", "b | c", "d"),
        class_counts=torch.tensor([3, 2, 1]),
        preprocess=Preprocess(48, 32, interpolation="bicubic", share=0.9),
        normalise=IMAGENET,
        features="" if below is None else name,
        feature_options={} if below is None else SIZE | below,
    )
    classifier = build_classifier(info).eval()
    hub_folder.write_hub_folder(tmp_path, classifier, info)
    images = torch.rand(3, 3, 48, 32)
    loaded, found = load_model(tmp_path)
    model = import_timm().create_model(f"local-dir:{tmp_path}", pretrained=True).eval()
    with torch.inference_mode():
        expected = classifier(info.normalise(images))
        torch.testing.assert_close(loaded(info.normalise(images)), expected)
        torch.testing.assert_close(model(info.normalise(images)), expected)
    assert (found.network, found.features, found.class_names) == (name, "", info.class_names)
    assert model.pretrained_cfg["label_names"] == ["a", "b | c", "d"]
    assert model.pretrained_cfg["mean"] == list(IMAGENET.mean)
    resolved = import_timm().data.resolve_model_data_config(model)
    assert (resolved["input_size"], resolved["crop_pct"]) == ([3, 48, 32], 0.9)
    assert (resolved["interpolation"], resolved["crop_mode"]) == ("bicubic", "center")


def test_weights_that_timm_cannot_load(tmp_path):
    (tmp_path / "config.json").write_text('{"architecture": "resnet18", "num_classes": 2}')
    save_file({"fc.bias": torch.zeros(2)}, tmp_path / "model.safetensors")
    info = ModelInfo(
        network="resnet18",
        options={},
        class_names=("a", "b"),
        class_counts=torch.tensor([2, 1]),
        preprocess=Preprocess(32, 32),
        normalise=IMAGENET,
    )
    with pytest.raises(
        RunError, match=r"timm cannot load resnet18 \(Error.* for ResNet\), so nothing"
    ):
        hub_folder.timm_outputs(tmp_path, info)


def test_a_folder_that_only_cosen_can_load(run, tmp_path):
    (tmp_path / "hub" / ".git").mkdir(parents=True)
    check = export_model(run, tmp_path / "hub")
    assert check.note == "Only cosen can load it, not timm: it has a cosine output layer."
    assert check.card == tmp_path / "hub" / "README.md"
    assert check.note in check.card.read_text()
    names = {".git", "README.md", "model.json", "model.safetensors"}
    assert {path.name for path in (tmp_path / "hub").iterdir()} == names
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["hub"]
    Image.new("RGB", (20, 20), "red").save(tmp_path / "red.png")
    (expected,), (found,) = (predict_images(one, tmp_path / "red.png") for one in (run, check.path))
    assert found == expected
    again = export_model(check.path, tmp_path / "again.pt")  # without a card: it has no metrics
    assert again.largest_difference < 1e-4
    with pytest.raises(RunError, match=r"needs the whole folder of a finished run, but .*hub has"):
        export_model(check.path, tmp_path / "again.onnx", card=True)


def test_the_text_of_the_user_in_a_card_is_kept(run, tmp_path):
    check = export_model(run, tmp_path / "model.pt", card=True)
    assert check.card == check.path.with_name(f"{check.path.name}.md")
    with pytest.raises(RunError, match=r"model\.\w+\.md exists: move or remove it"):
        export_model(run, tmp_path / "model.pt", card=True)


def test_an_unfinished_run_has_no_card(run, tmp_path):
    unfinished = Path(shutil.copytree(run, tmp_path / "unfinished"))
    (unfinished / "metrics.json").unlink()
    with pytest.raises(RunError, match=r"of a finished run, but .*unfinished has no metrics\.json"):
        export_model(unfinished, tmp_path / "hub")
    assert not (tmp_path / "hub").exists()


def test_a_custom_network(tmp_path):
    def make(num_classes):
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, num_classes))

    info = ModelInfo(
        network="own",
        options={},
        class_names=NAMES,
        class_counts=torch.tensor(TRAIN),
        preprocess=Preprocess(8, 8, 1),
        normalise=Normalise((0.5,), (0.5,)),
    )
    run = write_run(tmp_path / "run", COSTLY).path
    save_model(run, build_classifier(info, make), info)
    with pytest.raises(RunError, match="the run trained a custom network: name it again"):
        export_model(run, tmp_path / "hub")
    check = export_model(run, tmp_path / "hub", network=make)
    assert check.note == "Only cosen can load it: it is not a network of timm."
    assert "cosen predict hub photo.jpg --network my_module:make" in check.card.read_text()


def test_a_method_without_a_network(tmp_path):
    run = write_run(tmp_path / "run", COSTLY, method="wsvm", history=0).path
    with pytest.raises(RunError, match="its method fits a classifier that is not a network"):
        export_model(run, tmp_path / "model.pt")


def test_as_a_command(run, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def said(*arguments):
        return run_command(capsys, monkeypatch, "export", *arguments)

    done = said(str(run), "model.onnx")
    assert done.stdout.startswith(
        "Wrote model.onnx; its logits match PyTorch on batches of 1 and 5"
    )
    done = json.loads(said(str(run), "--format", "torchscript", "--card", "--json").stdout)
    assert (done["path"], done["card"]) == ("model.pt", "model.pt.md")
    assert done["format"] == "torchscript"
    assert done["largest_difference"] < 1e-4
    lines = said(str(run), "my hub").stdout.splitlines()
    assert lines[1].startswith("Only cosen can load it")
    assert lines[2].startswith("Model card: my hub/README.md; ")
    assert lines[3] == "Upload: hf upload 'USER/my hub' 'my hub' ."
    done = said(str(run), "x", "--format", "tflite")
    assert (done.returncode, "tflite" in done.stderr) == (2, True)
    done = said(str(run), "my hub")
    assert done.stderr == "cosen: my hub is not empty, it has README.md: give a new folder\n"
    done = said(str(tmp_path / "no"), "x.onnx")
    assert "is not a run folder: there is no such folder" in done.stderr


def test_other_formats_need_no_onnx(run, tmp_path, monkeypatch):
    for package in export.ONNX_PACKAGES:
        monkeypatch.setitem(sys.modules, package, None)
    assert export_model(run, tmp_path / "model.pt", card=True).card
    assert export_model(run, tmp_path / "hub").card
