"""The search: options of CostLearner, tried one candidate after another, the defaults first."""

import inspect
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from cosen.costs import Acceptance, CostLearner
from cosen.errors import RunError
from cosen.files import read_regular, write_with
from cosen.training.config import TrainConfig
from cosen.training.loop import Diverged
from cosen.training.task import Task
from cosen.training.tuning.outcome import FACTORS, Candidate, CostOptions, Tuned, compare

TuningProgress = Callable[[str, int, int], None]
"""Callback for progress: title, number done, total."""

SEARCHED: dict[str, BaseDistribution] = {
    "cost_lr": FloatDistribution(0.01, 1.0, log=True),
    "acceptance": CategoricalDistribution(get_args(Acceptance)),
    "confusion_mean": FloatDistribution(0.0, 1.0),  # R are rates
    "confusion_std": FloatDistribution(0.1, 2.0, log=True),
    "separability_mean": FloatDistribution(0.0, 1.5),  # S is 1 if classes are mixed
    "separability_std": FloatDistribution(0.1, 2.0, log=True),
}
"""The options that are searched, and their ranges. A factor may also be off (infinite std)."""

PLAIN = {"cost_lr": 0.0}
"""Plain training: costs that never change."""

PRUNE_AFTER = 5
"""Complete candidates before a bad one is stopped early."""


def defaults_with(fixed: CostOptions) -> CostOptions:
    """Return the defaults of CostLearner, with the options that the user fixed."""
    known = inspect.signature(CostLearner).parameters
    return {name: known[name].default for name in SEARCHED} | fixed


def suggest(trial: optuna.Trial, fixed: CostOptions) -> CostOptions:
    """Return the next candidate: the fixed options, and values for the others."""
    costs: CostOptions = {}

    def take(name: str) -> None:
        if name in fixed:
            costs[name] = fixed[name]
            return
        how = SEARCHED[name]
        if isinstance(how, CategoricalDistribution):
            costs[name] = trial.suggest_categorical(name, how.choices)
        elif isinstance(how, FloatDistribution):
            value = trial.suggest_float(name, how.low, how.high, log=how.log)
            costs[name] = float(f"{value:.3g}")  # evaluated with the digits that are written

    take("cost_lr")
    take("acceptance")
    for factor in FACTORS:
        mean, std = f"{factor}_mean", f"{factor}_std"
        if std not in fixed and not trial.suggest_categorical(factor, (True, False)):
            costs[std] = math.inf
        else:
            take(std)
        if math.isfinite(costs[std]):
            take(mean)
    return costs | fixed


def identity(config: TrainConfig, task: Task, *, folds: int) -> dict[str, Any]:
    """Return the settings that must be equal to resume a search."""
    free = ("data", "data_root", "device", "devices", "precision", "skip_broken", "exclude")
    settings = {name: value for name, value in asdict(config).items() if name not in free}
    plain: dict[str, Any] = json.loads(json.dumps(settings | {"folds": folds}))
    return plain | {"data": task.fingerprint}


def open_study(path: Path, identity: dict[str, Any]) -> optuna.Study:
    """Open or create the search in a file; raise an error if it has other settings.

    The folder must be locked by this process.
    """
    # a killed process may have left a lock and an incomplete line
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    try:
        content = read_regular(path) if path.exists() else b"\n"
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    if not content.endswith(b"\n"):
        write_with(path, lambda part: part.write_bytes(content[: content.rfind(b"\n") + 1]))
    try:
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            study_name="cosen",
            direction="minimize",
            load_if_exists=True,
        )
    except Exception as error:  # optuna raises many types for a damaged file
        raise RunError(f"{path} is damaged and cannot be read: use another --out") from error
    known = study.user_attrs.get("about")
    if known is None:
        study.set_user_attr("about", identity)
        known = identity
    for name, value in identity.items():
        if known.get(name) != value:
            difference = (
                "for other data or another split"
                if name == "data"
                else f"with {name} {known.get(name)}, not {value}"
            )
            raise RunError(f"{path.parent} holds a search {difference}: use another --out")
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)  # from a search that was stopped
    return study


def search(
    study: optuna.Study,
    errors_of: Callable[[CostOptions], Iterator[float]],
    config: TrainConfig,
    *,
    folds: int,
    trials: int,
    progress: TuningProgress,
) -> None:
    """Evaluate plain training, the defaults, and candidates until there are ``trials`` of them.

    ``errors_of`` yields the error of a candidate on each fold. A candidate that is bad after some
    folds is stopped; one that diverges has error 1. Candidates in the study are not repeated.
    """
    study.pruner = optuna.pruners.MedianPruner(n_startup_trials=PRUNE_AFTER, n_warmup_steps=0)
    defaults = defaults_with(config.options)
    if "no_costs" not in study.user_attrs:  # first: if this diverges, all candidates do
        study.set_user_attr("no_costs", list(errors_of(defaults | PLAIN)))
    if not any(
        trial.user_attrs.get("defaults") and trial.state != TrialState.FAIL
        for trial in study.get_trials(deepcopy=False)
    ):
        # values for `suggest`; it ignores those of a factor that is off
        is_on = {factor: math.isfinite(defaults[f"{factor}_std"]) for factor in FACTORS}
        study.enqueue_trial(defaults | is_on, user_attrs={"defaults": True})
    while (finished := len(_finished(study))) < trials:
        # a new seed for each trial: a resumed search gives the same candidates
        study.sampler = optuna.samplers.TPESampler(seed=config.seed * 10_007 + finished)
        trial = study.ask()
        costs = suggest(trial, config.options)
        trial.set_user_attr("costs", costs)
        errors: list[float] = []
        try:
            for error in errors_of(costs):
                errors.append(error)
                trial.report(float(np.mean(errors)), len(errors))
                progress(_lowest_error(study), finished * folds + len(errors), trials * folds)
                if len(errors) < folds and trial.should_prune():
                    break
        except Diverged:
            errors = [1.0] * folds
        trial.set_user_attr("errors", errors)
        if len(errors) == folds:
            study.tell(trial, float(np.mean(errors)))
        else:
            study.tell(trial, state=TrialState.PRUNED)


def conclude(study: optuna.Study, fixed: CostOptions, *, samples: int, path: Path) -> Tuned:
    """Choose the best candidate, or the defaults if it is not better beyond noise."""
    complete = _complete(study)
    (first,) = [trial for trial in complete if trial.user_attrs.get("defaults")]
    defaults = Candidate(defaults_with(fixed), tuple(first.user_attrs["errors"]))
    candidates = [
        Candidate(trial.user_attrs["costs"], tuple(trial.user_attrs["errors"]))
        for trial in complete
    ]
    best = min([defaults, *candidates], key=lambda candidate: candidate.mean)  # the first if equal
    better = compare(best, defaults, samples=samples).beyond_noise
    finished = len(_finished(study))
    return Tuned(
        chosen=best if better else defaults,
        best=best,
        defaults=defaults,
        no_costs=Candidate(defaults.costs | PLAIN, tuple(study.user_attrs["no_costs"])),
        samples=samples,
        finished=finished,
        pruned=finished - len(complete),
        path=path,
    )


def _finished(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def _complete(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def _lowest_error(study: optuna.Study) -> str:
    complete = _complete(study)
    if not complete:
        return "Trying"
    return f"Trying, lowest error {100 * min(trial.value or 0.0 for trial in complete):.2f} %"
