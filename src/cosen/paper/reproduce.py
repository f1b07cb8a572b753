"""Run rows of the paper's tables, each on its protocol, and summarise the results.

Rows of several tables use the same protocol. They share one study folder, and finished runs in it
are not repeated.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cosen.data.sources import open_data
from cosen.errors import DataError, InputError, RunError, choices_hint
from cosen.paper.presets import Preset
from cosen.paper.protocols import PROTOCOLS, TABLES, Protocol, Row
from cosen.paper.summary import COSEN_PAPER, FILE, Summary, summarise

if TYPE_CHECKING:
    from cosen.comparing.grid import CompareCallbacks
    from cosen.comparing.study_folder import StudyFolder
    from cosen.training.config import TrainConfig

FOLDER = Path("studies/reproduce")
SEEDS = 3
PRESET = "cpu"

OURS = {"cosen": (COSEN_PAPER, "cosen")}
"""Our methods for one of the paper's: its algorithm, and our default."""

FULL_COUNTS = {"cifar100": 500}
"""Training images per class of datasets that also exist as reduced copies."""

METRIC_NAMES = {"accuracy": "accuracy", "f_measure": "F-measure", "g_mean": "G-mean"}


@dataclass(frozen=True)
class Entry:
    """A row to reproduce."""

    row: Row
    protocol: Protocol | None  # None if the number is cited from another paper
    label: str  # the paper's text; for other data, which dataset replaces which

    @property
    def is_stand_in(self) -> bool:
        """Whether it runs on other data than the paper's: its numbers cannot be compared."""
        return self.protocol is not None and self.protocol.name != self.row.protocol

    @property
    def methods(self) -> tuple[str, ...]:
        """Our methods for those of the row, the baseline first; empty if it is cited."""
        if self.protocol is None:
            return ()
        ours = (name for method in self.row.numbers for name in OURS.get(method, (method,)))
        return tuple(dict.fromkeys(("baseline", *ours)))

    def paper(self, method: str) -> float | None:
        """The paper's number for one of our methods; None if it has none."""
        theirs = next((theirs for theirs, ours in OURS.items() if method in ours), method)
        return self.row.numbers.get(theirs)


def entries_of(table: str) -> list[Entry]:
    """Rows of a table, each followed by its stand-in on other data, if any.

    Example:
        >>> [entry.label for entry in entries_of("DILexp")[-2:]]
        ['Exp. 2 (10-classes)', 'HAM10000 in place of Exp. 2 (10-classes)']
    """
    if table not in TABLES:
        raise InputError(f"there is no table {table!r}{choices_hint(table, [*TABLES, 'timing'])}")
    return [entry for row in TABLES[table] for entry in _entries(row)]


def _entries(row: Row) -> Iterator[Entry]:
    label = row.row if row.metric == "accuracy" else f"{row.row}, {METRIC_NAMES[row.metric]}"
    if row.protocol is None:
        yield Entry(row, None, label)
        return
    yield Entry(row, PROTOCOLS[row.protocol], label)
    for record in PROTOCOLS.values():
        if record.stand_in_for == row.protocol:
            yield Entry(row, record, f"{record.dataset.upper()} in place of {label}")


def find_entries(table: str, row: str | None = None) -> list[Entry]:
    """Rows of a table that can be run.

    Args:
        table: Label of the table.
        row: Only rows with this text in their label or protocol name, ignoring case. A full match
            is preferred to a partial one. All matching rows must have the same protocol.
    """
    runnable = [entry for entry in entries_of(table) if entry.protocol is not None]
    if row is None:
        return runnable
    wanted, named = row.strip().lower(), []
    for entry in runnable:
        names = [entry.label, entry.protocol.name if entry.protocol else ""]
        names += [] if entry.is_stand_in else [entry.row.row]
        named.append((entry, [name.lower() for name in names]))
    found = [entry for entry, names in named if wanted in names] or [
        entry for entry, names in named if any(wanted in name for name in names)
    ]
    if not found:
        choices = "; ".join(entry.label for entry in runnable)
        raise InputError(f"no row of {table} that can be run has {row!r}: choose from {choices}")
    if len({entry.protocol for entry in found}) > 1:
        several = "; ".join(entry.label for entry in found)
        raise InputError(f"{row!r} matches several rows of {table}: choose one of {several}")
    return found


@dataclass(frozen=True)
class ReproduceOptions:
    """How to run rows."""

    preset: Preset
    out: Path = FOLDER  # with a study folder for each preset and protocol
    seeds: int = SEEDS  # number of seeds
    methods: tuple[str, ...] = ()  # in addition to those of the rows
    only: tuple[str, ...] = ()  # instead of those of the rows, with the baseline
    ablation: bool = False  # also run variants of cosen
    data_root: Path | None = None
    weights: str | None = None  # file of VGG-16 weights; None downloads them
    epochs: int | None = None  # None uses the preset's
    trials: int = 0  # of cosen-paper's cross-validation of μ and σ; 0 uses its defaults
    workers: int | None = None  # parallel processes

    def folder(self, record: Protocol) -> Path:
        """Study folder of a protocol."""
        return self.out / self.preset.name / record.name.replace("/", "-")

    def config(self, record: Protocol) -> "TrainConfig":
        """Training settings of a protocol."""
        return self.preset.config(
            record,
            weights=self.weights,
            data_root=str(self.data_root) if self.data_root else None,
            epochs=self.epochs,
        )


@dataclass(frozen=True)
class Reproduced:
    """Results of rows."""

    entries: tuple[Entry, ...]
    summaries: Mapping[str, Summary]  # by protocol
    reasons: Mapping[str, str]  # why a protocol could not be run


Watched = Callable[[Protocol], "AbstractContextManager[CompareCallbacks | None]"]
"""Returns the callbacks for the study of a protocol."""


def reproduce(
    entries: Sequence[Entry],
    options: ReproduceOptions,
    *,
    watched: Watched = lambda _: nullcontext(),
) -> Reproduced:
    """Run rows, protocol by protocol; if one cannot be run, continue with the others.

    Options that are wrong for all rows, such as an unknown method, raise an error before any run.
    """
    needed: dict[Protocol, tuple[str, ...]] = {}
    for entry in entries:
        if entry.protocol is not None:
            methods = (*needed.get(entry.protocol, ()), *entry.methods)
            needed[entry.protocol] = tuple(dict.fromkeys(methods))
    _check(options, needed)
    summaries: dict[str, Summary] = {}
    reasons: dict[str, str] = {}
    for record, methods in needed.items():
        chosen = ("baseline", *options.only) if options.only else methods
        try:
            summaries[record.name] = _run(record, chosen, options, watched)
        except (InputError, DataError, RunError) as error:
            reasons[record.name] = " ".join(str(error).split())
    return Reproduced(tuple(entries), summaries, reasons)


def _check(options: ReproduceOptions, records: Iterable[Protocol]) -> None:
    from cosen.methods import make_method, parse_method

    for name, least in (("seeds", 1), ("workers", 1), ("trials", 0)):
        number = getattr(options, name)
        if number is not None and number < least:
            raise InputError(f"{name} must be at least {least}, but is {number}")
    if options.only and options.methods:
        raise InputError("--only replaces the methods of the row: remove --methods")
    for method in (*options.methods, *options.only):
        make_method(*parse_method(method))
    for record in records:
        options.config(record)


def _run(
    record: Protocol, methods: tuple[str, ...], options: ReproduceOptions, watched: Watched
) -> Summary:
    from cosen.comparing.grid import compare_methods
    from cosen.paper.ablation import variants_for

    _check_full(record, options.data_root)
    config = options.config(record)
    parts = variants_for(config.network) if options.ablation else ()
    names = tuple(dict.fromkeys((*methods, *options.methods, *parts)))
    method_options: dict[str, Mapping[str, object]] = {
        name: own for name, own in options.preset.method_options(record).items() if name in names
    }
    if options.trials > 0 and COSEN_PAPER in names:
        method_options[COSEN_PAPER] = {"trials": options.trials}
    with watched(record) as callbacks:
        study = compare_methods(
            config,
            options.folder(record),
            methods=names,
            options=method_options,
            seeds=options.seeds,
            workers=options.workers,
            callbacks=callbacks,
        )
    found = summarise(
        study,
        protocol=record.name,
        preset=options.preset.name,
        command=_study_command(record, study, options),
        epochs=options.epochs,
    )
    found.write(study.path / FILE)
    return found


def _check_full(record: Protocol, data_root: Path | None) -> None:
    """Raise DataError for a reduced copy of a dataset if the protocol needs all images."""
    full = FULL_COUNTS.get(record.dataset)
    if full is None or (record.imbalance or "").startswith("odd:"):
        return
    data = open_data(record.dataset, root=data_root)
    counts = data.part("train").class_counts
    if counts.min() < full:
        name = data.class_names[int(counts.argmin())]
        raise DataError(
            f"{record.name} needs all {full} training images of each class, but {name!r} has "
            f"{counts.min()}: download the full {record.dataset} (cosen fetch {record.dataset})"
        )


def _study_command(record: Protocol, study: "StudyFolder", options: ReproduceOptions) -> str:
    """The command that runs a study again, with all methods in it."""
    from cosen.paper.ablation import variants_for

    about, table = study.record(), first_table(record)
    parts = set(variants_for(about.config.network))
    usual = {name for entry in find_entries(table, record.name) for name in entry.methods}
    has_parts, has_usual = (names <= about.methods.keys() for names in (parts, usual))
    implied = (usual if has_usual else {"baseline"}) | (parts if has_parts else set())
    named = tuple(
        entry.method if ":" in entry.method else label
        for label, entry in about.methods.items()
        if label not in implied and entry.method is not None  # method objects have no name
    )
    paper = about.methods.get(COSEN_PAPER)
    trials = 0 if paper is None else paper.options.get("trials", 0)
    return command_for(
        table,
        record.name,
        preset=options.preset.name,
        seeds=len(about.seeds),
        methods=named if has_usual else (),
        only=() if has_usual else named,
        ablation=has_parts,
        epochs=options.epochs,
        trials=trials,
    )


def first_table(record: Protocol) -> str:
    """The first table with a row on a protocol, or on the one it is a stand-in for."""
    names = {record.name, record.stand_in_for} - {None}
    return next(
        table for table, rows in TABLES.items() if any(row.protocol in names for row in rows)
    )


def command_for(
    table: str,
    row: str,
    *,
    preset: str = PRESET,
    seeds: int = SEEDS,
    methods: Sequence[str] = (),
    only: Sequence[str] = (),
    ablation: bool = False,
    epochs: int | None = None,
    trials: int = 0,
) -> str:
    """The command that runs a row, without options that have their default.

    Example:
        >>> command_for("MNISTexp", "mnist/odd-10", seeds=5)
        'cosen reproduce MNISTexp --row mnist/odd-10 --seeds 5'
    """
    words = ["cosen", "reproduce", table, "--row", row]
    words += ["--preset", preset] if preset != PRESET else []
    words += ["--seeds", str(seeds)] if seeds != SEEDS else []
    words += ["--methods", ",".join(methods)] if methods else []
    words += ["--only", ",".join(only)] if only else []
    words += ["--ablation"] if ablation else []
    words += ["--epochs", str(epochs)] if epochs is not None else []
    words += ["--trials", str(trials)] if trials else []
    return shlex.join(words)
