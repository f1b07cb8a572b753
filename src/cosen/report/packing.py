"""Many numbers as little text: 16 bits each, spread evenly between the least and the largest.

A page unpacks them by ``low + (high - low) * u / 65535``, and 10 to that power where ``log`` is
set. Whole numbers that span no more than 65535 come out exactly.
"""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

STEPS = 65535


def pack(array: ArrayLike, *, log: bool = False) -> dict[str, Any]:
    """Numbers of any shape as a record for JSON.

    What is no finite number is drawn to the ends: infinity to the largest, minus infinity and NaN
    (and where ``log`` is set, zero and what is below) to the least.

    Args:
        array: The numbers.
        log: Spread them evenly in their logarithms, for numbers that span several powers of ten.

    Example:
        >>> pack([0, 65535])
        {'shape': [2], 'low': 0.0, 'high': 65535.0, 'log': False, 'data': 'AAD//w=='}
    """
    numbers = np.asarray(array)
    values = numbers.astype(np.float64)
    if log:
        values = np.log10(values, out=np.full(values.shape, -np.inf), where=values > 0)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    if numbers.dtype.kind in "iub" and not log and high - low <= STEPS:
        high = low + STEPS  # a step is then 1
    values = np.nan_to_num(values, nan=low, posinf=high, neginf=low)
    span = high - low
    steps = np.rint((values - low) / span * STEPS) if span > 0 else np.zeros(values.shape)
    data = base64.b64encode(steps.astype("<u2").tobytes()).decode("ascii")
    return {"shape": list(values.shape), "low": low, "high": high, "log": log, "data": data}


def unpack(packed: Mapping[str, Any]) -> NDArray[np.float64]:
    """What :func:`pack` packed, as a page sees it."""
    steps = np.frombuffer(base64.b64decode(packed["data"]), dtype="<u2").astype(np.float64)
    values = packed["low"] + (packed["high"] - packed["low"]) * steps / STEPS
    found = 10.0**values if packed["log"] else values
    return np.asarray(found).reshape(packed["shape"])


def packed_size(numbers: int) -> int:
    """How many characters the data of so many numbers take.

    Example:
        >>> packed_size(3), len(pack([1, 2, 3])["data"])
        (8, 8)
    """
    return -(-2 * numbers // 3) * 4
