"""A comparison that takes seconds, and user-defined methods that other processes import."""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from cosen.comparing.grid import CompareCallbacks, compare_methods
from cosen.comparing.jobs import Schedule, run_job
from cosen.comparing.study_folder import StudyFolder
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
class Compared:
    """A study folder, and the calls of the callbacks."""

    folder: StudyFolder
    started: list
    outcomes: dict

    @property
    def leaderboard(self):
        return self.folder.leaderboard()

    @property
    def choice(self):
        return self.folder.choice()


def run_study(out, methods, *, seeds=1, options=None, workers=None, cluster=None, **settings):
    """Compare methods on a few digits: ``run_study(tmp_path, ["cosen"], epochs=2)``."""
    started, outcomes = [], {}
    folder = compare_methods(
        TrainConfig(**(SETTINGS | settings)),
        Path(out),
        methods=methods,
        options=options,
        seeds=seeds,
        workers=workers,
        cluster=cluster,
        callbacks=CompareCallbacks(
            started=lambda *counts: started.append(counts),
            outcome=lambda outcome: outcomes.update({outcome.name: outcome.reason}),
        ),
    )
    return Compared(folder, started, outcomes)


def run_here(jobs, *, workers, on_progress, on_outcome):
    """Replace ``run_locally`` in tests that need no processes, which take seconds to start."""
    schedule = Schedule(jobs, on_progress, on_outcome)
    while (job := schedule.next_job()) is not None:
        messages = []
        run_job(job, messages.append)
        for message in messages:
            schedule.handle(job.name, message)
    return schedule.outcomes


class Smoothed(NetworkMethod):
    """Works, and has an option."""

    name = "smoothed"
    description = "label smoothing"

    def __init__(self, amount=0.1):
        self.amount = amount

    def make_loss(self, _):
        return nn.CrossEntropyLoss(label_smoothing=self.amount)


class ClassWise(NetworkMethod):
    """Has an option that is neither a number nor a string."""

    name = "class-wise"
    description = "a weight per class"

    def __init__(self, weights=(1.0, 1.0, 1.0)):
        self.weights = weights

    def make_loss(self, _):
        return nn.CrossEntropyLoss(torch.tensor(self.weights))


class Unhurried(NetworkMethod):
    """Plain training with a pause in each epoch, for interruptions."""

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
    description = "its check fails with an unexpected error"

    def check(self, _):
        raise KeyError("melanoma")


class Locked(NetworkMethod):
    name = "locked"
    description = "cannot be pickled"

    def __init__(self):
        self.lock = threading.Lock()


class Nameless(NetworkMethod):
    description = "has no name"


def not_a_method():
    pass
