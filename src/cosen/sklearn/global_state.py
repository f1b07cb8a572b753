"""torch's random numbers and threads, which every fit in a process shares: used, then put back."""

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from sklearn.utils import check_random_state
from torch import nn

from cosen.networks.head import Head
from cosen.networks.output import Network

SHARED_WORK = 2**25
"""Multiplications of a layer from which on its work is worth sharing among threads."""

_lock = threading.Lock()
_threads, _fits = 1, 0


def draw_seed(random_state: int | np.random.RandomState | None) -> int:
    """A seed; with None from the system, and not from NumPy's global state."""
    if random_state is None:
        return secrets.randbits(31)
    return int(check_random_state(random_state).randint(2**31))


def seeded(seed: int, make: Callable[[], Network]) -> Network:
    """Networks draw their weights from torch's global generator, which is put back afterwards."""
    with _lock, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


@contextmanager
def few_threads(network: Network, batch_size: int) -> Iterator[None]:
    """One thread where a step is too little work to share, and the number from before afterwards.

    On busy cores, threads that wait for one another at every step can take ten times as long.
    """
    global _threads, _fits
    is_little = isinstance(network, Head) and batch_size * _size(network.hidden) < SHARED_WORK
    if not is_little:
        yield
        return
    with _lock:
        if _fits == 0:  # other fits may run beside this one, in threads
            _threads = torch.get_num_threads()
        _fits += 1
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _lock:
            _fits -= 1
            torch.set_num_threads(_threads)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
