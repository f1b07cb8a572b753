"""Handwritten digits with a tenth of the odd ones, split into training and validation sets."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.utils.data import TensorDataset

torch.manual_seed(0)
pixels, labels = load_digits(return_X_y=True)
images = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, 1, 8, 8)
labels = torch.tensor(labels)
kept = (labels % 2 == 0) | (torch.arange(len(labels)) % 10 == 0)
train_indices, val_indices = train_test_split(
    kept.nonzero().flatten(), test_size=0.2, stratify=labels[kept], random_state=0
)
train = TensorDataset(images[train_indices], labels[train_indices])
val = TensorDataset(images[val_indices], labels[val_indices])
