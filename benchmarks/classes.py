"""Seconds and peak memory of the commands as the number of classes grows.

Small generated images with a long tail: a class has from 40 images down to 4. Images and epochs
are few, so what grows with the number of classes shows. Prints a Markdown table. Usage:

    python benchmarks/classes.py [CLASSES ...]
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = (10, 100, 1_000, 5_000)
SIDE = 8


def generate(root: Path, classes: int) -> int:
    """Write images whose colours tell their class; return their number."""
    generator = np.random.default_rng(0)
    counts = np.linspace(40, 4, classes).round().astype(int)
    if classes > 100:
        counts = np.minimum(counts, 4 + 3600 // (1 + np.arange(classes)))
    for label, count in enumerate(counts):
        folder = root / f"{label:05d}"
        folder.mkdir(parents=True)
        colours = generator.integers(0, 200, (SIDE, SIDE, 3))
        for number in range(count):
            noise = generator.integers(0, 56, (SIDE, SIDE, 3))
            image = Image.fromarray((colours + noise).astype(np.uint8))
            image.save(folder / f"{number}.png")
    return int(counts.sum())


def measure(arguments: list[str], folder: Path) -> tuple[float, float]:
    """Run a command; return its seconds and its peak memory in MB."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "cosen", *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    errors = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"cosen {' '.join(arguments)} failed: {errors[-2000:]}")
    return time.perf_counter() - start, used.ru_maxrss / 1024


def main() -> None:
    chosen = [int(number) for number in sys.argv[1:]] or CLASSES
    print("| classes | images | train | compare (2 runs) | report | page | predict |", flush=True)
    print("|---|---|---|---|---|---|---|", flush=True)
    for classes in chosen:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            os.environ["COSEN_CACHE"] = str(folder / "cache")
            images = generate(folder / "images", classes)
            how = ["--network=small-cnn", "--epochs=2", "--device=cpu"]
            found = [
                measure(["train", "images", "--out=run", *how], folder),
                measure(
                    ["compare", "images", "--methods=cosen", "--seeds=1", "--out=study", *how],
                    folder,
                ),
                measure(["report", "run", "--out=page.html"], folder),
                measure(["predict", "run", "images/00000", "--out=predictions.csv"], folder),
            ]
            cells = [f"{seconds:.0f} s, {memory:.0f} MB" for seconds, memory in found]
            page = f"{(folder / 'page.html').stat().st_size / 2**20:.1f} MB"
            row = [f"{classes:,}", f"{images:,}", *cells[:3], page, cells[3]]
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
