"""Compare an epoch from the image cache with a DataLoader that opens each file with Pillow.

5,000 random JPEGs of 256 x 192 pixels are resized to 128 x 128, in batches of 64. Both return
normalised float tensors in random order; the DataLoader has one worker per core. The first epoch of
the cache, which decodes, is timed separately, and so are images that do not fit in the cache, which
are decoded in each epoch. Epochs alternate; the ratios are those of the medians.
"""

import os
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from cosen.data.batches import IMAGENET, Batches
from cosen.data.cache_folder import CacheFolder
from cosen.data.decoding import Preprocess
from cosen.data.image_cache import decode_images
from cosen.data.sources import from_folder

IMAGES, CLASSES, SIZE, BATCH, ROUNDS = 5_000, 10, 128, 64, 3


class PlainImages(Dataset):
    """A typical dataset of image files."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        image = Image.open(path).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255
        mean, std = (torch.tensor(part)[:, None, None] for part in (IMAGENET.mean, IMAGENET.std))
        return (pixels - mean) / std, int(path.parent.name)


def make_images(root: Path) -> None:
    generator = np.random.default_rng(0)
    for number in range(IMAGES):
        coarse = generator.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((256, 192), Image.Resampling.BICUBIC)
        path = root / str(number % CLASSES) / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        image.save(path, quality=90)


def epoch_seconds(batches) -> float:
    start = time.perf_counter()
    images = sum(len(batch[1]) for batch in batches)
    assert images == IMAGES
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "images"
        root.mkdir()
        make_images(root)
        data = from_folder(root)
        plain = DataLoader(
            PlainImages(data.images.paths),
            batch_size=BATCH,
            shuffle=True,
            num_workers=os.cpu_count() or 1,
        )
        cache = CacheFolder(Path(folder) / "cache")
        start = time.perf_counter()
        decoded = decode_images(data, Preprocess(SIZE, SIZE, fit="stretch"), cache=cache)
        order = torch.Generator().manual_seed(0)
        cached = Batches(decoded, data, batch_size=BATCH, normalise=IMAGENET, order=order)
        first = time.perf_counter() - start + epoch_seconds(cached)
        small = CacheFolder(Path(folder) / "small", bound=0)
        fresh = decode_images(data, Preprocess(SIZE, SIZE, fit="stretch"), cache=small)
        demanded = Batches(fresh, data, batch_size=BATCH, normalise=IMAGENET, order=order)
        kinds = {"plain": plain, "cached": cached, "demanded": demanded}
        times: dict[str, list[float]] = {name: [] for name in kinds}
        for _ in range(ROUNDS):
            for name, batches in kinds.items():
                times[name].append(epoch_seconds(batches))
    slow, fast, each = (median(found) for found in times.values())
    print(f"DataLoader with Pillow    {IMAGES / slow:8.0f} images/s")
    print(f"first epoch of the cache  {IMAGES / first:8.0f} images/s")
    print(f"later epochs              {IMAGES / fast:8.0f} images/s")
    print(f"without room in the cache {IMAGES / each:8.0f} images/s")
    print(
        f"{slow / fast:.1f}x the images per second after the first epoch (bound: at least 5), "
        f"{slow / each:.2f}x without room in the cache (bound: at least 1)"
    )


if __name__ == "__main__":
    main()
