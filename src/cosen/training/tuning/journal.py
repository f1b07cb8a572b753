"""The file of a study: opened anew or as it was left, even by a process that was killed."""

import json
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from cosen.errors import RunError
from cosen.training.config import TrainConfig
from cosen.training.files import write_with
from cosen.training.task import Task


def identity(config: TrainConfig, task: Task, *, folds: int) -> dict[str, Any]:
    """What must be the same for a study to go on."""
    free = ("data", "data_root", "device", "devices", "precision", "skip_broken", "exclude")
    settings = {name: value for name, value in config.as_json().items() if name not in free}
    plain: dict[str, Any] = json.loads(json.dumps(settings | {"folds": folds}))
    return plain | {"data": task.fingerprint}


def open_study(path: Path, identity: dict[str, Any]) -> optuna.Study:
    """The study in a file; one of something else is refused.

    The folder must be held by this process alone.
    """
    _drop_lock_and_half_line(path)
    try:
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            study_name="cosen",
            direction="minimize",
            load_if_exists=True,
        )
    except (ValueError, KeyError) as error:
        raise RunError(f"{path} is damaged and cannot be read: use another --out") from error
    known = study.user_attrs.get("about")
    if known is None:
        study.set_user_attr("about", identity)
    else:
        _refuse_another(path.parent, known, identity)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)  # a killed process left it
    return study


def _drop_lock_and_half_line(path: Path) -> None:
    """What a killed process may have left."""
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    if path.exists():
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            write_with(path, lambda part: part.write_bytes(content[: content.rfind(b"\n") + 1]))


def _refuse_another(folder: Path, known: dict[str, Any], identity: dict[str, Any]) -> None:
    for name, value in identity.items():
        if known.get(name) != value:
            difference = (
                "of other data or another split"
                if name == "data"
                else f"with {name} {known.get(name)}, not {value}"
            )
            raise RunError(f"{folder} holds a study {difference}: use another --out")
