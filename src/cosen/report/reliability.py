"""Whether probabilities mean what they say: confidence against accuracy, in bins."""

from typing import Any

import torch
from torch import Tensor

from cosen import functional as F
from cosen.report.run_data import Shown

BINS = 15
"""As many as :func:`cosen.functional.expected_calibration_error` has."""


def reliability(shown: Shown) -> dict[str, Any]:
    """The chosen method's first seed on test, before and after calibration on validation."""
    run = shown.first
    before, after = run.logits.softmax(1), run.probabilities
    return {
        "method": shown.chosen.name,
        "seed": shown.seeds[0],
        "before": _bins(before, run.target),
        "after": _bins(after, run.target),
        "error_before": float(F.expected_calibration_error(before, run.target, bins=BINS)),
        "error_after": float(F.expected_calibration_error(after, run.target, bins=BINS)),
        "temperature": run.temperature,
    }


def _bins(probabilities: Tensor, target: Tensor) -> list[dict[str, Any]]:
    confidence, predicted = probabilities.max(1)
    right = (predicted == target).float()
    place = (confidence * BINS).ceil().long().sub(1).clamp(0, BINS - 1)  # (low, high]
    counts = torch.bincount(place, minlength=BINS)
    means = [
        torch.zeros(BINS).index_add(0, place, values) / counts for values in (confidence, right)
    ]
    return [
        {
            "low": number / BINS,
            "high": (number + 1) / BINS,
            "confidence": float(means[0][number]) if count else None,
            "accuracy": float(means[1][number]) if count else None,
            "count": count,
        }
        for number, count in enumerate(counts.tolist())
    ]
