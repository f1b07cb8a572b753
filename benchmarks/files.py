"""Seconds and peak memory for listing, splitting and hashing a folder of many files.

The files are empty, so the figures are those of names alone. Prints a Markdown table: time and
memory should grow no faster than the number of files. Usage:

    python benchmarks/files.py [FILES ...]
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

FILES, CLASSES = (10_000, 100_000, 1_000_000), 1_000
PEAK = "--measure"

Result = TypeVar("Result")


def create(root: Path, files: int) -> None:
    for label in range(CLASSES):
        folder = root / f"{label:04d}"
        folder.mkdir(parents=True)
        for number in range(files // CLASSES):
            (folder / f"{number:06d}.jpg").touch()


def timed(call: Callable[[], Result], cells: list[str]) -> Result:
    start = time.perf_counter()
    result = call()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cells.append(f"{time.perf_counter() - start:.1f} s, {peak:.0f} MB")
    return result


def measure(root: Path) -> list[str]:
    """Run each step in this process; the peak of a step includes the steps before it."""
    from cosen.data.cache_folder import CacheFolder
    from cosen.data.sources import from_folder
    from cosen.data.splits import FractionSplit, split_images

    cells: list[str] = []
    cache = CacheFolder(root / "cache")
    data = timed(lambda: from_folder(root / "images"), cells)
    timed(lambda: split_images(data, FractionSplit(0.8), seed=0), cells)
    timed(lambda: cache.contents(data.images), cells)
    timed(lambda: cache.contents(data.images), cells)
    return cells


def main() -> None:
    if sys.argv[1:2] == [PEAK]:
        print(" | ".join(measure(Path(sys.argv[2]))))
        return
    print("| files | list | split | hash | hash again |", flush=True)
    print("|---|---|---|---|---|", flush=True)
    for files in [int(number) for number in sys.argv[1:]] or FILES:
        with tempfile.TemporaryDirectory() as folder:
            create(Path(folder) / "images", files)
            command = [sys.executable, __file__, PEAK, folder]  # its own peak
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            run = subprocess.run(command, check=True, capture_output=True, env=environment)
            print(f"| {files:,} | {run.stdout.decode().strip()} |", flush=True)


if __name__ == "__main__":
    main()
