"""Small run and study folders with known numbers, as written by training."""

import math

import numpy as np
import torch

from cosen.comparing.grid import conclude
from cosen.comparing.study_folder import (
    FailuresRecord,
    MethodRecord,
    StudyFolder,
    StudyRecord,
)
from cosen.costs import AdaptiveCostStep, Objective, PaperCostStep
from cosen.data.labelled import LabelledImages
from cosen.data.stores import ImageArray
from cosen.networks.network import Outputs
from cosen.training.calibration import make_calibration
from cosen.training.config import TrainConfig
from cosen.training.evaluation import summarise
from cosen.training.records import (
    DataRecord,
    EpochRecord,
    ImageNames,
    RunMetrics,
    RunRecord,
    SplitCounts,
)
from cosen.training.run_folder import RunFolder
from cosen.training.thumbnails import write_thumbnails

NAMES = ("cat", "dog", "elk")
TRAIN = (100, 50, 5)
TARGET = (0, 0, 0, 0, 1, 1, 2, 2)
PLAIN = (0, 0, 0, 0, 1, 0, 0, 0)
"""Predictions of the baseline: recalls 1, 1/2 and 0."""
COSTLY = (0, 0, 0, 1, 1, 1, 2, 0)
"""Predictions of the other method: recalls 3/4, 1 and 1/2."""


def write_run(
    path,
    predicted,
    *,
    target=TARGET,
    names=NAMES,
    train=TRAIN,
    logits=None,
    method="cosen",
    seed=0,
    fingerprint="split",
    temperature=2.0,
    history=2,
    steps=(),
    pictures=True,
    pixels=None,
    image_names=None,
    command=("cosen", "train", "photos/"),
    costs=None,
    **settings,
):
    """A finished run with the same predictions for validation and test."""
    run, classes = RunFolder(path), len(names)
    path.mkdir(parents=True)
    target, predicted = torch.tensor(target), torch.tensor(predicted)
    if logits is None:
        logits = 4 * torch.nn.functional.one_hot(predicted, classes).float()
    outputs = Outputs(logits, logits, target)
    config = {
        "data": "photos/",
        "objective": "balanced",
        "seed": seed,
        "method": method,
        "epochs": 30,
    }
    counts = torch.bincount(target, minlength=classes)
    RunRecord(
        version="0.1.0",
        started="2026-11-16T02:32:04+00:00",
        command=command,
        config=TrainConfig(**(config | settings)),
        versions={"python": "3.11.7", "torch": "2.13.0"},
        platform="Linux",
        data=DataRecord(
            fingerprint=fingerprint,
            class_names=names,
            class_counts=SplitCounts(train=torch.tensor(train), val=counts, test=counts),
            network="small-cnn",
            size=(8, 8, 1),
            misclassification_costs=costs,
        ),
        seconds=10.0 + seed,
        temperature=temperature,
    ).write(path)
    image_names = image_names or [f"{fingerprint}/{row}.png" for row in range(len(target))]
    run.write_predictions(
        {part: Outputs(logits.clone(), logits, target.clone()) for part in ("val", "test")},
        ImageNames(val=image_names, test=image_names),
    )
    objective = Objective.of("balanced" if costs is None else costs)
    metrics = summarise(
        outputs,
        objective=objective,
        calibration=make_calibration(temperature, (), torch.tensor(train)),
    )
    if history:
        run.write_history([record(epoch) for epoch in range(1, history + 1)])
    for step in steps:
        run.write_cost_step(step)
    if pictures:
        write_pictures(run, target.numpy(), logits.argmax(1).numpy(), train, pixels)
    RunMetrics(val=metrics, test=metrics).write(path)
    return run


def write_pictures(run, target, predicted, train, pixels=None):
    """As training writes them: row 3 of the test split is an image of brightness 3."""
    if pixels is None:
        pixels = np.zeros((len(target), 8, 8), np.uint8) + np.arange(len(target))[:, None, None]
    store = ImageArray(pixels.astype(np.uint8))
    test = LabelledImages(
        store, np.arange(len(target)), target, tuple(map(str, range(len(train)))), "photos"
    )
    shown = pixels.reshape(len(pixels), *pixels.shape[1:3], -1).astype(np.uint8)
    write_thumbnails(run, shown, test, predicted=predicted, class_counts=train)


def record(epoch):
    return EpochRecord(
        epoch=epoch,
        lr=0.05,
        train_loss=1.0,
        train_error=0.5 / epoch,
        val_error=0.25 / epoch,
        val_accuracy=0.9,
        mean_recall=0.9,
        rare_recall=0.9,
        seconds=1.0,
        images_per_second=100.0,
        cost_accepted=None,
        cost_lr=None,
        best=True,
    )


def cost_step(number, classes=3, *, separability=True, strengths=None):
    """A step whose costs are all 1 / number; with strengths, only those of the true classes are."""
    ones = torch.ones(classes, classes)
    shared = {
        "number": number,
        "val_error": 0.5 / number,
        "best_error": 0.25,
        "accepted": number % 2 == 1,
        "confusion": torch.eye(classes),
    }
    if strengths:
        diagonal = torch.full((classes,), -math.log(number))
        costs = {"row": torch.zeros(classes), "diagonal": diagonal, "pair_term": None}
        return AdaptiveCostStep(**shared, **strengths, **costs)
    return PaperCostStep(
        **shared,
        cost_matrix=ones / number,
        cost_lr=0.3,
        target_costs=ones / (10 * number),
        separability=ones * number if separability else None,
    )


def write_study(
    path,
    given,
    *,
    seeds=(0, 1),
    failures=None,
    runs=None,
    command=("cosen", "compare", "photos/"),
    **settings,
):
    """A finished study, given the predictions of each method, for all seeds or by seed.

    Args:
        path: Its folder.
        given: Predictions for the test images, by method.
        seeds: The seeds.
        failures: Why runs are missing, by method and seed.
        runs: More arguments of ``write_run``, by method.
        command: The command that started it.
        settings: Settings of all runs.
    """
    study, failures = StudyFolder(path), failures or {}
    path.mkdir(parents=True)
    StudyRecord(
        version="0.1.0",
        started="2026-11-16T02:32:04+00:00",
        command=command,
        config=TrainConfig(
            **({"data": "photos/", "objective": "balanced", "epochs": 30} | settings)
        ),
        versions={"python": "3.11.7"},
        platform="Linux",
        methods={
            name: MethodRecord(method=name, options={})
            for name in dict.fromkeys([*given, *failures])
        },
        seeds=seeds,
        data="photos",
    ).write(path)
    for method, predicted in given.items():
        for seed in seeds:
            if seed not in failures.get(method, {}):
                write_run(
                    study.run(method, seed).path,
                    predicted[seed] if isinstance(predicted, dict) else predicted,
                    method=method,
                    seed=seed,
                    fingerprint=f"split-{seed}",
                    **(runs or {}).get(method, {}),
                    **settings,
                )
    FailuresRecord(failures=failures).write(path)
    conclude(study)
    return study
