"""A folder for the Hugging Face hub, which cosen can load, and timm if it has the network.

| file | contents |
|---|---|
| ``model.safetensors`` | the weights; with timm's names if timm can load them |
| ``model.json`` | as in a run folder, for cosen |
| ``config.json`` | the network and its input format, for timm |
| ``README.md`` | the model card |
"""

import json
from collections.abc import Callable
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from cosen.errors import RunError
from cosen.files import is_folder, make_folder, write_text, write_with
from cosen.networks import NETWORKS
from cosen.networks.pretrained import hub_config, timm_state
from cosen.networks.timm_import import import_timm
from cosen.training import checksums
from cosen.training.model_file import OWN, WEIGHTS, ImageClassifier, save_model
from cosen.training.records import ModelInfo

GIT = (".git", ".gitattributes")
"""What a cloned, empty repository of the hub has."""

CROP_MODES = {"crop": "center", "stretch": "squash", "pad": "border"}
"""The names in timm of the ways to fit an image into a square."""


def check_place(folder: Path) -> None:
    """Raise an error unless a folder is new or empty: a card with text of the user is kept."""
    if folder.exists() and not is_folder(folder):
        raise RunError(f"{folder} is a file: give the name of a new folder")
    if is_folder(folder):
        others = sorted(path.name for path in folder.iterdir() if path.name not in GIT)
        if others:
            raise RunError(f"{folder} is not empty, it has {others[0]}: give a new folder")


def timm_obstacle(info: ModelInfo) -> str:
    """Return a sentence that says why timm cannot load a model; empty if it can."""
    name = _whole_network(info)
    if info.options.get("output") == "cosine":
        return "Only cosen can load it, not timm: it has a cosine output layer."
    if name in (*NETWORKS, OWN) or info.network not in ("linear", name):
        return "Only cosen can load it: it is not a network of timm."
    return ""


def _whole_network(info: ModelInfo) -> str:
    return info.features or info.network


def write_hub_folder(folder: Path, classifier: ImageClassifier, info: ModelInfo) -> None:
    """Write all files except the card."""
    if timm_obstacle(info):
        save_model(folder, classifier, info)
        return
    name, how = _whole_network(info), info.preprocess
    size = (how.height, how.width)
    weights = {
        key: tensor.detach().cpu().contiguous()
        for key, tensor in timm_state(classifier.state_dict(), name).items()
    }
    write_with(folder / WEIGHTS, lambda path: save_file(weights, path))
    info.changed(network=name, options={"size": size}, features="", feature_options={}).write(
        folder
    )
    config = hub_config(
        name,
        info.class_names,
        size,
        mean=info.normalise.mean,
        std=info.normalise.std,
        interpolation=how.interpolation,
        crop_pct=how.share,
        crop_mode=CROP_MODES[how.fit],
    )
    write_text(folder / "config.json", json.dumps(config, indent=2, ensure_ascii=False))


def timm_outputs(folder: Path, info: ModelInfo) -> Callable[[Tensor], Tensor]:
    """Load a folder with timm. The result takes images in [0, 1] and returns logits."""
    try:
        model = import_timm().create_model(f"local-dir:{folder}", pretrained=True).eval()
    except Exception as error:  # timm raises errors of any type
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(":")
        raise RunError(
            f"timm cannot load {_whole_network(info)} ({reason}), so nothing was written: use "
            "another format"
        ) from error
    return lambda images: model(info.normalise(images))


def move_files(source: Path, folder: Path) -> None:
    """Move the files of one folder to another; the hub has its own checksums."""
    make_folder(folder)
    for path in source.iterdir():
        if path.name != checksums.FILE:
            path.replace(folder / path.name)
