"""What is kept of a study of a protocol: a small file, ``summary.json``, beside its runs.

Study folders hold models and predictions and are too large for a repository; a summary has what
tables are made of. It names no folder of the machine that it was made on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cosen
from cosen.comparing.spread import Spread
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
"""What is kept of each run on test, and its name in a run folder. F-measure and G-mean are as the
paper defines them."""

SHARED = ("seeds", "epochs", "settings", "version")
"""What two parts of a study must agree in."""

COSEN_PAPER = "cosen-paper"
"""The paper's algorithm, the one method that can be cross-validated."""

Result = Mapping[str, float | None]
"""What one run gave: each of ``METRICS`` as a share of 1, the ``seconds`` that it took, and the
``error_reduction``, the share of the baseline's test errors that it does not make."""


@dataclass(frozen=True)
class Summary:
    """What the study of a protocol gave.

    Attributes:
        protocol: Its name.
        preset: The name of the preset.
        command: What runs it again.
        seeds: The seeds.
        epochs: Where they are not the preset's, how many.
        settings: Those that all runs share, without folders.
        version: Of cosen.
        options: Of each method.
        results: By method and seed, what a run gave.
        failures: By method and seed, why there is none.
    """

    protocol: str
    preset: str
    command: str
    seeds: tuple[int, ...]
    epochs: int | None
    settings: Mapping[str, Any]
    version: str
    options: Mapping[str, Mapping[str, Any]]
    results: Mapping[str, Mapping[int, Result]]
    failures: Mapping[str, Mapping[int, str]]

    @property
    def trials(self) -> int:
        """With how many trials ``cosen-paper`` was cross-validated; 0 where it was not."""
        return int(self.options.get(COSEN_PAPER, {}).get("trials", 0))

    @property
    def tried(self) -> tuple[str, ...]:
        """The methods that were run, those among them that failed last."""
        return tuple(dict.fromkeys((*self.results, *self.failures)))

    def values(self, method: str, name: str) -> dict[int, float]:
        """What the runs of a method have for a metric, by seed; undefined ones are left out."""
        found = {seed: run.get(name) for seed, run in self.results.get(method, {}).items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def spread(self, method: str, name: str) -> Spread | None:
        """The same over seeds; None where there is nothing."""
        return Spread.of(self.values(method, name).values())

    def joined(self, other: "Summary") -> "Summary":
        """This and another part of the same study, such as other methods on another machine.

        What a method cuts stays relative to the baseline that it was run beside; a method that is
        in both, as the baseline is, is taken from this one, but ``cosen-paper`` from the part with
        more trials, if that has as many of its runs.
        """
        differing = [name for name in SHARED if getattr(self, name) != getattr(other, name)]
        if differing:
            raise RunError(
                f"two studies of {self.protocol} with the preset {self.preset} cannot be joined, "
                f"since they differ in {', '.join(differing)}: keep one of them elsewhere"
            )
        runs, others = (len(part.results.get(COSEN_PAPER, {})) for part in (self, other))
        is_searched = other.trials > self.trials and others >= runs

        def part_with(method: str) -> Summary:
            is_here = method in self.tried and not (method == COSEN_PAPER and is_searched)
            return self if is_here else other

        def joined(field: str) -> dict[str, Any]:
            """What each method has in a field, in the part that the method is taken from."""
            found = {}
            for method in (*self.tried, *other.tried):
                own = getattr(part_with(method), field)
                if method in own:
                    found[method] = own[method]
            return found

        return replace(
            self,
            command=" && ".join(dict.fromkeys((self.command, other.command))),
            options=joined("options"),
            results=joined("results"),
            failures=joined("failures"),
        )

    def write(self, folder: Path) -> None:
        """Keep it in a study folder."""
        from cosen.training.files import write_text

        text = json.dumps(self.as_json(), indent=1, ensure_ascii=False)
        write_text(folder / FILE, text + "\n")

    def as_json(self) -> dict[str, Any]:
        """Plain numbers, to be read back by :meth:`from_json`."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Summary":
        """What :meth:`as_json` gave, after a round through a JSON file or not."""
        by_seed = {
            name: {
                method: {int(seed): value for seed, value in runs.items()}
                for method, runs in found[name].items()
            }
            for name in ("results", "failures")
        }
        return cls(**{**found, **by_seed, "seeds": tuple(found["seeds"])})

    @classmethod
    def read(cls, path: Path) -> "Summary":
        """A summary that was kept."""
        try:
            return cls.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (json.JSONDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise RunError(
                f"{path} is not a summary of a study ({error}): run its command again"
            ) from error


def read_summaries(folder: Path) -> list[Summary]:
    """All summaries in a folder and below it, in the order of their paths.

    Those of one protocol and preset are joined, the first of them first.
    """
    found: dict[tuple[str, str], Summary] = {}
    for path in sorted(folder.rglob(FILE)):
        own = Summary.read(path)
        key = (own.preset, own.protocol)
        found[key] = found[key].joined(own) if key in found else own
    return list(found.values())


def summarise(
    study: "StudyFolder",
    *,
    protocol: str,
    preset: str,
    command: str,
    epochs: int | None = None,
) -> Summary:
    """Read the finished runs of a study.

    Args:
        study: The study folder.
        protocol: The name of its protocol.
        preset: The name of its preset.
        command: What runs it again.
        epochs: Where they are not the preset's, how many.
    """
    about, runs = study.about(), study.finished_runs()
    results = {
        method: {seed: _result(run.metrics()["test"], run.seconds) for seed, run in found.items()}
        for method, found in runs.items()
    }
    plain = results.get("baseline", {})
    return Summary(
        protocol=protocol,
        preset=preset,
        command=command,
        seeds=tuple(about["seeds"]),
        epochs=epochs,
        settings=_without_folders(about["config"]),
        version=cosen.__version__,
        options={method: entry["options"] for method, entry in about["methods"].items()},
        results={
            method: {
                seed: {**run, "error_reduction": _reduction(run, plain.get(seed))}
                for seed, run in found.items()
            }
            for method, found in results.items()
        },
        failures=study.failures(),
    )


def _result(metrics: Mapping[str, Any], seconds: float | None) -> dict[str, float | None]:
    return {**{name: metrics[stored] for name, stored in METRICS.items()}, "seconds": seconds}


def _reduction(run: Result, plain: Result | None) -> float | None:
    """The share of the baseline's errors that a run does not make."""
    if plain is None or run["accuracy"] is None or plain["accuracy"] is None:
        return None
    return error_reduction(run["accuracy"], plain["accuracy"])


def error_reduction(accuracy: float, plain: float) -> float | None:
    """The share of the errors at accuracy ``plain`` that are not made at ``accuracy``.

    Example:
        >>> round(error_reduction(0.986, 0.976), 2)  # the paper's, MNIST with 10 % of odd digits
        0.42
    """
    return None if plain >= 1 else (accuracy - plain) / (1 - plain)


def _without_folders(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without what is of one machine alone."""
    found = {name: value for name, value in settings.items() if name != "data_root"}
    if found.get("weights"):
        found["weights"] = Path(found["weights"]).name
    return found
