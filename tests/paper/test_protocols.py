from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from cosen.data.sources import from_arrays
from cosen.data.splits import CountSplit, FoldSplit, FractionSplit, OfficialSplit
from cosen.errors import InputError
from cosen.paper.protocols import PROTOCOLS, TABLES, TIMING, Row, protocol
from cosen.training.task import parse_split

FOUR_IMAGES = from_arrays(np.zeros((4, 1, 1), np.uint8), np.array([0, 0, 1, 1]))
ROWS = [row for rows in TABLES.values() for row in rows]
DATASETS = {
    *("mnist", "cifar100", "caltech101", "mit67", "dil:5", "dil:10", "mlc:2008", "mlc:2008-2009"),
    *("ham10000", "rsmas"),
}


def row_of(table: str, protocol_name: str, metric: str = "accuracy") -> Row:
    """The one row of a table on this protocol."""
    (found,) = [
        row for row in TABLES[table] if (row.protocol, row.metric) == (protocol_name, metric)
    ]
    return found


def test_every_row_of_the_paper_is_here():
    counts = {
        table: (sum(row.protocol is None for row in rows), len(rows))
        for table, rows in TABLES.items()
    }
    assert counts == {  # cited rows, all rows; two rows if the paper has two experiments
        "DILexp": (6, 8),
        "MLCexp": (4, 6),
        "MNISTexp": (3, 8),
        "CIFARexp": (6, 11),
        "Caltechexp": (8, 16),
        "MIT67exp": (6, 13),
        "gnf": (0, 12),  # six datasets, two metrics
        "comp_imbalanced": (0, 6),
        "comp_fixedcost": (0, 6),
    }


@pytest.mark.parametrize(
    ("table", "name", "metric", "method", "number"),
    [
        ("DILexp", "dil/5-classes", "accuracy", "cosen", 80.2),
        ("MLCexp", "mlc/2008-2009", "accuracy", "baseline", 66.1),
        ("MNISTexp", "mnist/odd-10", "accuracy", "cosen", 98.6),
        ("CIFARexp", "cifar100/even-25", "accuracy", "cosen", 61.6),
        ("Caltechexp", "caltech101/30-even-10", "accuracy", "baseline", 75.2),
        ("MIT67exp", "mit67/30-original", "accuracy", "cosen", 66.2),
        ("gnf", "mlc/2008-2009", "f_measure", "cosen", 0.338),
        ("gnf", "mlc/2008-2009", "g_mean", "baseline", 0.635),
        ("comp_imbalanced", "cifar100/odd-10", "accuracy", "smote-rsb", 37.5),
        ("comp_imbalanced", "dil/10-classes", "accuracy", "sosr", 68.9),
        ("comp_fixedcost", "mit67/60-odd-10", "accuracy", "fixed-s", 50.9),
    ],
)
def test_numbers_are_the_papers(table, name, metric, method, number):
    assert row_of(table, name, metric).numbers[method] == number


def test_spreads_are_the_papers():
    assert row_of("DILexp", "dil/10-classes").spread == {"baseline": 2.3, "cosen": 1.6}
    cited = {row.row: row for row in TABLES["Caltechexp"] if row.protocol is None}
    assert cited["Zeiler & Fergus"].numbers == {"cited-15": 83.8, "cited-30": 86.5}
    assert cited["Zeiler & Fergus"].spread == {"cited-15": 0.5, "cited-30": 0.5}
    assert cited["SPM-SC"].spread == {}
    assert cited["SPP-net"].numbers == {"cited-30": 91.4}
    assert sum(bool(row.spread) for row in ROWS) == 8 + 7  # DIL, and Caltech except SPM-SC


def test_tables_agree_where_the_paper_does():
    printed: dict[str, set[float]] = {}
    for row in ROWS:
        if row.metric == "accuracy" and "cosen" in row.numbers:
            printed.setdefault(row.protocol, set()).add(row.numbers["cosen"])
    assert {name: numbers for name, numbers in printed.items() if len(numbers) > 1} == {
        "caltech101/60-odd-10": {83.2, 83.0},
        "mit67/60-odd-10": {56.9, 57.0},
    }


def test_timing_is_the_papers():
    assert (TIMING.dataset, TIMING.with_costs, TIMING.without_costs) == ("mit67", 80.19, 71.87)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.table}-{row.row}-{row.metric}")
def test_a_row_is_whole(row):
    assert row in TABLES[row.table]
    assert row.numbers
    assert set(row.spread) <= set(row.numbers)
    if row.protocol is None:
        assert all(method.startswith("cited") for method in row.numbers)
    else:
        assert row.protocol in PROTOCOLS
        assert row.numbers["cosen"] == max(row.numbers.values())
    top = 100 if row.metric == "accuracy" else 1
    assert all(0 < number < top for number in row.numbers.values())


def test_rows_can_be_told_apart():
    assert len({(row.table, row.row, row.metric) for row in ROWS}) == len(ROWS)


def test_every_protocol_is_measured_or_a_stand_in_for_one_that_is():
    measured = {row.protocol for row in ROWS} - {None}
    stand_ins = {
        name: record.stand_in_for for name, record in PROTOCOLS.items() if record.stand_in_for
    }
    assert stand_ins == {"ham10000/3-fold": "dil/10-classes", "rsmas/standard": "mlc/2008-2009"}
    assert set(PROTOCOLS) == measured | set(stand_ins)
    assert measured >= set(stand_ins.values())


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_is_whole(name):
    record = protocol(name)
    assert record.name == name
    assert record.dataset in DATASETS
    assert name.split("/")[0] == record.dataset.split(":")[0]
    assert record.validation == 0.05
    if "odd" in name or "even" in name:
        parity, percent = name.replace("/", "-").split("-")[-2:]
        share = int(percent) / 100
        amount = int(500 * share) if record.dataset == "cifar100" else share
        assert record.imbalance == f"{parity}:{amount}"
    else:
        assert record.imbalance is None


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("dil/5-classes", FoldSplit(3, None)),
        ("mlc/2008", FractionSplit(2 / 3)),
        ("mlc/2008-2009", OfficialSplit()),
        ("mnist/even-25", OfficialSplit()),
        ("cifar100/odd-10", OfficialSplit()),
        ("caltech101/15-per-class", CountSplit(15, test=50)),
        ("caltech101/30-odd-10", FractionSplit(0.3)),
        ("mit67/standard", OfficialSplit()),
        ("mit67/60-original", FractionSplit(0.6)),
        ("ham10000/3-fold", FoldSplit(3, None)),
    ],
)
def test_splits_are_the_papers(name, split):
    assert parse_split(protocol(name).split, FOUR_IMAGES) == split


@pytest.mark.parametrize("name", PROTOCOLS)
def test_training_can_read_every_split(name):
    parse_split(protocol(name).split, FOUR_IMAGES)


def test_records_cannot_be_changed():
    row = row_of("DILexp", "dil/5-classes")
    with pytest.raises(FrozenInstanceError):
        protocol("mnist/odd-10").imbalance = None
    with pytest.raises(FrozenInstanceError):
        row.metric = "g_mean"
    with pytest.raises(FrozenInstanceError):
        TIMING.with_costs = 0.0
    for mapping in (PROTOCOLS, TABLES, row.numbers, row.spread):
        with pytest.raises(TypeError, match="does not support item assignment"):
            mapping["cosen"] = 100.0
    assert len({*ROWS}) == len(ROWS)  # hashable


def test_a_row_keeps_its_numbers_when_their_source_changes():
    numbers = {"cosen": 1.0}
    row = Row("MNISTexp", "a row", None, "accuracy", numbers)
    numbers["cosen"] = 2.0
    assert row.numbers == {"cosen": 1.0}


def test_an_unknown_name_lists_the_nearest():
    with pytest.raises(InputError, match=r"protocol 'mnist/od-10': did you mean 'mnist/odd-10'"):
        protocol("mnist/od-10")
    with pytest.raises(InputError, match="choose from dil/5-classes"):
        protocol("mnist")
    with pytest.raises(InputError, match=r"choose from dil/5-classes, "):
        protocol("zzz")
