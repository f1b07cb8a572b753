"""Batches of decoded images as tensors, ready for a network."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cosen.data.image_cache import DecodedImages
from cosen.data.labelled import LabelledImages
from cosen.errors import InputError

Augment = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Maps images in [0, 1] and a target to other images and a target, perhaps of probabilities."""


class Batch(NamedTuple):
    """What a network is trained on at once.

    Attributes:
        inputs: Images ``(B, C, H, W)`` or features ``(B, D)``.
        target: Class indices ``(B,)``, or probabilities ``(B, classes)`` where images are mixed.
        weight: What to multiply the mean loss by, so that the mean over processes is the mean
            over the whole batch: 1 in a single process, 0 where a process has no share.
    """

    inputs: Tensor
    target: Tensor
    weight: float


@dataclass(frozen=True)
class Share:
    """Which of several processes this is; each takes its part of every batch."""

    rank: int = 0
    world: int = 1


def batch_positions(
    count: int,
    batch_size: int,
    *,
    order: torch.Generator | None = None,
    share: Share | None = None,
    drop_last: bool = False,
    chances: Tensor | None = None,
) -> list[tuple[np.ndarray, float]]:
    """The positions in each batch of a pass, and the weight of this process's part of it.

    Args:
        count: The samples.
        batch_size: Samples in a batch, over all processes.
        order: Draws a random order, the same in every process; None keeps the order.
        share: Which process this is; None for a single one.
        drop_last: Leave out a last batch that is smaller.
        chances: How often each sample is drawn, against the others, shape ``(count,)``: then they
            are drawn with replacement by ``order``. None takes each once.
    """
    positions = np.arange(count)
    if order is not None and chances is not None:
        # by cumulated chances: torch.multinomial takes no more than 2^24 samples
        ends = chances.double().cumsum(0)
        drawn = torch.rand(count, generator=order, dtype=torch.float64) * ends[-1]
        positions = torch.searchsorted(ends, drawn, right=True).clamp(max=count - 1).numpy()
    elif order is not None:
        positions = torch.randperm(count, generator=order).numpy()
    share = share or Share()
    batches = []
    for start in range(0, count, batch_size):
        whole = positions[start : start + batch_size]
        if drop_last and len(whole) < batch_size:
            break
        own = whole[share.rank :: share.world]
        weight = len(own) * share.world / len(whole)
        # a process without a share works on one sample all the same, to keep in step
        batches.append((own if len(own) else whole[:1], weight))
    return batches


@dataclass(frozen=True)
class Normalise:
    """Shift and scale of each channel of images in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, images: Tensor) -> Tensor:
        """Images in [0, 1], ``(B, C, H, W)``, with the mean taken off and divided by the std."""
        mean = images.new_tensor(self.mean)[:, None, None]
        std = images.new_tensor(self.std)[:, None, None]
        return (images - mean) / std

    def from_bytes(self, pixels: Tensor) -> Tensor:
        """The same for bytes 0..255, ``(B, H, W, C)``, giving ``(B, C, H, W)`` in channels-last.

        Whole rows of pixels are worked on at once, several times as fast as channel by channel.
        """
        width = pixels.shape[2]
        std = torch.tensor(self.std, device=pixels.device)
        scale = (1 / (255 * std)).repeat(width)  # (W * C,)
        shift = (-torch.tensor(self.mean, device=pixels.device) / std).repeat(width)
        rows = pixels.flatten(2).float().mul_(scale).add_(shift)  # (B, H, W * C)
        return rows.view(pixels.shape).permute(0, 3, 1, 2)


IMAGENET = Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
GREY = Normalise((0.5,), (0.5,))


class Batches:
    """One pass over a part of the data, batch after batch.

    The next batch is read while the present one is worked on. Images come as ``(B, C, H, W)`` in
    channels-last memory, normalised; targets as class indices, or as probabilities where the
    augmentation mixes images.

    Args:
        decoded: The pixels.
        part: Which images: the data that was decoded, or a part of it.
        batch_size: Images in a batch; the last one may be smaller.
        normalise: Shift and scale of the channels.
        order: Draws a new order for each pass, or None for the order of the part.
        augment: Changes images and targets, or None.
        device: Where the tensors go.
        share: Which of several processes this is.
        drop_last: Leave out a last batch that is smaller.
        chances: How often each image is drawn, as for :func:`batch_positions`.
    """

    def __init__(
        self,
        decoded: DecodedImages,
        part: LabelledImages,
        *,
        batch_size: int,
        normalise: Normalise,
        order: torch.Generator | None = None,
        augment: Augment | None = None,
        device: torch.device | str = "cpu",
        share: Share | None = None,
        drop_last: bool = False,
        chances: Tensor | None = None,
    ) -> None:
        if part.images is not decoded.data.images:
            raise InputError("the part is not of the data that was decoded")
        if decoded.pixels.shape[3] != len(normalise.mean):
            raise InputError(
                f"images have {decoded.pixels.shape[3]} channels, "
                f"but are normalised for {len(normalise.mean)}"
            )
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, but is {batch_size}")
        self.decoded = decoded
        self.part = part
        self.batch_size = batch_size
        self.normalise = normalise
        self.order = order
        self.augment = augment
        self.device = torch.device(device)
        self.share = share
        self.drop_last = drop_last
        self.chances = chances

    def __len__(self) -> int:
        full, rest = divmod(len(self.part), self.batch_size)
        return full + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[Batch]:
        plan = batch_positions(
            len(self.part),
            self.batch_size,
            order=self.order,
            share=self.share,
            drop_last=self.drop_last,
            chances=self.chances,
        )
        with ThreadPoolExecutor(1) as reader:
            ahead = [reader.submit(self._read, positions) for positions, _ in plan[:1]]
            for number, (_, weight) in enumerate(plan):
                pixels, target = ahead.pop().result()
                if number + 1 < len(plan):
                    ahead.append(reader.submit(self._read, plan[number + 1][0]))
                yield Batch(*self._finish(pixels, target), weight)

    def _read(self, positions: np.ndarray) -> tuple[Tensor, Tensor]:
        pixels = self.decoded.pixels[self.part.rows[positions]]  # (B, H, W, C), a copy
        return torch.from_numpy(np.asarray(pixels)), torch.from_numpy(self.part.labels[positions])

    def _finish(self, pixels: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        target = target.to(self.device, non_blocking=True)
        pixels = pixels.to(self.device, non_blocking=True)
        if self.augment is None:
            return self.normalise.from_bytes(pixels), target
        images = pixels.permute(0, 3, 1, 2).float().div_(255)  # channels last in memory
        images, target = self.augment(images, target)
        return self.normalise(images), target


class FeatureBatches:
    """The same for features: one pass over the rows of a tensor.

    Args:
        features: Shape ``(samples, D)``.
        target: Classes, shape ``(samples,)``.
        rows: Which row of the features each sample is; None where they are in step.
        batch_size: Samples in a batch, over all processes.
        order: Draws a new order for each pass, or None.
        device: Where the tensors go.
        share: Which of several processes this is.
        chances: How often each sample is drawn, as for :func:`batch_positions`.
    """

    def __init__(
        self,
        features: Tensor,
        target: Tensor,
        *,
        batch_size: int,
        rows: Tensor | None = None,
        order: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        share: Share | None = None,
        chances: Tensor | None = None,
    ) -> None:
        self.features = features
        self.rows = rows
        self.target = target
        self.batch_size = batch_size
        self.order = order
        self.device = torch.device(device)
        self.share = share
        self.chances = chances

    def __len__(self) -> int:
        return -(-len(self.target) // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        for positions, weight in batch_positions(
            len(self.target),
            self.batch_size,
            order=self.order,
            share=self.share,
            chances=self.chances,
        ):
            samples = torch.from_numpy(positions)
            rows = samples if self.rows is None else self.rows[samples]
            inputs, target = self.features[rows], self.target[samples]
            yield Batch(inputs.to(self.device), target.to(self.device), weight)
