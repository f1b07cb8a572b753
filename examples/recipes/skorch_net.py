"""Learned costs in a skorch net."""

import torch
from rare_digits import images, labels, train_indices
from skorch import NeuralNetClassifier
from skorch.callbacks import Callback, Checkpoint, LoadInitState
from torch import nn

from cosen import AdaptiveCosts


class LearnCosts(Callback):
    """Change the costs after each epoch; record the validation error."""

    def on_epoch_begin(self, net, **kwargs):
        self.outputs_ = []

    def on_batch_end(self, net, batch, training, y_pred, **kwargs):
        if not training:
            self.outputs_.append((y_pred.cpu(), batch[1].cpu()))

    def on_epoch_end(self, net, **kwargs):
        logits, target = map(torch.cat, zip(*self.outputs_, strict=True))
        step = net.criterion_.step(logits, target)
        net.history.record("val_error", step.val_error)
        net.history.record("val_error_best", step.accepted)


class Network(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


X, y = images[train_indices].numpy(), labels[train_indices].numpy()
best = Checkpoint(monitor="val_error_best", dirname="checkpoints")
net = NeuralNetClassifier(
    Network,
    criterion=AdaptiveCosts,
    criterion__class_counts=torch.bincount(torch.tensor(y), minlength=10),
    predict_nonlinearity=nn.Softmax(1),
    max_epochs=10,
    lr=0.1,
    optimizer__momentum=0.9,
    batch_size=32,
    callbacks=[LearnCosts(), best, LoadInitState(best)],
)
net.fit(X, y)
print(net.criterion_)
