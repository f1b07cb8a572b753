"""Cross-validation of options that the paper does not specify, on the user's data.

A candidate is a set of options of the method ``cosen-paper``. It is evaluated like a run: in each
fold a head is trained on features, its costs are learned on a validation share of the fold's
training images, and the held-out images give its error. The test set is never used.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import optuna

from cosen.costs import Objective
from cosen.data.labelled import LabelledImages
from cosen.errors import InputError, RunError
from cosen.files import write_text
from cosen.methods import Method, make_method
from cosen.methods.learned_costs import CosenPaper
from cosen.training.config import TrainConfig
from cosen.training.context import make_setting
from cosen.training.finetuning import with_defaults
from cosen.training.folds import divide, training_pool
from cosen.training.loop import Callbacks
from cosen.training.records import TuningRecord
from cosen.training.run import Inputs
from cosen.training.run_folder import RunFolder
from cosen.training.task import make_task
from cosen.training.tuning.folds import features_of_folds, held_out_error
from cosen.training.tuning.outcome import CostOptions, Tuned, as_toml
from cosen.training.tuning.search import (
    SEARCHED,
    TuningProgress,
    conclude,
    identity,
    open_study,
    search,
)

__all__ = ["Tuned", "TuningProgress", "tune", "tune_in_run"]

HEAD_EPOCHS = 15
"""Epochs of a head."""


def tune(
    config: TrainConfig,
    out: Path,
    *,
    trials: int = 30,
    folds: int = 3,
    data: LabelledImages | None = None,
    objective: Objective | None = None,
    progress: TuningProgress | None = None,
) -> Tuned:
    """Search options of cosen-paper by cross-validation, and write the best to ``tuned.toml``.

    Call it again with the same folder to resume a search; the result is the same.

    Args:
        config: As for training. ``config.options`` are fixed, other options are searched.
            ``config.epochs`` are those of a head. ``config.method`` may be the default.
        out: The folder for the search and ``tuned.toml``.
        trials: Total number of candidates, including earlier ones.
        folds: Parts of the training images, each held out once.
        data: Images in memory, instead of ``config.data``.
        objective: An objective object, instead of ``config.objective``.
        progress: Callback for progress.
    """
    progress = progress or (lambda _, __, ___: None)
    method = _checked_method(config, trials=trials, folds=folds)
    config = replace(config, method=CosenPaper.name)
    run = RunFolder(out)
    if run.has_run:
        raise RunError(f"{out} holds a training run: use another --out")
    with run.in_use(), _quiet():
        if config.network == "auto" and config.weights:
            config = replace(config, network="head")
        task = make_task(
            config,
            data=data,
            objective=objective,
            progress=lambda done, of: progress("Reading images", done, of),
            frozen=True,
        )
        config = with_defaults(config, task.mode)
        setting = make_setting(config, task)
        method.check(setting)
        pool = training_pool(task.splits.train, task.splits.val)
        parts = divide(pool, folds=folds, validation=config.validation, seed=config.seed)
        study = open_study(out / "study.log", identity(config, task, folds=folds))
        store = out / "features.safetensors"
        samples = features_of_folds(config, task, pool, parts, store, progress)

        def errors_of(options: CostOptions) -> Iterator[float]:
            for fold in samples:
                yield held_out_error(config, fold, options, setting=setting)

        search(study, errors_of, config, folds=folds, trials=trials, progress=progress)
        held_out = sum(len(part.held_out) for part in parts)
        tuned = conclude(study, config.options, samples=held_out, path=out / "tuned.toml")
        write_text(tuned.path, as_toml(tuned, None if objective else config.objective))
        return tuned


def tune_in_run(
    config: TrainConfig, method: CosenPaper, run: RunFolder, inputs: Inputs, callbacks: Callbacks
) -> tuple[TrainConfig, Method]:
    """Choose the options of a run before it trains, for ``trials`` of the method cosen-paper.

    The search is in the folder ``tuning`` of the run folder, and the chosen options are written to
    ``run.json``. A resumed run resumes an interrupted search and does not repeat a complete one.
    """
    callbacks.phase(f"Choosing options of {method.name} by cross-validation")
    start = time.perf_counter()
    tuned = tune(
        _head_config(config, method, own_network=inputs.network is not None),
        run.path / "tuning",
        trials=method.trials,
        folds=method.folds,
        data=inputs.data,
        objective=inputs.objective,
        progress=lambda _, done, total: callbacks.batch(done, total),
    )
    config = replace(config, options=tuned.chosen.costs)
    record = TuningRecord(
        trials=method.trials,
        folds=method.folds,
        seconds=round(time.perf_counter() - start, 3),
        sentence=tuned.sentence(),
    )
    run.record().changed(config=config, tuning=record).write(run.path)
    callbacks.phase(record.sentence)
    return config, CosenPaper(**config.options)


def _head_config(config: TrainConfig, method: CosenPaper, *, own_network: bool) -> TrainConfig:
    """Return the settings of the run, changed for heads on features."""
    if not isinstance(method.options.get("misclassification_costs", ""), str):
        raise InputError("with trials, misclassification_costs must be the path of a CSV")
    use_weights = config.network in ("auto", "head", "paper") and not own_network  # VGG-16's
    if config.network not in ("auto", "head"):  # other optimizer settings may not suit a head
        default = TrainConfig()
        config = replace(
            config,
            batch_size=default.batch_size,
            accumulate=default.accumulate,
            optimizer=default.optimizer,
            lr=default.lr,
            momentum=default.momentum,
            weight_decay=default.weight_decay,
            schedule=default.schedule,
        )
    return replace(
        config,
        method=method.name,
        options=method.options,
        network="auto",
        network_options={},
        weights=config.weights if use_weights else None,
        freeze=None,
        epochs=HEAD_EPOCHS,
    )


def _checked_method(config: TrainConfig, *, trials: int, folds: int) -> Method:
    for name, value, least in (("folds", folds, 2), ("trials", trials, 1)):
        if value < least:
            raise InputError(f"{name} must be at least {least}, but is {value}")
    if config.method not in (TrainConfig().method, CosenPaper.name):
        raise InputError(
            f"tune is for the method {CosenPaper.name}, but the method is {config.method}: remove "
            "that setting"
        )
    for name in ("trials", "folds"):
        if name in config.options:
            raise InputError(f"options.{name} is for cosen train: use --{name} instead")
    method = make_method(CosenPaper.name, config.options)
    if all(name in config.options for name in SEARCHED):
        raise InputError(f"there is nothing to tune: {', '.join(SEARCHED)} are all set")
    return method


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence optuna, and log each warning of cosen once, not for every candidate."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        before = len(seen)
        seen.add(record.getMessage())
        return len(seen) > before

    logger, verbosity = logging.getLogger("cosen"), optuna.logging.get_verbosity()
    logger.addFilter(is_new)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        logger.removeFilter(is_new)
        optuna.logging.set_verbosity(verbosity)
