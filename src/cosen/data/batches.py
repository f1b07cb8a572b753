"""Batches of images or features as tensors."""

import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cosen.data.image_cache import DecodedImages
from cosen.data.labelled import LabelledImages
from cosen.errors import InputError

Augment = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps images in [0, 1] and targets to augmented images and targets (or probabilities)."""


class Batch(NamedTuple):
    """One training batch.

    Attributes:
        inputs: Images ``(B, C, H, W)`` or features ``(B, D)``.
        target: Class indices ``(B,)``, or probabilities ``(B, classes)`` if images are mixed.
        weight: Factor of the mean loss: 1 in a single process, 0 in a process without samples. With
            it, the mean over processes is the mean over the whole batch.
        sample_weight: Weight of each sample, shape ``(B,)``; None if all are equal.
    """

    inputs: Tensor
    target: Tensor
    weight: float = 1.0
    sample_weight: Tensor | None = None


@dataclass(frozen=True)
class Share:
    """Rank of this process among several; each takes its part of every batch."""

    rank: int = 0
    world: int = 1


def batch_positions(
    count: int,
    batch_size: int,
    order: torch.Generator | None = None,
    share: Share | None = None,
    chances: Tensor | None = None,
) -> list[tuple[np.ndarray, float]]:
    """Positions of the samples of each batch of a pass, with the weight of this process.

    Args:
        count: Number of samples.
        batch_size: Samples per batch, over all processes; the last batch may be smaller.
        order: Draws a random order, the same in every process; None keeps the order.
        share: Rank of this process; None for a single process.
        chances: Relative probabilities of the samples, shape ``(count,)``, to draw them with
            replacement. None uses each sample once.
    """
    positions = np.arange(count)
    if order is not None and chances is not None:
        # torch.multinomial supports at most 2^24 samples
        ends = chances.double().cumsum(0)
        drawn = torch.rand(count, generator=order, dtype=torch.float64) * ends[-1]
        positions = torch.searchsorted(ends, drawn, right=True).clamp(max=count - 1).numpy()
    elif order is not None:
        positions = torch.randperm(count, generator=order).numpy()
    share = share or Share()
    batches = []
    for start in range(0, count, batch_size):
        whole = positions[start : start + batch_size]
        own = whole[share.rank :: share.world]
        weight = len(own) * share.world / len(whole)
        # a process without samples takes one with weight 0, to stay synchronised
        batches.append((own if len(own) else whole[:1], weight))
    return batches


@dataclass(frozen=True)
class Normalise:
    """Mean and standard deviation of each channel, for images in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        is_finite = all(-math.inf < value < math.inf for value in (*self.mean, *self.std))
        if not is_finite or not all(value > 0 for value in self.std):
            raise InputError(
                "mean and std must be finite, and std must be positive, but they are "
                f"{self.mean} and {self.std}"
            )

    def __call__(self, images: Tensor) -> Tensor:
        """Normalise images in [0, 1], ``(B, C, H, W)``."""
        mean = images.new_tensor(self.mean)[:, None, None]
        std = images.new_tensor(self.std)[:, None, None]
        return (images - mean) / std

    def from_bytes(self, pixels: Tensor) -> Tensor:
        """Normalise uint8 images ``(B, H, W, C)``; returns ``(B, C, H, W)`` in channels-last.

        Whole rows of pixels are computed at once: several times as fast as channel by channel.
        """
        width = pixels.shape[2]
        std = torch.tensor(self.std, device=pixels.device)
        scale = (1 / (255 * std)).repeat(width)  # (W * C,)
        shift = (-torch.tensor(self.mean, device=pixels.device) / std).repeat(width)
        rows = pixels.flatten(2).float().mul_(scale).add_(shift)  # (B, H, W * C)
        return rows.view(pixels.shape).permute(0, 3, 1, 2)


IMAGENET = Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
GREY = Normalise((0.5,), (0.5,))


@dataclass(eq=False)
class Batches:
    """Batches of one pass over a split; the next batch is read in the background.

    Images are ``(B, C, H, W)`` in channels-last memory, normalised. Targets are class indices, or
    probabilities if the augmentation mixes images.

    Attributes:
        decoded: The pixels.
        part: The images: the decoded dataset, or a split of it.
        batch_size: Images per batch, over all processes; the last batch may be smaller.
        normalise: Mean and standard deviation of the channels.
        order: Draws a new order for each pass; None keeps the order of the split.
        augment: Changes images and targets, or None.
        device: Device of the tensors.
        share: Rank of this process.
        chances: Relative probabilities of the images, as for :func:`batch_positions`.
    """

    decoded: DecodedImages
    part: LabelledImages
    _: KW_ONLY
    batch_size: int
    normalise: Normalise
    order: torch.Generator | None = None
    augment: Augment | None = None
    device: torch.device | str = "cpu"
    share: Share | None = None
    chances: Tensor | None = None

    def __post_init__(self) -> None:
        channels = self.decoded.pixels.shape[3]
        if self.part.images is not self.decoded.data.images:
            raise InputError("part must be a split of the decoded dataset")
        if channels != len(self.normalise.mean):
            raise InputError(
                f"images have {channels} channels, but normalise has {len(self.normalise.mean)}"
            )
        if self.batch_size < 1:
            raise InputError(f"batch_size must be at least 1, but is {self.batch_size}")

    def __len__(self) -> int:
        return -(-len(self.part) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        plan = batch_positions(
            len(self.part), self.batch_size, self.order, self.share, self.chances
        )
        read = self.decoded.read([self.part.rows[positions] for positions, _ in plan])
        for pixels, (positions, weight) in zip(read, plan, strict=True):
            target = torch.from_numpy(self.part.labels[positions])
            yield Batch(*self._finish(torch.from_numpy(pixels), target), weight)

    def _finish(self, pixels: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        target = target.to(self.device, non_blocking=True)
        pixels = pixels.to(self.device, non_blocking=True)
        if self.augment is None:
            return self.normalise.from_bytes(pixels), target
        images = pixels.permute(0, 3, 1, 2).float().div_(255)  # channels last in memory
        images, target = self.augment(images, target)
        return self.normalise(images), target


@dataclass(eq=False)
class FeatureBatches:
    """Batches of one pass over features; see :class:`Batches`.

    Attributes:
        features: Shape ``(rows, D)``, or activations ``(rows, ...)``.
        target: Classes, shape ``(samples,)``.
        rows: Row of the features of each sample; None if row and sample numbers are equal.
        flipped: The same for mirrored images, or None.
        noise: Draws which samples are mirrored; None mirrors none.
        sample_weight: Weight of each sample, shape ``(samples,)``, or None.
    """

    features: Tensor
    target: Tensor
    _: KW_ONLY
    batch_size: int
    rows: Tensor | None = None
    flipped: Tensor | None = None
    noise: torch.Generator | None = None
    order: torch.Generator | None = None
    device: torch.device | str = "cpu"
    share: Share | None = None
    chances: Tensor | None = None
    sample_weight: Tensor | None = None

    def __len__(self) -> int:
        return -(-len(self.target) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for positions, weight in batch_positions(
            len(self.target), self.batch_size, self.order, self.share, self.chances
        ):
            samples = torch.from_numpy(positions)
            rows = samples if self.rows is None else self.rows[samples]
            inputs = self.features.index_select(0, rows.to(self.features.device))  # fast
            if self.flipped is not None and self.noise is not None:
                mirrored = torch.rand(len(rows), generator=self.noise) < 0.5
                inputs[mirrored] = self.flipped[rows[mirrored]]
            if inputs.dtype == torch.float16:  # activations are kept in half precision
                how = torch.channels_last if inputs.ndim == 4 else torch.contiguous_format
                inputs = inputs.to(torch.float32, memory_format=how)
            target = self.target[samples]
            own = None if self.sample_weight is None else self.sample_weight[samples]
            yield Batch(inputs.to(self.device), target.to(self.device), weight, own)
