"""The features of a frozen network, computed once and kept.

They are stored in shards as safetensors, so that a computation that was cut off goes on where it
stopped.
"""

import hashlib
import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cosen.data.batches import Batches, Normalise
from cosen.data.cache_folder import CacheFolder, cannot_write, key_of
from cosen.data.decoding import Progress
from cosen.data.image_cache import DecodedImages
from cosen.errors import InputError
from cosen.networks.precision import Precision, autocast, resolve_precision

SHARD = 1024
"""Images in a stored shard: at most this many are computed again after a cut."""


def embed(
    network: nn.Module,
    decoded: DecodedImages,
    *,
    normalise: Normalise,
    batch_size: int = 64,
    device: torch.device | str = "cpu",
    precision: Precision = "auto",
    cache: CacheFolder | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """What a network gives for every image of a dataset, computed now or at an earlier time.

    The network is used as it is, in evaluation mode and without gradients; its mode is restored.

    Args:
        network: Maps images ``(B, C, H, W)`` to features ``(B, D)``.
        decoded: The images.
        normalise: Shift and scale of the channels, as the network expects.
        batch_size: Images in a batch.
        device: Where to compute; the network is moved there.
        precision: ``"auto"`` is bfloat16 on a GPU that has it, else float32.
        cache: Where features are kept; the user's cache if not given.
        progress: Told how far it is.

    Returns:
        float32, shape ``(len(decoded.data), D)``, in the order of the data.
    """
    cache = cache or CacheFolder()
    dtype = resolve_precision(precision, device)
    rows = decoded.data.rows.tobytes()
    key = key_of(decoded.key, rows, normalise, weights_digest(network), str(dtype))
    total = len(decoded.data)
    shards = [range(start, min(start + SHARD, total)) for start in range(0, total, SHARD)]
    with cache.locked("features", key) as folder:
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise cannot_write(folder.parent, error) from error
        files = [folder / f"{number:06d}.safetensors" for number in range(len(shards))]
        kept = {
            number: features
            for number, (file, shard) in enumerate(zip(files, shards, strict=True))
            if (features := _load(file)) is not None and len(features) == len(shard)
        }
        done = sum(len(shards[number]) for number in kept)
        was_training = network.training
        network.eval().to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        try:
            for number in range(len(shards)):
                if number in kept:
                    continue
                features = _compute(
                    network, decoded, shards[number], normalise, batch_size, device, dtype
                )
                _save(features, files[number])
                kept[number] = features
                done += len(shards[number])
                if progress is not None:
                    progress(done, total)
        finally:
            network.train(was_training)
        about = f"{decoded.data.source}: features of {total} images by {type(network).__name__}"
        cache.use(folder, {"about": about})
        together = torch.cat([kept[number] for number in range(len(shards))])
        cache.make_room(0, keep=folder)
        return together


def _compute(
    network: nn.Module,
    decoded: DecodedImages,
    positions: range,
    normalise: Normalise,
    batch_size: int,
    device: torch.device | str,
    dtype: torch.dtype,
) -> Tensor:
    part = decoded.data.take(torch.arange(positions.start, positions.stop).numpy())
    batches = Batches(decoded, part, batch_size=batch_size, normalise=normalise, device=device)
    features = []
    with torch.inference_mode(), autocast(device, dtype):
        for batch in batches:
            output = network(batch.inputs)
            if not isinstance(output, Tensor) or output.ndim != 2:
                shape = tuple(output.shape) if isinstance(output, Tensor) else type(output)
                raise InputError(
                    "embed needs a network that maps images to features of the shape (B, D), "
                    f"but {type(network).__name__} gave {shape}"
                )
            features.append(output.float().cpu())
    return torch.cat(features)


def _save(features: Tensor, file: Path) -> None:
    partial = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        save_file({"features": features.contiguous()}, partial)
        partial.replace(file)
    except (SafetensorError, OSError) as error:
        raise cannot_write(file.parent.parent, error) from error
    finally:
        partial.unlink(missing_ok=True)


def _load(file: Path) -> Tensor | None:
    """The features in a shard; None where it is missing or cut off."""
    try:
        return load_file(file)["features"]
    except (SafetensorError, OSError, KeyError):
        return None


def weights_digest(network: nn.Module) -> str:
    """A digest of a network's structure and of all its weights and buffers."""
    digest = hashlib.blake2b(str(network).encode(), digest_size=16)
    for name, tensor in network.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
