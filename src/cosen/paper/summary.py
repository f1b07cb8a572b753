"""``summary.json``: the results of a study of one protocol, a few kilobytes.

Study folders hold models and predictions and are too large for a repository. A summary has the
numbers for the tables, and no paths of the machine.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

import cosen
from cosen.comparing.bootstrap import Spread
from cosen.errors import RunError

if TYPE_CHECKING:
    from cosen.comparing.study_folder import StudyFolder

FILE = "summary.json"

METRICS = {
    "accuracy": "accuracy",
    "mean_recall": "mean_recall",
    "f_measure": "paper_f_measure",
    "g_mean": "paper_g_mean",
    "macro_f1": "macro_f1",
    "rare_recall": "rare_recall",
}
"""Test metrics and their names in a run folder. F-measure and G-mean are the paper's."""

SHARED = ("seeds", "epochs", "settings", "version")
"""Fields that must be equal to join two summaries."""

COSEN_PAPER = "cosen-paper"
"""The paper's algorithm, the only method that can be cross-validated."""

Result = dict[str, float | None]
"""Results of one run: ``METRICS`` in [0, 1], ``seconds``, and ``error_reduction``: the share of the
baseline's test errors that the run avoids."""


class Record(BaseModel):
    """Frozen record with one JSON file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def write(self, path: Path) -> None:
        """Write the file, with its folder."""
        from cosen.files import make_folder, write_text

        make_folder(path.parent)
        write_text(path, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the file; raise RunError if it is not such a record."""
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise RunError(
                f"{path} is damaged ({place}: {first['msg']}): run its command again"
            ) from error


class Summary(Record):
    """Results of the study of a protocol."""

    protocol: str
    preset: str
    command: str  # repeats the study
    seeds: tuple[int, ...]
    epochs: int | None  # None if they are the preset's
    settings: dict[str, Any]  # of all runs, without folders
    version: str  # of cosen
    options: dict[str, dict[str, Any]]  # of each method
    results: dict[str, dict[int, Result]]  # by method and seed
    failures: dict[str, dict[int, str]]  # error message by method and seed

    @property
    def trials(self) -> int:
        """Number of cross-validation trials of ``cosen-paper``."""
        return int(self.options.get(COSEN_PAPER, {}).get("trials", 0))

    @property
    def tried(self) -> tuple[str, ...]:
        """Methods that were run, including failed ones."""
        return tuple(dict.fromkeys((*self.results, *self.failures)))

    def values(self, method: str, name: str) -> dict[int, float]:
        """Values of a metric by seed, without undefined ones."""
        found = {seed: run.get(name) for seed, run in self.results.get(method, {}).items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def spread(self, method: str, name: str) -> Spread | None:
        """Mean and deviation of a metric over seeds; None if there are no values."""
        return Spread.of(self.values(method, name).values())

    def joined(self, other: "Summary") -> "Summary":
        """Join two parts of the same study, for example methods that ran on two machines.

        A method in both parts is taken from this one, except that ``cosen-paper`` is taken from the
        part with more trials if that part has as many runs of it. Error reductions stay relative to
        the baseline of their own part.
        """
        differing = [name for name in SHARED if getattr(self, name) != getattr(other, name)]
        if differing:
            raise RunError(
                f"two studies of {self.protocol} with the preset {self.preset} differ in "
                f"{', '.join(differing)} and cannot be joined: move one of them to another folder"
            )
        runs, other_runs = (len(part.results.get(COSEN_PAPER, {})) for part in (self, other))
        take_other = other.trials > self.trials and other_runs >= runs
        parts = {
            method: other
            if method not in self.tried or (method == COSEN_PAPER and take_other)
            else self
            for method in (*self.tried, *other.tried)
        }
        fields = {
            name: {
                method: getattr(part, name)[method]
                for method, part in parts.items()
                if method in getattr(part, name)
            }
            for name in ("options", "results", "failures")
        }
        command = " && ".join(dict.fromkeys((self.command, other.command)))
        return self.model_copy(update={"command": command, **fields})


def read_summaries(folder: Path) -> list[Summary]:
    """Read all summaries in a folder and below it, in the order of their paths.

    Summaries of the same protocol and preset are joined.
    """
    found: dict[tuple[str, str], Summary] = {}
    for path in sorted(folder.rglob(FILE)):
        own = Summary.read(path)
        key = (own.preset, own.protocol)
        found[key] = found[key].joined(own) if key in found else own
    return list(found.values())


def summarise(
    study: "StudyFolder", *, protocol: str, preset: str, command: str, epochs: int | None = None
) -> Summary:
    """Summarise the finished runs of a study."""
    about = study.record()
    results: dict[str, dict[int, Result]] = {}
    for method, runs in study.finished_runs().items():
        results[method] = {}
        for seed, run in runs.items():
            test = run.metrics().test
            own: Result = {name: getattr(test, stored) for name, stored in METRICS.items()}
            results[method][seed] = {**own, "seconds": run.record().seconds}
    baseline = {seed: run["accuracy"] for seed, run in results.get("baseline", {}).items()}
    for by_seed in results.values():
        for seed, own in by_seed.items():
            own["error_reduction"] = error_reduction(own["accuracy"], baseline.get(seed))
    settings = about.model_dump(mode="json")["config"]
    for name in ("data_root", "method", "options", "seed", "device"):  # they differ between runs
        del settings[name]
    if settings.get("weights"):
        settings["weights"] = Path(settings["weights"]).name
    return Summary(
        protocol=protocol,
        preset=preset,
        command=command,
        seeds=about.seeds,
        epochs=epochs,
        settings=settings,
        version=cosen.__version__,
        options={label: entry.options for label, entry in about.methods.items()},
        results=results,
        failures={method: dict(reasons) for method, reasons in study.failures().items()},
    )


def error_reduction(accuracy: float | None, baseline: float | None) -> float | None:
    """Share of the baseline's errors that are avoided; None if the baseline has no errors.

    Example:
        >>> round(error_reduction(0.986, 0.976), 2)  # the paper's, MNIST with 10 % of odd digits
        0.42
    """
    if accuracy is None or baseline is None or baseline >= 1:
        return None
    return (accuracy - baseline) / (1 - baseline)
