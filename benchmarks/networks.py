"""Accuracy and mean recall of networks and fine-tuning modes; prints a Markdown table.

A row is a mode of the default network (``none``, ``light``, ``last``, ``all``), a network that is
trained from scratch (``small-cnn``), or ``vgg16`` (needs ``--vgg FILE``). Runs are kept in a folder
and not repeated, so the table can be completed in several sessions. Seconds are those of one core,
which do not depend on what else the machine does. Data that is not below ``COSEN_DATA`` is left
out, with a line that says so. Usage:

    python benchmarks/networks.py runs/networks --datasets rsmas --rows none,last --seeds 3
    python benchmarks/networks.py runs/small --datasets digits,mnist --rows small-cnn,none --size 64
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch

import cosen
from cosen.errors import CosenError
from cosen.networks.pretrained import EMBEDDED
from cosen.training.run_folder import RunFolder

DATASETS = {
    "caltech101": {"split": "fraction:0.6", "imbalance": "odd:0.1"},
    "rsmas": {},
    "ham10000": {"split": "fold:seed/3"},
    "digits": {"imbalance": "odd:0.1"},
    "mnist": {"imbalance": "odd:0.1"},
    "cifar100": {"imbalance": "odd:0.1"},
}
TITLES = {
    "caltech101": "Caltech-101, odd 10 %",
    "rsmas": "RSMAS",
    "ham10000": "HAM10000",
    "digits": "digits, odd 10 %",
    "mnist": "MNIST, odd 10 %",
    "cifar100": "CIFAR-100, odd 10 %",
}
MODES = ("none", "light", "last", "all")


def settings_of(row: str, size: int, vgg: Path | None) -> dict[str, object]:
    """Return the settings of a row."""
    if row == "vgg16":
        return {"network": "head", "weights": str(vgg), "size": 128}
    if row in MODES:
        return {"network": EMBEDDED, "finetune": row} | ({"size": size} if size else {})
    return {"network": row}


def core_seconds() -> float:
    """Return the seconds that all cores together have worked for this process."""
    return sum(os.times()[:4])


def measure(folder: Path, settings: dict[str, object]) -> tuple[float, float, float]:
    """Train, unless there is a finished run; return seconds, accuracy and mean recall."""
    run = RunFolder(folder)
    clock = folder.parent / f"{folder.name}.seconds"
    if not run.is_finished:
        start = core_seconds()
        before = float(clock.read_text()) if clock.exists() else 0.0
        try:
            if run.has_run:
                cosen.train(resume=folder)
            else:
                cosen.train(out=folder, **settings)
        finally:
            folder.parent.mkdir(parents=True, exist_ok=True)
            clock.write_text(str(before + core_seconds() - start))
    test = run.metrics().test
    return float(clock.read_text()), 100 * (test.accuracy or 0), 100 * (test.mean_recall or 0)


def cell(values: list[float], digits: int = 1) -> str:
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--size", type=int, default=0, help="image size of the default network")
    parser.add_argument("--datasets", default="caltech101,rsmas,ham10000")
    parser.add_argument("--rows", default=",".join(MODES))
    parser.add_argument("--method", default="cosen")
    parser.add_argument("--vgg", type=Path, default=None, help="weights of VGG-16")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    for data in given.datasets.split(","):
        for row in given.rows.split(","):
            own = settings_of(row, given.size, given.vgg)
            settings = {"data": data, "method": given.method, "device": "cpu"}
            settings |= DATASETS[data] | own
            found = []
            for seed in range(given.seeds):
                name = f"{data}-{row}-{own.get('size', 'default')}-{given.method}-{seed}"
                try:
                    found.append(measure(given.out / name, settings | {"seed": seed}))
                except CosenError as error:
                    print(f"{name}: {error}", flush=True)
                    break
            if found:
                seconds, accuracy, recall = (list(values) for values in zip(*found, strict=True))
                lines.append(
                    f"| {TITLES[data]} | {row} | {own.get('size', '')} | {len(found)} | "
                    f"{cell(seconds, 0)} | {cell(accuracy)} | {cell(recall)} |"
                )
                print(lines[-1], flush=True)
    print("\n| data | row | pixels | seeds | seconds of one core | accuracy | mean recall |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
