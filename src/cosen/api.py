"""The public functions: train, compare and inspect."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cosen.comparing.grid import DEFAULT_METHODS, CompareCallbacks, compare_methods
from cosen.costs import Objective
from cosen.data.inspection import Inspection, grouped_csv, inspect_data
from cosen.data.labelled import LabelledImages
from cosen.data.named import NAMED
from cosen.data.sources import open_data
from cosen.devices import train_on_devices
from cosen.errors import InputError
from cosen.files import write_text
from cosen.methods import Method, named_method
from cosen.runs import Data, NetworkLike, Run, Study, factory, load, named_factory
from cosen.training.config import TrainConfig, make_config
from cosen.training.loop import Callbacks
from cosen.training.run import Inputs, train_run
from cosen.training.run_folder import RunFolder

STUDY_VALIDATION = 0.2
"""Validation share of a comparison. A single run needs fewer images: it chooses no method."""


def train(
    data: Data | None = None,
    *,
    out: Path | str | None = None,
    method: str | Method | None = None,
    network: NetworkLike | None = None,
    baseline: Run | Path | str | None = None,
    resume: Path | str | None = None,
    callbacks: Callbacks | None = None,
    config: TrainConfig | None = None,
    **settings: Any,
) -> Run:
    """Train a network, evaluate it on the test images, and keep everything in a run folder.

    Args:
        data: A folder of class folders, a CSV, the name of a dataset, a dataset, or
            ``(images, labels)`` arrays. The default is ``digits``.
        out: The run folder; by default a new one below ``runs``.
        method: A method's name, such as ``cosen`` or ``cosen(margin=4)``, or an object.
        network: The name of a network, a module, or a function that makes one. A module is copied.
        baseline: A finished run of the baseline on the same split, for methods that start from
            one. Without it, a baseline is trained first.
        resume: Resume the run in this folder, with its own settings. Pass data, method and
            network again if they were objects, and a method if it was ``module:Class``.
        callbacks: Called with progress.
        config: Settings to start from.
        settings: Any setting of :class:`~cosen.training.config.TrainConfig`, such as ``epochs=20``,
            ``imbalance="odd:0.1"`` or ``devices=2``.

    Example::

        run = cosen.train("photos/", method="cosen", epochs=20)
        run.metrics.mean_recall
    """
    if out is not None and not str(out):
        raise InputError("out is empty: give the name of a folder")
    if resume is not None and (settings or out is not None or config is not None):
        given = [*settings, *(["out"] if out is not None else []), *(["config"] if config else [])]
        raise InputError(f"a resumed run keeps its settings: remove {', '.join(given)}")
    config, inputs = _settings(data, method, network, config, settings)
    if isinstance(method, str):
        inputs = replace(inputs, named=config.method)
    if resume is not None and inputs.network is not None and isinstance(network, str):
        inputs = replace(inputs, named_network=network)
    if baseline is not None:
        path = baseline.path if isinstance(baseline, Run) else Path(baseline)
        inputs = replace(inputs, baseline=path)
    folder = Path(resume or out or new_run_folder(config))
    if resume is not None:
        config = RunFolder.existing(resume).record().config
    is_resumed = resume is not None
    if config.devices > 1 and "TORCHELASTIC_RUN_ID" not in os.environ:  # torchrun sets it
        train_on_devices(config, folder, resume=is_resumed, inputs=inputs, callbacks=callbacks)
    else:
        train_run(config, folder, resume=is_resumed, inputs=inputs, callbacks=callbacks)
    return Run(folder, network=inputs.network)


def compare(
    data: Data | None = None,
    *,
    methods: Sequence[str | Method] = DEFAULT_METHODS,
    seeds: int = 3,
    out: Path | str | None = None,
    network: NetworkLike | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    workers: int | None = None,
    cluster: str | None = None,
    callbacks: CompareCallbacks | None = None,
    config: TrainConfig | None = None,
    **settings: Any,
) -> Study:
    """Compare methods with the same splits, network, seeds and settings.

    The method is chosen on validation images. The leaderboard shows test images, which do not
    influence the choice. Call it again with the same folder to continue an interrupted comparison.

    Args:
        data: As for :func:`train`.
        methods: Names such as ``cosen`` or ``cosen(margin=4)``, or method objects.
        seeds: Number of seeds, each with its own split.
        out: The study folder; by default one below ``studies``, named after the data.
        network: As for :func:`train`.
        options: Options of methods by name: ``{"smote": {"neighbours": 3}}``.
        workers: Processes at a time; by default one per core, or one with a GPU.
        cluster: Run on Ray: ``local``, ``auto`` or the address of a cluster.
        callbacks: Called with progress.
        config: Settings to start from.
        settings: As for :func:`train`. ``validation`` is 0.2 by default.
    """
    if "method" in settings:
        raise InputError("compare has no setting 'method': use methods, a list of methods")
    if config is None:
        settings = {"validation": STUDY_VALIDATION} | settings
    config, inputs = _settings(data, None, network, config, settings)
    folder = Path(out or Path("studies") / folder_name(config.data))
    compare_methods(
        config,
        folder,
        methods=[methods] if isinstance(methods, str) else methods,
        options=options,
        seeds=seeds,
        workers=workers,
        cluster=cluster,
        inputs=inputs,
        callbacks=callbacks,
    )
    return Study(folder, network=network)


def inspect(
    data: Data = "digits",
    *,
    data_root: Path | str | None = None,
    exclude: Sequence[str] = (),
    run: Run | Study | Path | str | None = None,
    out: Path | str | None = None,
    groups: Path | str | None = None,
    progress: Callable[[int, int], None] | None = None,
    quiet: bool = False,
) -> Inspection:
    """Summarise a dataset and list problems to fix.

    Args:
        data: As for :func:`train`.
        data_root: The folder of named datasets.
        exclude: Classes to exclude.
        run: A finished run or study on this data. Its predictions for images that it did not train
            on find wrong labels, and duplicates are reported across its splits. Of a study, all
            seeds of the chosen method are used, and the splits of the first.
        out: Write wrong labels to this folder, as a CSV and a page of pictures.
        groups: Write all images to this CSV, in which near-duplicates share a group, so that
            training on it keeps them in one split.
        progress: Callback for progress.
        quiet: Do not print the summary.
    """
    root = None if data_root is None else Path(data_root)
    opened = open_data(data, root=root, exclude=tuple(exclude))
    if run is None:
        if out is not None:
            raise InputError("out is for label problems, which need a run: give run, or remove out")
        inspection = inspect_data(opened, progress=progress)
    else:
        loaded = load(run) if isinstance(run, str | Path) else run
        inspection = _inspect_labels(opened, loaded, out, progress)
    if groups is not None:
        write_text(Path(groups), grouped_csv(opened, inspection))
    if not quiet:
        print(inspection)
    return inspection


def _inspect_labels(
    data: LabelledImages,
    run: Run | Study,
    out: Path | str | None,
    progress: Callable[[int, int], None] | None,
) -> Inspection:
    from cosen.inference.label_problems import (
        coverage_hint,
        find_label_problems,
        held_out_predictions,
        with_splits_of,
    )
    from cosen.report.label_page import write_label_problems

    models = run._models(ensemble=True) if isinstance(run, Study) else [run]
    held_out = held_out_predictions([one.folder for one in models]).relabelled(data)
    problems = find_label_problems(held_out)
    inspection = inspect_data(with_splits_of(models[0].folder, data), progress=progress)
    if out is not None:
        write_label_problems(out, problems, data)
    hints = coverage_hint(models[0].record, covered=len(held_out.names), total=len(data))
    return replace(
        inspection,
        label_problems=problems,
        held_out=len(held_out.names),
        suggestions=(*inspection.suggestions, *hints),
    )


def _settings(
    data: Data | None,
    method: str | Method | None,
    network: NetworkLike | None,
    config: TrainConfig | None,
    settings: Mapping[str, Any],
) -> tuple[TrainConfig, Inputs]:
    """Separate settings, which can be written to a file, from objects."""
    values = {
        name: str(value) if isinstance(value, Path) else value for name, value in settings.items()
    }
    if isinstance(data, str | Path):
        folder = str(data).rstrip("/")  # photos/ and photos are the same data, but not digits/
        values["data"] = str(data) if folder in ("", *NAMED) else folder
    if isinstance(method, str):
        values["method"] = method
    own_method = None
    if isinstance(method, Method):
        if values.get("options"):
            raise InputError("options are for a method given by name: remove options")
        named = named_method(method)
        own_method = method if named is None else None
        values["method"], values["options"] = (method.name, {}) if named is None else named
    elif method is not None and not isinstance(method, str):
        raise InputError(
            f"method must be a name or a method object such as Smote(), but is {method!r}"
        )
    if isinstance(network, str):
        values["network"] = network
    name = str(values.get("network") or (config.network if config else ""))
    own_network = named_factory(name) if ":" in name else None
    if not isinstance(network, str | None):
        own_network = factory(network)
    goal: Objective | None = None
    if not isinstance(values.get("objective", ""), str | Path):
        goal = Objective.of(values.pop("objective"))
        if goal.misclassification_costs is None:
            values["objective"] = goal.name
    config = make_config(values, base=config)
    images: LabelledImages | None = None
    if data is not None and not isinstance(data, str | Path):
        images = open_data(data, exclude=config.exclude)
        config = replace(config, data=images.source)
    return config, Inputs(images, own_method, own_network, objective=goal)


def folder_name(data: str) -> str:
    """Return a name for the folder of a run or a study on this data."""
    return Path(os.path.abspath(data.replace(":", "-"))).stem[:100]  # noqa: PTH100, no links


def new_run_folder(config: TrainConfig) -> Path:
    """Return a folder below ``runs`` that does not exist."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        raise InputError("set --out: all processes must use the same run folder")
    method = config.method.replace(":", "-")
    base = f"{folder_name(config.data)}-{method}-{config.seed}"
    folder, number = Path("runs") / base, 2
    while folder.exists():
        folder, number = Path("runs") / f"{base}-{number}", number + 1
    return folder
