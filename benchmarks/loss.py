"""Time of the losses forward and backward, relative to ``torch.nn.functional.cross_entropy``.

Runs of all losses alternate in random order, and medians are compared. With 10 and 100 classes the
difference in microseconds matters more than the ratio. "logits + row" and "gather of log costs" are
the shortest code without any checks; "gather in a module" is the second as an ``nn.Module``, with
the fastest calls that were found. The last line names what misses its bound: 1.15x for costs that
are a row plus a diagonal, 1.5x for a matrix, or 60 µs.
"""

import random
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import cosen

BATCH, CLASSES = 256, (10, 100, 1_000, 10_000)
BOUND_ROW, BOUND_MATRIX, BOUND_MICROSECONDS = 1.15, 1.5, 60


class Gather(nn.Module):
    """The least that a loss with a matrix of costs as a buffer can do."""

    log_costs: Tensor

    def __init__(self, log_costs: Tensor) -> None:
        super().__init__()
        self.register_buffer("log_costs", log_costs)

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        return cross_entropy(self.log_costs.index_select(0, target).add_(logits), target)


def losses(classes: int) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    counts = torch.linspace(1000, 10, classes).long()
    costs = cosen.functional.frequency_matrix(cosen.functional.class_frequencies(counts))
    log_costs = costs.log()
    learned = cosen.AdaptiveCosts(counts, margin=2.0)
    made: dict[str, nn.Module] = {
        "AdaptiveCosts": learned,
        "BalancedSoftmaxLoss": cosen.BalancedSoftmaxLoss(counts),
        "LDAMLoss": cosen.LDAMLoss(counts),
        "CostSensitiveCrossEntropyLoss": cosen.CostSensitiveCrossEntropyLoss(costs),
        "CostSensitiveHingeLoss": cosen.CostSensitiveHingeLoss(costs),
        "CostSensitiveMSELoss": cosen.CostSensitiveMSELoss(costs),
    }
    return {
        "cross_entropy": cross_entropy,
        "logits + row": lambda logits, target: cross_entropy(logits + log_costs[0], target),
        "gather of log costs": lambda logits, target: cross_entropy(
            logits + log_costs[target], target
        ),
        "gather in a module": Gather(log_costs),
        **made,
    }


def measure(classes: int) -> dict[str, float]:
    """Return the median seconds of each loss."""
    logits = (0.3 * torch.randn(BATCH, classes)).requires_grad_()  # LDAM takes cosines
    target = torch.randint(classes, (BATCH,))
    chosen = losses(classes)
    times: dict[str, list[float]] = {name: [] for name in chosen}
    turns = 1000 if classes <= 1000 else 100
    for turn in range(turns + 5):
        for name in random.sample(list(chosen), len(chosen)):
            loss = chosen[name]
            start = time.perf_counter()
            loss(logits, target).backward()
            if turn >= 5:  # the first ones are slower
                times[name].append(time.perf_counter() - start)
            logits.grad = None
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    torch.manual_seed(0)
    missed, table = [], {}
    for classes in CLASSES:
        table[classes] = found = measure(classes)
        base = found["cross_entropy"]
        for name, seconds in found.items():
            is_matrix = name.startswith("CostSensitive")
            bound = BOUND_MATRIX if is_matrix else BOUND_ROW
            is_small = classes <= 100 or is_matrix
            more = 1e6 * (seconds - base)
            is_within = seconds <= bound * base or (is_small and more <= BOUND_MICROSECONDS)
            if name.isidentifier() and not is_within:
                missed.append(f"{name} at {classes} classes")
    names = list(table[CLASSES[0]])
    print(f"| batch x classes | {' | '.join(names)} |")
    print(f"|---|{'---|' * len(names)}")
    for classes, found in table.items():
        base = found["cross_entropy"]
        cells = [f"{1000 * base:.2f} ms"]
        cells += [
            f"{found[name] / base:.2f}x ({1e6 * (found[name] - base):+.0f} µs)"
            for name in names[1:]
        ]
        print(f"| {BATCH} x {classes:,} | {' | '.join(cells)} |")
    print(f"misses its bound: {', '.join(missed)}" if missed else "all losses keep their bounds")


if __name__ == "__main__":
    main()
