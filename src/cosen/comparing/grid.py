"""Compare methods fairly: with the same splits, network, seeds and settings."""

import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cosen.comparing.choice import choose
from cosen.comparing.jobs import Job, JobProgress, Outcome, Report, reason_for
from cosen.comparing.leaderboard import make_leaderboard, read_grid
from cosen.comparing.processes import run_locally, usable_cores
from cosen.comparing.study_folder import (
    Failures,
    FailuresRecord,
    MethodRecord,
    StudyFolder,
    StudyRecord,
)
from cosen.data.cache_folder import key_of
from cosen.errors import InputError, RunError
from cosen.methods import (
    METHODS,
    Method,
    find_method,
    make_method,
    method_label,
    named_method,
    parse_method,
)
from cosen.methods.reweighting import Baseline
from cosen.networks.device import resolve_device
from cosen.training.config import TrainConfig
from cosen.training.context import make_setting
from cosen.training.loop import Callbacks
from cosen.training.model_file import OWN, make_network
from cosen.training.run import Inputs, check_config, train_run
from cosen.training.run_folder import RunFolder
from cosen.training.task import Task, make_task

DEFAULT_METHODS = ("baseline", "fixed-h", "cosen", "class-weights", "balanced-softmax", "smote")
"""The methods that are compared by default."""


@dataclass(frozen=True)
class CompareCallbacks:
    """Functions that are called while methods are compared.

    Attributes:
        reading: Called while images are read and features computed, with done and total.
        started: Called with the number of runs, and how many are already finished.
        progress: Called with the name of a run, done and total.
        outcome: Called when a run ends.
        phase: Called with a line about a pretrained network, before it is used.
    """

    reading: Callable[[int, int], None] | None = None
    started: Callable[[int, int], None] = lambda _, __: None
    progress: Callable[[str, int, int], None] = lambda _, __, ___: None
    outcome: Callable[[Outcome], None] = lambda _: None
    phase: Callable[[str], None] = lambda _: None


def compare_methods(
    config: TrainConfig,
    out: Path,
    *,
    methods: Sequence[str | Method] = DEFAULT_METHODS,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: int = 3,
    workers: int | None = None,
    cluster: str | None = None,
    inputs: Inputs | None = None,
    callbacks: CompareCallbacks | None = None,
) -> StudyFolder:
    """Train each method with each seed, and choose the best for the objective.

    Finished runs in the folder are not repeated: an interrupted comparison is resumed, and more
    methods or seeds can be added. The baseline is always included. A method that fails is reported,
    and the others continue.

    Args:
        config: The settings that all runs share. Seeds start at ``config.seed``.
        out: The study folder.
        methods: Names such as ``cosen`` or ``cosen(margin=4)``, or method objects.
        options: Options of methods by their names.
        seeds: Number of seeds.
        workers: Processes on this machine; by default one per core, or one with a GPU.
        cluster: A Ray cluster to run on, see :func:`cosen.comparing.cluster.run_on_ray`.
        inputs: Data or a network as objects.
        callbacks: Called with progress.
    """
    callbacks, inputs = callbacks or CompareCallbacks(), inputs or Inputs()
    _check_settings(config, seeds=seeds, workers=workers)
    entries = _entries(methods, options or {})
    study = StudyFolder(out)
    if RunFolder(out).has_run:
        raise RunError(f"{out} holds a single run, not a study: use another --out")
    with RunFolder(out).in_use():
        record = _start_record(config, entries, seeds)
        before = study.record() if study.has_study and study.has_runs() else None
        if before is not None:
            record = _merged_record(study, before, record)
            for label, earlier in record.methods.items():
                # code that this call does not name is not imported: a study may be someone else's
                named = earlier.method is not None and ":" not in earlier.method
                if label not in entries and named:
                    method = make_method(str(earlier.method), earlier.options)
                    entries[label] = _Entry(method, earlier)
        # the only task of this process: it fills the caches that all runs read
        task = make_task(
            config,
            data=inputs.data,
            network=inputs.network,
            objective=inputs.objective,
            progress=callbacks.reading,
            announce=callbacks.phase,
        )
        record = record.changed(data=_data_key(task))
        if before is not None and before.data != record.data:
            raise RunError(
                f"the data or the network has changed since {out} was started: images, labels, "
                "costs or layers differ; use another --out"
            )
        failures, jobs = _plan(study, config, entries, task, record.seeds, inputs)
        del task  # frees its memory for the runs
        record.write(study.path)  # not earlier: after an error the folder can be used again
        for label, by_seed in failures.items():
            for seed, reason in by_seed.items():
                callbacks.outcome(Outcome(f"{label}/{seed}", reason))
        planned = len(entries) * len(record.seeds)
        total = planned - sum(map(len, failures.values()))
        callbacks.started(total, total - len(jobs))
        if workers is None:
            workers = usable_cores() if resolve_device(config.device) == "cpu" else 1
        # of the whole grid, not of the missing runs: a run's sums depend on its number of threads
        outcomes = _run(jobs, workers=min(workers, planned), cluster=cluster, callbacks=callbacks)
        for outcome in outcomes:
            if outcome.reason is not None:
                label, _, number = outcome.name.rpartition("/")
                failures.setdefault(label, {})[int(number)] = outcome.reason
        others = [label for label in record.methods if label not in entries]
        kept = {label: study.failures().get(label, {}) for label in others}
        FailuresRecord(failures=kept | failures).write(study.path)
        conclude(study)
        return study


def conclude(study: StudyFolder) -> None:
    """Read the finished runs of a study, and write the leaderboard and the choice."""
    grid, failures = read_grid(study.finished_runs()), study.failures()
    finished = [run for by_seed in grid.values() for run in by_seed.values()]
    if not finished:
        for seed, reason in failures.get(Baseline.name, {}).items():
            raise RunError(
                f"no run of {study.path} has finished; {Baseline.name}/{seed} failed: {reason}"
            )
        raise RunError(f"no run of {study.path} has finished: run the same command again")
    objective = finished[0].record.objective
    study.write_results(
        make_leaderboard(grid, failures, objective=objective), choose(grid, objective=objective)
    )


def train_job(
    payload: tuple[TrainConfig, Inputs], out: Path, reads: tuple[Path, ...], report: Report
) -> None:
    """Train one run of a comparison, from the start or from its checkpoint."""
    config, inputs = payload
    run = RunFolder(out)
    if not run.is_finished:
        train_run(
            config,
            out,
            resume=run.has_run,
            inputs=replace(inputs, baseline=reads[0] if reads else None),
            callbacks=Callbacks(batch=lambda done, total: report(JobProgress(done, total))),
        )


@dataclass(frozen=True)
class _Entry:
    """A method of the comparison, and its record in ``study.json``."""

    method: Method
    record: MethodRecord


def _check_settings(config: TrainConfig, *, seeds: int, workers: int | None) -> None:
    for name, number in (("seeds", seeds), ("workers", workers)):
        if number is not None and number < 1:
            raise InputError(f"{name} must be at least 1, but is {number}")
    if config.devices > 1:
        raise InputError(
            f"devices is {config.devices}, but each run of a comparison uses one device: use "
            "--workers to train several runs at once"
        )
    if config.options:
        raise InputError(
            f"options {', '.join(config.options)} belong to no method: use "
            "--set METHOD.OPTION=VALUE, or METHOD(OPTION=VALUE) in --methods"
        )
    check_config(config, Baseline())


def _entries(
    methods: Sequence[str | Method], options: Mapping[str, Mapping[str, Any]]
) -> dict[str, _Entry]:
    """Return the methods by label, the baseline first."""
    found: dict[str, _Entry] = {}
    named = {Baseline.name}
    for method in methods:
        if isinstance(method, str):
            label, entry = _named_entry(method, options)
            named |= {str(entry.record.method), entry.method.name}
        elif isinstance(method, Method):
            label, entry = _object_entry(method)
        else:
            raise InputError(
                f"{method!r} is not a method: pass a name, or an object such as Smote(neighbours=3)"
            )
        is_named = entry.record.method is not None
        if label in found or (is_named and entry.record in [e.record for e in found.values()]):
            raise InputError(f"method {label} is given twice: give each method once")
        found[label] = entry
    if Baseline.name not in found:
        _, found[Baseline.name] = _named_entry(Baseline.name, options)
    for name in options:
        if name not in named:
            raise InputError(
                f"options are given for {name}, but the methods given by name are "
                f"{', '.join(sorted(named))}"
            )
    return {Baseline.name: found[Baseline.name], **found}


def _named_entry(text: str, options: Mapping[str, Mapping[str, Any]]) -> tuple[str, _Entry]:
    """Return the label and the entry of a method such as ``smote`` or ``smote(neighbours=3)``."""
    name, own = parse_method(text)
    called = getattr(find_method(name), "name", name)  # options may use the name of the class
    try:
        # as they will be read from JSON
        given = json.loads(json.dumps({**options.get(called, {}), **options.get(name, {}), **own}))
    except TypeError as error:
        raise InputError(f"options of {name} must be numbers, strings or lists: {error}") from error
    method = make_method(name, given)
    label = method_label(_checked_name(method), dict(sorted(own.items())))
    return label, _Entry(method, MethodRecord(method=name, options=given))


def _object_entry(method: Method) -> tuple[str, _Entry]:
    """Return the label and the entry of a method object.

    The label contains the options that are numbers or strings and differ from the default.
    """
    name, named = _checked_name(method), named_method(method)
    if named is not None:
        options = dict(sorted(named[1].items()))
        return method_label(name, options), _Entry(
            method, MethodRecord(method=name, options=options)
        )
    options = {}
    for option, parameter in sorted(inspect.signature(type(method)).parameters.items()):
        value = getattr(method, option, parameter.default)
        if isinstance(value, int | float | str) and value != parameter.default:
            options[option] = value
    # the attributes as text, to detect a different object
    held = {
        attribute: re.sub(" at 0x[0-9a-f]+", "", repr(value))
        for attribute, value in getattr(method, "__dict__", {}).items()
    }
    return method_label(name, options), _Entry(method, MethodRecord(method=None, options=held))


def _checked_name(method: Method) -> str:
    """Return the name of a method, which is also the name of a folder."""
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w .+=-]*", name):
        raise InputError(
            f"{type(method).__name__} needs a name that is a valid folder name, but its name is "
            f"{name!r}: set name = 'my-method' in the class"
        )
    if METHODS.get(name, type(method)) is not type(method):
        raise InputError(
            f"{type(method).__name__} has the name of a built-in method, {name}: rename it"
        )
    return name


def _start_record(config: TrainConfig, entries: Mapping[str, _Entry], seeds: int) -> StudyRecord:
    """Return the record of a new study, before its data is read."""
    plain = TrainConfig()
    return StudyRecord.now(
        replace(config, method=plain.method, options={}, seed=plain.seed, device=plain.device),
        methods={label: entry.record for label, entry in entries.items()},
        seeds=tuple(range(config.seed, config.seed + seeds)),
        data="",
    )


def _merged_record(study: StudyFolder, before: StudyRecord, now: StudyRecord) -> StudyRecord:
    """Return the earlier record of a study with more methods and seeds."""
    differing = [
        name for name, value in vars(now.config).items() if getattr(before.config, name) != value
    ]
    differing += [
        f"options of {label}"
        for label, record in now.methods.items()
        if study.has_runs(label) and before.methods.get(label) != record
    ]
    if differing:
        raise InputError(
            f"{study.path} holds a study with other settings ({', '.join(differing)}): "
            "use another --out"
        )
    return before.changed(
        methods=before.methods | now.methods,
        seeds=tuple(sorted({*before.seeds, *now.seeds})),
    )


def _data_key(task: Task) -> str:
    """Return a key that changes with any image, label, class, cost or network."""
    data, costs = task.decoded.data, task.objective.misclassification_costs
    own = task.own_network
    layers = ""
    if own is not None:
        network = make_network(OWN, len(task.model.class_names), {}, own=own)
        layers = str([tuple(parameter.shape) for parameter in network.parameters()])
    return key_of(
        task.decoded.key,
        data.rows.tobytes(),
        data.labels.tobytes(),
        task.model.class_names,
        task.objective.name if costs is None else costs.numpy().tobytes(),
        task.model.network,
        layers,
    )


def _plan(
    study: StudyFolder,
    config: TrainConfig,
    entries: Mapping[str, _Entry],
    task: Task,
    seeds: Sequence[int],
    inputs: Inputs,
) -> tuple[Failures, list[Job]]:
    """Return the methods that do not support this data, and a job for each missing run."""
    missing = {
        label: [seed for seed in seeds if not study.run(label, seed).is_finished]
        for label in entries
    }
    setting = make_setting(config, task)
    failures: Failures = {}
    for label, entry in entries.items():
        if not missing[label]:
            continue
        try:
            entry.method.check(setting)
        except Exception as error:  # the user's code may raise any error
            failures[label] = dict.fromkeys(missing[label], reason_for(error))
    jobs: list[Job] = []
    for seed in seeds:
        for label, entry in entries.items():
            if seed not in missing[label] or seed in failures.get(label, {}):
                continue
            reads: tuple[Path, ...] = ()
            after: tuple[str, ...] = ()
            if entry.method.needs_baseline(has_features=task.has_features):
                reads = (study.run(Baseline.name, seed).path.absolute(),)
                after = (f"{Baseline.name}/{seed}",) if seed in missing[Baseline.name] else ()
            if after and Baseline.name in failures:
                reason = f"not started because {after[0]} failed"
                failures.setdefault(label, {})[seed] = reason
                continue
            own = replace(inputs, model=task.model)
            if entry.record.method is None:
                own, of_run = replace(own, method=entry.method), replace(config, seed=seed)
            else:
                name, options = entry.record.method, entry.record.options
                of_run = replace(config, seed=seed, method=name, options=options)
                own = replace(own, named=name)
            out = study.run(label, seed).path.absolute()
            jobs.append(Job(f"{label}/{seed}", train_job, (of_run, own), out, after, reads))
    return failures, jobs


def _run(
    jobs: Sequence[Job], *, workers: int, cluster: str | None, callbacks: CompareCallbacks
) -> list[Outcome]:
    if not jobs:
        return []
    progress, outcome = callbacks.progress, callbacks.outcome
    if cluster is not None:
        from cosen.comparing.cluster import run_on_ray

        return run_on_ray(jobs, address=cluster, on_progress=progress, on_outcome=outcome)
    return run_locally(jobs, workers=workers, on_progress=progress, on_outcome=outcome)
