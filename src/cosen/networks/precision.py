"""In which precision to compute on a device."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, get_args

import torch

from cosen.errors import InputError

Precision = Literal["auto", "float32", "bfloat16"]


def resolve_precision(precision: Precision, device: torch.device | str) -> torch.dtype:
    """``auto`` is bfloat16 where the device computes it natively, else float32."""
    if precision not in get_args(Precision):
        raise InputError(
            f"precision must be one of {', '.join(get_args(Precision))}, but is {precision!r}"
        )
    if precision != "auto":
        return torch.bfloat16 if precision == "bfloat16" else torch.float32
    kind = torch.device(device).type
    native = (kind == "cuda" and torch.cuda.is_bf16_supported()) or (
        kind == "cpu" and _cpu_has_bfloat16()
    )
    return torch.bfloat16 if native else torch.float32


def _cpu_has_bfloat16() -> bool:
    """Whether this CPU has instructions for it; without them bfloat16 is many times slower."""
    instructions = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, name, bool)()) for name in instructions)


def autocast(device: torch.device | str, dtype: torch.dtype) -> AbstractContextManager[object]:
    """Autocast to a half precision; nothing for float32."""
    if dtype == torch.float32:
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=dtype)
