"""Methods on equal terms: the same splits, network, seeds and budget, side by side."""

import json
import pickle
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cosen.comparing.choice import Choice, choose
from cosen.comparing.jobs import Job, Outcome, Report, reason_for
from cosen.comparing.leaderboard import Leaderboard, make_leaderboard
from cosen.comparing.processes import run_locally, usable_cores
from cosen.comparing.study_folder import Failures, StudyFolder
from cosen.errors import InputError, RunError
from cosen.methods import METHODS, Method, find_method, make_method
from cosen.methods.baseline import Baseline
from cosen.training.config import TrainConfig
from cosen.training.execution import make_setting, needs_baseline
from cosen.training.loop import Watcher
from cosen.training.run import check_config, describe_start, train
from cosen.training.run_folder import RunFolder
from cosen.training.task import Task, make_task, resolve_device

DEFAULT_METHODS = ("baseline", "fixed-h", "cosen", "class-weights", "balanced-softmax", "smote")
"""What is compared unless told otherwise."""


@dataclass(frozen=True)
class GridWatcher:
    """Who is told how a comparison goes.

    Attributes:
        preparing: Told how far reading images, and computing features, is.
        started: Told how many runs there are, and how many of them were finished before.
        progress: Told a run's name, and how far it is.
        outcome: Told how a run ended.
    """

    preparing: Callable[[int, int], None] | None = None
    started: Callable[[int, int], None] = lambda _, __: None
    progress: Callable[[str, int, int], None] = lambda _, __, ___: None
    outcome: Callable[[Outcome], None] = lambda _: None


@dataclass(frozen=True)
class Comparison:
    """What a comparison gave.

    Attributes:
        folder: Where everything is.
        leaderboard: Methods side by side.
        choice: Which to take.
    """

    folder: StudyFolder
    leaderboard: Leaderboard
    choice: Choice


def compare(
    config: TrainConfig,
    out: Path,
    *,
    methods: Sequence[str | Method] = DEFAULT_METHODS,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seeds: int = 3,
    workers: int | None = None,
    cluster: str | None = None,
    watcher: GridWatcher | None = None,
) -> Comparison:
    """Train with each method and seed, and say which is best for the objective.

    What was finished before in the folder is not done again, so that a comparison that was cut off
    goes on, and more methods or seeds can be added to it. The baseline is always among them. A
    method that cannot work, or fails, is reported, and the others go on.

    Args:
        config: What all runs share; its method and seed are those that vary, from ``config.seed``
            on.
        out: The study folder.
        methods: Names, or methods of your own.
        options: Options of methods, by their names.
        seeds: How many.
        workers: Processes here; one for each core if not given, and one where there is a GPU.
        cluster: A Ray cluster to run on instead, as for
            :func:`cosen.comparing.cluster.run_on_ray`.
        watcher: Told how it goes.
    """
    watcher = watcher or GridWatcher()
    _check_wish(config, seeds=seeds, workers=workers)
    contestants = _contestants(methods, options or {})
    study = StudyFolder(out)
    if RunFolder(out).has_run:
        raise RunError(f"{out} holds a single run, not a study: use another --out")
    with RunFolder(out).in_use():
        about = _merged_about(study, config, contestants, range(config.seed, config.seed + seeds))
        contestants = _with_earlier(contestants, about)
        jobs, failures = _plan(study, config, contestants, about["seeds"], watcher)
        study.write_about(about)  # not before: a mistake is not to occupy the folder
        planned = len(contestants) * len(about["seeds"])
        total = planned - sum(map(len, failures.values()))
        watcher.started(total, total - len(jobs))
        if workers is None:
            workers = usable_cores() if resolve_device(config.device) == "cpu" else 1
        # Of the whole grid, not of what is left: a run's sums depend on its number of threads.
        outcomes = _run(jobs, workers=min(workers, planned), cluster=cluster, watcher=watcher)
        for outcome in outcomes:
            if outcome.reason is not None:
                method, _, seed = outcome.name.rpartition("/")
                failures.setdefault(method, {})[int(seed)] = outcome.reason
        others = [name for name in about["methods"] if name not in contestants]
        earlier = {name: study.failures().get(name, {}) for name in others}
        study.write_failures(earlier | failures)
        return conclude(study, config)


def conclude(study: StudyFolder, config: TrainConfig) -> Comparison:
    """Read the finished runs of a study, and write what they say together."""
    runs, failures = study.finished_runs(), study.failures()
    if not any(runs.values()):
        raise RunError(f"no run of {study.path} has finished; {_first_failure(failures)}")
    first = next(run for by_seed in runs.values() for run in by_seed.values())
    objective = first.objective() if config.expert else config.objective
    board = make_leaderboard(runs, failures, objective=objective)
    choice = choose(runs, objective=objective)
    study.write_results(board, choice)
    return Comparison(study, board, choice)


# What there is to do


@dataclass(frozen=True)
class Contestant:
    """A method of the grid.

    Attributes:
        method: The method itself.
        asked: What it was asked for by; None for an object of the user's.
        options: What it was made with; of an object, what it holds, as texts.
    """

    method: Method
    asked: str | None
    options: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        return {"asked": self.asked, "options": self.options}


@dataclass(frozen=True)
class Payload:
    """What one run is made of; the method where it cannot be asked for by name."""

    config: TrainConfig
    method: Method | None


def train_once(payload: Payload, out: Path, reads: tuple[Path, ...], report: Report) -> None:
    """One run of the grid, from the start or from where it was cut off."""
    run = RunFolder(out)
    if run.is_finished:
        return
    train(
        payload.config,
        out,
        resume=run.has_run,
        method=payload.method,
        baseline=reads[0] if reads else None,
        watcher=Watcher(batch=report),
    )


def _check_wish(config: TrainConfig, *, seeds: int, workers: int | None) -> None:
    """Refuse what can be seen to be wrong before any image is read."""
    for name, number in (("seeds", seeds), ("workers", workers)):
        if number is not None and number < 1:
            raise InputError(f"{name} must be at least 1, but is {number}")
    if config.devices > 1:
        raise InputError(
            f"devices is {config.devices}, but a run of a comparison takes one device: several "
            "runs go on at once instead (--workers)"
        )
    if config.options:
        raise InputError(
            f"options {', '.join(config.options)} are of no one method: say whose they are, as in "
            "--set METHOD.OPTION=VALUE"
        )
    check_config(config, method=Baseline())


def _contestants(
    methods: Sequence[str | Method], options: Mapping[str, Mapping[str, Any]]
) -> dict[str, Contestant]:
    """The methods by name, the baseline first."""
    found: dict[str, Contestant] = {}
    for method in methods:
        if isinstance(method, str):
            entry = _asked_for(method, options)
        elif isinstance(method, Method):
            entry = Contestant(method, None, _held(method))
        else:
            raise InputError(
                f"{method!r} is not a method: hand over a name, or an object such as "
                "Smote(neighbours=3)"
            )
        name = _checked_name(entry.method)
        if name in found:
            raise InputError(f"two methods are called {name}: name each once")
        found[name] = entry
    if Baseline.name not in found:
        found[Baseline.name] = _asked_for(Baseline.name, options)
    asked = [entry.asked for entry in found.values() if entry.asked is not None]
    for name in options:
        if name not in (*asked, *found):
            raise InputError(
                f"options are given for {name}, which is not among the methods asked for by name: "
                f"{', '.join(asked)}"
            )
    return {Baseline.name: found[Baseline.name], **found}


def _asked_for(name: str, options: Mapping[str, Mapping[str, Any]]) -> Contestant:
    """A method asked for by name."""
    called = getattr(find_method(name), "name", name)  # options may go by its own name too
    own = {**options.get(called, {}), **options.get(name, {})}
    try:
        own = json.loads(json.dumps(own))  # as it will be read again
    except TypeError as error:
        raise InputError(f"options of {name} must be numbers, texts or lists: {error}") from error
    return Contestant(make_method(name, own), name, own)


def _held(method: Method) -> dict[str, str]:
    """What an object holds, so that another is not taken for it."""
    values = getattr(method, "__dict__", {})
    return {name: re.sub(" at 0x[0-9a-f]+", "", repr(value)) for name, value in values.items()}


def _checked_name(method: Method) -> str:
    """The method's name, which is also that of a folder."""
    name = getattr(method, "name", None)
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w .+=-]*", name):
        raise InputError(
            f"{type(method).__name__} needs a name that a folder can have, but its name is "
            f"{name!r}: write name = 'my-method' in the class"
        )
    if METHODS.get(name, type(method)) is not type(method):
        raise InputError(f"{type(method).__name__} is called {name}, as one of cosen's: rename it")
    return name


def _merged_about(
    study: StudyFolder,
    config: TrainConfig,
    contestants: Mapping[str, Contestant],
    seeds: Sequence[int],
) -> dict[str, Any]:
    """What the study is of, with what was in it before."""
    shared = json.loads(json.dumps(config.as_json()))  # as it will be read again
    for name in ("method", "options", "seed", "device"):
        del shared[name]
    methods = {name: entry.as_json() for name, entry in contestants.items()}
    about = {**describe_start(config), "config": shared, "methods": methods, "seeds": [*seeds]}
    if not study.has_study or not study.has_runs():  # nothing is lost by starting anew
        return about
    before = study.about()
    differing = [name for name in shared if before["config"].get(name) != shared[name]]
    differing += [
        f"options of {name}"
        for name in methods
        if study.has_runs(name) and before["methods"].get(name) != methods[name]
    ]
    if differing:
        raise InputError(
            f"{study.path} holds a study with other settings ({', '.join(differing)}): "
            "use another --out"
        )
    return before | {
        "methods": before["methods"] | methods,
        "seeds": sorted({*before["seeds"], *seeds}),
    }


def _with_earlier(
    contestants: Mapping[str, Contestant], about: Mapping[str, Any]
) -> dict[str, Contestant]:
    """The methods asked for now, and those that were before and can be made again."""
    found = dict(contestants)
    for name, entry in about["methods"].items():
        if name not in found and entry["asked"] is not None:
            method = make_method(entry["asked"], entry["options"])
            found[name] = Contestant(method, **entry)
    return found


def _plan(
    study: StudyFolder,
    config: TrainConfig,
    contestants: Mapping[str, Contestant],
    seeds: Sequence[int],
    watcher: GridWatcher,
) -> tuple[list[Job], Failures]:
    """The runs that are missing, and those that cannot work.

    Images are decoded, and features of pre-trained weights computed, once, for all of them.
    """
    jobs: list[Job] = []
    failures: Failures = {}
    for seed in seeds:
        own = replace(config, seed=seed)
        task = make_task(own, progress=watcher.preparing)
        for name, entry in contestants.items():
            run = study.run(name, seed)
            if run.is_finished:
                _check_same_data(run, task)
                continue
            reason = _why_not(entry, own, task)
            if reason is not None:
                failures.setdefault(name, {})[seed] = reason
                watcher.outcome(Outcome(f"{name}/{seed}", reason))
                continue
            reads: tuple[Path, ...] = ()
            after: tuple[str, ...] = ()
            if needs_baseline(entry.method, task):
                baseline = study.run(Baseline.name, seed)
                reads = (baseline.path.absolute(),)
                after = () if baseline.is_finished else (f"{Baseline.name}/{seed}",)
            if entry.asked is None:
                payload = Payload(own, entry.method)
            else:
                payload = Payload(replace(own, method=entry.asked, options=entry.options), None)
            place = run.path.absolute()
            jobs.append(Job(f"{name}/{seed}", train_once, payload, place, after, reads))
    return jobs, failures


def _why_not(entry: Contestant, config: TrainConfig, task: Task) -> str | None:
    """Why a method cannot work on this data; None where it can."""
    try:
        entry.method.check(make_setting(config, task))
    except Exception as error:  # of the user's own code, it may be anything
        return reason_for(error)
    if entry.asked is None:
        try:
            pickle.dumps(entry.method)
        except Exception as error:  # pickle raises many kinds
            return (
                f"it cannot be sent to another process ({reason_for(error)}): define its class at "
                "the top of a module, and let it hold plain values"
            )
    return None


def _check_same_data(run: RunFolder, task: Task) -> None:
    """Refuse to go on where a finished run could not be compared with what is trained now."""
    if run.about().get("fingerprint") != task.fingerprint:
        raise RunError(
            f"the data has changed since {run.path} was trained: images, labels, split or costs "
            "differ; use another --out"
        )


def _run(
    jobs: Sequence[Job], *, workers: int, cluster: str | None, watcher: GridWatcher
) -> list[Outcome]:
    if not jobs:
        return []
    if cluster is not None:
        from cosen.comparing.cluster import run_on_ray

        return run_on_ray(
            jobs, address=cluster, on_progress=watcher.progress, on_outcome=watcher.outcome
        )
    return run_locally(
        jobs, workers=workers, on_progress=watcher.progress, on_outcome=watcher.outcome
    )


def _first_failure(failures: Failures) -> str:
    """The baseline's: without it nothing can be said of the others."""
    for seed, reason in failures.get(Baseline.name, {}).items():
        return f"{Baseline.name}/{seed} failed: {reason}"
    return "run the same command again"
