"""Running the rows of the paper's tables, each on its protocol, and keeping what came out.

Rows of several tables are measured on the same protocol: they share one study folder, and what is
in it is not trained again.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cosen.data.open import open_data
from cosen.errors import DataError, InputError, RunError
from cosen.paper.presets import Preset
from cosen.paper.protocols import PROTOCOLS, TABLES, Protocol, Row
from cosen.paper.summary import COSEN_PAPER, Summary, summarise

if TYPE_CHECKING:
    from cosen.comparing.compare import GridWatcher
    from cosen.comparing.study_folder import StudyFolder
    from cosen.training.config import TrainConfig

FOLDER = Path("studies/reproduce")
"""Where studies go unless told otherwise."""

SEEDS = 3

PRESET = "cpu"
"""The preset unless told otherwise."""

OURS = {"cosen": (COSEN_PAPER, "cosen")}
"""Methods that stand for one of the paper's: its algorithm to the letter, and our default."""

WHOLE = {"cifar100": 500}
"""Training images of each class, for datasets that are also found with fewer. Protocols that take
images from the odd classes alone do with fewer of those."""

METRIC_WORDS = {"accuracy": "accuracy", "f_measure": "F-measure", "g_mean": "G-mean"}


@dataclass(frozen=True)
class Entry:
    """A row to reproduce.

    Attributes:
        row: The paper's.
        protocol: What it is run on; None where the paper cites the number from another.
        words: The paper's words, or which data stands in for which.
    """

    row: Row
    protocol: Protocol | None
    words: str

    @property
    def is_stand_in(self) -> bool:
        """Whether it runs on other data than the paper's, whose numbers are then no measure."""
        return self.protocol is not None and self.protocol.name != self.row.protocol

    @property
    def methods(self) -> tuple[str, ...]:
        """Our methods for those of the row, the baseline first; none where it is cited."""
        if self.protocol is None:
            return ()
        ours = (name for method in self.row.numbers for name in OURS.get(method, (method,)))
        return tuple(dict.fromkeys(("baseline", *ours)))

    def paper(self, method: str) -> float | None:
        """The paper's number beside one of our methods; None where it has none."""
        return self.row.numbers.get(paper_method(method))


def paper_method(method: str) -> str:
    """The paper's method that one of ours stands for."""
    return next((theirs for theirs, ours in OURS.items() if method in ours), method)


def entries_of(table: str) -> list[Entry]:
    """The rows of a table, each followed by the one that stands in for it, if any.

    Example:
        >>> [entry.words for entry in entries_of("DILexp")[-2:]]
        ['Exp. 2 (10-classes)', 'HAM10000 in place of Exp. 2 (10-classes)']
    """
    if table not in TABLES:
        raise InputError(f"the paper has no table {table!r}: choose of {', '.join(TABLES)}, timing")
    return [entry for row in TABLES[table] for entry in _entries(row)]


def _entries(row: Row) -> Iterator[Entry]:
    words = row.row if row.metric == "accuracy" else f"{row.row}, {METRIC_WORDS[row.metric]}"
    if row.protocol is None:
        yield Entry(row, None, words)
        return
    yield Entry(row, PROTOCOLS[row.protocol], words)
    for record in PROTOCOLS.values():
        if record.stands_for == row.protocol:
            yield Entry(row, record, f"{record.dataset.upper()} in place of {words}")


def find_entries(table: str, row: str | None = None) -> list[Entry]:
    """The rows of a table that can be run, or those that a text names.

    Args:
        table: The table's label.
        row: A part of the row's words, or of its protocol's name, large or small letters; the
            whole of either wins over a part. It must lead to one protocol.
    """
    entries = entries_of(table)
    runnable = [entry for entry in entries if entry.protocol is not None]
    if row is None:
        return runnable
    wanted = row.strip().lower()
    named = [(entry, {text.lower() for text in _names(entry)}) for entry in entries]
    found = [entry for entry, names in named if wanted in names] or [
        entry for entry, names in named if any(wanted in name for name in names)
    ]
    choices = "; ".join(entry.words for entry in runnable)
    if not found:
        raise InputError(f"no row of {table} has {row!r} in it: there are {choices}")
    if all(entry.protocol is None for entry in found):
        raise InputError(
            f"{found[0].words} is cited from another paper, there is nothing to run: choose of "
            f"{choices}"
        )
    found = [entry for entry in found if entry.protocol is not None]
    if len({entry.protocol.name for entry in found if entry.protocol}) > 1:
        several = "; ".join(entry.words for entry in found)
        raise InputError(f"{row!r} is in several rows of {table}, choose one: {several}")
    return found


def _names(entry: Entry) -> tuple[str, ...]:
    """What a row can be asked for by."""
    return (
        (entry.words, entry.row.row)
        if entry.protocol is None
        else (
            *((entry.words,) if entry.is_stand_in else (entry.words, entry.row.row)),
            entry.protocol.name,
        )
    )


@dataclass(frozen=True)
class Wish:
    """What a user asks for, beside the rows.

    Attributes:
        preset: How to train.
        out: Where studies go, one folder for each preset and protocol.
        seeds: How many.
        methods: More methods than the rows have.
        only: These beside the baseline, in place of those that the rows have.
        ablation: Whether to run the parts of ``cosen`` too, one by one.
        data_root: Where datasets are.
        weights: A file of VGG-16's weights; downloaded if not given.
        epochs: In place of the preset's.
        trials: With how many trials ``cosen-paper`` cross-validates μ and σ; 0 keeps its defaults.
        workers: Processes at once.
    """

    preset: Preset
    out: Path = FOLDER
    seeds: int = SEEDS
    methods: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    ablation: bool = False
    data_root: Path | None = None
    weights: str | None = None
    epochs: int | None = None
    trials: int = 0
    workers: int | None = None

    @property
    def asks_for_more(self) -> bool:
        """Whether methods are asked for that the rows do not have."""
        return bool(self.methods or self.only or self.ablation)

    def folder(self, record: Protocol) -> Path:
        """The study folder of a protocol."""
        return self.out / self.preset.name / record.name.replace("/", "-")

    def config(self, record: Protocol) -> "TrainConfig":
        """The settings of a protocol."""
        return self.preset.config(
            record,
            weights=self.weights,
            data_root=str(self.data_root) if self.data_root else None,
            epochs=self.epochs,
        )


@dataclass(frozen=True)
class Reproduced:
    """What became of the rows of a table.

    Attributes:
        entries: The rows.
        summaries: By protocol, what its study gave.
        reasons: By protocol, why there is none, and what to do.
    """

    entries: tuple[Entry, ...]
    summaries: Mapping[str, Summary]
    reasons: Mapping[str, str]


Watched = Callable[[Protocol], "AbstractContextManager[GridWatcher | None]"]
"""Gives who is told how the study of a protocol goes."""


def reproduce(
    entries: Sequence[Entry], wish: Wish, *, watched: Watched = lambda _: nullcontext()
) -> Reproduced:
    """Run rows, protocol by protocol; where one cannot be run, the others go on.

    What no row could be run with, such as an unknown method, is refused before any is.

    Args:
        entries: The rows.
        wish: How.
        watched: Gives who is told how the study of a protocol goes.
    """
    summaries: dict[str, Summary] = {}
    reasons: dict[str, str] = {}
    needed = _needed(entries)
    _check(wish, needed)
    if wish.only:
        needed = dict.fromkeys(needed, ("baseline", *wish.only))
    for record, methods in needed.items():
        try:
            summaries[record.name] = _run(record, methods, wish, watched)
        except (InputError, DataError, RunError) as error:
            reasons[record.name] = " ".join(str(error).split())
    return Reproduced(tuple(entries), summaries, reasons)


def _needed(entries: Sequence[Entry]) -> dict[Protocol, tuple[str, ...]]:
    """The protocols of some rows, and the methods that each needs."""
    found: dict[Protocol, tuple[str, ...]] = {}
    for entry in entries:
        if entry.protocol is not None:
            before = found.get(entry.protocol, ())
            found[entry.protocol] = tuple(dict.fromkeys((*before, *entry.methods)))
    return found


def _check(wish: Wish, records: Iterable[Protocol]) -> None:
    """Refuse what is wrong whatever the row."""
    from cosen.methods import make_method

    for name, number, least in (
        ("seeds", wish.seeds, 1),
        ("workers", wish.workers, 1),
        ("trials", wish.trials, 0),
    ):
        if number is not None and number < least:
            raise InputError(f"{name} must be at least {least}, but is {number}")
    if wish.only and wish.methods:
        raise InputError("--only names all methods beside the baseline: leave --methods out")
    for method in (*wish.methods, *wish.only):
        make_method(method)
    for record in records:
        wish.config(record)


def _run(record: Protocol, methods: tuple[str, ...], wish: Wish, watched: Watched) -> Summary:
    from cosen.comparing.compare import compare
    from cosen.paper.ablation import asked_by, parts_for

    _check_whole(record, wish.data_root)
    config = wish.config(record)
    parts = map(asked_by, parts_for(config.network)) if wish.ablation else ()
    names = tuple(dict.fromkeys((*methods, *wish.methods, *parts)))
    options: dict[str, Mapping[str, object]] = {
        name: own for name, own in wish.preset.method_options(record).items() if name in names
    }
    if wish.trials > 0 and COSEN_PAPER in names:
        options[COSEN_PAPER] = {"trials": wish.trials}
    with watched(record) as watcher:
        comparison = compare(
            config,
            wish.folder(record),
            methods=names,
            options=options,
            seeds=wish.seeds,
            workers=wish.workers,
            watcher=watcher,
        )
    study = comparison.folder
    found = summarise(
        study,
        protocol=record.name,
        preset=wish.preset.name,
        command=_command(record, study, wish),
        epochs=wish.epochs,
    )
    found.write(study.path)
    return found


def _command(record: Protocol, study: "StudyFolder", wish: Wish) -> str:
    """What to type to run a study again, with all methods that are in it."""
    from cosen.paper.ablation import parts_for

    about, table = study.about(), first_table(record)
    parts = {part.name for part in parts_for(about["config"]["network"])}
    is_taken_apart = parts <= about["methods"].keys()
    usual = {name for entry in find_entries(table, record.name) for name in entry.methods}
    is_whole = usual <= about["methods"].keys()
    implied = (usual if is_whole else {"baseline"}) | (parts if is_taken_apart else set())
    named = tuple(
        entry["asked"]
        for name, entry in about["methods"].items()
        if name not in implied and entry["asked"] is not None  # an object has no name to type
    )
    return command_for(
        table,
        record.name,
        preset=wish.preset.name,
        seeds=len(about["seeds"]),
        methods=named if is_whole else (),
        only=() if is_whole else named,
        ablation=is_taken_apart,
        epochs=wish.epochs,
        trials=about["methods"].get(COSEN_PAPER, {}).get("options", {}).get("trials", 0),
    )


def _check_whole(record: Protocol, data_root: Path | None) -> None:
    """Refuse a reduced copy of a dataset where the protocol needs all of it."""
    least = WHOLE.get(record.dataset)
    if least is None or (record.imbalance or "").startswith("odd:"):
        return
    data = open_data(record.dataset, root=data_root)
    counts = data.part("train").class_counts
    if counts.min() < least:
        name = data.class_names[int(counts.argmin())]
        raise DataError(
            f"{record.name} needs all {least} training images of each class, but {name!r} has "
            f"{counts.min()} here: get the whole of {record.dataset} (cosen fetch {record.dataset})"
        )


def first_table(record: Protocol) -> str:
    """The first table that has a row on a protocol, or on the one that it stands for."""
    return next(
        table
        for table, rows in TABLES.items()
        if any(row.protocol in (record.name, record.stands_for) for row in rows if row.protocol)
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
    """What to type to run a row; what is usual is left out.

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
