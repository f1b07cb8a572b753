"""Cached features of a frozen network.

Features are stored in safetensors shards: an interrupted computation can be resumed.
"""

import hashlib
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cosen.data.batches import Batches, Normalise
from cosen.data.cache_folder import CacheFolder, cannot_write, key_of, replacing
from cosen.data.decoding import Progress
from cosen.data.image_cache import DecodedImages
from cosen.errors import InputError
from cosen.networks.device import Precision, autocast, resolve_precision

SHARD = 1024
"""Images per shard: at most this many are computed again after an interruption."""


def embed(
    network: nn.Module,
    decoded: DecodedImages,
    *,
    normalise: Normalise,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    precision: Precision = "auto",
    flip: bool = False,
    cache: CacheFolder | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """Compute the features of all images of a dataset, or load them from the cache.

    The network runs in evaluation mode without gradients; its mode is restored afterwards.

    Args:
        network: Maps images ``(B, C, H, W)`` to features ``(B, D)`` or activations ``(B, ...)``.
        decoded: The images.
        normalise: Shift and scale of the channels that the network expects.
        batch_size: Images per batch.
        device: Device to compute on; the network is moved there.
        precision: ``"auto"`` is bfloat16 on a GPU that supports it, else float32.
        flip: Mirror the images left and right.
        cache: The cache; default: the user's cache.
        progress: Callback for progress.

    Returns:
        Shape ``(len(decoded.data), ...)``, in the order of the dataset. Features are float32,
        activations with more dimensions float16, because they are large.
    """
    cache = cache or CacheFolder()
    dtype = resolve_precision(precision, device)
    rows = decoded.data.rows.tobytes()
    key = key_of(decoded.key, rows, normalise, weights_digest(network), str(dtype), flip)
    total = len(decoded.data)
    found: Tensor | None = None
    with cache.locked("features", key) as folder:
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise cannot_write(folder.parent, error) from error
        was_training = network.training
        network.eval().to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        try:
            for number, start in enumerate(range(0, total, SHARD)):
                part = decoded.data.take(np.arange(start, min(start + SHARD, total)))
                file = folder / f"{number:06d}.safetensors"
                features = _load(file)
                if features is None or len(features) != len(part):
                    batches = Batches(
                        decoded, part, batch_size=batch_size, normalise=normalise, device=device
                    )
                    features = _compute(network, batches, dtype, flip=flip)
                    with replacing(file) as partial:
                        save_file({"features": features.contiguous()}, partial)
                    if progress is not None:
                        progress(start + len(part), total)
                if found is None:
                    found = features.new_empty(total, *features.shape[1:])
                found[start : start + len(part)] = features
        finally:
            network.train(was_training)
        about = f"{decoded.data.source}: features of {total} images by {type(network).__name__}"
        cache.use(folder, {"about": about})
        cache.make_room(0, keep=folder)
        assert found is not None  # a dataset has images
        return found


def _compute(network: nn.Module, batches: Batches, dtype: torch.dtype, *, flip: bool) -> Tensor:
    features = []
    with torch.inference_mode(), autocast(batches.device, dtype):
        for batch in batches:
            output = network(batch.inputs.flip(-1) if flip else batch.inputs)
            if not isinstance(output, Tensor) or output.ndim < 2:
                shape = tuple(output.shape) if isinstance(output, Tensor) else type(output)
                raise InputError(
                    "embed needs a network that maps images to features of shape (B, D), "
                    f"but {type(network).__name__} returned {shape}"
                )
            features.append(output.to(torch.float16 if output.ndim > 2 else torch.float32).cpu())
    found = torch.cat(features)
    if found.ndim > 2 and not bool(found.isfinite().all()):
        raise InputError(
            "the activations are too large for half precision: use --finetune none, light or all"
        )
    return found


def _load(file: Path) -> Tensor | None:
    """Load a shard; None if it is missing or damaged."""
    try:
        return load_file(file)["features"]
    except (SafetensorError, OSError, KeyError):
        return None


def weights_digest(network: nn.Module) -> str:
    """Digest of the structure, weights and buffers of a network."""
    digest = hashlib.blake2b(str(network).encode(), digest_size=16)
    for name, tensor in network.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
