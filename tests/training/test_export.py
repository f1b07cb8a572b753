"""ONNX files of trained models, run by onnxruntime."""

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
import typer
from PIL import Image
from typer.testing import CliRunner

import cosen
from cosen.cli import models as use
from cosen.data.batches import IMAGENET
from cosen.data.decoding import Preprocess
from cosen.errors import InputError, RunError
from cosen.training import export
from cosen.training.config import TrainConfig
from cosen.training.export import export_onnx
from cosen.training.model_file import build_classifier, load_model, save_model
from cosen.training.predict import predict_images
from cosen.training.records import ModelInfo
from cosen.training.run import train_run

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
    return export_onnx(run, tmp_path_factory.mktemp("onnx") / "model.onnx")


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
    baseline = export_onnx(run, tmp_path / "baseline.onnx")
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
    operations = graph_operations(export_onnx(tmp_path, tmp_path / "model.onnx").path)
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
    export_onnx(run, tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["model.onnx"]


def test_outputs_that_differ_are_refused_and_what_was_there_is_kept(run, tmp_path, monkeypatch):
    (tmp_path / "model.onnx").write_text("before")
    monkeypatch.setattr(export, "TOLERANCE", -1.0)
    with pytest.raises(RunError, match=r"differ from PyTorch's by .* on 1 images"):
        export_onnx(run, tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_text() == "before"
    assert len(list(tmp_path.glob("*.part")) + list(tmp_path.glob(".*.part"))) == 0


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "onnxscript"])
def test_a_missing_package_is_named(run, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(RunError, match=f"{package}: pip install onnx onnxruntime onnxscript"):
        export_onnx(run, tmp_path / "model.onnx")


def test_a_wrong_place_is_refused(run, tmp_path):
    with pytest.raises(RunError, match="is a folder"):
        export_onnx(run, tmp_path)
    with pytest.raises(RunError, match="a folder that does not exist"):
        export_onnx(run, tmp_path / "no" / "model.onnx")
    with pytest.raises(InputError, match=r"must end in \.onnx: use .*/model\.onnx, not .*\.pt"):
        export_onnx(run, tmp_path / "model.pt")
    with pytest.raises(RunError, match="is not a run folder"):
        export_onnx(tmp_path, tmp_path / "model.onnx")


def test_as_a_command(run, tmp_path):
    app = typer.Typer()
    app.command()(use.export)
    out = tmp_path / "model.onnx"
    said = CliRunner().invoke(app, [str(run), str(out)])
    assert said.stdout.startswith(f"Wrote {out}; its logits match PyTorch on batches of 1 and 5")
    said = CliRunner().invoke(app, [str(run), str(out), "--json"])
    assert json.loads(said.stdout)["path"] == str(out)
    assert json.loads(said.stdout)["largest_difference"] < 1e-4
