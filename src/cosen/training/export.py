"""A trained model as ONNX, to be run without PyTorch or cosen.

The costs act on training alone: the exported graph is that of a network trained without them.
"""

import json
import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import cosen
from cosen.data.batches import Normalise
from cosen.errors import InputError, RunError
from cosen.training.files import write_whole
from cosen.training.model_file import ImageClassifier, ModelFacts
from cosen.training.predict import open_model

TOLERANCE = 1e-4
"""How far outputs may differ from PyTorch's, beside the largest of them where it is above 1."""

BATCHES = (1, 5)
"""The sizes of the batches that an export is tried with."""


@dataclass(frozen=True)
class ExportCheck:
    """An exported file that was run and compared.

    Attributes:
        path: The file.
        largest_difference: Of any logit from PyTorch's, over all batches.
        batch_sizes: The sizes of the batches.
    """

    path: Path
    largest_difference: float
    batch_sizes: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path)}


class _FromPixels(nn.Module):
    """A classifier of images in [0, 1], with the normalisation in front."""

    mean: Tensor
    std: Tensor

    def __init__(self, classifier: ImageClassifier, normalise: Normalise) -> None:
        super().__init__()
        self.classifier = classifier
        self.register_buffer("mean", torch.tensor(normalise.mean)[:, None, None])
        self.register_buffer("std", torch.tensor(normalise.std)[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier((images - self.mean) / self.std)
        return logits


def export_onnx(run: Path | str, out: Path | str) -> ExportCheck:
    """Write the model of a run as ONNX, once onnxruntime gives what PyTorch gives.

    The graph takes ``images``, float32 in [0, 1] of the shape (batch, channels, height, width)
    with any batch, and gives ``logits``, (batch, classes); the normalisation is part of it, so
    that its user has only to bring images to size. Its metadata hold, each as JSON,
    ``class_names``, ``class_counts`` (of training), ``preprocess`` (height, width, channels, fit),
    ``temperature`` (divides the logits for calibrated probabilities) and ``cosen_version``.

    Args:
        run: The run folder.
        out: The file, which is written whole or not at all.
    """
    _require_packages()
    out = Path(out)
    if out.is_dir() or not out.parent.is_dir():
        what = "is a folder" if out.is_dir() else "is in a folder that is not there"
        raise RunError(f"{out} {what}: name a file such as model.onnx")
    if out.suffix.lower() != ".onnx":
        raise InputError(f"the file is ONNX: name it {out.with_suffix('.onnx')}, not {out}")
    classifier, facts = open_model(run)
    model = _FromPixels(classifier, facts.normalise).eval()
    content = _exported(model, facts)
    with write_whole(out) as partial:
        partial.write_bytes(content)
        difference = _largest_difference(model, partial, facts)
    return ExportCheck(out, difference, BATCHES)


def graph_operations(path: Path | str) -> Counter[str]:
    """How often each operation stands in the graph of an ONNX file."""
    _require_packages()
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    return Counter(node.op_type for node in nodes)


def _require_packages() -> None:
    needed = ("onnx", "onnxruntime", "onnxscript")
    for name in needed:
        try:
            import_module(name)
        except ImportError as error:
            raise RunError(
                f"exporting needs the package {name}: pip install {' '.join(needed)}"
            ) from error


def _sample(facts: ModelFacts, count: int) -> Tensor:
    """Noise of the shape of images."""
    height, width, channels = facts.preprocess.shape
    generator = torch.Generator().manual_seed(count)
    return torch.rand(count, channels, height, width, generator=generator)


def _exported(model: nn.Module, facts: ModelFacts) -> bytes:
    try:
        with _silence():
            program = torch.onnx.export(
                model,
                (_sample(facts, 2),),  # of a batch of one, the exporter would make a constant
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                input_names=["images"],
                output_names=["logits"],
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise RunError(
            f"network {facts.network!r} cannot be exported with torch {torch.__version__}: {error}"
        ) from error
    assert program is not None
    proto = program.model_proto
    for key, value in _metadata(facts).items():
        proto.metadata_props.add(key=key, value=json.dumps(value, ensure_ascii=False))
    content: bytes = proto.SerializeToString()
    return content


def _metadata(facts: ModelFacts) -> dict[str, Any]:
    return {
        "class_names": facts.class_names,
        "class_counts": facts.class_counts,
        "preprocess": asdict(facts.preprocess),
        "temperature": facts.temperature,
        "cosen_version": cosen.__version__,
    }


def _largest_difference(model: nn.Module, path: Path, facts: ModelFacts) -> float:
    """Run both on the same images, and refuse a file that gives something else."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(
        path.read_bytes(), options, providers=["CPUExecutionProvider"]
    )
    largest = 0.0
    for count in BATCHES:
        images = _sample(facts, count)
        with torch.inference_mode():
            expected = model(images)
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        difference = float((torch.from_numpy(logits) - expected).abs().max())
        if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
            raise RunError(
                f"onnxruntime's outputs differ from PyTorch's by {difference:.2g} on {count} "
                "images: nothing was written; another version of torch or onnxscript may help"
            )
        largest = max(largest, difference)
    return largest


@contextmanager
def _silence() -> Iterator[None]:
    """Keep what the exporter says of its own work off the user's terminal."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            redirect_stdout(StringIO()),
            redirect_stderr(StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
