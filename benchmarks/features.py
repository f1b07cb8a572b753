"""Compare VGG-16 features from ``embed`` with plain float32 on the same images.

Weights and images are random; this does not change the time. Both are timed alternately for each
size; the ratio is that of the medians.
"""

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

from cosen.data.batches import IMAGENET, Batches
from cosen.data.cache_folder import CacheFolder
from cosen.data.decoding import Preprocess
from cosen.data.features import embed
from cosen.data.image_cache import decode_images
from cosen.data.sources import from_arrays
from cosen.networks.device import resolve_precision
from cosen.networks.vgg import VGG16Features

IMAGES = {128: 64, 224: 32}
BATCH, ROUNDS = 16, 3


def plain_float32(network, decoded) -> torch.Tensor:
    """A typical loop: float32, channels first."""
    batches = Batches(decoded, decoded.data, batch_size=BATCH, normalise=IMAGENET)
    with torch.inference_mode():
        return torch.cat([network(batch.inputs.contiguous()) for batch in batches])


def main() -> None:
    network = VGG16Features().eval()
    plain_network = VGG16Features().eval()
    plain_network.load_state_dict(network.state_dict())
    ratios = []
    for size, count in IMAGES.items():
        pixels = np.random.default_rng(0).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
        data = from_arrays(pixels, np.arange(count) % 2)
        ours, plain = [], []
        for _ in range(ROUNDS):
            with tempfile.TemporaryDirectory() as folder:  # a new cache: computed every time
                cache = CacheFolder(Path(folder))
                decoded = decode_images(data, Preprocess(size, size), cache=cache)
                start = time.perf_counter()
                embed(network, decoded, normalise=IMAGENET, batch_size=BATCH, cache=cache)
                ours.append(time.perf_counter() - start)
                start = time.perf_counter()
                plain_float32(plain_network, decoded)
                plain.append(time.perf_counter() - start)
        ratios.append(median(plain) / median(ours))
        print(
            f"{size} pixels: embed {count / median(ours):6.1f} images/s, "
            f"float32 {count / median(plain):6.1f} images/s"
        )
    precision = str(resolve_precision("auto", "cpu")).removeprefix("torch.")
    shown = " and ".join(f"{r:.1f}x at {s}" for r, s in zip(ratios, IMAGES, strict=True))
    print(f"{shown} pixels the images per second of float32 (embed: {precision}, channels last)")


if __name__ == "__main__":
    main()
