"""The run folder: written by training, read by all later commands.

| file | contents |
|---|---|
| ``run.json`` | settings, versions, the fingerprint of the data, the command |
| ``history.csv`` | one line per epoch |
| ``costs/0001.safetensors`` | costs, T, R and S of each step |
| ``checkpoint.pt`` | the state to resume from; ``checkpoint-before.pt`` is the one before |
| ``model.safetensors``, ``model.json`` | the best network, its classes and preprocessing |
| ``predictions.safetensors``, ``.json`` | outputs for validation and test images; names of all |
| ``metrics.json`` | the metrics on validation and test images |
| ``thumbnails.json`` | small pictures of test images |
| ``checksums.json`` | the SHA-256 of each file above |
| ``tensorboard/`` | the curves |
"""

import csv
import io
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from pydantic import TypeAdapter
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from cosen.costs import CostStep
from cosen.costs.step_files import step_tensors
from cosen.errors import RunError
from cosen.files import is_file, is_folder, make_folder, remove_partial
from cosen.networks.network import Outputs
from cosen.training import checksums
from cosen.training.records import EpochRecord, ImageNames, RunMetrics, RunRecord

CHECKPOINT, NEXT, PREVIOUS = "checkpoint.pt", "checkpoint-new.pt", "checkpoint-before.pt"

STATE = frozenset(("fingerprint", "processes", "order", "network", "optimizer", "loss", "history"))
"""What every checkpoint contains."""

FOLDERS = ("costs", "tensorboard", "baseline", "tuning")
"""Folders that a run may have."""

EARLY_FILES = ("run.json", "history.csv", "model.json", "model.safetensors", NEXT, checksums.FILE)
"""Files that may exist before the first checkpoint."""


class RunFolder:
    """A run folder, for writing or for reading."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._before: frozenset[str] = frozenset()  # names in the folder when it was locked

    @classmethod
    def existing(cls, path: Path | str) -> "RunFolder":
        """Open a run folder; raise an error if it has no run."""
        run = cls(path)
        if not run.has_run:
            runs = sorted(run.path.glob("runs/*/*/run.json")) if is_folder(run.path) else []
            hint = f"; it is a study, so name one of its runs: {runs[0].parent}" if runs else ""
            reason = "it has no run.json" if is_folder(run.path) else "there is no such folder"
            raise RunError(f"{path} is not a run folder: {reason}{hint}")
        return run

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Lock the folder for writing; a second process gets an error.

        An empty folder is removed afterwards.
        """
        ancestors = [self.path, *self.path.parents]
        made = [folder for folder in ancestors if not is_folder(folder)]
        make_folder(self.path)
        lock = FileLock(self.path / ".lock", blocking=False)
        try:
            lock.acquire()
        except Timeout as error:
            raise RunError(
                f"{self.path} is in use by another process: wait for it, or use another folder"
            ) from error
        try:
            self._before = frozenset(entry.name for entry in self.path.iterdir())
            for name in FOLDERS:
                if (self.path / name).is_symlink():
                    raise RunError(
                        f"{self.path / name} is a link: replace it by a folder, so that the run "
                        "writes to its own folder only"
                    )
            for folder in (self.path, self.path / "costs"):
                remove_partial(folder)
            yield
        finally:
            with suppress(OSError):  # a folder with files stays
                if all(entry.name == ".lock" for entry in self.path.iterdir()):
                    (self.path / ".lock").unlink()
                    for folder in made:
                        folder.rmdir()
            lock.release()

    def remove_early_files(self) -> None:
        """Remove what a run wrote before its first checkpoint, so that the folder can be reused.

        Files that were there before :meth:`in_use` are kept.
        """
        for name in EARLY_FILES:
            if name not in self._before:
                with suppress(OSError):
                    (self.path / name).unlink(missing_ok=True)
        for name in ("costs", "tensorboard"):
            if name not in self._before:
                shutil.rmtree(self.path / name, ignore_errors=True)

    @property
    def has_run(self) -> bool:
        return is_file(self.path / "run.json")

    @property
    def has_checkpoint(self) -> bool:
        return any(self.path.glob("checkpoint*.pt"))

    @property
    def is_finished(self) -> bool:
        return is_file(self.path / "metrics.json")

    def record(self) -> RunRecord:
        """Read ``run.json``."""
        return RunRecord.read(self.path)

    def metrics(self) -> RunMetrics:
        """Read ``metrics.json``."""
        return RunMetrics.read(self.path)

    def write_history(self, history: list[EpochRecord]) -> None:
        """Write ``history.csv``."""

        def write(path: Path) -> None:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, [field.name for field in fields(EpochRecord)])
                writer.writeheader()
                writer.writerows(asdict(record) for record in history)

        checksums.write_checked(self.path / "history.csv", write)

    def history(self) -> list[EpochRecord]:
        """Read ``history.csv``; empty for a method that trains no network."""
        path = self.path / "history.csv"
        if not path.exists():
            return []
        epoch = TypeAdapter(EpochRecord)
        try:
            text = checksums.read_checked(path).decode("utf-8")
            return [
                epoch.validate_python({name: value or None for name, value in row.items()})
                for row in csv.DictReader(io.StringIO(text, newline=""))
            ]
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from error
        except (ValueError, TypeError, AttributeError, csv.Error) as error:
            raise RunError(f"{path} is damaged: {str(error).splitlines()[0]}") from error

    def write_cost_step(self, step: CostStep) -> None:
        """Write the matrices of a step, and its numbers as metadata."""
        folder = self.path / "costs"
        folder.mkdir(exist_ok=True)
        numbers = {
            field.name: repr(value)
            for field in fields(step)
            if isinstance(value := getattr(step, field.name), int | float)
            and field.name != "number"
        }
        tensors = step_tensors(step)
        file = folder / f"{step.number:04d}.safetensors"
        checksums.write_checked(file, lambda path: save_file(tensors, path, metadata=numbers))

    def write_checkpoint(self, state: dict[str, Any]) -> None:
        """Write the state, and keep the previous one."""
        last, before, new = (self.path / name for name in (CHECKPOINT, PREVIOUS, NEXT))
        checksums.write_checked(new, lambda path: torch.save(state, path), name=CHECKPOINT)
        if last.exists():
            last.replace(before)
        new.replace(last)

    def checkpoint(self) -> dict[str, Any] | None:
        """Read the last state, or return None if there is none; never runs code from the file."""
        for name in (CHECKPOINT, NEXT, PREVIOUS):
            path = self.path / name
            if not path.exists():
                continue  # killed between two moves: the next one is complete
            try:
                return self._read_checkpoint(name)
            except RunError as error:
                hint = "start a new run in another folder"
                if name != PREVIOUS and self._has_intact(PREVIOUS):
                    hint = f"to resume from the one before it, remove {name}"
                raise RunError(f"{path} is damaged: {hint}") from error
        return None

    def _has_intact(self, name: str) -> bool:
        try:
            self._read_checkpoint(name)
        except RunError:
            return False
        return True

    def _read_checkpoint(self, name: str) -> dict[str, Any]:
        path = self.path / name
        try:
            checksums.check(path, name=CHECKPOINT)
            state = torch.load(path, map_location="cpu", weights_only=True)
        except MemoryError:
            raise
        except Exception as error:  # torch raises many types for a damaged file
            raise RunError(f"{path} cannot be read") from error
        if not isinstance(state, dict) or not state.keys() >= STATE:
            raise RunError(f"{path} is not a checkpoint")
        return state

    def write_predictions(self, outputs: Mapping[str, Outputs], names: ImageNames) -> None:
        """Write logits and targets of validation and test images, and the images' names."""
        tensors = {}
        for part, found in outputs.items():
            tensors[f"{part}_logits"] = found.logits.detach().cpu().contiguous()
            tensors[f"{part}_target"] = found.target.detach().cpu().contiguous()
        checksums.write_checked(
            self.path / "predictions.safetensors", lambda path: save_file(tensors, path)
        )
        names.write(self.path)

    def predictions(self) -> dict[str, Outputs]:
        """Read the outputs for validation and test images, by ``"val"`` and ``"test"``."""
        path = self.path / "predictions.safetensors"
        if not path.exists():
            raise RunError(f"{self.path} has no predictions yet: resume it with --resume")
        try:
            checksums.check(path)
            tensors, found = load_file(path), {}
            for part in ("val", "test"):
                logits = tensors[f"{part}_logits"].float()
                found[part] = Outputs(logits, logits[:, :0], tensors[f"{part}_target"].long())
            return found
        except OSError as error:
            raise RunError(f"cannot read {path}: {error.strerror}") from error
        except (KeyError, ValueError, IndexError, RuntimeError, SafetensorError) as error:
            raise RunError(f"{path} is damaged: {error}") from error

    def image_names(self) -> ImageNames:
        """Read the names of the images of :meth:`predictions`."""
        return ImageNames.read(self.path)


def open_tensors(path: Path) -> Any:
    """Open a file of tensors, such as a step of learned costs, to read parts of it."""
    try:
        checksums.check(path)
        return safe_open(path, framework="pt")
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except SafetensorError as error:
        raise RunError(f"{path} is damaged: {error}") from error
