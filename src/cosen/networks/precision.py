"""In which precision to compute on a device."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch

from cosen.errors import InputError

Precision = Literal["auto", "float32", "bfloat16"]


def resolve_precision(precision: Precision, device: torch.device | str) -> torch.dtype:
    """Resolve ``auto``: bfloat16 on a GPU that computes it natively, float32 elsewhere.

    On a CPU it is float32 always, so that a run gives the same numbers on every machine. Some
    virtual machines also advertise AMX instructions that end the process when they are used.
    """
    if precision not in get_args(Precision):
        raise InputError(
            f"precision must be one of {', '.join(get_args(Precision))}, but is {precision!r}"
        )
    if precision != "auto":
        return torch.bfloat16 if precision == "bfloat16" else torch.float32
    is_native = torch.device(device).type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if is_native else torch.float32


def autocast(device: torch.device | str, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Autocast to a half precision; nothing for float32."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=dtype)
