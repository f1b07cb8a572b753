"""Devices, and floating-point precision on them."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch

from cosen.errors import InputError
from cosen.functional.checks import check_choice

Precision = Literal["auto", "float32", "bfloat16"]


def resolve_device(device: str) -> str:
    """Resolve ``auto``: the accelerator of this machine, if it has one."""
    available = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(device, True):
        raise InputError(f"this machine has no {device} device: use --device cpu or auto")
    if device != "auto":
        return device
    return next((name for name, is_here in available.items() if is_here), "cpu")


def resolve_precision(precision: Precision, device: torch.device | str) -> torch.dtype:
    """Resolve ``auto``: bfloat16 on a GPU that computes it natively, float32 elsewhere.

    On a CPU it is always float32: a run gives the same numbers on every machine. Also,
    some virtual machines advertise AMX instructions that crash the process.
    """
    check_choice(precision, get_args(Precision), name="precision")
    if precision != "auto":
        return torch.bfloat16 if precision == "bfloat16" else torch.float32
    is_native = torch.device(device).type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if is_native else torch.float32


def autocast(device: torch.device | str, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Return an autocast context for a half precision, or a no-op context for float32."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=dtype)
