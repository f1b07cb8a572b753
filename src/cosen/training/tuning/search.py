"""The search: candidate after candidate, the defaults first, bad ones given up early."""

from pathlib import Path

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from cosen.training.tuning.epoch import Diverged
from cosen.training.tuning.evaluation import Judge
from cosen.training.tuning.options import (
    CostOptions,
    answers,
    defaults_with,
    no_costs_with,
    suggest,
)
from cosen.training.tuning.outcome import Candidate, Tuned, compare
from cosen.training.tuning.progress import Progress

PRUNE_AFTER = 5
"""Complete candidates before a bad one is given up early."""


def search(
    study: optuna.Study,
    judge: Judge,
    fixed: CostOptions,
    *,
    trials: int,
    seed: int,
    tell: Progress,
) -> None:
    """Judge no costs, the defaults, and candidates until there are ``trials`` of them.

    What the study has already is not judged again. A trial that is interrupted does not count.
    """
    study.pruner = optuna.pruners.MedianPruner(n_startup_trials=PRUNE_AFTER, n_warmup_steps=0)
    if "no_costs" not in study.user_attrs:  # first: where this diverges, everything would
        study.set_user_attr("no_costs", list(judge.errors(no_costs_with(fixed))))
    if not any(
        trial.user_attrs.get("defaults") and trial.state != TrialState.FAIL
        for trial in study.get_trials(deepcopy=False)
    ):
        study.enqueue_trial(answers(defaults_with(fixed)), user_attrs={"defaults": True})
    while (finished := len(_finished(study))) < trials:
        # A sampler seeded for each trial: a search that was stopped goes on as if it were not.
        study.sampler = optuna.samplers.TPESampler(seed=seed * 10_007 + finished)
        trial = study.ask()
        try:
            _judge_trial(study, trial, judge, fixed, trials=trials, tell=tell)
        except BaseException:
            study.tell(trial, state=TrialState.FAIL)
            raise


def _judge_trial(
    study: optuna.Study,
    trial: optuna.Trial,
    judge: Judge,
    fixed: CostOptions,
    *,
    trials: int,
    tell: Progress,
) -> None:
    """Fold by fold, as long as it is not plainly bad; one that diverges is wrong everywhere."""
    costs = suggest(trial, fixed)
    trial.set_user_attr("costs", costs)
    folds, finished = len(judge.folds), len(_finished(study))
    errors: list[float] = []
    try:
        for error in judge.errors(costs):
            errors.append(error)
            trial.report(float(np.mean(errors)), len(errors))
            tell(_standing(study), finished * folds + len(errors), trials * folds)
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
    """The best candidate, unless it is no better than the defaults beyond noise."""
    complete = _complete(study)
    (first,) = [trial for trial in complete if trial.user_attrs.get("defaults")]
    defaults = Candidate(defaults_with(fixed), tuple(first.user_attrs["errors"]))
    candidates = [
        Candidate(trial.user_attrs["costs"], tuple(trial.user_attrs["errors"]))
        for trial in complete
    ]
    best = min([defaults, *candidates], key=lambda candidate: candidate.mean)  # of equals the first
    better = compare(best, defaults, samples=samples).beyond_noise
    finished = len(_finished(study))
    return Tuned(
        chosen=best if better else defaults,
        best=best,
        defaults=defaults,
        no_costs=Candidate(no_costs_with(fixed), tuple(study.user_attrs["no_costs"])),
        samples=samples,
        finished=finished,
        pruned=finished - len(complete),
        path=path,
    )


def _finished(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def _complete(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def _standing(study: optuna.Study) -> str:
    complete = _complete(study)
    if not complete:
        return "Trying"
    return f"Trying, least error {100 * min(trial.value or 0.0 for trial in complete):.2f} %"
