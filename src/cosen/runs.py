"""Runs and studies, read from their folders: results, predictions, exports and reports."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from cosen.comparing.choice import Choice
from cosen.comparing.leaderboard import Leaderboard
from cosen.comparing.study_folder import StudyFolder
from cosen.costs import Objective
from cosen.costs.cost_table import read_misclassification_costs
from cosen.errors import InputError, RunError, choices_hint
from cosen.files import expand_user, is_file, is_folder
from cosen.losses import Numbers, as_numbers
from cosen.methods import import_name
from cosen.training.records import EpochRecord, Metrics, ModelInfo, RunRecord
from cosen.training.run_folder import RunFolder

if TYPE_CHECKING:
    from fastapi import FastAPI

    from cosen.inference.export import ExportCheck, Format
    from cosen.inference.predict import Prediction, Prior

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
        self._network = None if isinstance(network, str) else factory(network)
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
            options: Options of :func:`cosen.inference.predict.predict_images`: ``top``, ``prior``,
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
            options: Options of :func:`cosen.inference.evaluate_run.evaluate_run`.
        """
        from cosen.inference.evaluate_run import evaluate_run, stored_metrics

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

    def app(
        self, *, misclassification_costs: Numbers | Path | str | None = None, **options: Any
    ) -> "FastAPI":
        """Create the web application of ``cosen serve``.

        Args:
            misclassification_costs: As for :meth:`predict`.
            options: Options of :func:`cosen.serving.app.make_app`: ``prior``, ``decide``, ``flip``,
                ``limits``, ``device``, ``hosts``.
        """
        return _app([self], misclassification_costs, options)

    def export(
        self,
        out: Path | str | None = None,
        *,
        format: "Format | None" = None,
        card: bool = False,
    ) -> "ExportCheck":
        """Export the model, and check it against PyTorch.

        Args:
            out: A file that ends in ``.onnx``, ``.pt`` or ``.torchscript``, or a folder for the
                Hugging Face hub; by default ``model.onnx``.
            format: ``"onnx"``, ``"torchscript"`` or ``"hub"``, if the name does not say it.
            card: Also write a model card next to a file. A folder always has one.
        """
        from cosen.inference.export import export_model

        return export_model(self.path, out, format=format, card=card, network=self._network)

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
        options |= {"validation_runs": self.validation_runs}
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
        from cosen.inference.evaluate_run import evaluate_run

        runs = self._models(ensemble)
        goal = None if objective is None else runs[0].objective(objective)
        paths = [run.path for run in runs]
        options |= {"validation_runs": self.validation_runs}
        return evaluate_run(paths, data, objective=goal, network=runs[0]._network, **options)

    def app(
        self,
        *,
        ensemble: bool = False,
        misclassification_costs: Numbers | Path | str | None = None,
        **options: Any,
    ) -> "FastAPI":
        """Create the web application of ``cosen serve`` for the chosen method; see :class:`Run`."""
        options |= {"validation_runs": self.validation_runs}
        return _app(self._models(ensemble), misclassification_costs, options)

    @property
    def validation_runs(self) -> tuple[Path, ...]:
        """The runs of the chosen method with all seeds. Decisions use their validation images."""
        return tuple(run.path for run in self._models(ensemble=True))

    def export(self, out: Path | str | None = None, **options: Any) -> "ExportCheck":
        """Export the model of :attr:`best`, as :meth:`Run.export`."""
        from cosen.inference.export import export_model
        from cosen.inference.model_card import Origin

        record, best = self.folder.record(), self.best
        study = Origin(record, tuple(record.methods), len(record.seeds))
        return export_model(best.path, out, study=study, network=best._network, **options)

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
    from cosen.inference.predict import predict_images

    table = _cost_table(runs[0], costs)
    paths, network = [run.path for run in runs], runs[0]._network
    return predict_images(paths, images, misclassification_costs=table, network=network, **options)


def _app(
    runs: Sequence[Run], costs: Numbers | Path | str | None, options: dict[str, Any]
) -> "FastAPI":
    """Create the web application of one or several runs; costs may be the path of a CSV."""
    from cosen.serving.app import make_app

    table = _cost_table(runs[0], costs)
    paths, network = [run.path for run in runs], runs[0]._network
    return make_app(paths, misclassification_costs=table, network=network, **options)


def _cost_table(run: Run, costs: Numbers | Path | str | None) -> Tensor | None:
    from cosen.training.model_file import load_info

    if isinstance(costs, str | Path):
        names = load_info(run.path).class_names
        return read_misclassification_costs(expand_user(costs), names)
    return None if costs is None else as_numbers(costs, name="misclassification_costs").float()


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
    reason = "it has no run.json and no study.json" if is_folder(Path(path)) else "no such folder"
    raise RunError(f"{path} is neither a run nor a study: {reason}")


def _has_model(path: Path | str) -> bool:
    return is_file(Path(path, ModelInfo.FILE))


def named_factory(name: str) -> Callable[..., nn.Module]:
    """Import the user's function ``my_module:make``, which returns a module.

    It is called with ``num_classes`` if it has such a parameter.
    """
    make = import_name(name, kind="network")
    if isinstance(make, nn.Module):
        return factory(make)  # type: ignore[return-value]
    if not callable(make):
        raise InputError(f"{name} is neither a module nor a function that returns one")
    return make  # type: ignore[no-any-return]


def factory(network: nn.Module | Callable[[], nn.Module] | None) -> Callable[[], nn.Module] | None:
    if isinstance(network, nn.Module):
        module = copy.deepcopy(network)
        return lambda: copy.deepcopy(module)
    if network is not None and not callable(network):
        raise InputError(
            "network must be a name, a module, or a function that returns a module, but is "
            f"{network!r}"
        )
    return network
