"""A comparison that takes seconds, and methods of a user's own; other processes import them."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from cosen.comparing.compare import GridWatcher, compare
from cosen.comparing.jobs import Listener, Schedule, carry_out
from cosen.methods import NetworkMethod
from cosen.training.config import TrainConfig

EXCLUDED = ("3", "4", "5", "6", "7", "8", "9")
SETTINGS = {
    "data": "digits",
    "exclude": EXCLUDED,
    "imbalance": "1=20",  # fewer of digit 1
    "validation": 0.2,
    "objective": "balanced",
    "epochs": 1,
    "device": "cpu",
    "precision": "float32",
}
ARGUMENTS = (
    "digits",
    *(f"--exclude={name}" for name in EXCLUDED),
    "--imbalance=1=20",
    "--epochs=1",
    "--device=cpu",
    "--set=precision=float32",
)
"""The same on the command line."""


@dataclass
class Told:
    """A comparison, and what its watcher was told."""

    comparison: object
    started: list
    outcomes: dict


def run_study(out, methods, *, seeds=1, options=None, workers=None, cluster=None, **settings):
    """Compares methods on a few digits: ``run_study(tmp_path, ["cosen"], epochs=2)``."""
    told = Told(None, [], {})
    told.comparison = compare(
        TrainConfig(**(SETTINGS | settings)),
        Path(out),
        methods=methods,
        options=options,
        seeds=seeds,
        workers=workers,
        cluster=cluster,
        watcher=GridWatcher(
            started=lambda *counts: told.started.append(counts),
            outcome=lambda outcome: told.outcomes.update({outcome.name: outcome.reason}),
        ),
    )
    return told


def run_here(jobs, *, workers, on_progress, on_outcome):
    """Stands in for ``run_locally`` where its processes, which take seconds, do not matter."""
    schedule, listener = Schedule(jobs, on_outcome), Listener(on_progress)
    while (job := schedule.take()) is not None:
        told = []
        reason = carry_out(job, told.append)
        for news in told:
            listener.hear(job.name, news)
        schedule.end(job.name, reason)
    return schedule.outcomes


class Smoothed(NetworkMethod):
    """Works, and has an option."""

    name = "smoothed"
    description = "label smoothing"

    def __init__(self, amount=0.1):
        self.amount = amount

    def make_loss(self, _):
        return nn.CrossEntropyLoss(label_smoothing=self.amount)


class Unhurried(NetworkMethod):
    """Plain training with a pause in each epoch, to be interrupted in."""

    name = "unhurried"
    description = "waits a moment in each epoch"

    def begin_epoch(self, *_):
        time.sleep(0.2)


class Stumbles(NetworkMethod):
    name = "stumbles"
    description = "its loss fails"

    def make_loss(self, _):
        raise ZeroDivisionError("no image of\nany class")


class Dies(NetworkMethod):
    name = "dies"
    description = "its process dies"

    def make_loss(self, _):
        os._exit(3)


class Picky(NetworkMethod):
    name = "picky"
    description = "its check fails in a way of its own"

    def check(self, _):
        raise KeyError("melanoma")


class Nameless(NetworkMethod):
    description = "has no name"


def not_a_method():
    pass
