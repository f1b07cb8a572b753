"""Find near-duplicates: images that look the same, such as a copy that was resized or recompressed.

Candidates have similar perceptual hashes. They are near-duplicates if small grey thumbnails of them
are almost the same, too: many photographs of a class share a hash, such as objects in the middle of
a plain background. Crops, rotations and mirror images are not found.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from PIL import Image

BITS = 64

MAX_DISTANCE = 4
"""Bits in which the hashes of near-duplicates may differ."""

MIN_CORRELATION = 0.99
"""Of the thumbnails. Chosen by looking at pairs: in HAM10000, almost all above this limit show the
same lesion, and few below it."""

SMALLEST = 32
"""Smaller images are not compared: different handwritten digits look the same to a hash."""

FLAT = 4.0
"""Images whose grey values have a smaller standard deviation, such as blank ones, are not compared:
the hash would describe their noise."""

SIDE = 16
"""Of the thumbnails."""

MOST_COMPARED = 1000
"""Images that each image is compared with, for each part of the hash."""

CHUNK = 2**14
"""Pairs of thumbnails that are compared at once."""


@dataclass(frozen=True, eq=False)
class Appearance:
    """What an image looks like: a perceptual hash, and a grey thumbnail, uint8, ``(SIDE²,)``."""

    hash: int
    thumbnail: NDArray[np.uint8]


def appearance(image: Image.Image) -> Appearance | None:
    """Return what an image looks like; None if it is too small or too flat to tell."""
    import imagehash  # slow to import

    grey = image.convert("L")
    thumbnail = np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX)).flatten()
    if min(image.size) < SMALLEST or thumbnail.std() < FLAT:
        return None
    bits = imagehash.phash(grey).hash  # (8, 8)
    return Appearance(int.from_bytes(np.packbits(bits).tobytes()), thumbnail)


def near_duplicate_groups(looks: Sequence[Appearance]) -> list[NDArray[np.int64]]:
    """Return the positions of images that look the same, for each group of two or more.

    A group has everything that is connected by near-duplicates.
    """
    from scipy.sparse import coo_array  # type: ignore[import-untyped]  # slow to import
    from scipy.sparse.csgraph import connected_components  # type: ignore[import-untyped]

    hashes = np.array([look.hash for look in looks], dtype=np.uint64)
    thumbnails = np.array([look.thumbnail for look in looks], dtype=np.uint8)
    group = np.arange(len(looks))
    for pairs in similar_hashes(hashes):
        new = pairs[group[pairs[:, 0]] != group[pairs[:, 1]]]
        linked = group[_same_thumbnails(thumbnails, new)]  # (pairs, 2)
        if len(linked):
            links = coo_array((np.ones(len(linked)), tuple(linked.T)), shape=2 * group.shape)
            group = connected_components(links, directed=False)[1][group]
    by_group = np.argsort(group, kind="stable")
    members = np.split(by_group, np.flatnonzero(np.diff(group[by_group])) + 1)
    return [positions for positions in members if len(positions) > 1]


def similar_hashes(hashes: NDArray[np.uint64]) -> Iterator[NDArray[np.int64]]:
    """Yield pairs of positions whose hashes differ in at most ``MAX_DISTANCE`` bits, ``(n, 2)``.

    A hash is divided into one part more than there may be different bits, so similar hashes have
    an equal part. Only hashes with an equal part are compared, each with at most ``MOST_COMPARED``
    others: all of them, unless very many images look alike. A pair may be yielded several times.
    """
    edges = [BITS * number // (MAX_DISTANCE + 1) for number in range(MAX_DISTANCE + 2)]
    for start, end in pairwise(edges):
        part = hashes >> np.uint64(start) & np.uint64(2 ** (end - start) - 1)
        order = np.lexsort((hashes, part))
        part, ordered = part[order], hashes[order]
        places = np.arange(len(hashes))
        for step in range(1, MOST_COMPARED + 1):
            places = places[: np.searchsorted(places, len(hashes) - step)]
            places = places[part[places] == part[places + step]]
            if not len(places):
                break
            different = (ordered[places] ^ ordered[places + step]).view(np.uint8).reshape(-1, 8)
            close = places[np.unpackbits(different, axis=1).sum(1) <= MAX_DISTANCE]
            if len(close):
                yield np.stack([order[close], order[close + step]], axis=1)


def _same_thumbnails(thumbnails: NDArray[np.uint8], pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the pairs whose thumbnails are correlated."""
    same = np.zeros(len(pairs), dtype=bool)
    for start in range(0, len(pairs), CHUNK):
        chunk = slice(start, start + CHUNK)
        values = thumbnails[pairs[chunk]].astype(np.float32)  # (pairs, 2, pixels)
        values -= values.mean(2, keepdims=True)
        values /= np.linalg.norm(values, axis=2, keepdims=True)
        same[chunk] = values.prod(1).sum(1) >= MIN_CORRELATION
    return pairs[same]
