"""Learned costs in a Lightning module."""

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from rare_digits import train, val
from torch import nn
from torch.utils.data import DataLoader

from cosen import AdaptiveCosts


class Digits(L.LightningModule):
    def __init__(self, class_counts):
        super().__init__()
        self.network = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.costs = AdaptiveCosts(class_counts)

    def training_step(self, batch, index):
        images, target = batch
        return self.costs(self.network(images), target)

    def on_validation_epoch_start(self):
        self.outputs = []

    def validation_step(self, batch, index):
        images, target = batch
        self.outputs.append((self.network(images), target))

    def on_validation_epoch_end(self):
        if self.trainer.state.fn == "fit" and not self.trainer.sanity_checking:
            logits, target = map(torch.cat, zip(*self.outputs, strict=True))
            logits, target = self.all_gather(logits), self.all_gather(target)
            step = self.costs.step(logits.flatten(0, -2), target.flatten())
            self.log("val_error", step.val_error, sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


model = Digits(torch.bincount(torch.tensor([int(label) for _, label in train]), minlength=10))
checkpoints = ModelCheckpoint("checkpoints", monitor="val_error", save_last=True)
trainer = L.Trainer(max_epochs=5, callbacks=checkpoints, logger=False)
loaders = DataLoader(train, batch_size=32, shuffle=True), DataLoader(val, batch_size=64)
trainer.fit(model, *loaders, ckpt_path="last")  # resumes if there is a checkpoint
print(model.costs)
