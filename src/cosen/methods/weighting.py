"""Class weights in a loss whose mean does not depend on what else is in the batch."""

from torch import Tensor, nn


class MeanOverSamples(nn.Module):
    """The sum of weighted losses over the number of samples.

    Torch's weighted mean divides by the weights in the batch. Then the parts of a batch in several
    processes, or batches whose gradients are added up, would not give what the whole gives.

    Args:
        loss: A loss that sums over samples.
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        summed: Tensor = self.loss(logits, target)
        return summed / len(target)


def with_mean_one(weights: Tensor, class_counts: Tensor) -> Tensor:
    """Class weights scaled so that their mean over the training samples is 1.

    Args:
        weights: Shape ``(C,)``.
        class_counts: Training samples of each class, shape ``(C,)``.

    Example:
        >>> import torch
        >>> with_mean_one(torch.tensor([1.0, 9.0]), torch.tensor([90, 10]))
        tensor([0.5556, 5.0000])
    """
    shares = class_counts / class_counts.sum()
    return weights / (weights * shares).sum()
