"""Pack many numbers into little text: 16 bits each, evenly spaced from the lowest to the highest.

The page unpacks them as ``low + (high - low) * u / 65535``, and as 10 to that power if ``log`` is
set. Integers that span at most 65535 are exact.
"""

import base64
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

STEPS = 65535

DIGITS = 6
"""Significant digits of numbers that are not packed; more would only make the page larger."""


def pack(array: ArrayLike, *, log: bool = False) -> dict[str, Any]:
    """Pack numbers of any shape into a record for JSON.

    Infinity becomes the highest number; minus infinity and NaN (with ``log`` also zero and
    negative numbers) become the lowest.

    Args:
        array: The numbers.
        log: Space them evenly by their logarithm, for numbers over several powers of ten.

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


def packed_size(numbers: int) -> int:
    """The number of characters that the packed data takes.

    Example:
        >>> packed_size(3), len(pack([1, 2, 3])["data"])
        (8, 8)
    """
    return -(-2 * numbers // 3) * 4


def json_number(number: float | str | None) -> float | None:
    """A number with six digits; None if JSON has no number for it.

    Example:
        >>> json_number("0.12345678"), json_number(float("nan"))
        (0.123457, None)
    """
    value = math.nan if number is None else float(number)
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
