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
from cosen.costs.offsets import MOST_NUMBERS, class_offsets
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
from cosen.training.records import HeadRecord, head_label

_log = logging.getLogger("cosen")

FOLDS = 3

ERROR_LIMIT = 0.01
"""Fewer folds are used if the standard error of held-out mean recall is at most this anyway."""

EPOCHS, FEWEST_EPOCHS, STEPS = 30, 12, 1200
"""Epochs of a candidate: as many as of a run, but fewer if they have more batches than this."""

DECAYS = (1e-3, 1e-4, 1e-2)
"""Weight decays that are tried; the first is used if there is nothing to compare."""

HEAD_LR = 0.1
"""Learning rate of an output layer on features."""

Output = Literal["linear", "cosine"]

Candidate = tuple[Output, float, float]
"""Form, weight decay, and share of class importance that is a weight of samples."""

Resample = Callable[[np.ndarray, np.ndarray, Setting], Samples]


def choose_head(
    method: NetworkMethod,
    features: Tensor,
    pool: LabelledImages,
    setting: Setting,
    config: TrainConfig,
    *,
    is_validation: np.ndarray | None = None,
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
        is_validation: Images of the pool that validate the run, shape ``(n,)``. Offsets are not
            fitted to them, so they can still be used to compare methods.
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
    importance = setting.objective.class_importance(setting.class_counts.clamp(min=1))
    differs = float(importance.max() / importance.min()) > 1.01
    candidates: list[Candidate] = [
        (output, decay, weighting)
        for weighting in (method.weightings if differs else method.weightings[:1])
        for output in (outputs if not weighting else tuple(set(outputs) & {"linear"}))
        for decay in (decays if output == "linear" else decays[:1])
    ]
    errors: dict[Candidate, float] = {}
    fitted_to: list[tuple[Tensor, Tensor]] = []  # outputs and classes of the best candidate
    classes = len(setting.class_counts)
    is_fitted = np.ones(len(pool), dtype=bool) if is_validation is None else ~is_validation
    keeps_outputs = method.uses_offsets and len(pool) * classes <= MOST_NUMBERS
    searched = replace(setting, offsets=torch.zeros(classes))
    folds = []
    for fold in range(FOLDS):
        mine = fold_numbers == fold
        rest, held_out = pool.take(~mine), pool.take(mine)
        train, val = split_off_validation(rest, share=config.validation, seed=config.seed)
        if len(val) and len(held_out):
            parts = [_samples(features, pool, part) for part in (train, val, held_out)]
            folds.append((parts, torch.from_numpy(is_fitted[mine])))
        held_out_so_far = np.bincount(pool.labels[fold_numbers <= fold], minlength=classes)
        is_missing = (held_out_so_far == 0) & (pool.class_counts.numpy() > 1)
        if recall_error(held_out_so_far) <= ERROR_LIMIT and not is_missing.any():
            break
    try:
        is_searched = folds and (len(candidates) > 1 or method.uses_offsets)
        for candidate in candidates if is_searched else []:
            decided, kept = [], []
            for parts, is_used in folds:
                logits, target, known = _held_out_outputs(
                    method, parts, searched, config, candidate, resample=resample, device=device
                )
                decided.append((target, logits.argmax(1)))
                if keeps_outputs:
                    is_used = is_used[known]
                    kept.append((logits[is_used], target[is_used]))
            counts = F.confusion_matrix(
                *map(torch.cat, zip(*decided, strict=True)),
                num_classes=classes,
                sparse=classes > F.MANY_CLASSES,
            )
            errors[candidate] = setting.objective.error(counts)
            if min(errors, key=errors.__getitem__) == candidate:
                fitted_to = kept
    except CosenError as error:  # a fold is too small for the method, or training diverged
        _log.warning("the output layer was not cross-validated, its default is used: %s", error)
        errors = {}
    best = min(errors, key=lambda candidate: errors[candidate]) if errors else candidates[0]
    offsets = None
    if errors and fitted_to:
        logits, target = map(torch.cat, zip(*fitted_to, strict=True))
        offsets = class_offsets(logits, target, importance)
    return HeadRecord(
        output=best[0],
        weight_decay=best[1],
        weighting=best[2],
        errors={head_label(*candidate): error for candidate, error in errors.items()},
        seconds=round(time.perf_counter() - start, 3),
        offsets=None if offsets is None else tuple(offsets.tolist()),
    )


def recall_error(counts: np.ndarray) -> float:
    """Return the largest standard error of mean recall, for these numbers of images by class.

    Example:
        >>> round(recall_error(np.array([100, 25])), 4)  # half of sqrt(1/400 + 1/100)
        0.0559
    """
    present = counts[counts > 0]
    return float(np.sqrt((0.25 / present).sum()) / len(present))


def _samples(features: Tensor, pool: LabelledImages, part: LabelledImages) -> Batch:
    """Return the features and classes of a part of the pool."""
    order = np.argsort(pool.rows, kind="stable")
    rows = order[np.searchsorted(pool.rows[order], part.rows)]
    return Batch(features[torch.from_numpy(rows)], torch.from_numpy(part.labels))


def _held_out_outputs(
    method: NetworkMethod,
    parts: list[Batch],
    setting: Setting,
    config: TrainConfig,
    candidate: Candidate,
    *,
    resample: Resample | None,
    device: torch.device | str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Train on a fold; return outputs and classes of held-out samples of classes it trained on.

    The third tensor says which of the held-out samples these are.
    """
    train, val, held_out = parts
    output, decay, weighting = candidate
    classes = len(setting.class_counts)
    counts = train.target.bincount(minlength=classes)
    present = counts > 0
    kept = replace(
        setting,
        class_counts=counts.clamp(min=1),
        has_cosine_output=output == "cosine",
        weighting=weighting,
    )
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
    return logits[known], held_out.target[known], known


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
