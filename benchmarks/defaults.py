"""Variants of a method on training images only: the command that chooses the defaults.

Takes the training images of each protocol of the preset ``cpu``, frozen features of its network,
and three folds. Each variant chooses its output layer and trains on two folds, as a run would, and
is measured on the third. Test images are never opened for a decision. Prints a Markdown table of
mean recall and accuracy in per cent, and the average over protocols. Usage:

    python benchmarks/defaults.py caltech101/60-odd-10 rsmas/standard --repeats 2 \\
        --variants "balanced-softmax;cosen;cosen(learn_tau=true)"

A variant with ``oracle:`` before its name learns its costs from the very images on which it is
measured. It shows about how much better validation errors could add; never choose by it.
"""

import argparse
import os
from dataclasses import replace

import numpy as np
import torch

from cosen.data.batches import Batch
from cosen.data.splits import fold_of_each, split_off_validation
from cosen.functional import confusion_matrix
from cosen.methods import NetworkMethod, Setting, make_method, parse_method
from cosen.paper.presets import PRESETS
from cosen.paper.protocols import protocol
from cosen.training.finetuning import with_defaults
from cosen.training.folds import training_pool
from cosen.training.head_search import choose_head, fit_head
from cosen.training.task import make_task

FOLDS = 3
VARIANTS = "balanced-softmax;cosen;cosen(learn_tau=true)"


ORACLE = "oracle:"


def held_out(
    method: NetworkMethod, task, config, seed: int, *, is_oracle: bool
) -> tuple[float, float]:
    """Return mean recall and accuracy on the held-out folds; an oracle learns costs from them."""
    pool = training_pool(task.splits.train, task.splits.val)
    number = fold_of_each(pool, folds=FOLDS, seed=1000 + seed)
    classes = len(pool.class_names)
    counts = torch.zeros(classes, classes, dtype=torch.long)
    config = replace(config, seed=seed)
    for fold in range(FOLDS):
        rest, test = pool.take(number != fold), pool.take(number == fold)
        train, val = split_off_validation(rest, share=config.validation, seed=seed)
        setting = Setting(
            class_counts=train.class_counts.clamp(min=1),
            class_names=pool.class_names,
            objective=task.objective,
            seed=seed,
        )
        head = choose_head(method, task.pooled[task.feature_rows(rest)], rest, setting, config)
        setting = head.applied_to(setting)
        parts = [
            Batch(task.pooled[task.feature_rows(part)], torch.from_numpy(part.labels))
            for part in (train, val, test)
        ]
        own = replace(config, weight_decay=head.weight_decay)
        seen = parts[2 if is_oracle else 1]
        network = fit_head(method, parts[0], seen, setting, own, output=head.output)
        with torch.no_grad():
            predicted = network(parts[2].inputs).logits.argmax(1)
        counts += confusion_matrix(parts[2].target, predicted, num_classes=classes)
    correct, samples = counts.diagonal().double(), counts.sum(1).double()
    present = samples > 0
    recall = (correct[present] / samples[present]).mean()
    return float(100 * recall), float(100 * correct.sum() / samples.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("protocols", nargs="+")
    parser.add_argument("--variants", default=VARIANTS, help="separated by semicolons")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--head", default="auto", help="linear, cosine or auto")
    given = parser.parse_args()
    variants = given.variants.split(";")
    print("| training images of | " + " | ".join(f"`{name}`" for name in variants) + " |")
    print("|---|" + "---|" * len(variants), flush=True)
    averages = []
    for name in given.protocols:
        config = PRESETS["cpu"].config(
            protocol(name),
            data_root=os.environ.get("COSEN_DATA"),
            finetune="none",
            head=given.head,
        )
        config = with_defaults(config, "none")
        task = make_task(config)
        cells = []
        for label in variants:
            method = make_method(*parse_method(label.removeprefix(ORACLE)))
            assert isinstance(method, NetworkMethod)
            is_oracle = label.startswith(ORACLE)
            found = np.array(
                [
                    held_out(method, task, config, seed, is_oracle=is_oracle)
                    for seed in range(given.repeats)
                ]
            )
            cells.append((found[:, 0].mean(), found[:, 0].std(), found[:, 1].mean()))
        texts = [f"{recall:.1f} ± {spread:.1f} / {right:.1f}" for recall, spread, right in cells]
        print(f"| {name} | {' | '.join(texts)} |", flush=True)
        averages.append(cells)
    means = np.array(averages)[:, :, [0, 2]].mean(0)
    print(f"| average | {' | '.join(f'{recall:.2f} / {right:.2f}' for recall, right in means)} |")


if __name__ == "__main__":
    main()
