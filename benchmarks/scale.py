"""What thousands of classes and millions of images cost on this machine, and an estimate for more.

Measures the decoding of photographs, features of EfficientNet-Lite0, training of an output layer,
and costs of 10,000 classes. From these it estimates two datasets of the long-tail literature on a
machine with 8 GPUs and 64 cores. The speed of a GPU is an assumption: it cannot be measured here.
"""

import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

import cosen
from cosen.costs.step_files import step_tensors
from cosen.data.decoding import Preprocess
from cosen.data.image_cache import PixelsOnDemand, decoding_processes
from cosen.data.stores import ImageFiles
from cosen.networks import build_network
from cosen.networks.pretrained import EMBEDDED

PHOTOS, SIDE, BATCH = 400, 224, 64
DATASETS = {"ImageNet-LT": (115_846, 1_000), "iNaturalist 2018": (437_513, 8_142)}
"""Training images and classes."""

CORES, GPUS, IMAGES_PER_GPU = 64, 8, 1_000
"""The machine of the estimate. A GPU is assumed to train on so many images a second (ResNet-50 at
224 pixels in half precision; published figures are between 800 and 2,500)."""

EPOCHS = 90


def decoded_per_core() -> float:
    """Return the photographs of 500 x 375 pixels that a core decodes in a second."""
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number}.jpg" for number in range(PHOTOS)]
        for path in paths:
            coarse = generator.integers(0, 256, (47, 63, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((500, 375), Image.Resampling.BICUBIC).save(
                path, quality=90
            )
        preprocess = Preprocess(SIDE, SIDE, interpolation="bicubic", share=0.875)
        pixels = PixelsOnDemand(ImageFiles(Path(folder), paths), preprocess)
        batches = np.array_split(np.arange(4 * PHOTOS) % PHOTOS, 4 * PHOTOS // BATCH)
        list(pixels.read(batches[:2]))
        start = time.perf_counter()
        images = sum(len(batch) for batch in pixels.read(batches))
        return images / (time.perf_counter() - start) / decoding_processes()


def features_per_second() -> float:
    network = build_network(EMBEDDED, num_classes=10).eval()  # the weights do not matter
    images = torch.randn(BATCH, 3, SIDE, SIDE).to(memory_format=torch.channels_last)
    with torch.inference_mode():
        network(images)
        start = time.perf_counter()
        network(images)
        return BATCH / (time.perf_counter() - start)


def trained_per_second(classes: int) -> float:
    """Return the feature vectors that an output layer is trained on in a second."""
    layer = torch.nn.Linear(1280, classes)
    costs = cosen.AdaptiveCosts(torch.linspace(1000, 5, classes).long(), margin=2.0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    features, target = torch.randn(BATCH, 1280), torch.randint(classes, (BATCH,))
    for turn in range(33):
        if turn == 3:
            start = time.perf_counter()
        costs(layer(features), target).backward()
        optimizer.step()
        optimizer.zero_grad()
    return 30 * BATCH / (time.perf_counter() - start)


def many_costs(classes: int = 10_000, samples: int = 5_000) -> str:
    """Construct AdaptiveCosts, make one step and save it."""
    logits, target = torch.randn(samples, classes), torch.randint(classes, (samples,))
    logits[torch.arange(samples), target] += 3
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    step = cosen.AdaptiveCosts(torch.linspace(1000, 5, classes).long()).step(logits, target)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "step.safetensors"
        save_file(step_tensors(step), file)
        size = file.stat().st_size / 1024
    seconds = time.perf_counter() - start
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return f"{seconds:.2f} s, {memory:.0f} MB beyond the logits, {size:.0f} KB on disk"


def main() -> None:
    torch.manual_seed(0)
    print(f"AdaptiveCosts, 10,000 classes, a step on 5,000 images: {many_costs()}", flush=True)
    decoded, features = decoded_per_core(), features_per_second()
    print(f"decoding to {SIDE} pixels: {decoded:.0f} images/s per core")
    print(f"features of EfficientNet-Lite0: {features:.0f} images/s on {os.cpu_count()} cores")
    trained = {classes: trained_per_second(classes) for _, classes in DATASETS.values()}
    for classes, speed in trained.items():
        print(f"output layer of {classes:,} classes: {speed:,.0f} images/s")
    print(f"\nestimate for {GPUS} GPUs ({IMAGES_PER_GPU:,} images/s each, assumed), {CORES} cores:")
    for name, (images, classes) in DATASETS.items():
        reading = images / (decoded * CORES)
        speed = min(decoded * CORES, GPUS * IMAGES_PER_GPU)
        head = images * EPOCHS / trained[classes]
        print(
            f"{name}: first look at all images {reading / 60:.1f} minutes; {EPOCHS} epochs of a "
            f"whole network {images * EPOCHS / speed / 3600:.1f} hours; {EPOCHS} epochs of an "
            f"output layer on features, as fast as here, {head / 3600:.1f} hours"
        )


if __name__ == "__main__":
    main()
