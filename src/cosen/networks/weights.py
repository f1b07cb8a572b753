"""Pre-trained weights: download a weights file, and load one without running code from it."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from cosen.downloads import DownloadProgress, download
from cosen.errors import DataError, choices_hint
from cosen.files import expand_user

TORCHVISION = "https://download.pytorch.org/models/"

WEIGHTS: dict[str, str] = {"vgg16": "vgg16-397923af.pth"}
"""Files from torchvision; the SHA-256 of a file begins with the digits in its name."""


@dataclass(frozen=True)
class LoadedWeights:
    """Names of entries of a weights file and of the network it was loaded into."""

    loaded: tuple[str, ...]
    random: tuple[str, ...]  # the file lacks them or has another shape; they are unchanged
    unused: tuple[str, ...]  # of the file; they do not fit the network


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """Read the tensors of a ``.safetensors`` file, or of a state dict saved by torch (``.pth``)."""
    path = expand_user(path)
    if not path.is_file():
        raise DataError(f"there is no weights file {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, EOFError, RuntimeError) as error:
        raise DataError(f"cannot read weights from {path}: {error}") from error
    except Exception as error:  # weights_only raises errors of several types
        raise DataError(
            f"{path} contains more than tensors, or is not a weights file; it was not loaded"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise DataError(f"{path} is not a state dict: save network.state_dict()")
    return state


def load_weights(network: nn.Module, path: Path | str) -> LoadedWeights:
    """Load the weights of a file into a network if name and shape match.

    If one tensor of a layer does not fit, the whole layer is skipped: a bias is useless without
    the weights it was learned with.
    """
    given = read_weights(path)
    own = network.state_dict()
    misfits = {n for n in given if n not in own or own[n].shape != given[n].shape}
    layers = {name.rpartition(".")[0] for name in misfits} - {""}
    fitting = {
        name: tensor
        for name, tensor in given.items()
        if name not in misfits and name.rpartition(".")[0] not in layers
    }
    if not fitting:
        raise DataError(
            f"no entry of {path} fits the network: the file has {', '.join(list(given)[:3])}, ..., "
            f"the network {', '.join(list(own)[:3])}, ..."
        )
    network.load_state_dict(fitting, strict=False)
    return LoadedWeights(
        loaded=tuple(fitting),
        random=tuple(name for name in own if name not in fitting),
        unused=tuple(name for name in given if name not in fitting),
    )


def weights_root() -> Path:
    """The folder of downloaded weights: ``weights`` in ``$COSEN_CACHE`` or ``~/.cache/cosen``."""
    return Path(os.environ.get("COSEN_CACHE") or Path.home() / ".cache" / "cosen") / "weights"


def fetch_weights(
    name: str = "vgg16",
    root: Path | None = None,
    urls: Sequence[str] | None = None,
    *,
    progress: DownloadProgress | None = None,
) -> Path:
    """Download pre-trained weights, unless they already exist, and return their path.

    Args:
        name: One of :data:`WEIGHTS`; ``vgg16`` is torchvision's, 528 MB, trained on ImageNet.
        root: The folder for the file; default: :func:`weights_root`.
        urls: Addresses of folders to try instead of the official one; the checksum is the same.
        progress: Callback for progress.
    """
    if name not in WEIGHTS:
        raise DataError(f"there are no weights {name!r} to download{choices_hint(name, WEIGHTS)}")
    file = WEIGHTS[name]
    path = (weights_root() if root is None else root) / file
    checksum = f"sha256:{path.stem.rpartition('-')[2]}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        download(path, checksum, (TORCHVISION,) if urls is None else urls, progress=progress)
    except OSError as error:
        raise DataError(
            f"cannot write {file} to {path.parent} ({error}): free some space or choose another "
            "folder"
        ) from error
    return path
