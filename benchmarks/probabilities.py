"""Probabilities of learned costs and of the baseline, on test images with natural frequencies.

Compares methods on frozen features of the default network, and prints a Markdown table. Under the
training shares: log loss, accuracy, calibration error, and its mean over classes. Under equal
shares: mean recall. The comparisons are kept in a folder and continued. Usage:

    python benchmarks/probabilities.py runs/probabilities ham10000 rsmas photos/ --size 128
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

import cosen
from cosen import functional as F

METHODS = ("baseline", "cosen")
SPLITS = {"ham10000": "fold:seed/3", "caltech101": "fraction:0.6"}
BINS = 15


def class_calibration_error(probabilities: Tensor, target: Tensor) -> float:
    """Return the mean, over classes, of the distance of probability and frequency in bins."""
    classes = probabilities.shape[1]
    gaps = one_hot(target, classes).double() - probabilities
    bins = (probabilities * BINS).ceil().long().clamp(1, BINS) - 1
    sums = torch.zeros(BINS, classes, dtype=torch.float64).scatter_add(0, bins, gaps)
    return float(sums.abs().sum() / len(target) / classes)


def measured(run: cosen.Run) -> list[float]:
    """Return the figures of a run on its test images."""
    calibration, test = run.record.calibration, run.folder.predictions()["test"]
    trained = calibration.training_shares
    logits = calibration.logits(test.logits, trained)
    probabilities = logits.softmax(1)
    own, balanced = run.metrics, run.evaluate(prior="balanced")
    return [
        100 * own.accuracy,
        100 * own.mean_recall,
        float(cross_entropy(logits, test.target)),
        100 * float((logits.argmax(1) == test.target).double().mean()),
        100 * float(F.expected_calibration_error(probabilities.float(), test.target)),
        100 * class_calibration_error(probabilities, test.target),
        100 * balanced.mean_recall,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    print(
        "| data | method | as trained: accuracy | mean recall | training shares: log loss | ",
        end="",
    )
    print("accuracy | calibration error | of classes | equal shares: mean recall |")
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for data in given.data:
        name = Path(data).name
        study = cosen.compare(
            data,
            methods=METHODS,
            seeds=given.seeds,
            out=given.folder / name,
            size=given.size,
            finetune="none",
            split=SPLITS.get(name, "auto"),
            data_root=os.environ.get("COSEN_DATA"),
        )
        for method in METHODS:
            figures = np.array([measured(study.run(method, seed)) for seed in range(given.seeds)])
            means, spreads = figures.mean(0), figures.std(0, ddof=1 if given.seeds > 1 else 0)
            digits = [1, 1, 3, 1, 1, 2, 1]
            cells = [
                f"{mean:.{digit}f} ± {spread:.{digit}f}"
                for mean, spread, digit in zip(means, spreads, digits, strict=True)
            ]
            print(f"| {name} | `{method}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
