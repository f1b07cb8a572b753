"""Choose the output layer on pretrained features by cross-validation on the training images.

On cached features a fit takes seconds, and the form and the regularisation of the output layer
matter more than the loss. Every method gets the same search, with its own loss.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from cosen import functional as F
from cosen.data.batches import Batch, FeatureBatches
from cosen.data.labelled import LabelledImages
from cosen.data.splits import fold_of_each, split_off_validation
from cosen.errors import CosenError
from cosen.methods import NetworkMethod, Samples, Setting
from cosen.methods.learned_costs import COSINE_SCALE
from cosen.networks import Network, build_network
from cosen.networks.network import Outputs
from cosen.training.config import TrainConfig
from cosen.training.finetuning import start_at_class_means
from cosen.training.loop import Loop, LoopSettings, make_optimizer, seeded
from cosen.training.records import HeadRecord

_log = logging.getLogger("cosen")

FOLDS = 3

EPOCHS, FEWEST_EPOCHS, STEPS = 30, 12, 1200
"""Epochs of a candidate: as many as of a run, but fewer if they have more batches than this."""

DECAYS = (1e-3, 1e-4, 1e-2)
"""Weight decays that are tried; the first is used if there is nothing to compare."""

HEAD_LR = 0.1
"""Learning rate of an output layer on features."""

Output = Literal["linear", "cosine"]

Resample = Callable[[np.ndarray, np.ndarray, Setting], Samples]


def choose_head(
    method: NetworkMethod,
    features: Tensor,
    pool: LabelledImages,
    setting: Setting,
    config: TrainConfig,
    *,
    resample: Resample | None = None,
    device: torch.device | str = "cpu",
) -> HeadRecord:
    """Cross-validate the form and the weight decay of the output layer for a method.

    Args:
        method: Gives the loss and the order of samples.
        features: Pretrained features of the pool, shape ``(n, D)``.
        pool: Training and validation images.
        setting: Facts about the data.
        config: Settings of the run. ``head`` and ``weight_decay`` restrict the search, if given.
        resample: Changes the training samples of each fold, for methods that do so.
        device: Where to train.

    Returns:
        The candidate with the lowest held-out error; of equal ones, the first.
    """
    start = time.perf_counter()
    fold_numbers = fold_of_each(pool, folds=FOLDS, seed=config.seed)
    outputs: tuple[Output, ...] = ("linear", "cosine") if config.head == "auto" else (config.head,)
    if method.cosine_scale(setting) is not None:
        outputs = ("cosine",)
    elif method.keeps_linear_output:
        outputs = ("linear",)
    if config.head not in ("auto", *outputs):
        _log.warning(
            "method %s needs a %s output layer: head=%s has no effect",
            *(method.name, outputs[0], config.head),
        )
    # cosines do not depend on the length of the weights, so their decay hardly matters
    decays = DECAYS if config.weight_decay is None else (config.weight_decay,)
    candidates = [
        (output, decay)
        for output in outputs
        for decay in (decays if output == "linear" else decays[:1])
    ]
    errors: dict[tuple[Output, float], float] = {}
    folds = []
    for fold in range(FOLDS):
        rest, held_out = pool.take(fold_numbers != fold), pool.take(fold_numbers == fold)
        train, val = split_off_validation(rest, share=config.validation, seed=config.seed)
        if len(val) and len(held_out):
            folds.append([_samples(features, pool, part) for part in (train, val, held_out)])
    try:
        for output, decay in candidates if len(candidates) > 1 and folds else []:
            confusions = [
                _held_out_confusion(
                    method, parts, setting, config, output, decay, resample=resample, device=device
                )
                for parts in folds
            ]
            errors[output, decay] = setting.objective.error(sum(confusions, confusions[0] * 0))
    except CosenError as error:  # a fold is too small for the method, or training diverged
        _log.warning("the output layer was not cross-validated, its default is used: %s", error)
        errors = {}
    best = min(errors, key=lambda candidate: errors[candidate]) if errors else candidates[0]
    return HeadRecord(
        output=best[0],
        weight_decay=best[1],
        errors={
            f"{output}, weight decay {decay:g}": errors[output, decay] for output, decay in errors
        },
        seconds=round(time.perf_counter() - start, 3),
    )


def _samples(features: Tensor, pool: LabelledImages, part: LabelledImages) -> Batch:
    """Return the features and classes of a part of the pool."""
    order = np.argsort(pool.rows, kind="stable")
    rows = order[np.searchsorted(pool.rows[order], part.rows)]
    return Batch(features[torch.from_numpy(rows)], torch.from_numpy(part.labels))


def _held_out_confusion(
    method: NetworkMethod,
    parts: list[Batch],
    setting: Setting,
    config: TrainConfig,
    output: Output,
    decay: float,
    *,
    resample: Resample | None,
    device: torch.device | str,
) -> Tensor:
    train, val, held_out = parts
    classes = len(setting.class_counts)
    counts = train.target.bincount(minlength=classes)
    present = counts > 0
    kept = replace(setting, class_counts=counts.clamp(min=1), has_cosine_output=output == "cosine")
    if resample is not None:
        found = resample(train.inputs.numpy(), train.target.numpy(), kept)
        train = Batch(torch.from_numpy(found[0]), torch.from_numpy(found[1]))
    batches = -(-len(train.target) // config.batch_size)
    epochs = min(EPOCHS, max(FEWEST_EPOCHS, STEPS // batches))
    quick = replace(config, weight_decay=decay, epochs=epochs)
    network = fit_head(method, train, val, kept, quick, output=output, device=device)
    with torch.no_grad():
        logits = network(held_out.inputs.to(device)).logits.cpu()
    logits[:, ~present] = -torch.inf  # a class without samples in this fold
    known = present[held_out.target]
    predicted = logits.argmax(1)[known]
    return F.confusion_matrix(held_out.target[known], predicted, num_classes=classes)


def fit_head(
    method: NetworkMethod,
    train: Batch,
    val: Batch,
    setting: Setting,
    config: TrainConfig,
    *,
    output: Output,
    device: torch.device | str = "cpu",
) -> Network:
    """Train an output layer on features with the loss of a method; returns it on the device.

    Args:
        method: Gives the loss and the order of samples.
        train: Training features and classes.
        val: Validation features and classes, for learned costs.
        setting: Facts about these samples.
        config: Settings, with all defaults filled in.
        output: ``linear`` or ``cosine``.
        device: Where to train.
    """
    config = replace(
        config,
        optimizer="sgd",
        lr=HEAD_LR,
        warmup=0.0,
        clip=0.0,
        patience=0,
        ema=0.0,
        accumulate=1,
    )
    scale = method.cosine_scale(setting) or COSINE_SCALE
    with seeded(config.seed):
        network = build_network(
            "linear",
            num_classes=len(setting.class_counts),
            in_features=train.inputs.shape[1],
            output=output,
            output_scale=scale,
        ).to(device)
    assert network.output_layer is not None
    if output == "cosine":
        start_at_class_means(network.output_layer, train.inputs, train.target)
    loss = method.make_loss(setting).to(device)
    draws = method.class_draws(setting)
    order = torch.Generator().manual_seed(config.seed)
    batches = FeatureBatches(
        train.inputs.to(device),
        train.target.to(device),
        batch_size=config.batch_size,
        order=order,
        device=device,
        chances=None if draws is None else torch.from_numpy(draws)[train.target],
    )

    def validate(evaluated: nn.Module) -> Outputs:
        evaluated.eval()
        with torch.no_grad():
            found = evaluated(val.inputs.to(device))
        return Outputs(found.logits, found.features, val.target.to(device))

    loop = Loop(
        network,
        loss,
        make_optimizer(network, config),
        LoopSettings.of(config),
        batches=lambda: batches,
        validate=validate,
        objective=setting.objective,
        class_counts=setting.class_counts,
        begin_epoch=lambda progress: method.begin_epoch(loss, setting, progress),
        multiplications=config.batch_size * train.inputs.shape[1] * len(setting.class_counts),
    )
    loop.fit()
    return network.eval()
