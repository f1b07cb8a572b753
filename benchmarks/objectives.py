"""Each objective on test images with natural frequencies: what a method is trained for is measured.

Compares the baseline with learned costs on frozen features of the default network, and prints a
Markdown table: accuracy if trained for accuracy, mean recall if trained for mean recall, and the
mean cost if trained for misclassification costs. Missing a class of the rarer half costs 10, any
other mistake costs 1. The cost is that of the most probable classes, and of the decisions with the
lowest expected cost under the training shares (Bayes). The comparisons are kept in a folder and
continued. Usage:

    python benchmarks/objectives.py runs/objectives ham10000 rsmas photos/ --size 128
"""

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import cosen
from cosen.data.sources import open_data
from cosen.functional import bayes_decision

METHODS = ("baseline", "cosen")
SPLITS = {"ham10000": "fold:seed/3", "caltech101": "fraction:0.6"}
DEAR = 10.0


def expert_costs(counts: np.ndarray) -> Tensor:
    """Return costs in which the rarer half of the classes is dear to miss, row = true class."""
    ranks = np.argsort(np.argsort(counts, kind="stable"), kind="stable")
    rows = torch.from_numpy(np.where(ranks < len(counts) // 2, DEAR, 1.0)).float()
    costs = rows[:, None].repeat(1, len(counts))
    return costs.fill_diagonal_(0)


def mean_costs(run: cosen.Run, costs: Tensor) -> tuple[float, float]:
    """Return the mean cost of the most probable classes, and of Bayes decisions, on test."""
    test, calibration = run.folder.predictions()["test"], run.record.calibration
    probabilities = calibration.probabilities(test.logits, calibration.training_shares)
    decided = test.logits.argmax(1), bayes_decision(probabilities.float(), costs)
    usual, best = (float(costs[test.target, classes].mean()) for classes in decided)
    return usual, best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    root = Path(os.environ["COSEN_DATA"]) if "COSEN_DATA" in os.environ else None
    print("| data | method | overall: accuracy | balanced: mean recall | ", end="")
    print("costs: mean cost | with Bayes decisions |")
    print("|---|---|---|---|---|---|", flush=True)
    for data in given.data:
        name = Path(data).name
        costs = expert_costs(np.bincount(open_data(data, root=root).labels))
        objectives = {"overall": "overall", "balanced": "balanced", "costs": costs}
        studies = {
            label: cosen.compare(
                data,
                methods=METHODS,
                seeds=given.seeds,
                objective=objective,
                out=given.folder / name / label,
                size=given.size,
                finetune="none",
                split=SPLITS.get(name, "auto"),
                data_root=root,
            )
            for label, objective in objectives.items()
        }
        for method in METHODS:
            figures = []
            for seed in range(given.seeds):
                runs = {label: study.run(method, seed) for label, study in studies.items()}
                figures.append(
                    [
                        100 * runs["overall"].metrics.accuracy,
                        100 * runs["balanced"].metrics.mean_recall,
                        *mean_costs(runs["costs"], costs),
                    ]
                )
            found = np.array(figures)
            pairs = zip(found.mean(0), found.std(0, ddof=1), (1, 1, 3, 3), strict=True)
            cells = [f"{mean:.{digits}f} ± {spread:.{digits}f}" for mean, spread, digits in pairs]
            print(f"| {name} | `{method}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
