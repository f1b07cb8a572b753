"""Cross-validating the numbers that the paper leaves open, on the user's own data.

A candidate is a set of options of :class:`~cosen.costs.CostLearner`. It is judged as a run would
be: in each fold a head is trained on features, its costs are learned on a validation share of the
fold's training images, and the held-out images say how good it is. The test set takes no part:
everything from :func:`training_pool` on is given the training pool alone.
"""

import inspect
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import optuna
import torch
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
)
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cosen import functional as F
from cosen.costs import Acceptance, CostLearner, Objective, validation_error
from cosen.data.batches import Batch, FeatureBatches
from cosen.data.labelled import LabelledImages
from cosen.data.splits import fold_of_each, split_off_validation
from cosen.errors import DataError, InputError, RunError
from cosen.methods import make_loss
from cosen.networks.head import Head
from cosen.training.atomic import write_text, write_with
from cosen.training.config import TrainConfig
from cosen.training.run_folder import RunFolder
from cosen.training.schedule import learning_rate, make_optimizer
from cosen.training.task import Task, make_task, resolve_device

Costs = dict[str, Any]
"""Options of CostLearner."""

Progress = Callable[[str, int, int], None]
"""Told what is being done, how much of it is done, and how much there is."""

FEATURE_EPOCHS = 5
"""Epochs of the network that features come from where there are no pre-trained weights."""

PRUNE_AFTER = 5
"""Complete candidates before a bad one is given up early."""

SEARCHED: dict[str, BaseDistribution] = {
    "cost_lr": FloatDistribution(0.01, 1.0, log=True),
    "acceptance": CategoricalDistribution(get_args(Acceptance)),
    "confusion_mean": FloatDistribution(0.0, 1.0),  # R are rates
    "confusion_std": FloatDistribution(0.1, 2.0, log=True),
    "separability_mean": FloatDistribution(0.0, 1.5),  # S is 1 where classes are mixed
    "separability_std": FloatDistribution(0.1, 2.0, log=True),
}
"""What is varied, and how far; each factor may also be switched off (an infinite deviation)."""

FACTORS = ("confusion", "separability")


@dataclass(frozen=True)
class Candidate:
    """Options of CostLearner, and the error on each held-out fold."""

    costs: Costs
    errors: tuple[float, ...]

    @property
    def mean(self) -> float:
        return float(np.mean(self.errors))

    @property
    def standard_error(self) -> float:
        return float(np.std(self.errors, ddof=1) / math.sqrt(len(self.errors)))

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f} ± {100 * self.standard_error:.2f} %"


@dataclass(frozen=True)
class Difference:
    """How much lower one error is than another, over the same folds.

    Attributes:
        mean: Positive where the first candidate is better.
        standard_error: With the correction for training sets that overlap (Nadeau and Bengio).
        beyond_noise: Whether it differs from 0 by a one-sided t-test at 5 %.
    """

    mean: float
    standard_error: float
    beyond_noise: bool

    def __str__(self) -> str:
        return f"{100 * self.mean:+.2f} ± {100 * self.standard_error:.2f}"


def compare(first: Candidate, second: Candidate, *, samples: int) -> Difference:
    """How much lower the first's error is, and whether that is more than noise.

    Args:
        first: A candidate.
        second: Another, judged on the same folds.
        samples: How many samples were judged in all: one more or less right is noise, too.

    Example:
        >>> first, second = Candidate({}, (0.10, 0.11, 0.12)), Candidate({}, (0.20, 0.21, 0.23))
        >>> compare(first, second, samples=1000).beyond_noise
        True
    """
    from scipy.stats import t  # type: ignore[import-untyped]

    gains = np.subtract(second.errors, first.errors)
    folds = len(gains)
    spread = np.std(gains, ddof=1) * math.sqrt(1 / folds + 1 / (folds - 1))
    error = max(float(spread), 1 / samples)
    mean = float(gains.mean())
    return Difference(mean, error, abs(mean) > float(t.ppf(0.95, folds - 1)) * error)


@dataclass(frozen=True)
class Tuned:
    """What tuning found.

    Attributes:
        chosen: What is written to ``tuned.toml``: the best, or the defaults if it is no better.
        best: The candidate of least error.
        defaults: The defaults of CostLearner, with what the user fixed.
        no_costs: Plain training.
        samples: Images in the training pool, each held out once.
        finished: Candidates that were judged, in this run and before.
        pruned: How many of them were given up early.
        path: The file of settings.
    """

    chosen: Candidate
    best: Candidate
    defaults: Candidate
    no_costs: Candidate
    samples: int
    finished: int
    pruned: int
    path: Path

    def sentence(self) -> str:
        """What was chosen, and why."""
        gain = compare(self.best, self.defaults, samples=self.samples)
        folds = f"{len(self.chosen.errors)} folds"
        trials = f"{self.finished} trials" if self.finished > 1 else "1 trial"
        if self.best.costs == self.defaults.costs:
            said = (
                f"Chose the defaults ({describe(self.chosen.costs)}): none of {trials} has a lower "
                f"cross-validated error than their {self.chosen} over {folds}"
            )
        elif not gain.beyond_noise:
            said = (
                f"Chose the defaults ({describe(self.chosen.costs)}): the best of {trials} "
                f"({describe(self.best.costs)}) has a cross-validated error of {self.best} against "
                f"their {self.defaults}, and {gain} over the same {folds} is within noise"
            )
        else:
            said = (
                f"Chose {describe(self.chosen.costs)}: the best of {trials}, its cross-validated "
                f"error is {self.best} against {self.defaults} with the defaults, and {gain} over "
                f"the same {folds} is more than noise"
            )
        return f"{said}; no costs give {self.no_costs}, {self._against_no_costs()}."

    def _against_no_costs(self) -> str:
        gain = compare(self.chosen, self.no_costs, samples=self.samples)
        if not gain.beyond_noise:
            return "no different within noise"
        if gain.mean > 0:
            return "which is worse beyond noise"
        return "which is better beyond noise: consider --method baseline"

    def as_json(self) -> dict[str, Any]:
        """Plain numbers; JSON has no infinite ones, so such a deviation is written ``"inf"``."""
        found: dict[str, Any] = {"sentence": self.sentence(), "config": str(self.path)}
        for name in ("chosen", "best", "defaults", "no_costs"):
            candidate: Candidate = getattr(self, name)
            costs = {key: "inf" if v == math.inf else v for key, v in candidate.costs.items()}
            found[name] = {
                "costs": costs,
                "error": candidate.mean,
                "standard_error": candidate.standard_error,
                "fold_errors": candidate.errors,
            }
        for name, other in (("defaults", self.defaults), ("no_costs", self.no_costs)):
            found[f"gain_over_{name}"] = asdict(compare(self.chosen, other, samples=self.samples))
        return found | {"finished": self.finished, "pruned": self.pruned}


def describe(costs: Costs) -> str:
    """Options in a few words.

    Example:
        >>> describe({"cost_lr": 0.1, "separability_std": math.inf, "separability_mean": 1.0})
        'cost_lr 0.1, separability off'
    """
    words = []
    for name, value in costs.items():
        factor, _, number = name.rpartition("_")
        if factor in FACTORS and costs.get(f"{factor}_std") == math.inf:
            if number == "std":
                words.append(f"{factor} off")
            continue
        words.append(f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}")
    return ", ".join(words)


def tune(
    config: TrainConfig,
    out: Path,
    *,
    trials: int = 30,
    folds: int = 3,
    progress: Progress | None = None,
) -> Tuned:
    """Search options of CostLearner by cross-validation, and write the best to ``tuned.toml``.

    Run again with the same folder, it goes on where it stopped; what comes out is the same as of
    one run without a stop.

    Args:
        config: As for training. Options in ``config.costs`` are kept as they are, and the others
            varied; ``config.epochs`` are those of a head.
        out: The folder for the study and ``tuned.toml``.
        trials: Candidates in all, those of earlier runs included.
        folds: Parts of the training pool, each held out once.
        progress: Told how far it is.
    """
    tell = progress or (lambda _, __, ___: None)
    defaults = _check(config, trials=trials, folds=folds)
    run = RunFolder(out)
    if run.has_run:
        raise RunError(f"{out} holds a training run: use another --out")
    with run.in_use(), _quiet_optuna(), _each_warning_once():
        network = "head" if config.weights else "small-cnn"
        if config.network == "auto":
            config = replace(config, network=network)
        task = make_task(config, progress=lambda done, of: tell("Reading images", done, of))
        pool = training_pool(task.splits.train, task.splits.val)
        parts = divide(pool, folds=folds, validation=config.validation, seed=config.seed)
        about = _about(config, task, folds)
        study = _open_study(out / "study.log", about, _parameters(defaults, config.costs))
        features = _features_of_folds(config, task, pool, parts, out / "features.safetensors", tell)
        device = resolve_device(config.device)
        samples = [
            _samples(fold, pool, known, device=device)
            for fold, known in zip(parts, features, strict=True)
        ]
        judge = _Judge(config, samples, task.objective)
        _search(study, judge, defaults, config, trials=trials, tell=tell)
        tuned = _conclude(study, defaults, len(pool), out / "tuned.toml")
        write_text(tuned.path, as_toml(config, tuned))
        return tuned


def _check(config: TrainConfig, *, trials: int, folds: int) -> Costs:
    """The defaults of CostLearner with what the user fixed; what cannot work is refused."""
    if folds < 2:
        raise InputError(f"folds must be at least 2, but is {folds}")
    if trials < 1:
        raise InputError(f"trials must be at least 1, but is {trials}")
    if config.method != "cosen":
        raise InputError(f"tune is for the method cosen, but the method is {config.method}")
    make_loss("cosen", np.array([1, 1]), objective="overall", options=config.costs)
    if all(name in config.costs for name in SEARCHED):
        raise InputError(f"nothing is left to tune: {', '.join(SEARCHED)} are all given")
    known = inspect.signature(CostLearner).parameters
    return {name: known[name].default for name in SEARCHED} | config.costs


# The data: from here on there is no test set


@dataclass(frozen=True)
class Fold:
    """A part of the training pool held out, and the rest as a run would have it."""

    train: LabelledImages
    val: LabelledImages
    held_out: LabelledImages


@dataclass(frozen=True, eq=False)
class Samples:
    """Features of shape ``(n, D)`` and classes of shape ``(n,)``."""

    features: Tensor
    target: Tensor


@dataclass(frozen=True)
class FoldSamples:
    """The same for the parts of a fold."""

    train: Samples
    val: Samples
    held_out: Samples


def training_pool(train: LabelledImages, val: LabelledImages) -> LabelledImages:
    """All images that a run may train or validate on."""

    def joined(name: str) -> Any:
        first, second = getattr(train, name), getattr(val, name)
        return None if first is None else np.concatenate([first, second])

    names = ("rows", "labels", "groups", "parts")
    return replace(train, **{name: joined(name) for name in names})


def divide(pool: LabelledImages, *, folds: int, validation: float, seed: int) -> list[Fold]:
    """Hold out each part of the pool once; classes in equal shares, groups whole."""
    unit = "images" if pool.groups is None else "groups of images"
    for label, name in enumerate(pool.class_names):
        mine = pool.labels == label
        count = int(mine.sum()) if pool.groups is None else len(np.unique(pool.groups[mine]))
        if count < folds:
            raise DataError(
                f"class {name!r} of {pool.source} has {count} {unit} to train on, too few for "
                f"{folds} folds: ask for fewer, or leave it out with --exclude {name}"
            )
    number = fold_of_each(pool, folds=folds, seed=seed)
    divided = []
    for fold in range(folds):
        rest = pool.take(number != fold)
        train, val = split_off_validation(rest, share=validation, seed=seed)
        if not len(val):
            raise DataError(
                f"{pool.source}: nothing is left to validate on in a fold; ask for more folds, or "
                "set validation above 0"
            )
        for name in np.array(pool.class_names)[train.class_counts == 0]:
            raise DataError(
                f"class {str(name)!r} of {pool.source} has nothing to train on in a fold of "
                f"{folds}: ask for more, or leave it out with --exclude {name}"
            )
        divided.append(Fold(train, val, pool.take(number == fold)))
    return divided


def _samples(
    fold: Fold, pool: LabelledImages, features: Tensor, *, device: torch.device | str
) -> FoldSamples:
    position = {int(row): place for place, row in enumerate(pool.rows)}

    def of(part: LabelledImages) -> Samples:
        places = torch.tensor([position[row] for row in part.rows.tolist()])
        return Samples(features[places].to(device), torch.from_numpy(part.labels).to(device))

    return FoldSamples(of(fold.train), of(fold.val), of(fold.held_out))


def _features_of_folds(
    config: TrainConfig,
    task: Task,
    pool: LabelledImages,
    parts: list[Fold],
    path: Path,
    tell: Progress,
) -> list[Tensor]:
    """Features of the pool for each fold, shape ``(len(pool), D)``: once for all candidates.

    Those of pre-trained weights are the same in every fold. A network that is trained here must
    not have seen what is held out, so each fold has its own.
    """
    if task.features is not None:
        batches = task.batches(pool, batch_size=config.batch_size)
        return [torch.cat([batch.inputs for batch in batches])] * len(parts)
    names = [f"fold{number}" for number in range(len(parts))]
    if path.exists():
        stored = load_file(path)
        return [stored[name] for name in names]
    found = {}
    for number, (name, fold) in enumerate(zip(names, parts, strict=True)):
        tell("Learning features", number, len(parts))
        found[name] = _learn_features(config, task, fold.train, pool)
    write_with(path, lambda partial: save_file(found, partial))
    return list(found.values())


def _learn_features(
    config: TrainConfig, task: Task, train: LabelledImages, pool: LabelledImages
) -> Tensor:
    """Penultimate features of a network trained plainly on a part of the pool."""
    device = resolve_device(config.device)
    config = replace(config, epochs=FEATURE_EPOCHS)
    with _seeded(config.seed):
        network = task.network(config).to(device)
    optimizer = make_optimizer(config, network.parameters())
    order = torch.Generator().manual_seed(config.seed)
    for epoch in range(config.epochs):
        batches = task.batches(train, batch_size=config.batch_size, order=order, device=device)
        _train_epoch(config, network, nn.CrossEntropyLoss(), optimizer, batches, epoch)
    network.eval()
    with torch.inference_mode():
        batches = task.batches(pool, batch_size=config.batch_size, device=device)
        return torch.cat([network(batch.inputs).features.float().cpu() for batch in batches])


# Judging a candidate


@dataclass(frozen=True)
class _Judge:
    """Says how good options are, fold by fold."""

    config: TrainConfig
    samples: list[FoldSamples]
    objective: Objective

    def errors(self, costs: Costs) -> Iterator[float]:
        for samples in self.samples:
            yield held_out_error(self.config, samples, costs, objective=self.objective)


def held_out_error(
    config: TrainConfig, samples: FoldSamples, costs: Mapping[str, Any], *, objective: Objective
) -> float:
    """Train a head as a run would, and judge the epoch that validation likes best.

    Initial weights and the order of samples are the same for all candidates.
    """
    train, val, held_out = samples.train, samples.val, samples.held_out
    # every class is in the training part, so the largest label is the last class
    counts = torch.bincount(train.target).cpu()
    loss = CostLearner(counts, objective=objective, **costs).to(train.target.device)
    with _seeded(config.seed):
        network = Head(train.features.shape[1], len(counts)).to(train.features.device)
    optimizer = make_optimizer(config, network.parameters())
    order = torch.Generator().manual_seed(config.seed)
    least, error = math.inf, 1.0
    for epoch in range(config.epochs):
        batches = FeatureBatches(
            train.features,
            train.target,
            batch_size=config.batch_size,
            order=order,
            device=train.features.device,
        )
        _train_epoch(config, network, loss, optimizer, batches, epoch)
        network.eval()
        with torch.no_grad():
            output = network(val.features)
            step = loss.step(output.logits, val.target, output.features)
            if step.val_error < least:
                least = step.val_error
                predicted = network(held_out.features).logits.argmax(1)
                confusion = F.confusion_matrix(held_out.target, predicted, num_classes=len(counts))
                error = validation_error(confusion, objective)
    return error


def _train_epoch(
    config: TrainConfig,
    network: nn.Module,
    loss: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterable[Batch],
    epoch: int,
) -> None:
    network.train()
    total = len(batches)  # type: ignore[arg-type]
    for number, batch in enumerate(batches):
        try:
            value = loss(network(batch.inputs).logits, batch.target)
        except InputError as error:
            raise _Diverged(str(error)) from error
        optimizer.zero_grad()
        value.backward()
        if config.clip:
            nn.utils.clip_grad_norm_(network.parameters(), config.clip)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(config, (epoch + number / total) / config.epochs)
        optimizer.step()
    if not bool(value.isfinite()):
        raise _Diverged("the loss is not a number any more")


class _Diverged(RunError):
    """Training whose loss has become infinite."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"training diverged: {reason}; use a lower learning rate (--set lr=0.01)")


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Weights drawn in here come from the seed; the global generator goes on as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


# The search


def _search(
    study: optuna.Study,
    judge: _Judge,
    defaults: Costs,
    config: TrainConfig,
    *,
    trials: int,
    tell: Progress,
) -> None:
    folds = len(judge.samples)
    if "no_costs" not in study.user_attrs:  # first: where this diverges, everything would
        study.set_user_attr("no_costs", list(judge.errors(defaults | {"cost_lr": 0.0})))
    while (finished := len(_finished(study))) < trials:
        # A sampler seeded for each trial: a search that was stopped goes on as if it were not.
        study.sampler = optuna.samplers.TPESampler(seed=config.seed * 10_007 + finished)
        trial = study.ask()
        try:
            costs = _suggest(trial, config.costs)
            trial.set_user_attr("costs", costs)
            errors: list[float] = []
            try:
                for error in judge.errors(costs):
                    errors.append(error)
                    trial.report(float(np.mean(errors)), len(errors))
                    tell(_standing(study), finished * folds + len(errors), trials * folds)
                    if len(errors) < folds and trial.should_prune():
                        break
            except _Diverged:
                errors = [1.0] * folds
            trial.set_user_attr("errors", errors)
            whole = len(errors) == folds
            state = TrialState.COMPLETE if whole else TrialState.PRUNED
            study.tell(trial, float(np.mean(errors)) if whole else None, state=state)
        except BaseException:
            study.tell(trial, state=TrialState.FAIL)  # it does not count
            raise


def _suggest(trial: optuna.Trial, fixed: Mapping[str, Any]) -> Costs:
    """The next candidate: what is fixed, and a value for the rest."""
    costs: Costs = {}

    def take(name: str) -> None:
        if name in fixed:
            costs[name] = fixed[name]
            return
        how = SEARCHED[name]
        if isinstance(how, CategoricalDistribution):
            costs[name] = trial.suggest_categorical(name, how.choices)
        elif isinstance(how, FloatDistribution):
            value = trial.suggest_float(name, how.low, how.high, log=how.log)
            costs[name] = float(f"{value:.3g}")  # judged as it will be written

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
    return costs | dict(fixed)


def _parameters(costs: Costs, fixed: Mapping[str, Any]) -> dict[str, Any]:
    """What :func:`_suggest` must be told to come to these options."""
    wanted = {name: costs[name] for name in SEARCHED if name not in fixed}
    for factor in FACTORS:
        mean, std = f"{factor}_mean", f"{factor}_std"
        on = math.isfinite(costs[std])
        if std not in fixed:
            wanted[factor] = on
        if not on:
            wanted.pop(mean, None)
            wanted.pop(std, None)
    return wanted


def _finished(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))


def _complete(study: optuna.Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def _standing(study: optuna.Study) -> str:
    complete = _complete(study)
    if not complete:
        return "Trying"
    return f"Trying, least error {100 * min(trial.value or 0.0 for trial in complete):.2f} %"


def _conclude(study: optuna.Study, defaults: Costs, samples: int, path: Path) -> Tuned:
    """The best candidate, unless it is no better than the defaults beyond noise."""
    complete = _complete(study)
    (first,) = [trial for trial in complete if trial.user_attrs.get("defaults")]
    standard = Candidate(defaults, tuple(first.user_attrs["errors"]))
    winner = min(complete, key=lambda trial: (trial.value, trial.number))
    best = standard
    if winner.value is not None and winner.value < standard.mean:
        best = Candidate(winner.user_attrs["costs"], tuple(winner.user_attrs["errors"]))
    better = best is not standard and compare(best, standard, samples=samples).beyond_noise
    finished = len(_finished(study))
    return Tuned(
        chosen=best if better else standard,
        best=best,
        defaults=standard,
        no_costs=Candidate(defaults | {"cost_lr": 0.0}, tuple(study.user_attrs["no_costs"])),
        samples=samples,
        finished=finished,
        pruned=finished - len(complete),
        path=path,
    )


# What is kept


def _about(config: TrainConfig, task: Task, folds: int) -> dict[str, Any]:
    """What must be the same for a study to go on."""
    free = ("data", "data_root", "device", "devices", "precision", "skip_broken", "exclude")
    settings = {name: value for name, value in config.as_json().items() if name not in free}
    plain: dict[str, Any] = json.loads(json.dumps(settings | {"folds": folds}))
    return plain | {"data": task.fingerprint}


def _open_study(path: Path, about: dict[str, Any], first: dict[str, Any]) -> optuna.Study:
    """The study in a file, new or as it was left; one of something else is refused.

    The defaults are tried first.
    """
    # The folder is held by this process, so a lock or half a line is what a killed one left.
    path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
    if path.exists():
        content = path.read_bytes()
        if not content.endswith(b"\n"):
            write_with(path, lambda part: part.write_bytes(content[: content.rfind(b"\n") + 1]))
    try:
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            study_name="cosen",
            direction="minimize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=PRUNE_AFTER, n_warmup_steps=0),
            load_if_exists=True,
        )
    except (ValueError, KeyError) as error:
        raise RunError(f"{path} is damaged and cannot be read: use another --out") from error
    known = study.user_attrs.get("about")
    if known is None:
        study.set_user_attr("about", about)
        known = about
    for name, value in about.items():
        if known.get(name) != value:
            difference = (
                "of other data or another split"
                if name == "data"
                else f"with {name} {known.get(name)}, not {value}"
            )
            raise RunError(f"{path.parent} holds a study {difference}: use another --out")
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        study.tell(trial.number, state=TrialState.FAIL)  # a killed process left it
    if not any(
        trial.user_attrs.get("defaults") and trial.state != TrialState.FAIL
        for trial in study.get_trials(deepcopy=False)
    ):
        study.enqueue_trial(first, user_attrs={"defaults": True})
    return study


def as_toml(config: TrainConfig, tuned: Tuned) -> str:
    """Settings for ``cosen train --config``: the costs, and the objective they were chosen for."""
    lines = [f"# {tuned.sentence()}", "", 'method = "cosen"']
    lines.append(f"objective = {_toml(config.objective)}")
    if config.expert:
        lines.append(f"expert = {_toml(str(Path(config.expert).absolute()))}")
    lines += ["", "[costs]"]
    lines += [f"{name} = {_toml(value)}" for name, value in tuned.chosen.costs.items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str | bool):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return repr(value)  # a float's repr is TOML's, inf included


@contextmanager
def _quiet_optuna() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def _each_warning_once() -> Iterator[None]:
    """Every candidate would warn of the same classes again."""
    said: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        new = message not in said
        said.add(message)
        return new

    logger = logging.getLogger("cosen")
    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)
