"""Random order that is the same on every machine and with every version of every library.

An item's place is decided by a hash of the seed and the item's own name, so it does not depend on
a library's generator, nor on how many other items there are.
"""

import hashlib
from collections.abc import Iterable

import numpy as np


def draw_order(names: Iterable[str], *, seed: int, purpose: str) -> np.ndarray:
    """Positions of the names in a random order.

    Args:
        names: What is put into order; unique.
        seed: The same seed, the same order.
        purpose: What the order is for; different purposes are independent.

    Example:
        >>> draw_order(["a", "b", "c", "d"], seed=0, purpose="test").tolist()
        [3, 1, 2, 0]
    """
    texts = (f"{seed}\0{purpose}\0{name}" for name in names)
    keys = [
        # the bytes of a file's name, whether or not they are UTF-8
        hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).digest()
        for text in texts
    ]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)
