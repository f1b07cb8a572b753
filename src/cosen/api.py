"""The public functions: train, compare, inspect and load, and what they return."""

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from cosen.comparing.choice import Choice
from cosen.comparing.grid import DEFAULT_METHODS, CompareCallbacks, compare_methods
from cosen.comparing.leaderboard import Leaderboard
from cosen.comparing.study_folder import StudyFolder
from cosen.costs import Objective
from cosen.costs.cost_table import read_misclassification_costs
from cosen.data.inspection import Inspection, inspect_data
from cosen.data.labelled import LabelledImages
from cosen.data.sources import open_data
from cosen.devices import train_on_devices
from cosen.errors import InputError, RunError, choices_hint
from cosen.files import expand_user, is_file
from cosen.losses import Numbers, as_numbers
from cosen.methods import Method, import_name, named_method
from cosen.training.config import TrainConfig, make_config
from cosen.training.loop import Callbacks
from cosen.training.records import EpochRecord, Metrics, ModelInfo, RunRecord
from cosen.training.run import Inputs, train_run
from cosen.training.run_folder import RunFolder

if TYPE_CHECKING:
    from cosen.training.export import ExportCheck
    from cosen.training.predict import Prediction, Prior

STUDY_VALIDATION = 0.2
"""Validation share of a comparison. A single run needs fewer images: it chooses no method."""

Data = str | Path | Any
"""A path, the name of a dataset, a ``torch.utils.data.Dataset``, or ``(images, labels)`` arrays."""

NetworkLike = str | nn.Module | Callable[[], nn.Module]
"""The name of a network, a module, or a function that makes one."""


class Run:
    """A training run, read from its folder.

    Args:
        path: The run folder. ``model.json`` and ``model.safetensors`` are enough to predict and
            to export.
        network: The network, if the run trained a custom one.
    """

    def __init__(self, path: Path | str, *, network: NetworkLike | None = None) -> None:
        self.folder = RunFolder(path) if _has_model(path) else RunFolder.existing(path)
        self._network = None if isinstance(network, str) else _factory(network)
        if isinstance(network, str) and ":" in network:  # other names are in model.json
            self._network = named_factory(network)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.path

    @property
    def record(self) -> RunRecord:
        """Settings, versions and facts about the data."""
        return self.folder.record()

    @property
    def metrics(self) -> Metrics:
        """Metrics on the test images."""
        return self.folder.metrics().test

    @property
    def val_metrics(self) -> Metrics:
        """Metrics on the validation images."""
        return self.folder.metrics().val

    @property
    def history(self) -> list[EpochRecord]:
        """One record per epoch."""
        return self.folder.history()

    def predict(
        self,
        images: Sequence[Path | str] | Path | str,
        *,
        misclassification_costs: Numbers | Path | str | None = None,
        **options: Any,
    ) -> "list[Prediction]":
        """Predict the classes of image files, and of all images in folders.

        Args:
            images: Files and folders.
            misclassification_costs: ξ′, row = true class, or the path of a CSV; predict the class
                with the lowest expected cost.
            options: Options of :func:`cosen.training.predict.predict_images`: ``top``, ``prior``,
                ``decide``, ``flip``, ``calibrated``, ``skip_broken``, ``batch_size``, ``device``,
                ``progress``.
        """
        return _predict([self], images, misclassification_costs, options)

    def evaluate(
        self,
        data: Data | None = None,
        *,
        objective: Objective | str | Numbers | None = None,
        prior: "Prior | None" = None,
        decide: str | None = None,
        **options: Any,
    ) -> Metrics:
        """Return the metrics on the run's test images, or on all images of other data.

        Args:
            data: Other data with the same classes; None for the run's test images.
            objective: What ``error`` measures: ``balanced``, ``overall``, a CSV or a matrix of
                misclassification costs; by default what the run measured.
            prior: The class shares that decisions are made for: ``"train"``, ``"balanced"``,
                ``"estimate"`` or a share of each class by name; None uses the outputs as they are.
            decide: A rule, such as ``"review:0.1"``; what it gives is logged.
            options: Options of :func:`cosen.training.evaluate_run.evaluate_run`.
        """
        from cosen.training.evaluate_run import evaluate_run, stored_metrics

        goal = None if objective is None else self.objective(objective)
        if data is None:
            return stored_metrics(self.path, goal, prior, decide).test
        options |= {"objective": goal, "prior": prior, "decide": decide}
        return evaluate_run(self.path, data, network=self._network, **options)

    def objective(self, value: Objective | str | Numbers) -> Objective:
        """Return an objective for the classes of this run; a string may be the path of a CSV."""
        names = self.record.prepared.class_names
        if isinstance(value, str | Path):
            return Objective.read(str(value), names)
        return Objective.of(value, num_classes=len(names))

    def export(self, out: Path | str = "model.onnx") -> "ExportCheck":
        """Write the model as ONNX, and check it against PyTorch."""
        from cosen.training.export import export_onnx

        return export_onnx(self.path, out, network=self._network)

    def report(
        self, out: Path | str | None = None, *, against: "Run | Path | str | None" = None
    ) -> Path:
        """Write an HTML report, and return its path.

        Args:
            out: The file; by default ``report.html`` in the run folder.
            against: Another run on the same split to compare with.
        """
        from cosen.report import write_report

        other = against.path if isinstance(against, Run) else against
        return write_report(self.path, out, against=other)


class Study:
    """A comparison of methods, read from its folder.

    Args:
        path: The study folder.
        network: The network, if the study trained a custom one.
    """

    def __init__(self, path: Path | str, *, network: NetworkLike | None = None) -> None:
        self.folder = StudyFolder.existing(path)
        self._network = network

    def __repr__(self) -> str:
        return f"Study({str(self.path)!r})"

    @property
    def path(self) -> Path:
        """The study folder."""
        return self.folder.path

    @property
    def leaderboard(self) -> Leaderboard:
        """The methods compared on the test images, the best first."""
        return self.folder.leaderboard()

    @property
    def choice(self) -> Choice:
        """The method to use, chosen on the validation images."""
        return self.folder.choice()

    @property
    def best(self) -> Run:
        """The run of the chosen method with its first seed."""
        choice = self.choice
        if choice.method is None:
            raise RunError(f"no run of {self.path} has finished, so there is no best run")
        return self.run(choice.method, choice.seeds[0])

    def run(self, method: str, seed: int = 0) -> Run:
        """Return one run of the study.

        Args:
            method: A method as the leaderboard names it, such as ``cosen(margin=4)``.
            seed: The seed.
        """
        methods = self.folder.record().methods
        if method not in methods:
            raise InputError(f"{self.path} has no method {method!r}{choices_hint(method, methods)}")
        return Run(self.folder.run(method, seed).path, network=self._network)

    def predict(
        self,
        images: Sequence[Path | str] | Path | str,
        *,
        ensemble: bool = False,
        misclassification_costs: Numbers | Path | str | None = None,
        **options: Any,
    ) -> "list[Prediction]":
        """Predict images with the chosen method, as :meth:`Run.predict`.

        Args:
            images: Files and folders.
            ensemble: Average the runs of all seeds, instead of using that of the first.
            misclassification_costs: As for :meth:`Run.predict`.
            options: As for :meth:`Run.predict`.
        """
        return _predict(self._models(ensemble), images, misclassification_costs, options)

    def evaluate(
        self,
        data: Data,
        *,
        ensemble: bool = False,
        objective: Objective | str | Numbers | None = None,
        **options: Any,
    ) -> Metrics:
        """Return the metrics of the chosen method on other data, as :meth:`Run.evaluate`."""
        from cosen.training.evaluate_run import evaluate_run

        runs = self._models(ensemble)
        goal = None if objective is None else runs[0].objective(objective)
        paths = [run.path for run in runs]
        return evaluate_run(paths, data, objective=goal, network=runs[0]._network, **options)

    def _models(self, ensemble: bool) -> list[Run]:
        best, choice = self.best, self.choice
        if not ensemble or choice.method is None:
            return [best]
        return [self.run(choice.method, seed) for seed in choice.seeds]

    def report(self, out: Path | str | None = None) -> Path:
        """Write an HTML report, and return its path."""
        from cosen.report import write_report

        return write_report(self.path, out)


def _predict(
    runs: Sequence[Run],
    images: Sequence[Path | str] | Path | str,
    costs: Numbers | Path | str | None,
    options: dict[str, Any],
) -> "list[Prediction]":
    """Predict images with one or several runs; costs may be the path of a CSV."""
    from cosen.training.model_file import load_info
    from cosen.training.predict import predict_images

    if isinstance(costs, str | Path):
        names = load_info(runs[0].path).class_names
        options["misclassification_costs"] = read_misclassification_costs(expand_user(costs), names)
    elif costs is not None:
        numbers = as_numbers(costs, name="misclassification_costs").float()
        options["misclassification_costs"] = numbers
    return predict_images([run.path for run in runs], images, network=runs[0]._network, **options)


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
    progress: Callable[[int, int], None] | None = None,
    quiet: bool = False,
) -> Inspection:
    """Summarise a dataset and list problems to fix before training.

    Args:
        data: As for :func:`train`.
        data_root: The folder of named datasets.
        exclude: Classes to exclude.
        progress: Callback for progress.
        quiet: Do not print the summary.
    """
    root = None if data_root is None else Path(data_root)
    inspection = inspect_data(open_data(data, root=root, exclude=tuple(exclude)), progress=progress)
    if not quiet:
        print(inspection)
    return inspection


def load(path: Path | str, *, network: NetworkLike | None = None) -> Run | Study:
    """Load a run or a study from its folder.

    Args:
        path: The folder.
        network: The network, if a custom one was trained.
    """
    if StudyFolder(path).has_study:
        return Study(path, network=network)
    if RunFolder(path).has_run or _has_model(path):
        return Run(path, network=network)
    raise RunError(f"{path} is neither a run nor a study: it has no run.json and no study.json")


def _has_model(path: Path | str) -> bool:
    return is_file(Path(path, ModelInfo.FILE))


def _settings(
    data: Data | None,
    method: str | Method | None,
    network: NetworkLike | None,
    config: TrainConfig | None,
    settings: Mapping[str, Any],
) -> tuple[TrainConfig, Inputs]:
    """Separate settings, which can be written to a file, from objects."""
    values = dict(settings)
    if isinstance(data, str | Path):
        values["data"] = str(data)
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
        own_network = _factory(network)
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


def named_factory(name: str) -> Callable[..., nn.Module]:
    """Import the user's function ``my_module:make``, which returns a module.

    It is called with ``num_classes`` if it has such a parameter.
    """
    make = import_name(name, kind="network")
    if isinstance(make, nn.Module):
        return _factory(make)  # type: ignore[return-value]
    if not callable(make):
        raise InputError(f"{name} is neither a module nor a function that returns one")
    return make  # type: ignore[no-any-return]


def _factory(network: nn.Module | Callable[[], nn.Module] | None) -> Callable[[], nn.Module] | None:
    if isinstance(network, nn.Module):
        module = copy.deepcopy(network)
        return lambda: copy.deepcopy(module)
    if network is not None and not callable(network):
        raise InputError(
            "network must be a name, a module, or a function that returns a module, but is "
            f"{network!r}"
        )
    return network


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
