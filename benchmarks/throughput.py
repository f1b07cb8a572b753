"""Images per second of a training epoch, relative to a plain PyTorch loop with the same network.

The plain loop is float32 with a DataLoader that opens images with Pillow, a worker per core. There
are two cases: all of ResNet-32 at 32 pixels, and a head on frozen VGG-16 features at 128 pixels.
The plain loop computes the features in every epoch. cosen computes them once, and this time is
printed separately. Epochs are timed alternately. The accuracy on training images is printed too:
the two classes are easy, and both loops must learn them.
"""

import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, Dataset

from cosen.data.batches import IMAGENET
from cosen.data.cache_folder import CacheFolder
from cosen.methods import make_method
from cosen.networks import build_network
from cosen.networks.vgg import VGG16Features
from cosen.training.config import TrainConfig
from cosen.training.context import RunContext, make_setting
from cosen.training.loop import Callbacks
from cosen.training.run import make_fabric
from cosen.training.run_folder import RunFolder
from cosen.training.task import make_task

BATCH, ROUNDS, LR = 32, 3, 0.02


class PlainImages(Dataset):
    def __init__(self, paths: list[Path], labels: list[int], size: int) -> None:
        self.paths, self.labels, self.size = paths, labels, size

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image = Image.open(self.paths[index]).convert("RGB").resize((self.size, self.size))
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255
        mean, std = (torch.tensor(part)[:, None, None] for part in (IMAGENET.mean, IMAGENET.std))
        return (pixels - mean) / std, self.labels[index]


def make_images(root: Path, count: int, size: int) -> None:
    generator = np.random.default_rng(0)
    for number in range(count):
        coarse = generator.integers(0, 200, (8, 8, 3), dtype=np.uint8)
        coarse[..., number % 2] += 55  # a tint distinguishes the classes
        path = root / str(number % 2) / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(coarse).resize((size, size), Image.Resampling.BICUBIC).save(path)


def plain_epoch(loader, backbone, network, optimizer) -> tuple[float, float]:
    """Return images per second and the share of correct predictions."""
    start, right, seen = time.perf_counter(), 0, 0
    network.train()
    for images, target in loader:
        if backbone is not None:
            with torch.no_grad():
                images = backbone(images)
        logits = network(images).logits
        optimizer.zero_grad()
        nn.functional.cross_entropy(logits, target).backward()
        optimizer.step()
        right += int((logits.argmax(1) == target).sum())
        seen += len(target)
    return seen / (time.perf_counter() - start), right / seen


def compare(folder: Path, name: str, network: str, size: int, count: int) -> float:
    root = folder / name
    make_images(root, count, size)
    torch.manual_seed(0)
    backbone = VGG16Features().eval() if network == "head" else None
    settings = {"weights": str(folder / "vgg.safetensors")} if network == "head" else {}
    if backbone is not None:
        for layer in backbone.features:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight)  # else random features almost vanish
        save_file(backbone.state_dict(), folder / "vgg.safetensors")
    config = TrainConfig(
        data=str(root),
        method="cosen",
        network=network,
        size=size,
        batch_size=BATCH,
        lr=LR,
        schedule="constant",
        epochs=ROUNDS,
        device="cpu",
        **settings,
    )
    start = time.perf_counter()
    task = make_task(config)
    prepared = time.perf_counter() - start
    setting = make_setting(config, task)
    run = RunFolder(folder / f"run-{name}")
    run.path.mkdir()
    context = RunContext(config, task, setting, run, make_fabric(config), Callbacks())
    loop = context.make_loop(make_method("cosen"))

    train = task.splits.train
    loader = DataLoader(
        PlainImages([task.decoded.data.images.paths[r] for r in train.rows], train.labels, size),
        batch_size=BATCH,
        shuffle=True,
        num_workers=os.cpu_count() or 1,
    )
    options = {"in_features": 512} if network == "head" else {"channels": 3}
    plain_network = build_network(network, num_classes=2, **options)
    optimizer = torch.optim.SGD(
        plain_network.parameters(), lr=LR, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    plain_speeds, our_speeds = [], []
    for done in range(ROUNDS):
        speed, plain_right = plain_epoch(loader, backbone, plain_network, optimizer)
        plain_speeds.append(speed)
        start = time.perf_counter()
        loop.settings = replace(loop.settings, epochs=done + 1)
        loop.fit()  # one epoch, with validation, the step of the costs and saving
        our_speeds.append(len(train) / (time.perf_counter() - start))
    ratio = median(our_speeds) / median(plain_speeds)
    print(
        f"{name}: {median(our_speeds):.0f} against {median(plain_speeds):.0f} images/s, accuracy "
        f"{100 * (1 - loop.history[-1].train_error):.0f} % against {100 * plain_right:.0f} %; "
        f"decoding{' and features' if network == 'head' else ''} took {prepared:.0f} s once"
    )
    return ratio


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COSEN_CACHE"] = str(CacheFolder(Path(folder) / "cache").root)
        whole = compare(Path(folder), "resnet32 at 32 pixels", "resnet32", 32, 1000)
        head = compare(Path(folder), "head on VGG-16 at 128 pixels", "head", 128, 150)
    print(
        f"{whole:.1f}x the images per second with resnet32, {head:.0f}x on frozen features "
        "(bound: one of them at least 2)"
    )


if __name__ == "__main__":
    main()
