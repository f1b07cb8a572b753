"""What costs learn from held-out outputs: offsets of the classes, and the strength of frequencies.

An offset is fitted to each class so that held-out outputs plus offsets explain the held-out classes
best, with every class as important as the objective says. The offsets are shrunk towards 0. How
much is cross-validated by the error that they leave, and they stay 0 unless they lower it by more
than a standard error. A higher likelihood alone is no reason: it can come from better confidence.
"""

import torch
import torch.nn.functional as TF
from torch import Tensor

PENALTIES = (10.0, 3.0, 1.0, 0.3, 0.1)
"""Strengths of the shrinkage that are tried, strongest first."""

FOLDS = 3

STEPS = 20
"""Steps of the optimiser for each penalty; it starts at the result for the last one."""

STRENGTHS = torch.linspace(1, 0, 41)
"""Strengths of class frequencies that are tried; of equal ones, the first is taken."""

ACCURACY = 0.2
"""Points of the objective that a point of accuracy is worth."""

CAUTION = 0.5
"""Standard errors by which the objective and accuracy must rise."""

ROUNDING = 1e-5
"""Scores that differ by less are equal."""

CHUNK = 2**20
"""Outputs that are shifted at a time."""

MOST_NUMBERS = 2**27
"""Outputs beyond which nothing is fitted: they would take gigabytes."""


def class_offsets(logits: Tensor, target: Tensor, importance: Tensor) -> Tensor:
    """Return what must be added to the outputs of each class, on average 0, shape ``(C,)``.

    A class without held-out samples gets 0: nothing is known about it.

    Args:
        logits: Held-out outputs, shape ``(N, C)``. A class that was not trained has ``-inf``.
        target: Held-out classes, shape ``(N,)``.
        importance: Importance of a sample of each class for the objective, shape ``(C,)``.

    Example:
        >>> logits = torch.tensor([[2.0, 0.0], [2.0, 1.0]]).repeat(100, 1)  # class 1 is neglected
        >>> target = torch.tensor([0, 1]).repeat(100)
        >>> offsets = class_offsets(logits, target, torch.ones(2))
        >>> (logits + offsets).argmax(1).eq(target).float().mean()
        tensor(1.)
    """
    count, classes = logits.shape
    found = torch.zeros(classes)
    if not count or count * classes > MOST_NUMBERS:
        return found
    seen, target = torch.unique(target, return_inverse=True)
    logits, importance = logits[:, seen], importance[seen]
    trained = logits.isfinite()
    logits = logits.float().masked_fill(~trained, float(logits[trained].min()) - 10)
    weights = importance.float()[target]
    weights = weights / weights.sum()
    place = torch.arange(count) % FOLDS  # of each sample within its class
    fold = torch.empty_like(place)
    fold[target.argsort(stable=True)] = place
    wrong = torch.zeros(1 + len(PENALTIES), count)
    for number in range(FOLDS):
        used = fold != number
        for row, (offsets, scale) in enumerate(_path(logits[used], target[used], weights[used])):
            decided = (logits[~used] * scale + offsets).argmax(1)
            wrong[row, ~used] = (decided != target[~used]).float()
    worse = wrong - wrong[int((wrong @ weights).argmin())]
    means = worse @ weights
    noise = ((worse - means[:, None]) * weights).square().sum(1).sqrt()
    chosen = int((means <= noise).int().argmax())  # the first, so the strongest penalty
    offsets, scale = _path(logits, target, weights, count=chosen)[-1]
    offsets = offsets / scale
    found[seen] = offsets - offsets.mean()
    return found


def frequency_strength(logits: Tensor, target: Tensor, importance: Tensor) -> float:
    """Return τ, the strength of class frequencies that is best for held-out samples.

    Outputs of a network trained with τ = 1 plus ``(1 - τ) log h`` stand for outputs trained with τ.
    A lower τ is better for frequent classes. Near the best τ, the objective hardly changes but
    accuracy does, so a share of the accuracy is added to the objective. τ stays 1 unless the sum
    rises by more than half a standard error. One more sample of each class counts as changed in
    this error, so classes with few samples need more evidence.

    Args:
        logits: Held-out outputs with the offsets of the classes, shape ``(N, C)``.
        target: Held-out classes, shape ``(N,)``.
        importance: Importance of a sample of each class for the objective, shape ``(C,)``.

    Example:
        >>> logits, target = torch.tensor([[0.0, 1.0]]).repeat(1000, 1), torch.arange(1000) // 900
        >>> round(frequency_strength(logits, target, torch.tensor([1.0, 9.0])), 3)
        0.525
    """
    importance = importance.float() / importance[target].sum()
    frequencies = -importance.log()
    shifts = (1 - STRENGTHS)[:, None] * (frequencies - frequencies.mean())
    right = torch.empty(len(STRENGTHS), len(target))
    rows = max(1, CHUNK // logits.shape[1])
    for start in range(0, len(target), rows):
        part = slice(start, start + rows)
        for number, shift in enumerate(shifts):
            right[number, part] = ((logits[part] + shift).argmax(1) == target[part]).float()
    change, weights = right - right[0], importance[target]
    gain = change @ (weights + ACCURACY / len(target))
    one_more = importance[torch.unique(target)].square().sum() * change.any(1)
    noise = (change.square() @ weights.square() + one_more).sqrt()
    score = gain - CAUTION * noise
    is_best = score > score.max() - ROUNDING
    return float(STRENGTHS[int(is_best.int().argmax())])


def _path(
    logits: Tensor, target: Tensor, weights: Tensor, count: int = len(PENALTIES)
) -> list[tuple[Tensor, Tensor]]:
    """Return offsets and the scale of the outputs: without offsets, then for each penalty."""
    classes = logits.shape[1]
    log_scale = torch.zeros(1, requires_grad=True)
    offsets = torch.zeros(classes, requires_grad=True)
    weights = weights / weights.sum()
    found = []
    for penalty in (None, *PENALTIES[:count]):
        fitted = [log_scale] if penalty is None else [log_scale, offsets]
        optimizer = torch.optim.LBFGS(fitted, max_iter=STEPS, line_search_fn="strong_wolfe")

        def loss(
            optimizer: torch.optim.Optimizer = optimizer, penalty: float = penalty or 0.0
        ) -> Tensor:
            optimizer.zero_grad()
            outputs = logits * log_scale.exp() + offsets
            value = (TF.cross_entropy(outputs, target, reduction="none") * weights).sum()
            value = value + penalty * offsets.square().mean()
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimizer.step(loss)  # type: ignore[no-untyped-call]
        found.append((offsets.detach().clone(), log_scale.detach().exp()))
    return found
