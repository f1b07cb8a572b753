"""Many images at once: decoded in threads, with every one that does not decode reported."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from cosen.data.labelled import LabelledImages
from cosen.data.stores import printable
from cosen.errors import BrokenImageError, DataError

Progress = Callable[[int, int], None]
"""Told how many of how many are done."""

Result = TypeVar("Result")

_BATCH = 512  # queued at once: little memory, and Ctrl-C does not wait for a whole dataset


def in_threads(
    call: Callable[[int], Result], numbers: Sequence[int], progress: Progress | None
) -> Iterator[Result]:
    """Results in order, from as many threads as there are cores; Pillow decodes in parallel."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        for start in range(0, len(numbers), _BATCH):
            batch = numbers[start : start + _BATCH]
            yield from threads.map(call, batch)
            if progress is not None:
                progress(start + len(batch), len(numbers))


def find_broken(data: LabelledImages, *, progress: Progress | None = None) -> dict[int, str]:
    """Every image that does not decode: its number in the store, and why."""

    def problem(row: int) -> str | None:
        try:
            data.images.open(row)
        except BrokenImageError as error:
            return str(error)
        return None

    rows = data.rows.tolist()
    problems = in_threads(problem, rows, progress)
    return {row: reason for row, reason in zip(rows, problems, strict=True) if reason is not None}


def broken_images_error(data: LabelledImages, broken: dict[int, str]) -> DataError:
    """The error that names all of them at once, and what to do."""
    lines = [f"  {printable(data.images.name(row))}: {broken[row]}" for row in sorted(broken)]
    return DataError(
        f"{data.source}: {len(broken)} of {len(data)} files cannot be used:\n"
        + "\n".join(lines)
        + "\nmend or remove them, or leave them out with --skip-broken"
    )
