"""Cross-validating the numbers that the paper leaves open, on the user's own data.

A candidate is a set of options of the method ``cosen-paper``. It is judged as a run would be: in
each fold a head is trained on features, its costs are learned on a validation share of the fold's
training images, and the held-out images say how good it is. The test set takes no part: everything
from :func:`~cosen.training.tuning.folds.training_pool` on is given the training pool alone.
"""

from dataclasses import replace
from pathlib import Path

from cosen.errors import InputError, RunError
from cosen.methods import Method, make_method
from cosen.methods.learned_costs import CosenPaper
from cosen.training.config import TrainConfig
from cosen.training.execution import make_setting
from cosen.training.files import write_text
from cosen.training.run_folder import RunFolder
from cosen.training.task import make_task
from cosen.training.tuning.evaluation import Judge
from cosen.training.tuning.features import features_of_folds
from cosen.training.tuning.folds import divide, training_pool
from cosen.training.tuning.journal import identity, open_study
from cosen.training.tuning.options import SEARCHED
from cosen.training.tuning.outcome import Tuned, as_toml
from cosen.training.tuning.progress import Progress, each_warning_once, quiet_optuna
from cosen.training.tuning.search import conclude, search

__all__ = ["Progress", "Tuned", "tune"]


def tune(
    config: TrainConfig,
    out: Path,
    *,
    trials: int = 30,
    folds: int = 3,
    progress: Progress | None = None,
) -> Tuned:
    """Search options of cosen-paper by cross-validation, and write the best to ``tuned.toml``.

    Run again with the same folder, it goes on where it stopped; what comes out is the same as of
    one run without a stop.

    Args:
        config: As for training. Options in ``config.options`` are kept as they are, and the others
            varied; ``config.epochs`` are those of a head. The method may be left at its default.
        out: The folder for the study and ``tuned.toml``.
        trials: Candidates in all, those of earlier runs included.
        folds: Parts of the training pool, each held out once.
        progress: Told how far it is.
    """
    tell = progress or (lambda _, __, ___: None)
    method = _method(config, trials=trials, folds=folds)
    config = replace(config, method=CosenPaper.name)
    run = RunFolder(out)
    if run.has_run:
        raise RunError(f"{out} holds a training run: use another --out")
    with run.in_use(), quiet_optuna(), each_warning_once():
        if config.network == "auto":
            config = replace(config, network="head" if config.weights else "small-cnn")
        task = make_task(config, progress=lambda done, of: tell("Reading images", done, of))
        setting = make_setting(config, task)
        method.check(setting)
        pool = training_pool(task.splits.train, task.splits.val)
        parts = divide(pool, folds=folds, validation=config.validation, seed=config.seed)
        study = open_study(out / "study.log", identity(config, task, folds=folds))
        store = out / "features.safetensors"
        judge = Judge(config, features_of_folds(config, task, pool, parts, store, tell), setting)
        search(study, judge, config.options, trials=trials, seed=config.seed, tell=tell)
        judged = sum(len(part.held_out) for part in parts)
        tuned = conclude(study, config.options, samples=judged, path=out / "tuned.toml")
        write_text(tuned.path, as_toml(tuned, objective=config.objective, expert=config.expert))
        return tuned


def _method(config: TrainConfig, *, trials: int, folds: int) -> Method:
    """The method with what is given; what cannot work is refused."""
    if folds < 2:
        raise InputError(f"folds must be at least 2, but is {folds}")
    if trials < 1:
        raise InputError(f"trials must be at least 1, but is {trials}")
    if config.method not in (TrainConfig.method, CosenPaper.name):
        raise InputError(
            f"tune is for the method {CosenPaper.name}, but the method is {config.method}: leave "
            "that setting out"
        )
    for name in ("trials", "folds"):
        if name in config.options:
            raise InputError(f"options.{name} is for cosen train: give --{name} instead")
    method = make_method(CosenPaper.name, config.options)  # refuses what it does not take
    if all(name in config.options for name in SEARCHED):
        raise InputError(f"nothing is left to tune: {', '.join(SEARCHED)} are all given")
    return method
