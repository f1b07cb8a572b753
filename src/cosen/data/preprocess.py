"""From a decoded image to pixels of one size: what the cache of images is made by."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from cosen.errors import InputError

Fit = Literal["crop", "stretch", "pad"]


@dataclass(frozen=True)
class Preprocess:
    """How an image is brought to one size.

    Attributes:
        height: Pixels.
        width: Pixels.
        channels: 1 for grey, 3 for RGB.
        fit: ``"crop"`` keeps the aspect and cuts what stands out at the centre, ``"stretch"``
            changes the aspect, ``"pad"`` keeps it and adds black borders.
    """

    height: int
    width: int
    channels: Literal[1, 3] = 3
    fit: Fit = "crop"

    def __post_init__(self) -> None:
        if min(self.height, self.width) < 1 or self.channels not in (1, 3):
            raise InputError(
                "an image needs at least one pixel and 1 or 3 channels, but "
                f"{self.height} x {self.width} x {self.channels} was asked for"
            )
        if self.fit not in ("crop", "stretch", "pad"):
            raise InputError(f"fit must be crop, stretch or pad, but is {self.fit!r}")

    @property
    def shape(self) -> tuple[int, int, int]:
        return (self.height, self.width, self.channels)

    @property
    def least_size(self) -> tuple[int, int]:
        """(width, height) below which a decoder need not go for the result to be as sharp."""
        return (2 * self.width, 2 * self.height)

    def __call__(self, image: Image.Image) -> np.ndarray:
        """The image as uint8, shape ``(height, width, channels)``."""
        image = image.convert("L" if self.channels == 1 else "RGB")
        if image.size != (self.width, self.height):
            image = self._resized(image)
        return np.asarray(image).reshape(self.shape)

    def _resized(self, image: Image.Image) -> Image.Image:
        wanted = (self.width, self.height)
        if self.fit == "stretch":
            return image.resize(wanted, Image.Resampling.BILINEAR)
        ratios = (self.width / image.width, self.height / image.height)
        if self.fit == "crop":
            scale = max(ratios)
            box_width, box_height = self.width / scale, self.height / scale
            left = max(0.0, (image.width - box_width) / 2)  # rounding may take it below
            top = max(0.0, (image.height - box_height) / 2)
            right, bottom = min(left + box_width, image.width), min(top + box_height, image.height)
            box = (left, top, right, bottom)
            return image.resize(wanted, Image.Resampling.BILINEAR, box=box)
        scale = min(ratios)
        inner = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        padded = Image.new(image.mode, wanted)
        corner = ((self.width - inner[0]) // 2, (self.height - inner[1]) // 2)
        padded.paste(image.resize(inner, Image.Resampling.BILINEAR), corner)
        return padded
