"""Small pictures of test images, kept with a run: a report of it then needs no access to the data.

``thumbnails.json`` has the images that the run got wrong, rare classes first, and a few of each
class that it got right, by their rows in the test split. Their number and size are bounded.
"""

import base64
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
from PIL import Image

from cosen.data.labelled import LabelledImages
from cosen.errors import RunError
from cosen.training.files import write_text
from cosen.training.run_folder import RunFolder

FILE = "thumbnails.json"
FORMAT = 1

SIDE = 48
"""The most pixels of a side; smaller images stay as they are."""

MOST_WRONG, MOST_RIGHT = 240, 120

RIGHT_OF_A_CLASS = 2

AT_ONCE = 6
"""How many images of a class are taken before other classes get a turn."""

ROOM_FOR_WRONG, ROOM_FOR_RIGHT = 400_000, 180_000
"""Characters; where pictures are hard to compress, fewer are kept."""

QUALITY = 75
"""Of JPEG."""


@dataclass(frozen=True)
class Thumbnail:
    """A small picture.

    Attributes:
        image: A data URL: PNG or JPEG, whichever is smaller.
        width: In pixels.
        height: In pixels.
    """

    image: str
    width: int
    height: int


def write_thumbnails(
    run: RunFolder,
    pixels: np.ndarray,
    test: LabelledImages,
    *,
    predicted: np.ndarray,
    class_counts: Sequence[int],
) -> None:
    """Write ``thumbnails.json``, whole or not at all.

    Args:
        run: The run folder.
        pixels: uint8, shape ``(images in the store, height, width, channels)``.
        test: The test split, whose rows are those of the pixels.
        predicted: The class that the run gives each test image, shape ``(n,)``.
        class_counts: Training images of each class, which say what is rare.
    """
    wrong = np.flatnonzero(predicted != test.labels)
    right = np.flatnonzero(predicted == test.labels)
    right = right[_first_of_each(test.labels[right], RIGHT_OF_A_CLASS)]
    ranks = rarity_ranks(class_counts)[test.labels]

    @cache
    def picture(row: int) -> dict[str, Any]:
        return asdict(make_thumbnail(pixels[test.rows[row]]))

    found = _fitting(wrong, ranks, picture, most=MOST_WRONG, room=ROOM_FOR_WRONG)
    found |= _fitting(right, ranks, picture, most=MOST_RIGHT, room=ROOM_FOR_RIGHT)
    write_text(run.path / FILE, json.dumps({"format": FORMAT, "images": found}))


def read_thumbnails(run: RunFolder) -> dict[int, Thumbnail] | None:
    """The pictures of a run by their rows in the test split; None where it has kept none."""
    path = run.path / FILE
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {int(row): Thumbnail(**entry) for row, entry in found["images"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def make_thumbnail(pixels: np.ndarray) -> Thumbnail:
    """A picture of one image, uint8 of the shape ``(height, width, channels)``.

    Example:
        >>> found = make_thumbnail(np.zeros((96, 64, 1), np.uint8))
        >>> found.width, found.height, found.image[:22]
        (32, 48, 'data:image/png;base64,')
    """
    image = Image.fromarray(
        np.ascontiguousarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    )
    image.thumbnail((SIDE, SIDE))  # never enlarges
    encoded = {
        "png": _encoded(image, "PNG"),
        "jpeg": _encoded(image, "JPEG", optimize=True, quality=QUALITY),
    }
    kind = min(encoded, key=lambda name: len(encoded[name]))
    data = base64.b64encode(encoded[kind]).decode("ascii")
    return Thumbnail(f"data:image/{kind};base64,{data}", *image.size)


def rarity_ranks(class_counts: Sequence[float]) -> np.ndarray:
    """The place of each class in the order of rarity, 0 for the rarest, shape ``(C,)``.

    Example:
        >>> rarity_ranks([100, 5, 20])
        array([2, 0, 1])
    """
    order = np.argsort(np.asarray(class_counts), kind="stable")
    return np.argsort(order, kind="stable")


def taken_in_turns(ranks: np.ndarray, most: int, *, at_once: int = 3) -> np.ndarray:
    """Some of many, low ranks first, but none takes all: each rank has a few, then more in turn.

    Args:
        ranks: The rank of each, shape ``(n,)``.
        most: How many to take.
        at_once: How many of a rank are taken in a turn; fewer where there are too many ranks for
            each to have so many.

    Returns:
        The positions of those taken, by rank and then as they came.

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


def _first_of_each(labels: np.ndarray, most: int) -> np.ndarray:
    """The positions of the first few of each class."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    return np.sort(order[np.arange(len(labels)) - np.searchsorted(ordered, ordered) < most])


def _fitting(
    rows: np.ndarray,
    ranks: np.ndarray,
    picture: Callable[[int], dict[str, Any]],
    *,
    most: int,
    room: int,
) -> dict[str, dict[str, Any]]:
    """Pictures of some of these test images: as many as may be and as there is room for."""
    while True:
        taken = rows[taken_in_turns(ranks[rows], most, at_once=AT_ONCE)].tolist()
        found = {str(row): picture(row) for row in taken}
        size = len(json.dumps(found))
        if size <= room:
            return found
        most = len(taken) * room // size  # in turn again, so that no class loses all of its


def _encoded(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()
