"""Seconds of an epoch with learned costs, separability included, over plain cross-entropy.

ResNet-32 at 32 pixels on 1,280 images of 20 classes, a fifth of them for validation. On a shared
machine whole epochs vary by a tenth, far more than the costs cost, so both runs take turns batch by
batch and the medians count. To the batches of an epoch are added validation, which both do, and for
the learned costs their step, its file, and a tenth of the separability, which is computed every
tenth epoch. The paper has 80.19 s / 71.87 s = 1.116.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
from PIL import Image

from cosen.functional import class_separability
from cosen.methods import make_method
from cosen.training.config import TrainConfig
from cosen.training.kinds import make_setting
from cosen.training.loop import Training
from cosen.training.run import make_fabric
from cosen.training.run_folder import RunFolder
from cosen.training.task import make_task

IMAGES, CLASSES, EPOCHS = 1_280, 20, 6


def make_images(root: Path) -> None:
    generator = np.random.default_rng(0)
    for number in range(IMAGES):
        path = root / f"{number % CLASSES:02d}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)


def seconds(call, *arguments, **options) -> float:
    start = time.perf_counter()
    call(*arguments, **options)
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "images"
        make_images(root)
        plain = TrainConfig(
            data=str(root),
            method="baseline",
            network="resnet32",
            split="fraction:0.95",
            validation=0.2,
            device="cpu",
        )
        learned = replace(plain, method="cosen", options={"separability_std": 1.0})
        fabric = make_fabric(plain)
        task = make_task(plain)
        setting = make_setting(plain, task)
        runs = []
        for config in (plain, learned):
            method = make_method(config.method, config.options)
            run = RunFolder(Path(folder) / config.method)
            run.path.mkdir()
            runs.append(Training(config, task, method, setting, run, fabric))
            runs[-1].run_epoch()  # warm up

        batch_times: list[list[float]] = [[], []]
        for epoch in range(EPOCHS):
            batches = list(task.batches(task.splits.train, batch_size=plain.batch_size))
            for number, batch in enumerate(batches):
                for which in (0, 1) if (epoch + number) % 2 else (1, 0):
                    step = runs[which].train_batch
                    taken = seconds(step, batch, number, len(batches), is_last=True)
                    batch_times[which].append(taken)
        validation = median(seconds(runs[1].validate) for _ in range(EPOCHS))
        outputs = runs[1].validate()
        features, target = outputs.features, outputs.target
        separability = median(
            seconds(class_separability, features, target, num_classes=CLASSES) for _ in range(9)
        )
        steps, files = [], []
        for _ in range(9):  # S was computed in the first step, so these are without it
            start = time.perf_counter()
            step = runs[1].loss.step(outputs.logits, target, features)
            steps.append(time.perf_counter() - start)
            files.append(seconds(runs[1].run.write_cost_step, step))
    extra = median(steps) + median(files) + separability / 10
    plain_epoch = len(batches) * median(batch_times[0]) + validation
    learned_epoch = len(batches) * median(batch_times[1]) + validation + extra
    for name, times in zip(("plain cross-entropy", "learned costs"), batch_times, strict=True):
        low, high = np.percentile(times, [25, 75])
        print(
            f"{name:20} {1000 * median(times):6.1f} ms a batch ({1000 * low:.1f}-{1000 * high:.1f})"
        )
    print(
        f"an epoch: validation {validation:.2f} s, step {1000 * median(steps):.1f} ms, its file "
        f"{1000 * median(files):.1f} ms, S {1000 * separability:.1f} ms every tenth"
    )
    ratio = learned_epoch / plain_epoch
    print(f"{ratio:.3f}x the time of plain cross-entropy (bound: at most 1.03)")


if __name__ == "__main__":
    main()
