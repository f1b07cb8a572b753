"""Small pictures of test images, stored with a run: its report does not need the data.

``thumbnails.json`` has images that the run got wrong, rare classes first, and a few of each class
that it got right, by their rows in the test split. Their number and size are limited.
"""

import base64
import io
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from cosen.data.batches import Normalise
from cosen.data.image_cache import PixelsOnDemand
from cosen.data.labelled import LabelledImages
from cosen.errors import RunError
from cosen.networks.activation_maps import find_map_layer, logits_and_maps, map_picture
from cosen.training.checksums import read_checked, write_checked_text
from cosen.training.run_folder import RunFolder

_log = logging.getLogger("cosen")

FILE = "thumbnails.json"

SIDE = 48
"""Largest side in pixels; smaller images keep their size."""

MOST_WRONG, MOST_RIGHT, MOST_MAPS = 240, 120, 120
RIGHT_OF_A_CLASS = 2

MAP_BATCH = 32
"""Images whose activation maps are computed at once."""

AT_ONCE = 6
"""Images of a class in each turn."""

ROOM_FOR_WRONG, ROOM_FOR_RIGHT = 400_000, 180_000
"""Characters; fewer pictures are kept if they compress badly."""


@dataclass(frozen=True)
class Thumbnail:
    """A small picture of an image.

    Attributes:
        image: A data URL of a PNG or JPEG, whichever is smaller.
        width: Its width.
        height: Its height.
        map: Where the network looked, a data URL of a transparent PNG; empty if there is no map.
    """

    image: str
    width: int
    height: int
    map: str = ""


def write_thumbnails(
    run: RunFolder,
    pixels: np.ndarray | PixelsOnDemand,
    test: LabelledImages,
    *,
    predicted: np.ndarray,
    class_counts: Sequence[int],
    maps: Callable[[np.ndarray], Sequence[str]] | None = None,
) -> None:
    """Write ``thumbnails.json``.

    Args:
        run: The run folder.
        pixels: uint8, shape ``(images in the store, height, width, channels)``.
        test: The test split.
        predicted: Predicted class of each test image, shape ``(n,)``.
        class_counts: Training images per class; they decide which classes are rare.
        maps: Returns pictures of the activation maps of these rows in the store.
    """
    labels = test.labels
    wrong = np.flatnonzero(predicted != labels)
    of_classes = [
        np.flatnonzero((predicted == label) & (labels == label))[:RIGHT_OF_A_CLASS]
        for label in range(len(class_counts))
    ]
    right = np.sort(np.concatenate(of_classes))
    ranks = rarity_ranks(class_counts)[labels]

    @cache
    def picture(row: int) -> dict[str, Any]:
        return asdict(make_thumbnail(pixels[test.rows[row]]))

    def fitting(rows: np.ndarray, most: int, room: int) -> dict[str, dict[str, Any]]:
        """Return pictures of these test images, at most ``most`` and ``room`` characters."""
        while True:
            taken = rows[taken_in_turns(ranks[rows], most, at_once=AT_ONCE)].tolist()
            found = {str(row): picture(row) for row in taken}
            size = len(json.dumps(found))
            if size <= room:
                return found
            most = len(taken) * room // size  # round robin again: every class keeps some

    found = fitting(wrong, MOST_WRONG, ROOM_FOR_WRONG)
    if maps is not None:
        ordered = np.array([int(row) for row in found], dtype=np.intp)
        mapped = ordered[taken_in_turns(ranks[ordered], MOST_MAPS)]
        for row, drawn in zip(mapped.tolist(), maps(test.rows[mapped]), strict=True):
            found[str(row)] = found[str(row)] | {"map": drawn}
    found |= fitting(right, MOST_RIGHT, ROOM_FOR_RIGHT)
    write_checked_text(run.path / FILE, json.dumps({"format": 1, "images": found}))


def map_drawer(
    classifier: nn.Module, pixels: np.ndarray | PixelsOnDemand, normalise: Normalise
) -> Callable[[np.ndarray], list[str]]:
    """Return a function that draws where a network looked at images of the store, by their rows.

    A drawing is empty if the network has no maps.
    """
    device = next(classifier.parameters()).device

    def inputs(rows: np.ndarray) -> Tensor:
        images = np.stack([pixels[row] for row in rows])
        return normalise.from_bytes(torch.from_numpy(images).to(device))

    def drawn(rows: np.ndarray) -> list[str]:
        parts = [rows[at : at + MAP_BATCH] for at in range(0, len(rows), MAP_BATCH)]
        try:
            layer = find_map_layer(classifier, inputs(rows[:1])) if len(rows) else None
            if layer is None:
                return [""] * len(rows)
            maps = [logits_and_maps(classifier, layer, inputs(part))[1] for part in parts]
        except Exception as error:  # a custom network may do anything; the run is finished
            _log.warning("there are no activation maps: %s", error)
            return [""] * len(rows)
        return [map_picture(one) for part in maps for one in part]

    return drawn


def read_thumbnails(run: RunFolder) -> dict[int, Thumbnail] | None:
    """Read the pictures of a run by their rows in the test split; None if there are none."""
    path = run.path / FILE
    if not path.exists():
        return None
    try:
        found = json.loads(read_checked(path))
        return {int(row): Thumbnail(**entry) for row, entry in found["images"].items()}
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def make_thumbnail(pixels: np.ndarray, *, side: int = SIDE) -> Thumbnail:
    """Return a picture of an image, uint8 of shape ``(height, width, channels)``.

    Example:
        >>> found = make_thumbnail(np.zeros((96, 64, 1), np.uint8))
        >>> found.width, found.height, found.image[:22]
        (32, 48, 'data:image/png;base64,')
    """
    pixels = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    image = Image.fromarray(np.ascontiguousarray(pixels))
    image.thumbnail((side, side))  # never enlarges
    png, jpeg = io.BytesIO(), io.BytesIO()
    image.save(png, "PNG")
    image.save(jpeg, "JPEG", optimize=True, quality=75)
    as_png = len(png.getvalue()) <= len(jpeg.getvalue())
    data = base64.b64encode((png if as_png else jpeg).getvalue()).decode("ascii")
    return Thumbnail(f"data:image/{'png' if as_png else 'jpeg'};base64,{data}", *image.size)


def rarity_ranks(class_counts: Sequence[float]) -> np.ndarray:
    """Return the rank of each class by rarity, 0 for the rarest, shape ``(C,)``.

    Example:
        >>> rarity_ranks([100, 5, 20])
        array([2, 0, 1])
    """
    order = np.argsort(np.asarray(class_counts), kind="stable")
    return np.argsort(order, kind="stable")


def taken_in_turns(ranks: np.ndarray, most: int, *, at_once: int = 3) -> np.ndarray:
    """Select items round robin over ranks, low ranks first.

    Args:
        ranks: The rank of each item, shape ``(n,)``.
        most: How many to select.
        at_once: How many items of a rank are selected in a turn; fewer if there are many ranks.

    Returns:
        The positions of the selected items, sorted by rank and then by position.

    Example:
        >>> taken_in_turns(np.array([1, 0, 0, 0, 0, 1]), 4, at_once=2)
        array([1, 2, 0, 5])
    """
    by_rank = np.argsort(ranks, kind="stable")
    ordered = ranks[by_rank]
    starts = np.searchsorted(ordered, ordered)  # where the run of equal ranks begins
    fair = most // max(1, len(np.unique(ranks)))
    turns = (np.arange(len(ranks)) - starts) // max(1, min(at_once, fair))
    taken = np.sort(np.argsort(turns, kind="stable")[:most])
    return by_rank[taken]
