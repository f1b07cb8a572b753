"""Accuracy and mean recall of networks and fine-tuning modes; prints a Markdown table.

Runs are kept in a folder and not repeated, so the table can be completed in several sessions.
Data that is not below ``COSEN_DATA`` is left out, with a line that says so. VGG-16 needs its
weights (``--vgg FILE``). Usage:

    python benchmarks/networks.py runs/networks --seeds 3 --datasets rsmas --modes none,last
"""

import argparse
import time
from pathlib import Path

import numpy as np

import cosen
from cosen.errors import CosenError
from cosen.training.run_folder import RunFolder

DATASETS = {
    "caltech101": {"split": "fraction:0.6", "imbalance": "odd:0.1"},
    "rsmas": {},
    "ham10000": {"split": "fold:seed/3"},
}
TITLES = {"caltech101": "Caltech-101, odd 10 %", "rsmas": "RSMAS", "ham10000": "HAM10000"}
MODES = ("none", "light", "last", "all")


def measure(folder: Path, settings: dict[str, object]) -> tuple[float, float, float]:
    """Train, unless there is a finished run; return seconds, accuracy and mean recall."""
    run = RunFolder(folder)
    clock = folder.parent / f"{folder.name}.seconds"
    if not run.is_finished:
        start = time.perf_counter()
        before = float(clock.read_text()) if clock.exists() else 0.0
        try:
            if run.has_run:
                cosen.train(resume=folder)
            else:
                cosen.train(out=folder, **settings)
        finally:
            folder.parent.mkdir(parents=True, exist_ok=True)
            clock.write_text(str(before + time.perf_counter() - start))
    test = run.metrics().test
    return float(clock.read_text()), 100 * (test.accuracy or 0), 100 * (test.mean_recall or 0)


def cell(values: list[float], digits: int = 1) -> str:
    spread = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{spread}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--size", type=int, default=0)
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--method", default="cosen")
    parser.add_argument("--vgg", type=Path, default=None, help="weights of VGG-16")
    given = parser.parse_args()
    rows = [("tf_efficientnet_lite0", mode, {"finetune": mode}) for mode in given.modes.split(",")]
    if given.vgg is not None:
        rows.append(("VGG-16", "none", {"network": "head", "weights": str(given.vgg), "size": 128}))
    lines = []
    for data in given.datasets.split(","):
        for network, mode, own in rows:
            settings = {"data": data, "method": given.method, "device": "cpu"}
            settings |= {"network": network} if network != "VGG-16" else {}
            settings |= {"size": given.size} if given.size else {}
            found = []
            for seed in range(given.seeds):
                name = f"{data}-{network}-{mode}-{given.size or 'default'}-{given.method}-{seed}"
                try:
                    chosen = settings | DATASETS[data] | own | {"seed": seed}
                    found.append(measure(given.out / name, chosen))
                except CosenError as error:
                    print(f"{name}: {error}", flush=True)
                    break
            if found:
                seconds, accuracy, recall = (list(values) for values in zip(*found, strict=True))
                lines.append(
                    f"| {TITLES[data]} | {network} | {mode} | {len(found)} | {cell(seconds, 0)} | "
                    f"{cell(accuracy)} | {cell(recall)} |"
                )
                print(lines[-1], flush=True)
    print("\n| data | network | fine-tuning | seeds | seconds | accuracy | mean recall |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
