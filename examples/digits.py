"""Compare plain cross-entropy with fixed costs H from the class frequencies.

Trains a small network on scikit-learn's digits, with 10 % of the odd digits in the training set,
and prints the recall of each digit, averaged over seeds.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from cosen import CostSensitiveCrossEntropyLoss
from cosen.functional import class_recall, confusion_matrix, overall_accuracy

KEPT_OF_ODD = 0.1
SEEDS = range(3)
EPOCHS = 40


def load(seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return training images with few odd digits, and half of all images for testing."""
    images, digits = load_digits(return_X_y=True)
    split = train_test_split(images / 16, digits, test_size=0.5, stratify=digits, random_state=seed)
    x_train, x_test, y_train, y_test = map(torch.tensor, split)
    by_digit = [(y_train == digit).nonzero().flatten() for digit in range(10)]
    kept = torch.cat(
        [
            rows[: round(KEPT_OF_ODD * len(rows))] if digit % 2 else rows
            for digit, rows in enumerate(by_digit)
        ]
    )
    return x_train[kept].float(), y_train[kept], x_test.float(), y_test


def train(x: Tensor, y: Tensor, criterion: nn.Module, seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
        for _ in range(EPOCHS):
            for batch in torch.randperm(len(x)).split(32):
                optimizer.zero_grad()
                criterion(network(x[batch]), y[batch]).backward()
                optimizer.step()
    return network


def percent(values: Tensor) -> str:
    """Return mean and standard deviation over seeds, in per cent."""
    return f"{100 * values.mean():5.1f} ± {100 * values.std():.1f}"


def main() -> None:
    torch.set_num_threads(1)  # the network is small
    confusions = {"plain": [], "costs H": []}
    for seed in SEEDS:
        x_train, y_train, x_test, y_test = load(seed)
        counts = torch.bincount(y_train, minlength=10)
        criteria = {
            "plain": nn.CrossEntropyLoss(),
            "costs H": CostSensitiveCrossEntropyLoss.from_class_counts(counts),
        }
        for name, criterion in criteria.items():
            predicted = train(x_train, y_train, criterion, seed)(x_test).argmax(1)
            confusions[name].append(confusion_matrix(y_test, predicted, num_classes=10))

    recalls = {
        name: torch.stack([class_recall(matrix) for matrix in matrices])  # (seeds, digits)
        for name, matrices in confusions.items()
    }
    accuracies = {
        name: torch.stack([overall_accuracy(matrix) for matrix in matrices])
        for name, matrices in confusions.items()
    }
    print(f"recall in %, {len(SEEDS)} seeds              plain        costs H   change")
    rows = [(f"digit {digit}, {int(counts[digit])} for training", [digit]) for digit in range(10)]
    rows += [("odd digits", [1, 3, 5, 7, 9]), ("even digits", [0, 2, 4, 6, 8])]
    table = [(label, *(r[:, digits].mean(1) for r in recalls.values())) for label, digits in rows]
    table.append(("overall accuracy", *accuracies.values()))
    for label, plain, costs in table:
        change = 100 * float(costs.mean() - plain.mean())
        print(f"{label:26} {percent(plain):>14} {percent(costs):>14} {change:+8.1f}")


if __name__ == "__main__":
    main()
