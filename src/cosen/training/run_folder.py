"""The run folder: the one thing that passes between training and everything after it.

| file | what it holds |
|---|---|
| ``run.json`` | the resolved configuration, versions, the data's fingerprint, the command |
| ``history.csv`` | a line for each epoch |
| ``costs/0001.safetensors`` | costs, T, R and S of each step |
| ``checkpoint.pt`` | all that is needed to go on; ``checkpoint-before.pt`` is the one before |
| ``model.safetensors``, ``model.json`` | the best network, its classes and preprocessing |
| ``predictions.safetensors`` | logits and targets of every test and validation image |
| ``metrics.json`` | what the test set says |
| ``thumbnails.json`` | small pictures of test images it got wrong, and of some it got right |
| ``tensorboard/`` | the curves |
"""

import csv
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from safetensors.torch import load_file, save_file
from torch import Tensor

from cosen.costs import CostStep, Objective
from cosen.errors import RunError
from cosen.training.files import make_folder, write_text, write_with


@dataclass(frozen=True)
class EpochRecord:
    """One line of the history.

    Attributes:
        epoch: Counted from 1.
        lr: The learning rate at its end.
        train_loss: The mean loss.
        train_error: The share of training samples that were wrong, as they were trained on.
        val_error: What the objective measures.
        val_accuracy: Overall.
        mean_recall: On validation.
        rare_recall: Mean recall of the rarest third of the classes, on validation.
        seconds: Of the whole epoch.
        images_per_second: In training, without validation and saving.
        cost_accepted: Whether the last step of the costs was accepted, where costs are learned.
        cost_lr: γ_ξ, where costs are learned.
        best: Whether its validation error is the least so far, within noise: then it is the model
            kept, unless a later one is.
    """

    epoch: int
    lr: float
    train_loss: float
    train_error: float
    val_error: float
    val_accuracy: float
    mean_recall: float
    rare_recall: float
    seconds: float
    images_per_second: float
    cost_accepted: bool | None
    cost_lr: float | None
    best: bool


class RunFolder:
    """A run folder, for writing or for reading.

    Args:
        path: The folder.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def existing(cls, path: Path | str) -> "RunFolder":
        """A folder that holds a run; anything else is refused."""
        run = cls(path)
        if not (run.path / "run.json").is_file():
            runs = sorted(run.path.glob("runs/*/*/run.json"))
            hint = f"; a study has some, such as {runs[0].parent}" if runs else ""
            raise RunError(f"{path} is not a run folder: there is no run.json in it{hint}")
        return run

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Hold the folder: a second process that wants to write to it is refused.

        Where nothing came of it, no folder is left behind.
        """
        ancestors = [self.path, *self.path.parents]
        made = [folder for folder in ancestors if not folder.exists()]
        make_folder(self.path)
        lock = FileLock(self.path / ".lock", blocking=False)
        try:
            lock.acquire()
        except Timeout as error:
            raise RunError(
                f"{self.path} is in use by another process: wait for it, or use another folder"
            ) from error
        try:
            yield
        finally:
            with suppress(OSError):  # a folder that has something in it stays
                if all(entry.name == ".lock" for entry in self.path.iterdir()):
                    (self.path / ".lock").unlink()
                    for folder in made:
                        folder.rmdir()
            lock.release()

    @property
    def has_run(self) -> bool:
        return (self.path / "run.json").exists()

    @property
    def has_checkpoint(self) -> bool:
        return any(self.path.glob("checkpoint*.pt"))

    @property
    def is_finished(self) -> bool:
        return (self.path / "metrics.json").exists()

    # What it was made of

    def write_about(self, about: dict[str, Any]) -> None:
        write_text(self.path / "run.json", json.dumps(about, indent=2, ensure_ascii=False))

    def forget(self) -> None:
        """Take back that there is a run here."""
        (self.path / "run.json").unlink(missing_ok=True)
        shutil.rmtree(self.path / "tensorboard", ignore_errors=True)

    def about(self) -> dict[str, Any]:
        return self._read_json("run.json")

    def objective(self) -> Objective:
        """What validation measured: by name, or an expert's costs as they were at the time."""
        about = self.about()
        if "expert" in about:
            return torch.tensor(about["expert"])
        found: Objective = about["config"]["objective"]
        return found

    @property
    def seconds(self) -> float | None:
        """Of training, with those of the network that it started from; None before the end."""
        found: float | None = self.about().get("seconds")
        return found

    # What happened

    def write_history(self, history: list[EpochRecord]) -> None:
        def write(path: Path) -> None:
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(EpochRecord.__dataclass_fields__))
                writer.writeheader()
                writer.writerows(asdict(record) for record in history)

        write_with(self.path / "history.csv", write)

    def history(self) -> list[dict[str, str]]:
        with (self.path / "history.csv").open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def write_cost_step(self, step: CostStep) -> None:
        folder = self.path / "costs"
        folder.mkdir(exist_ok=True)
        tensors = {
            "costs": step.costs,
            "target_costs": step.target_costs,
            "confusion": step.confusion,
        }
        if step.separability is not None:
            tensors["separability"] = step.separability
        facts = {
            "val_error": repr(step.val_error),
            "best_error": repr(step.best_error),
            "accepted": str(step.accepted),
            "cost_lr": repr(step.cost_lr),
            **{name: repr(value) for name, value in step.strengths.items()},
        }
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_with(
            folder / f"{step.number:04d}.safetensors",
            lambda path: save_file(plain, path, metadata=facts),
        )

    def cost_steps(self) -> list[dict[str, Tensor]]:
        """The matrices of every step, in order."""
        return [load_file(path) for path in sorted((self.path / "costs").glob("*.safetensors"))]

    # How to go on

    def write_checkpoint(self, state: dict[str, Any]) -> None:
        """Keep the state, and the one before it."""
        last, before = self.path / "checkpoint.pt", self.path / "checkpoint-before.pt"
        write_with(self.path / "checkpoint-new.pt", lambda path: torch.save(state, path))
        if last.exists():
            last.replace(before)
        (self.path / "checkpoint-new.pt").replace(last)

    def checkpoint(self) -> dict[str, Any] | None:
        """The last state, or None where there is none yet; never runs code from the file."""
        for name in ("checkpoint.pt", "checkpoint-new.pt", "checkpoint-before.pt"):
            path = self.path / name
            if not path.exists():
                continue  # killed between two moves: the next one is whole
            try:
                state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            except Exception as error:  # torch raises many kinds for a damaged file
                before = self.path / "checkpoint-before.pt"
                hint = (
                    f"; the one before it is whole: to go on from it, remove {path.name}"
                    if path != before and before.exists()
                    else "; start anew in another folder"
                )
                raise RunError(f"{path} is damaged and cannot be read{hint}") from error
            return state
        return None

    # What came out

    def write_predictions(self, tensors: dict[str, Tensor], names: dict[str, list[str]]) -> None:
        plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_with(self.path / "predictions.safetensors", lambda path: save_file(plain, path))
        write_text(self.path / "predictions.json", json.dumps(names, ensure_ascii=False))

    def predictions(self) -> tuple[dict[str, Tensor], dict[str, list[str]]]:
        path = self.path / "predictions.safetensors"
        if not path.exists():
            raise RunError(f"{self.path} has no predictions yet: finish it with --resume")
        return load_file(path), self._read_json("predictions.json")

    def write_metrics(self, metrics: dict[str, Any]) -> None:
        write_text(self.path / "metrics.json", json.dumps(metrics, indent=2, ensure_ascii=False))

    def metrics(self) -> dict[str, Any]:
        return self._read_json("metrics.json")

    def _read_json(self, name: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise RunError(
                f"{self.path} has no {name}: the run is not finished; go on with --resume"
            ) from error
        except json.JSONDecodeError as error:
            raise RunError(f"{self.path / name} is damaged: {error}") from error
        return found
