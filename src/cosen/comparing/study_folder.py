"""The study folder: a run folder for each method and seed, and what they say together.

| file | what it holds |
|---|---|
| ``study.json`` | the settings that all runs share, methods and their options, seeds, the command |
| ``runs/METHOD/SEED/`` | a run folder, as ``cosen train`` leaves it |
| ``failures.json`` | why runs are missing, by method and seed |
| ``leaderboard.json``, ``.csv``, ``.md`` | methods side by side |
| ``choice.json`` | which method to take, and why |
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cosen.comparing.choice import Choice
from cosen.comparing.leaderboard import Leaderboard
from cosen.errors import RunError
from cosen.training.files import write_text
from cosen.training.run_folder import RunFolder

Failures = dict[str, dict[int, str]]
"""Why there is no run, by method and seed."""


class StudyFolder:
    """A study folder, for writing or for reading.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def existing(cls, path: Path | str) -> "StudyFolder":
        """A folder that holds a study; anything else is refused."""
        study = cls(path)
        if not study.has_study:
            raise RunError(f"{path} is not a study folder: there is no study.json in it")
        return study

    @property
    def has_study(self) -> bool:
        return (self.path / "study.json").is_file()

    def run(self, method: str, seed: int) -> RunFolder:
        """The run folder of a method and a seed, there or not."""
        return RunFolder(self.path / "runs" / method / str(seed))

    def has_runs(self, method: str = "*") -> bool:
        """Whether anything was learned, by any method or by this one."""
        return any(
            any(self.path.glob(f"runs/{method}/*/{file}"))
            for file in ("checkpoint.pt", "metrics.json")
        )

    def finished_runs(self) -> dict[str, dict[int, RunFolder]]:
        """The runs of this study that are finished, by method and seed."""
        about = self.about()
        found = {
            method: {seed: self.run(method, seed) for seed in about["seeds"]}
            for method in about["methods"]
        }
        return {
            method: {seed: run for seed, run in by_seed.items() if run.is_finished}
            for method, by_seed in found.items()
        }

    def write_about(self, about: Mapping[str, Any]) -> None:
        self._write_json("study.json", about)

    def about(self) -> dict[str, Any]:
        return self._read_json("study.json")

    def write_failures(self, failures: Failures) -> None:
        self._write_json("failures.json", failures)

    def failures(self) -> Failures:
        """Why runs are missing; empty until all have been tried once."""
        if not (self.path / "failures.json").exists():
            return {}
        return {
            method: {int(seed): reason for seed, reason in by_seed.items()}
            for method, by_seed in self._read_json("failures.json").items()
        }

    def write_results(self, board: Leaderboard, choice: Choice) -> None:
        self._write_json("leaderboard.json", board.as_json())
        write_text(self.path / "leaderboard.csv", board.csv())
        sentences = " ".join([choice.sentence, *choice.caveats])
        write_text(self.path / "leaderboard.md", f"{sentences}\n\n{board.markdown()}")
        self._write_json("choice.json", choice.as_json())

    def leaderboard(self) -> Leaderboard:
        return Leaderboard.from_json(self._read_json("leaderboard.json"))

    def _write_json(self, name: str, found: Mapping[str, Any]) -> None:
        write_text(self.path / name, json.dumps(found, indent=2, ensure_ascii=False))

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise RunError(
                f"{self.path} has no {name}: the study is not finished; run the same command again"
            ) from error
        except json.JSONDecodeError as error:
            raise RunError(f"{self.path / name} is damaged: {error}") from error
        return found
