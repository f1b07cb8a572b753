"""Pre-trained weights: fetching a file of them, and reading it without ever running its code."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from cosen.errors import DataError, choices_hint
from cosen.networks.download import Progress, download, sha256

TORCHVISION = "https://download.pytorch.org/models/"

WEIGHTS: dict[str, str] = {"vgg16": "vgg16-397923af.pth"}
"""Files of torchvision's; the digits before the suffix begin the file's SHA-256."""


@dataclass(frozen=True)
class LoadedWeights:
    """What became of the entries of a weights file.

    Attributes:
        loaded: Entries that the network took.
        random: Entries of the network that the file lacks, or has in another shape: as they were.
        unused: Entries of the file that the network has no place for.
    """

    loaded: tuple[str, ...]
    random: tuple[str, ...]
    unused: tuple[str, ...]


def read_weights(path: Path | str) -> dict[str, Tensor]:
    """The tensors in a ``.safetensors`` file, or in a state dict that torch saved (``.pth``)."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise DataError(f"there is no weights file {path}")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError, EOFError, RuntimeError) as error:
        raise DataError(f"cannot read weights from {path}: {error}") from error
    except Exception as error:  # weights_only refuses in several ways, all of them final
        raise DataError(
            f"{path} holds more than tensors, or is no weights file; it was not loaded"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise DataError(f"{path} is not a state dict: save network.state_dict()")
    return state


def load_weights(network: nn.Module, path: Path | str) -> LoadedWeights:
    """Put the weights of a file into a network, where name and shape agree; the rest stays.

    A layer is taken whole or not at all: a bias is of no use without the weights it was learned
    with.
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
            f"no entry of {path} fits the network: it has {', '.join(list(given)[:3])}, ..., "
            f"the network {', '.join(list(own)[:3])}, ..."
        )
    network.load_state_dict(fitting, strict=False)
    return LoadedWeights(
        loaded=tuple(fitting),
        random=tuple(name for name in own if name not in fitting),
        unused=tuple(name for name in given if name not in fitting),
    )


def weights_root() -> Path:
    """Where fetched weights are kept: ``weights`` below ``$COSEN_CACHE``, or ``~/.cache/cosen``."""
    return Path(os.environ.get("COSEN_CACHE") or Path.home() / ".cache" / "cosen") / "weights"


def fetch_weights(
    name: str = "vgg16",
    root: Path | None = None,
    urls: Sequence[str] | None = None,
    *,
    progress: Progress | None = None,
) -> Path:
    """Download pre-trained weights, unless they are there already, and say where they are.

    Args:
        name: One of :data:`WEIGHTS`; ``vgg16`` is torchvision's, 528 MB, trained on ImageNet.
        root: The folder to keep the file in; :func:`weights_root` if not given.
        urls: Addresses of folders to try in place of the official one; the checksum stays the same.
        progress: Called as bytes come in.
    """
    if name not in WEIGHTS:
        raise DataError(f"there are no weights {name!r} to download{choices_hint(name, WEIGHTS)}")
    file = WEIGHTS[name]
    prefix = Path(file).stem.rpartition("-")[2]
    folder = weights_root() if root is None else root
    path = folder / file
    mirrors = (TORCHVISION,) if urls is None else urls
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not (path.is_file() and sha256(path).startswith(prefix)):
            addresses = [f"{mirror.rstrip('/')}/{file}" for mirror in mirrors]
            download(path, prefix, addresses, progress=progress)
    except OSError as error:
        raise DataError(
            f"cannot keep {file} in {folder} ({error}): make room or name another folder"
        ) from error
    return path
