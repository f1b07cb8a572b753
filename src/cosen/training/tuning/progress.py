"""What the user is told in the meantime: how far it is, and each warning once."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import optuna

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""


@contextmanager
def quiet_optuna() -> Iterator[None]:
    """Optuna says nothing of each trial."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def each_warning_once() -> Iterator[None]:
    """Every candidate would warn of the same classes again."""
    said: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        new = message not in said
        said.add(message)
        return new

    logger = logging.getLogger("cosen")
    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)
