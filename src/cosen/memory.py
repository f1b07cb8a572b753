"""Memory of the processes that cosen starts itself."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""Options of ``mallopt`` in glibc's ``malloc.h``."""

REUSED = 1 << 30
"""Largest block of memory, in bytes, that is kept for reuse."""


def reuse_memory() -> None:
    """Let the C library keep freed memory for the next tensor of this process (glibc only).

    By default it returns large blocks to the system, which clears them page by page when they are
    needed again. On a CPU, this takes up to a third of the time of a network's passes.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, REUSED)
        mallopt(M_TRIM_THRESHOLD, 2 * REUSED - 1)
