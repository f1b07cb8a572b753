"""Learned costs in a fastai Learner."""

from pathlib import Path

import torch
from fastai.vision.all import (
    BalancedAccuracy,
    Callback,
    CategoryBlock,
    CrossEntropyLossFlat,
    DataBlock,
    ImageBlock,
    IndexSplitter,
    Learner,
    PILImageBW,
)
from rare_digits import images, labels, train_indices, val_indices
from torch import nn

from cosen import AdaptiveCosts


class LearnCosts(Callback):
    """Change the costs after each epoch of fit()."""

    def before_epoch(self):
        self.outputs = None

    def after_train(self):  # validate() and get_preds() do not train
        self.outputs = []

    def after_pred(self):
        if not self.training and self.outputs is not None:
            self.outputs.append([x.as_subclass(torch.Tensor).cpu() for x in (self.pred, self.y)])

    def after_epoch(self):
        if self.outputs:  # lr_find() does not validate
            logits, target = map(torch.cat, zip(*self.outputs, strict=True))
            self.loss_func.func.step(logits, target)


def image(index):
    return (images[index, 0] * 255).byte().numpy()


def digit(index):
    return int(labels[index])


blocks = ImageBlock(PILImageBW), CategoryBlock
data = DataBlock(blocks, get_x=image, get_y=digit, splitter=IndexSplitter(range(len(val_indices))))
dls = data.dataloaders([*val_indices, *train_indices], bs=32, num_workers=0)

train_labels = torch.tensor([int(label) for label in dls.train_ds.tls[1]])
loss = CrossEntropyLossFlat()  # keeps fastai's decoding of predictions
loss.func = costs = AdaptiveCosts(torch.bincount(train_labels, minlength=dls.c))
network = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, dls.c))
learn = Learner(dls, network, loss_func=loss, metrics=BalancedAccuracy(), cbs=LearnCosts())

if Path("models/digits.pth").exists():
    learn.load("digits")
    costs.load_state_dict(torch.load("models/costs.pth"))
learn.fit(5, lr=0.01)
learn.save("digits")
torch.save(costs.state_dict(), "models/costs.pth")
print(costs)
