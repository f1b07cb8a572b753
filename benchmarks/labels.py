"""Precision and recall of the list of wrong labels, on data whose labels were exchanged.

Labels of random pairs of images of different classes are exchanged, so each class keeps its size.
A study of three folds on frozen features predicts every image. The list is compared with the same
number of images that have the lowest probability of their label under the training shares, and
with cleanlab's own list under these shares. Rare labels are those of the rarest third of the
classes. Prints a Markdown table and one figure. Studies are kept in a folder and continued. Usage:

    python benchmarks/labels.py runs/labels rsmas ham10000 --size 96 --shares 0.05 0.1
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import cosen
from cosen.data.labelled import LabelledImages
from cosen.data.sources import open_data
from cosen.data.stores import printable
from cosen.inference.label_problems import held_out_predictions, suspicious
from cosen.networks.pretrained import EMBEDDED

METHOD = "cosen"


def exchanged(labels: np.ndarray, share: float) -> np.ndarray:
    """Exchange labels of different classes, until about this share of all labels is wrong."""
    labels, free = labels.copy(), list(np.random.default_rng(0).permutation(len(labels)))
    for _ in range(round(share * len(labels) / 2)):
        first = free.pop()
        place = next(i for i, other in enumerate(free) if labels[other] != labels[first])
        second = free.pop(place)
        labels[first], labels[second] = labels[second], labels[first]
    return labels


def lists_of(study: cosen.Study, names: list[str], labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return whether each image is listed, by the way of listing."""
    from cleanlab.filter import find_label_issues

    folders = [study.run(METHOD, seed).folder for seed in range(3)]
    row = {name: number for number, name in enumerate(names)}

    def probabilities(power: float) -> np.ndarray:
        """Return held-out probabilities under powers of the training shares, as data is sorted."""
        held_out = held_out_predictions(folders, power=power)
        found = np.empty_like(held_out.probabilities)
        found[[row[name] for name in held_out.names]] = held_out.probabilities
        return found

    trained, halfway = probabilities(1.0), probabilities(0.5)
    listed = np.zeros(len(labels), dtype=bool)
    listed[suspicious(labels, halfway)] = True
    own = trained[np.arange(len(labels)), labels]
    plain = np.zeros(len(labels), dtype=bool)
    plain[np.argsort(own, kind="stable")[: listed.sum()]] = True
    return {
        "cosen": listed,
        "same length, training shares": plain,
        "cleanlab, training shares": find_label_issues(labels, trained, n_jobs=1),
        "cleanlab, equal shares": find_label_issues(labels, probabilities(0.0), n_jobs=1),
    }


def measured(listed: np.ndarray, wrong: np.ndarray, rare: np.ndarray) -> list[float]:
    """Return the length, precision and recall of a list: of all labels, and of rare ones."""
    found = []
    for among in (np.ones_like(rare), rare):
        hits = (listed & wrong & among).sum()
        chosen, all_wrong = (listed & among).sum(), (wrong & among).sum()
        found += [chosen, 100 * hits / max(1, chosen), 100 * hits / max(1, all_wrong)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--shares", type=float, nargs="+", default=[0.05, 0.1])
    given = parser.parse_args()
    root = os.environ.get("COSEN_DATA")
    print(
        "| data | wrong | list | images | precision | recall | rare: images | precision | recall |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    totals = []
    for name in given.data:
        opened = open_data(name, root=None if root is None else Path(root))
        data: LabelledImages = replace(opened, parts=None)
        for share in given.shares:
            labels = exchanged(data.labels, share)
            wrong = labels != data.labels
            rarest = torch.argsort(data.class_counts)[: max(1, data.num_classes // 3)]
            study = cosen.compare(
                replace(data, labels=labels),
                methods=[METHOD],
                seeds=3,
                split="fold:seed/3",
                out=given.folder / f"{Path(name).name}-{share:g}",
                network=EMBEDDED,
                size=given.size,
                finetune="none",
            )
            lists = lists_of(study, [printable(image) for image in data.names], labels)
            for title, listed in lists.items():
                figures = measured(listed, wrong, np.isin(labels, rarest.numpy()))
                cells = [f"{figure:.0f}" for figure in figures]
                cells = [f"{cell} %" if i % 3 else cell for i, cell in enumerate(cells)]
                print(f"| {name} | {100 * share:g} % | {title} | {' | '.join(cells)} |", flush=True)
                if title == "cosen":
                    totals.append(figures)
    precision, recall = np.mean(totals, axis=0)[1:3]
    print(f"\nmean precision {precision:.0f} %, mean recall {recall:.0f} %")


if __name__ == "__main__":
    main()
