"""Export a trained model as ONNX, to run it without PyTorch or cosen.

Costs are used in training only, so the graph is that of a plain network.
"""

import json
import logging
import warnings
from collections.abc import Callable, Iterator
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
from cosen.files import write_whole
from cosen.training.model_file import ImageClassifier
from cosen.training.predict import open_model
from cosen.training.records import ModelInfo

TOLERANCE = 1e-4
"""Largest difference from PyTorch's outputs, relative to the largest output if above 1."""

BATCHES = (1, 5)
"""Batch sizes for checking an export."""


@dataclass(frozen=True)
class ExportCheck:
    """An exported file, and the largest difference of a logit from PyTorch's."""

    path: Path
    largest_difference: float
    batch_sizes: tuple[int, ...]

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path)}


class _FromPixels(nn.Module):
    """A classifier of images in [0, 1]: normalises them first."""

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


def export_onnx(
    run: Path | str, out: Path | str, *, network: Callable[[], nn.Module] | None = None
) -> ExportCheck:
    """Write the model of a run as ONNX, after checking it against PyTorch with onnxruntime.

    The graph takes ``images``, float32 in [0, 1] of shape (batch, channels, height, width), and
    returns ``logits``, (batch, classes). It normalises the images itself; resize them first. Its
    metadata are JSON: ``class_names``, ``class_counts`` (of training), ``preprocess`` (height,
    width, channels, fit), ``temperature`` (divides the logits for calibrated probabilities),
    ``offsets`` (added for the class shares of training) and ``cosen_version``.

    Args:
        run: The run folder.
        out: The file.
        network: Creates the network, if the run trained a custom one.
    """
    needed = ("onnx", "onnxruntime", "onnxscript")
    for name in needed:
        try:
            import_module(name)
        except ImportError as error:
            raise RunError(
                f"export needs the package {name}: pip install {' '.join(needed)}"
            ) from error
    out = Path(out)
    if out.is_dir() or not out.parent.is_dir():
        what = "is a folder" if out.is_dir() else "is in a folder that does not exist"
        raise RunError(f"{out} {what}: give a file such as model.onnx")
    if out.suffix.lower() != ".onnx":
        raise InputError(f"the file must end in .onnx: use {out.with_suffix('.onnx')}, not {out}")
    classifier, info = open_model(run, network)
    model = _FromPixels(classifier, info.normalise).eval()
    content = _exported(model, info)
    with write_whole(out) as partial:
        partial.write_bytes(content)
        difference = _largest_difference(model, partial, info)
    return ExportCheck(out, difference, BATCHES)


def _sample(info: ModelInfo, count: int) -> Tensor:
    """Return noise in the shape of images."""
    height, width, channels = info.preprocess.shape
    generator = torch.Generator().manual_seed(count)
    return torch.rand(count, channels, height, width, generator=generator)


def _exported(model: nn.Module, info: ModelInfo) -> bytes:
    try:
        with _silence():
            program = torch.onnx.export(
                model,
                (_sample(info, 2),),  # the exporter would fix a batch size of one
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                input_names=["images"],
                output_names=["logits"],
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise RunError(
            f"network {info.network!r} cannot be exported with torch {torch.__version__}: {error}"
        ) from error
    assert program is not None
    proto = program.model_proto
    metadata = {
        "class_names": info.class_names,
        "class_counts": info.class_counts.tolist(),
        "preprocess": asdict(info.preprocess),
        "temperature": info.temperature,
        "offsets": info.offsets,
        "cosen_version": cosen.__version__,
    }
    for key, value in metadata.items():
        proto.metadata_props.add(key=key, value=json.dumps(value, ensure_ascii=False))
    content: bytes = proto.SerializeToString()
    return content


def _largest_difference(model: nn.Module, path: Path, info: ModelInfo) -> float:
    """Compare both on the same images; raise an error if they differ."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(
        path.read_bytes(), options, providers=["CPUExecutionProvider"]
    )
    largest = 0.0
    for count in BATCHES:
        images = _sample(info, count)
        with torch.inference_mode():
            expected = model(images)
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        difference = float((torch.from_numpy(logits) - expected).abs().max())
        if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
            raise RunError(
                f"onnxruntime's outputs differ from PyTorch's by {difference:.2g} on {count} "
                "images, so nothing was written: try another version of torch or onnxscript"
            )
        largest = max(largest, difference)
    return largest


@contextmanager
def _silence() -> Iterator[None]:
    """Hide the messages of the exporter."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
