"""The features that heads are trained on: found once in each fold, for all candidates."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cosen.data.labelled import LabelledImages
from cosen.training.config import TrainConfig
from cosen.training.files import write_with
from cosen.training.schedule import make_optimizer
from cosen.training.task import Task, resolve_device
from cosen.training.tuning.epoch import seeded, train_epoch
from cosen.training.tuning.folds import Fold
from cosen.training.tuning.progress import Progress

FEATURE_EPOCHS = 5
"""Epochs of the network that features come from where there are no pre-trained weights."""


@dataclass(frozen=True, eq=False)
class Samples:
    """Features of shape ``(n, D)`` and classes of shape ``(n,)``."""

    features: Tensor
    target: Tensor


def features_of_folds(
    config: TrainConfig,
    task: Task,
    pool: LabelledImages,
    parts: list[Fold[LabelledImages]],
    store: Path,
    tell: Progress,
) -> list[Fold[Samples]]:
    """The samples of each fold, on the device that heads are trained on.

    Features of pre-trained weights are the same in every fold. A network that is trained here must
    not have seen what is held out, so each fold has its own.

    Args:
        config: The configuration.
        task: Gives images, or features of pre-trained weights.
        pool: The training pool.
        parts: Its folds.
        store: The file for features that are learned here.
        tell: Told how far it is.
    """
    if task.features is not None:
        batches = task.batches(pool, batch_size=config.batch_size)
        found = [torch.cat([batch.inputs for batch in batches])] * len(parts)
    else:
        found = _learned_features(config, task, pool, parts, store, tell)
    device = resolve_device(config.device)
    place = {row: place for place, row in enumerate(pool.rows.tolist())}

    def samples(part: LabelledImages, features: Tensor) -> Samples:
        places = torch.tensor([place[row] for row in part.rows.tolist()])
        return Samples(features[places].to(device), torch.from_numpy(part.labels).to(device))

    return [
        Fold(samples(fold.train, own), samples(fold.val, own), samples(fold.held_out, own))
        for fold, own in zip(parts, found, strict=True)
    ]


def _learned_features(
    config: TrainConfig,
    task: Task,
    pool: LabelledImages,
    parts: list[Fold[LabelledImages]],
    store: Path,
    tell: Progress,
) -> list[Tensor]:
    """Features of the pool for each fold, ``(len(pool), D)``; from the file if it is there."""
    names = [f"fold{number}" for number in range(len(parts))]
    if store.exists():
        stored = load_file(store)
        return [stored[name] for name in names]
    found = {}
    for number, (name, fold) in enumerate(zip(names, parts, strict=True)):
        tell("Learning features", number, len(parts))
        found[name] = learn_features(config, task, fold.train, pool)
    write_with(store, lambda partial: save_file(found, partial))
    return list(found.values())


def learn_features(
    config: TrainConfig, task: Task, train: LabelledImages, pool: LabelledImages
) -> Tensor:
    """Penultimate features of a network trained plainly on a part of the pool."""
    device = resolve_device(config.device)
    config = replace(config, epochs=FEATURE_EPOCHS)
    with seeded(config.seed):
        network = task.network(config).to(device)
    optimizer = make_optimizer(config, network.parameters())
    order = torch.Generator().manual_seed(config.seed)
    for epoch in range(config.epochs):
        batches = task.batches(train, batch_size=config.batch_size, order=order, device=device)
        train_epoch(config, network, nn.CrossEntropyLoss(), optimizer, batches, epoch)
    network.eval()
    with torch.inference_mode():
        batches = task.batches(pool, batch_size=config.batch_size, device=device)
        return torch.cat([network(batch.inputs).features.float().cpu() for batch in batches])
