"""Use learned costs in your own training loop: three lines, marked 1 to 3.

Trains a small network on scikit-learn's digits with plain PyTorch. Only 10 % of the odd digits are
in the training set.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from cosen import AdaptiveCosts
from cosen.functional import class_recall, confusion_matrix

images, digits = map(torch.tensor, load_digits(return_X_y=True))
images = images.float() / 16
torch.manual_seed(0)
kept = (digits % 2 == 0) | (torch.rand(len(digits)) < 0.1)  # few odd digits to learn from
train, test = train_test_split(torch.arange(len(digits)), test_size=0.5, random_state=0)
train = train[kept[train]]
train, val = train_test_split(train, test_size=0.15, random_state=0, stratify=digits[train])

network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
costs = AdaptiveCosts(torch.bincount(digits[train]))  # 1

for epoch in range(30):
    for batch in train[torch.randperm(len(train))].split(32):
        loss = costs(network(images[batch]), digits[batch])  # 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    step = costs.step(network(images[val]), digits[val])  # 3
    if epoch % 10 == 9:
        print(
            f"epoch {epoch + 1}: validation error {step.val_error:.3f}, "
            f"tau {step.tau:.2f}, margin {step.margin:.2f}"
        )

confusion = confusion_matrix(digits[test], network(images[test]).argmax(1), num_classes=10)
recall = class_recall(confusion)
print(f"recall of even digits {recall[::2].mean():.3f}, of odd digits {recall[1::2].mean():.3f}")
