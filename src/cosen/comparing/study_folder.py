"""The study folder: a run folder for each method and seed, and their comparison.

| file | contents |
|---|---|
| ``study.json`` | settings of all runs, methods and their options, seeds, the command |
| ``runs/METHOD/SEED/`` | a run folder, as written by ``cosen train`` |
| ``failures.json`` | why runs are missing, by method and seed |
| ``leaderboard.json``, ``.csv``, ``.md`` | methods compared |
| ``choice.json`` | which method to use, and why |
"""

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from cosen.comparing.choice import Choice
from cosen.comparing.leaderboard import Leaderboard
from cosen.data.cache_folder import key_of
from cosen.errors import RunError
from cosen.files import is_file, write_text
from cosen.training.records import Record, StartRecord
from cosen.training.run_folder import RunFolder

Failures = dict[str, dict[int, str]]
"""Why there is no run, by method and seed."""

MAX_NAME = 100
"""Longest name of a method's folder, before the hash."""

NOT_FINISHED = "the study is not finished; run the same command again"


class MethodRecord(BaseModel):
    """A method of a study.

    Attributes:
        method: Its name; None for a custom object.
        options: Its options; for an object, its attributes as text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str | None
    options: dict[str, Any]


class StudyRecord(StartRecord):
    """``study.json``: how a study was started.

    Attributes:
        methods: The methods by label, such as ``cosen`` or ``cosen(margin=4)``.
        seeds: The seeds.
        data: Changes with any image, label or class.
    """

    FILE = "study.json"

    methods: dict[str, MethodRecord]
    seeds: tuple[int, ...]
    data: str


class FailuresRecord(Record):
    """``failures.json``: why runs are missing."""

    FILE = "failures.json"

    failures: Failures


class StudyFolder:
    """A study folder, for writing or for reading.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def existing(cls, path: Path | str) -> "StudyFolder":
        """Open a study folder; raise an error if it has no study."""
        study = cls(path)
        if not study.has_study:
            raise RunError(f"{path} is not a study folder: it has no study.json")
        return study

    @property
    def has_study(self) -> bool:
        return is_file(self.path / StudyRecord.FILE)

    def run(self, label: str, seed: int) -> RunFolder:
        """Return the run folder of a method and a seed, whether it exists or not."""
        return RunFolder(self.path / "runs" / _folder_name(label) / str(seed))

    def has_runs(self, label: str | None = None) -> bool:
        """Whether a run has results: of this method, or of any method."""
        method = "*" if label is None else _folder_name(label)
        return any(
            any(self.path.glob(f"runs/{method}/*/{file}"))
            for file in ("checkpoint.pt", "metrics.json")
        )

    def finished_runs(self) -> dict[str, dict[int, RunFolder]]:
        """Return the finished runs of the study, by method and seed."""
        record = self.record()
        found = {
            label: {seed: self.run(label, seed) for seed in record.seeds}
            for label in record.methods
        }
        return {
            label: {seed: run for seed, run in by_seed.items() if run.is_finished}
            for label, by_seed in found.items()
        }

    def record(self) -> StudyRecord:
        """Read ``study.json``."""
        return StudyRecord.read(self.path, missing=NOT_FINISHED)

    def failures(self) -> Failures:
        """Read why runs are missing; empty until all runs were tried once."""
        if not (self.path / FailuresRecord.FILE).exists():
            return {}
        return FailuresRecord.read(self.path).failures

    def leaderboard(self) -> Leaderboard:
        """Read ``leaderboard.json``."""
        return Leaderboard.read(self.path, missing=NOT_FINISHED)

    def choice(self) -> Choice:
        """Read ``choice.json``."""
        return Choice.read(self.path, missing=NOT_FINISHED)

    def write_results(self, board: Leaderboard, choice: Choice) -> None:
        """Write the leaderboard in its three forms, and the choice."""
        board.write(self.path)
        write_text(self.path / "leaderboard.csv", board.csv())
        write_text(self.path / "leaderboard.md", f"{choice}\n\n{board.markdown()}")
        choice.write(self.path)


def _folder_name(label: str) -> str:
    """Return the label as the name of a folder, with a hash if it was changed."""
    name = re.sub(r"[^\w .+=(),-]", "_", label)[:MAX_NAME]
    return name if name == label else f"{name}-{key_of(label)[:8]}"
