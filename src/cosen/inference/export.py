"""Export a trained model: an ONNX file, a TorchScript file, or a folder for the Hugging Face hub.

Costs are used in training only, so each of them has a plain network.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

import cosen
from cosen.data.batches import Normalise
from cosen.errors import InputError, RunError, choices_hint
from cosen.files import is_folder, make_folder, write_text, write_with
from cosen.inference import hub_folder
from cosen.inference.model_card import Origin, model_card
from cosen.inference.predict import open_model
from cosen.training.model_file import ImageClassifier, load_model
from cosen.training.records import ModelInfo
from cosen.training.run_folder import RunFolder

Format = Literal["onnx", "torchscript", "hub"]

SUFFIXES: dict[Format, tuple[str, ...]] = {
    "onnx": (".onnx",),
    "torchscript": (".pt", ".torchscript"),
    "hub": ("",),
}
"""How the name of each format ends; a folder has no suffix."""

ONNX_PACKAGES = ("onnx", "onnxruntime", "onnxscript")

TOLERANCE = 1e-4
"""Largest difference from PyTorch's outputs, relative to the largest output if above 1."""

BATCHES = (1, 5)
"""Batch sizes for checking an export."""

Outputs = Callable[[Tensor], Tensor]
"""Maps images in [0, 1], shape ``(B, channels, height, width)``, to logits ``(B, C)``."""


@dataclass(frozen=True)
class ExportCheck:
    """What was exported, and the largest difference of a logit from PyTorch's.

    Attributes:
        path: The file or the folder.
        format: Its format.
        largest_difference: The largest difference of a logit.
        batch_sizes: The batch sizes that were compared.
        card: The model card, if one was written.
        note: A restriction to tell the user; empty if there is none.
    """

    path: Path
    format: Format
    largest_difference: float
    batch_sizes: tuple[int, ...]
    card: Path | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"path": str(self.path), "card": self.card and str(self.card)}


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


def export_model(
    run: Path | str,
    out: Path | str | None = None,
    *,
    format: Format | None = None,
    card: bool = False,
    network: Callable[[], nn.Module] | None = None,
    study: Origin | None = None,
) -> ExportCheck:
    """Export the model of a run, after checking it against PyTorch.

    ONNX and TorchScript take images, float32 in [0, 1] of shape (batch, channels, height, width),
    and return logits, (batch, classes). They normalise the images; resize them first. Metadata are
    JSON: ``class_names``, ``class_counts`` (of training), ``preprocess`` (height, width, channels,
    fit), ``temperature`` (divides the logits for calibrated probabilities), ``offsets`` (added for
    the class shares of training) and ``cosen_version``.

    Args:
        run: The run folder.
        out: The file or the folder to write; by default ``model`` with the suffix of the format.
        format: ``onnx``, ``torchscript`` or ``hub``, a folder for the Hugging Face hub; by default
            what the name of ``out`` says, or ``onnx``.
        card: Also write a model card: ``README.md`` in a folder, ``model.onnx.md`` next to
            ``model.onnx``. A folder always has one.
        network: Creates the network, if the run trained a custom one.
        study: The study that chose the run, for the card.
    """
    run, (format, out) = Path(run), _place(out, format)
    place = None
    if format == "hub":
        place = out / "README.md"
    elif card:
        place = out.with_name(f"{out.name}.md")
        if place.exists():
            raise RunError(
                f"{place} exists: move or remove it, so that your text in it is not lost"
            )
    if place is not None and not RunFolder(run).is_finished:
        raise RunError(
            f"a model card needs the whole folder of a finished run, but {run} has no metrics.json"
        )
    if format == "onnx":
        _check_packages()
    classifier, info = open_model(run, network)
    note = hub_folder.timm_obstacle(info) if format == "hub" else ""
    text = ""
    if place is not None:
        text = model_card(run, info, out.name, format, note, study=study)
    model = _FromPixels(classifier, info.normalise).eval()
    if format == "hub":
        difference = _write_folder(out, text, model, info, network)
    else:
        content, outputs = (_onnx if format == "onnx" else _torchscript)(model, info)
        difference = _largest_difference(model, outputs, info)
        write_with(out, lambda partial: partial.write_bytes(content))
        if place is not None:
            write_text(place, text)
    return ExportCheck(out, format, difference, BATCHES, place, note)


def _place(out: Path | str | None, format: Format | None) -> tuple[Format, Path]:
    """Return the format and the path to write to; raise an error if they contradict each other."""
    if format is not None and format not in SUFFIXES:
        raise InputError(f"there is no format {format!r}{choices_hint(format, get_args(Format))}")
    if out is None:
        format = format or "onnx"
        out = f"model{SUFFIXES[format][0]}"
    out = Path(out)
    suffix = "" if is_folder(out) else out.suffix.lower()
    named = next((name for name, known in SUFFIXES.items() if suffix in known), None)
    format = format or named
    if format is None:
        raise InputError(
            f"the format of {out} is unknown: use a name that ends in .onnx, .pt or .torchscript, "
            "or --format hub for a folder"
        )
    if format == "hub":
        if named not in ("hub", None):
            raise InputError(
                f"--format hub writes a folder, but {out} is the name of a file: "
                f"use {out.with_suffix('')}"
            )
        hub_folder.check_place(out)
    elif is_folder(out):
        raise RunError(f"{out} is a folder: give a file such as model{SUFFIXES[format][0]}")
    elif named != format:
        raise InputError(
            f"--format {format} writes a file that ends in {' or '.join(SUFFIXES[format])}: "
            f"use {out.with_suffix(SUFFIXES[format][0])}, not {out}"
        )
    elif not is_folder(out.parent):
        raise RunError(f"{out} is in a folder that does not exist: create {out.parent}")
    return format, out


def _check_packages() -> None:
    for name in ONNX_PACKAGES:
        try:
            import_module(name)
        except ImportError as error:
            raise RunError(
                f"export to ONNX needs the package {name}: pip install {' '.join(ONNX_PACKAGES)}"
            ) from error


def _write_folder(
    out: Path,
    card: str,
    model: _FromPixels,
    info: ModelInfo,
    network: Callable[[], nn.Module] | None,
) -> float:
    """Write a folder for the hub next to its place, check it, and move its files there."""
    make_folder(out.parent)
    with TemporaryDirectory(dir=out.parent, prefix=".cosen-") as temporary:
        folder = Path(temporary)
        hub_folder.write_hub_folder(folder, model.classifier, info)
        write_text(folder / "README.md", card)
        loaded, _ = load_model(folder, network=network)
        difference = _largest_difference(model, _FromPixels(loaded, info.normalise), info)
        if not hub_folder.timm_obstacle(info):
            outputs = hub_folder.timm_outputs(folder, info)
            difference = max(difference, _largest_difference(model, outputs, info))
        hub_folder.move_files(folder, out)
    return difference


def _sample(info: ModelInfo, count: int) -> Tensor:
    """Return noise in the shape of images."""
    height, width, channels = info.preprocess.shape
    generator = torch.Generator().manual_seed(count)
    return torch.rand(count, channels, height, width, generator=generator)


def _metadata(info: ModelInfo) -> dict[str, str]:
    """Return what a user of the file needs to know, as JSON by name."""
    values = {
        "class_names": info.class_names,
        "class_counts": info.class_counts.tolist(),
        "preprocess": asdict(info.preprocess),
        "temperature": info.temperature,
        "offsets": info.offsets,
        "cosen_version": cosen.__version__,
    }
    return {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}


def _onnx(model: nn.Module, info: ModelInfo) -> tuple[bytes, Outputs]:
    """Return an ONNX file, and what onnxruntime computes with it."""
    import onnxruntime

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
        raise _not_exportable(info, error) from error
    assert program is not None
    proto = program.model_proto
    for key, value in _metadata(info).items():
        proto.metadata_props.add(key=key, value=value)
    content: bytes = proto.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def outputs(images: Tensor) -> Tensor:
        (logits,) = session.run(["logits"], {"images": images.numpy()})
        return torch.from_numpy(logits)

    return content, outputs


def _torchscript(model: nn.Module, info: ModelInfo) -> tuple[bytes, Outputs]:
    """Return a TorchScript file, and what it computes. The metadata are its ``model.json``."""
    buffer = io.BytesIO()
    metadata = {key: json.loads(value) for key, value in _metadata(info).items()}
    files = {"model.json": json.dumps(metadata, ensure_ascii=False)}
    try:
        with _silence(), torch.inference_mode():  # PyTorch warns that TorchScript is deprecated
            traced = torch.jit.trace(  # type: ignore[no-untyped-call]
                model, (_sample(info, 2),), check_trace=False
            )
            torch.jit.save(traced, buffer, _extra_files=files)
            buffer.seek(0)
            outputs: Outputs = torch.jit.load(buffer)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        raise _not_exportable(info, error) from error
    return buffer.getvalue(), outputs


def _not_exportable(info: ModelInfo, error: Exception) -> RunError:
    return RunError(
        f"network {info.network!r} cannot be exported with torch {torch.__version__}: {error}"
    )


def _largest_difference(model: nn.Module, outputs: Outputs, info: ModelInfo) -> float:
    """Compare both on the same images; raise an error if they differ."""
    largest = 0.0
    for count in BATCHES:
        images = _sample(info, count)
        with torch.inference_mode():
            expected, found = model(images), outputs(images)
        difference = float((found - expected).abs().max())
        if not difference <= TOLERANCE * max(1.0, float(expected.abs().max())):
            raise RunError(
                f"the exported outputs differ from PyTorch's by {difference:.2g} on {count} "
                "images, so nothing was written: try another format, or another version of torch"
            )
        largest = max(largest, difference)
    return largest


@contextmanager
def _silence() -> Iterator[None]:
    """Hide the messages of the exporters."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    hidden = io.StringIO()
    try:
        with warnings.catch_warnings(), redirect_stdout(hidden), redirect_stderr(hidden):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
