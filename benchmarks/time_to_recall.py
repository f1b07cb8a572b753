"""Minutes until a mean recall: ``cosen train`` with its defaults against a stock fine-tuning loop.

Both start from the same pretrained network at the same image size. The stock loop trains all layers
with class weights, flips and crops, as a PyTorch tutorial would, and is measured on the test images
after each epoch; its best epoch counts. cosen's time is that of the whole command, with start-up;
the stock loop's is that of decoding the images and training.

Data: Caltech-101 with 10 % of the odd classes, if ``COSEN_DATA`` has it, else generated images.
Usage: ``python benchmarks/time_to_recall.py [STOCK_EPOCHS]``; about half an hour on two cores.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from cosen.data.augmentation import Augmentation
from cosen.data.batches import Batches
from cosen.data.cache_folder import CacheFolder
from cosen.data.image_cache import decode_images
from cosen.data.sources import open_data
from cosen.errors import CosenError
from cosen.networks import build_network
from cosen.networks.pretrained import EMBEDDED, load_pretrained
from cosen.training.config import TrainConfig
from cosen.training.task import make_task

SIZE = 128


def generate(root: Path) -> None:
    """Write photographs of 12 textures, half of them rare."""
    generator = np.random.default_rng(0)
    line = np.linspace(0, 1, 160)
    for label in range(12):
        folder = root / f"texture-{label:02d}"
        folder.mkdir(parents=True)
        for number in range(60 if label % 2 else 300):
            angle, phase = label * np.pi / 12, generator.uniform(0, 6)
            wave = np.sin(40 * (np.cos(angle) * line[:, None] + np.sin(angle) * line) + phase)
            pixels = 128 + 60 * wave[..., None] + generator.normal(0, 50, (160, 160, 3))
            image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
            image.save(folder / f"{number:03d}.jpg")


def settings(scratch: Path) -> dict[str, object]:
    """Return Caltech-101, or generated images if it is not there."""
    found: dict[str, object] = {"size": SIZE, "device": "cpu"}
    try:
        open_data("caltech101")
    except CosenError:
        generate(scratch / "images")
        return found | {"data": str(scratch / "images")}
    return found | {"data": "caltech101", "split": "fraction:0.6", "imbalance": "odd:0.1"}


def mean_recall(network: nn.Module, batches: Batches, classes: int) -> float:
    right, total = torch.zeros(classes), torch.zeros(classes)
    network.eval()
    with torch.inference_mode():
        for batch in batches:
            predicted = network(batch.inputs).logits.argmax(1)
            total += batch.target.bincount(minlength=classes)
            right += batch.target[predicted == batch.target].bincount(minlength=classes)
    return float((right / total)[total > 0].mean())


def stock_loop(config: TrainConfig, epochs: int) -> list[tuple[float, float]]:
    """Fine-tune all layers; return minutes and mean recall on test after each epoch."""
    task = make_task(config)  # its features are not used here, and not timed
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as cache:
        decode_images(task.decoded.data, task.model.preprocess, cache=CacheFolder(Path(cache)))
    classes = len(task.model.class_names)
    network = build_network(EMBEDDED, num_classes=classes)
    load_pretrained(network, EMBEDDED)
    network = network.to(memory_format=torch.channels_last)
    counts = task.splits.train.class_counts.float()
    loss = nn.CrossEntropyLoss(weight=counts.sum() / (classes * counts))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    order = torch.Generator().manual_seed(0)
    how = {"batch_size": 64, "normalise": task.model.normalise}
    augment = Augmentation(
        ("crop", "flip"), size=(SIZE, SIZE), channels=3, num_classes=classes, generator=order
    )
    train = Batches(task.decoded, task.splits.train, order=order, augment=augment, **how)
    test = Batches(task.decoded, task.splits.test, **how)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(train))
    spent, found = time.perf_counter() - start, []
    for epoch in range(epochs):
        start = time.perf_counter()
        network.train()
        for batch in train:
            optimizer.zero_grad()
            loss(network(batch.inputs).logits, batch.target).backward()
            optimizer.step()
            schedule.step()
        spent += time.perf_counter() - start  # the evaluation on test is not counted
        found.append((spent / 60, mean_recall(network, test, classes)))
        print(
            f"stock epoch {epoch + 1}: {spent / 60:.1f} min, {100 * found[-1][1]:.1f} %", flush=True
        )
    return found


def main() -> None:
    epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    with tempfile.TemporaryDirectory() as scratch:
        chosen = settings(Path(scratch))
        os.environ["COSEN_CACHE"] = str(Path(scratch, "cache"))  # nothing is computed before
        command = [sys.executable, "-m", "cosen", "train", str(chosen["data"]), "--json"]
        command += [f"--{name}={value}" for name, value in chosen.items() if name != "data"]
        start = time.perf_counter()
        done = subprocess.run(
            [*command, f"--out={scratch}/run"], check=True, stdout=subprocess.PIPE, text=True
        )
        minutes = (time.perf_counter() - start) / 60
        recall = json.loads(done.stdout)["test"]["mean_recall"]
        print(f"cosen train: {minutes:.1f} min, {100 * recall:.1f} %", flush=True)
        stock = stock_loop(TrainConfig(**chosen, network=EMBEDDED, finetune="all"), epochs)
    best = max(recall for _, recall in stock)
    needed = next(spent for spent, recall in stock if recall == best)
    verdict = "" if recall >= best else " (cosen does not reach the stock loop's recall)"
    print(
        f"cosen {100 * recall:.1f} % in {minutes:.1f} min; stock {100 * best:.1f} % in "
        f"{needed:.1f} min: {needed / minutes:.1f}x{verdict}"
    )


if __name__ == "__main__":
    main()
