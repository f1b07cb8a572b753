"""How good options of cosen-paper are: the error of a head on what a fold holds out."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from cosen import functional as F
from cosen.costs import CostLearner, validation_error, validation_noise
from cosen.data.batches import FeatureBatches
from cosen.methods import Setting
from cosen.methods.learned_costs import CosenPaper
from cosen.networks.head import Head
from cosen.training.config import TrainConfig
from cosen.training.schedule import make_optimizer
from cosen.training.tuning.epoch import seeded, train_epoch
from cosen.training.tuning.features import Samples
from cosen.training.tuning.folds import Fold
from cosen.training.tuning.options import CostOptions


def held_out_error(
    config: TrainConfig, fold: Fold[Samples], costs: CostOptions, *, setting: Setting
) -> float:
    """Train a head as a run would, and judge the epoch that validation likes best.

    Initial weights and the order of samples are the same for all candidates.
    """
    train, val, held_out = fold.train, fold.val, fold.held_out
    device = train.features.device
    # every class is in the training part, so the largest label is the last class
    counts = torch.bincount(train.target).cpu()
    own = replace(setting, class_counts=counts.numpy())
    loss = CosenPaper(**costs).make_loss(own).to(device)
    assert isinstance(loss, CostLearner)
    with seeded(config.seed):
        network = Head(train.features.shape[1], len(counts), normalise=True).to(device)
    optimizer = make_optimizer(config, network.parameters())
    batches = FeatureBatches(
        train.features,
        train.target,
        batch_size=config.batch_size,
        order=torch.Generator().manual_seed(config.seed),
        device=device,
    )
    least, error = math.inf, 1.0
    for epoch in range(config.epochs):
        train_epoch(config, network, loss, optimizer, batches, epoch)
        network.eval()
        with torch.no_grad():
            output = network(val.features)
            step = loss.step(output.logits, val.target, output.features)
            seen = F.confusion_matrix(val.target, output.logits.argmax(1), num_classes=len(counts))
            if step.val_error <= least + validation_noise(seen, setting.objective):  # as in a run
                least = min(least, step.val_error)
                predicted = network(held_out.features).logits.argmax(1)
                confusion = F.confusion_matrix(held_out.target, predicted, num_classes=len(counts))
                error = validation_error(confusion, setting.objective)
    return error


@dataclass(frozen=True)
class Judge:
    """Says how good options are, fold by fold."""

    config: TrainConfig
    folds: list[Fold[Samples]]
    setting: Setting

    def errors(self, costs: CostOptions) -> Iterator[float]:
        for fold in self.folds:
            yield held_out_error(self.config, fold, costs, setting=self.setting)
