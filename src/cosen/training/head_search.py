"""Choose the output layer on pretrained features by cross-validation on the training images.

On cached features a fit takes seconds, and the form and the regularisation of the output layer
matter more than the loss. Every method gets the same search, with its own loss.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from cosen import functional as F
from cosen.costs.offsets import MOST_NUMBERS, class_offsets, frequency_strength
from cosen.data.batches import Batch, FeatureBatches
from cosen.data.labelled import LabelledImages
from cosen.data.splits import fold_of_each, split_off_validation
from cosen.errors import CosenError, RunError
from cosen.methods import NetworkMethod, Samples, Setting
from cosen.methods.learned_costs import COSINE_SCALE
from cosen.networks import Network, build_network
from cosen.networks.network import Outputs
from cosen.training.config import TrainConfig
from cosen.training.finetuning import start_at_class_means
from cosen.training.loop import Diverged, Loop, LoopSettings, make_optimizer, seeded
from cosen.training.records import HeadRecord, head_label

_log = logging.getLogger("cosen")

FOLDS = 3

ERROR_LIMIT = 0.01
"""Fewer folds are used if the standard error of held-out mean recall is at most this anyway."""

EPOCHS, FEWEST_EPOCHS, STEPS = 30, 12, 1200
"""Epochs of a candidate: as many as of a run, but fewer if they have more batches than this."""

DECAYS = (1e-3, 1e-4, 1e-2)
"""Weight decays that are tried; the first is used if there is nothing to compare."""

CLEARLY_WORSE = 2.0
"""Standard errors above the best candidate from which one is not tried on later folds."""

HEAD_LR = 0.1
"""Learning rate of an output layer on features."""

Output = Literal["linear", "cosine"]


class Candidate(NamedTuple):
    """An output layer and how it is trained; see :class:`Setting`."""

    output: Output
    weight_decay: float
    weighting: float = 0.0
    margin: float | None = None


class HeldOut(NamedTuple):
    """Predictions for the held-out samples of a fold."""

    target: Tensor
    predicted: Tensor
    kept: tuple[Tensor, Tensor] | None  # outputs and classes that offsets are fitted to


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
        The candidate with the lowest held-out error; of equal ones, the first. Candidates that are
        clearly worse after a fold are not tried on the next one.
    """
    start = time.perf_counter()
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
    candidates = [
        Candidate(output, decay, margin=margin)
        for output in outputs
        for decay in (decays if output == "linear" else decays[:1])
        for margin in (method.margins if output == "cosine" else (None,))
    ]
    if differs and "linear" in outputs:
        candidates += [
            Candidate("linear", decay, weighting)
            for weighting in method.weightings[1:]
            for decay in decays
        ]
    errors: dict[Candidate, float] = {}
    outputs_of: dict[Candidate, list[HeldOut]] = {candidate: [] for candidate in candidates}
    classes = len(setting.class_counts)
    is_fitted = np.ones(len(pool), dtype=bool) if is_validation is None else ~is_validation
    keeps_outputs = method.uses_offsets and len(pool) * classes * len(candidates) <= MOST_NUMBERS
    searched = replace(setting, offsets=torch.zeros(classes))
    remaining = candidates
    folds = _folds(features, pool, is_fitted, config)
    try:
        is_searched = folds and (len(candidates) > 1 or method.uses_offsets)
        for parts, is_used in folds if is_searched else []:
            noise = {}
            for candidate in remaining:
                try:
                    logits, target, known = _held_out_outputs(
                        method,
                        *(parts, searched, config, candidate),
                        resample=resample,
                        device=device,
                    )
                except Diverged:
                    errors.pop(candidate, None)  # another candidate may be stable
                    continue
                used = is_used[known]
                kept = (logits[used], target[used]) if keeps_outputs else None
                outputs_of[candidate].append(HeldOut(target, logits.argmax(1), kept))
                found = outputs_of[candidate]
                counts = F.confusion_matrix(
                    torch.cat([part.target for part in found]),
                    torch.cat([part.predicted for part in found]),
                    num_classes=classes,
                    sparse=classes > F.MANY_CLASSES,
                )
                errors[candidate] = setting.objective.error(counts)
                noise[candidate] = setting.objective.noise(counts)
            remaining = [candidate for candidate in remaining if candidate in noise]
            if not remaining:
                raise RunError("training diverged with every candidate")
            best = min(remaining, key=errors.__getitem__)
            limit = errors[best] + CLEARLY_WORSE * noise[best]
            remaining = [candidate for candidate in remaining if errors[candidate] <= limit]
    except CosenError as error:  # a fold is too small for the method, or training diverged
        _log.warning("the output layer was not cross-validated, its default is used: %s", error)
        errors = {}
    best = min(remaining, key=errors.__getitem__) if errors else candidates[0]
    offsets, tau = None, 1.0
    if errors and keeps_outputs:
        fitted_to = [part.kept for part in outputs_of[best] if part.kept is not None]
        logits, target = map(torch.cat, zip(*fitted_to, strict=True))
        offsets = class_offsets(logits, target, importance)
        if not best.weighting:  # class weights leave no frequencies in the costs
            tau = frequency_strength(logits + offsets, target, importance)
    return HeadRecord(
        **best._asdict(),
        errors={head_label(*candidate): error for candidate, error in errors.items()},
        seconds=round(time.perf_counter() - start, 3),
        offsets=None if offsets is None else tuple(offsets.tolist()),
        tau=tau,
    )


def _folds(
    features: Tensor, pool: LabelledImages, is_fitted: np.ndarray, config: TrainConfig
) -> list[tuple[list[Batch], Tensor]]:
    """Return the training, validation and held-out samples of each fold.

    The second item says to which of the held-out samples offsets may be fitted. There are fewer
    folds if the held-out error is certain enough.
    """
    numbers, classes = fold_of_each(pool, folds=FOLDS, seed=config.seed), len(pool.class_names)
    found = []
    for fold in range(FOLDS):
        mine = numbers == fold
        rest, held_out = pool.take(~mine), pool.take(mine)
        train, val = split_off_validation(rest, share=config.validation, seed=config.seed)
        if len(val) and len(held_out):
            parts = [_samples(features, pool, part) for part in (train, val, held_out)]
            found.append((parts, torch.from_numpy(is_fitted[mine])))
        so_far = np.bincount(pool.labels[numbers <= fold], minlength=classes)
        is_missing = (so_far == 0) & (pool.class_counts.numpy() > 1)
        if recall_error(so_far) <= ERROR_LIMIT and not is_missing.any():
            break
    return found


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
    classes = len(setting.class_counts)
    counts = train.target.bincount(minlength=classes)
    present = counts > 0
    kept = replace(
        setting,
        class_counts=counts.clamp(min=1),
        has_cosine_output=candidate.output == "cosine",
        weighting=candidate.weighting,
        margin=candidate.margin,
    )
    if resample is not None:
        found = resample(train.inputs.numpy(), train.target.numpy(), kept)
        train = Batch(torch.from_numpy(found[0]), torch.from_numpy(found[1]))
    batches = -(-len(train.target) // config.batch_size)
    epochs = min(EPOCHS, max(FEWEST_EPOCHS, STEPS // batches))
    quick = replace(config, weight_decay=candidate.weight_decay, epochs=epochs)
    network = fit_head(
        method,
        *(train, val, kept, quick),
        output=candidate.output,
        device=device,
    )
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
    method.observe(loss, network.output_layer, train.inputs, train.target, config.seed)
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
