"""The features that candidates are trained on, and their held-out errors."""

from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cosen.costs import OVERALL
from cosen.data.batches import Batch, FeatureBatches
from cosen.data.labelled import LabelledImages
from cosen.errors import RunError
from cosen.methods import Setting
from cosen.methods.learned_costs import CosenPaper
from cosen.networks.device import resolve_device
from cosen.networks.network import Outputs
from cosen.networks.small import Head
from cosen.training import checksums
from cosen.training.config import TrainConfig
from cosen.training.folds import Fold
from cosen.training.loop import Loop, LoopSettings, make_optimizer, seeded
from cosen.training.task import Task
from cosen.training.tuning.outcome import CostOptions
from cosen.training.tuning.search import TuningProgress

FEATURE_EPOCHS = 5
"""Epochs of the network that computes features if there are no pretrained weights."""


def features_of_folds(
    config: TrainConfig,
    task: Task,
    pool: LabelledImages,
    parts: list[Fold[LabelledImages]],
    store: Path,
    progress: TuningProgress,
) -> list[Fold[Batch]]:
    """Return the features of each fold, on the device that heads are trained on.

    Features of pretrained weights are the same in every fold. A network that is trained here must
    not see the held-out images, so each fold has its own network, kept in ``store``.
    """
    names = [f"fold{number}" for number in range(len(parts))]
    if task.features is not None:
        batches = task.batches(pool, batch_size=config.batch_size)
        found = dict.fromkeys(names, torch.cat([batch.inputs for batch in batches]))
    elif store.exists():
        try:
            checksums.check(store)
            found = load_file(store)
        except (SafetensorError, OSError) as error:
            raise RunError(f"{store} is damaged: remove it to compute it again") from error
    else:
        found = {}
        for number, (name, fold) in enumerate(zip(names, parts, strict=True)):
            progress("Learning features", number, len(parts))
            found[name] = learn_features(config, task, fold.train, pool)
        checksums.write_checked(store, lambda partial: save_file(found, partial))
    device = resolve_device(config.device)
    position = {row: position for position, row in enumerate(pool.rows.tolist())}

    def samples(part: LabelledImages, features: Tensor) -> Batch:
        rows = torch.tensor([position[row] for row in part.rows.tolist()])
        return Batch(features[rows].to(device), torch.from_numpy(part.labels).to(device))

    return [
        Fold(*(samples(part, found[name]) for part in (fold.train, fold.val, fold.held_out)))
        for name, fold in zip(names, parts, strict=True)
    ]


def learn_features(
    config: TrainConfig, task: Task, train: LabelledImages, pool: LabelledImages
) -> Tensor:
    """Train a network on a part of the pool, and return its features of the pool."""
    device = resolve_device(config.device)
    config = replace(config, epochs=FEATURE_EPOCHS)
    with seeded(config.seed):
        network = task.network(config).to(device)
    order = torch.Generator().manual_seed(config.seed)
    loop = Loop(
        network,
        nn.CrossEntropyLoss(),
        make_optimizer(network, config),
        LoopSettings.of(config),
        batches=lambda: task.batches(
            train, batch_size=config.batch_size, order=order, device=device
        ),
        validate=None,
        objective=OVERALL,
        class_counts=train.class_counts,
    )
    loop.fit()
    network.eval()
    with torch.inference_mode():
        batches = task.batches(pool, batch_size=config.batch_size, device=device)
        return torch.cat([network(batch.inputs).features.float().cpu() for batch in batches])


def held_out_error(
    config: TrainConfig, fold: Fold[Batch], options: CostOptions, *, setting: Setting
) -> float:
    """Train a head with these options, and return the held-out error of its best epoch.

    Initial weights and the order of samples are the same for all candidates.
    """
    train, device = fold.train, fold.train.inputs.device
    # every class is in the training part, so the largest label is the last class
    counts = torch.bincount(train.target).cpu()
    with seeded(config.seed):
        network = Head(train.inputs.shape[1], len(counts), normalise=True).to(device)
    error = 1.0

    def end_epoch(loop: Loop, _: object) -> None:
        nonlocal error
        if loop.history[-1].best:
            error = setting.objective.error(_outputs(network, fold.held_out).confusion())

    loop = Loop(
        network,
        CosenPaper(**options).make_loss(replace(setting, class_counts=counts)).to(device),
        make_optimizer(network, config),
        LoopSettings.of(config),
        batches=lambda: batches,
        validate=lambda evaluated: _outputs(evaluated, fold.val),
        objective=setting.objective,
        class_counts=counts,
        end_epoch=end_epoch,
    )
    batches = FeatureBatches(
        train.inputs,
        train.target,
        batch_size=config.batch_size,
        order=torch.Generator().manual_seed(config.seed),
        device=device,
    )
    loop.fit()
    return error


@torch.no_grad()
def _outputs(network: nn.Module, samples: Batch) -> Outputs:
    network.eval()
    output = network(samples.inputs)
    return Outputs(output.logits, output.features, samples.target)
