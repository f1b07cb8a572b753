"""Augmentation of batches with kornia; random numbers come from a given generator."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from cosen.errors import InputError, choices_hint

NAMES = {
    "crop": "shift by up to an eighth, with mirrored borders",
    "flip": "mirror left and right with probability 0.5",
    "colour": "change brightness and contrast, and saturation and hue of RGB images",
    "randaugment": "two random operations of RandAugment (RGB images)",
    "mixup": "mix pairs of images and their targets",
}


class Augmentation:
    """Applies some of the augmentations in :data:`NAMES`, in that order, to a batch.

    Args:
        names: Names of augmentations.
        size: (height, width) of the images.
        channels: 1 or 3.
        num_classes: Number of classes, for mixed targets.
        generator: Draws the seed of each batch.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        size: tuple[int, int],
        channels: int,
        num_classes: int,
        generator: torch.Generator,
    ) -> None:
        check_names(names)
        if "randaugment" in names and channels != 3:
            raise InputError("randaugment needs RGB images, but these are grey: remove it")
        self.num_classes = num_classes
        self.generator = generator
        self.mixes = "mixup" in names
        self.steps = [_step(name, size, channels) for name in NAMES if name in names]

    def __call__(self, images: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """Augment images ``(B, C, H, W)`` in [0, 1]; mixup turns the target into probabilities."""
        seed = int(torch.randint(2**62, (1,), generator=self.generator))
        devices = [images.device] if images.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), torch.no_grad():
            torch.manual_seed(seed)  # kornia draws from the global generator
            for step in self.steps[: len(self.steps) - self.mixes]:
                images = step(images)
            if self.mixes:
                images, pairs = self.steps[-1](images, target)
                first, second, share = pairs.unbind(
                    1
                )  # per image: its class, the other class, the share of the other
                target = (1 - share)[:, None] * one_hot(first.long(), self.num_classes) + share[
                    :, None
                ] * one_hot(second.long(), self.num_classes)
        return images.contiguous(memory_format=torch.channels_last), target


def check_names(names: Sequence[str]) -> None:
    """Raise an error if a name is not in :data:`NAMES`."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise InputError(
            f"there is no augmentation {unknown[0]!r}{choices_hint(unknown[0], NAMES)}"
        )


def _step(name: str, size: tuple[int, int], channels: int) -> Callable[..., Any]:
    import kornia.augmentation as K
    from kornia.augmentation.auto import RandAugment

    height, width = size
    match name:
        case "crop":
            margin = (max(1, width // 8), max(1, height // 8))
            step = K.RandomCrop(size, padding=margin, padding_mode="reflect")
        case "flip":
            step = K.RandomHorizontalFlip(p=0.5)
        case "colour" if channels == 3:
            step = K.ColorJiggle(0.2, 0.2, 0.2, 0.02, p=1.0)
        case "colour":
            step = nn.Sequential(
                K.RandomBrightness((0.8, 1.2), p=1.0), K.RandomContrast((0.8, 1.2), p=1.0)
            )
        case "randaugment":
            step = RandAugment(n=2, m=10)
        case _:
            step = K.RandomMixUpV2(data_keys=["input", "class"], p=1.0)
    return step  # type: ignore[no-any-return]
