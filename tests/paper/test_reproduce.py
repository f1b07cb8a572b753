"""Rows of the paper's tables: their list, their names, and running them."""

import json
from dataclasses import replace

import pytest
from pydantic import ValidationError

from cosen.comparing.study_folder import StudyFolder
from cosen.errors import InputError, RunError
from cosen.methods import METHODS
from cosen.paper.ablation import LINEAR_OUTPUT, WITH_ERRORS, variants_for
from cosen.paper.presets import PRESETS
from cosen.paper.protocols import PROTOCOLS, TABLES, protocol
from cosen.paper.reproduce import (
    ReproduceOptions,
    command_for,
    entries_of,
    find_entries,
    first_table,
    reproduce,
)
from cosen.paper.summary import Summary, read_summaries
from data.named_layouts import cifar100
from small_mnist import make_mnist
from small_study import run_here

pytestmark = pytest.mark.training

ENTRIES = [entry for table in TABLES for entry in entries_of(table)]


@pytest.fixture
def options(tmp_path, monkeypatch):
    """A row on a small MNIST in this process, an epoch each."""
    monkeypatch.setattr("cosen.comparing.grid.run_locally", run_here)
    return ReproduceOptions(
        PRESETS["cpu"],
        out=tmp_path / "out",
        seeds=2,
        data_root=make_mnist(tmp_path / "data"),
        epochs=1,
    )


# Which rows there are


def test_every_row_of_the_paper_is_an_entry_and_stand_ins_are_their_own():
    own = [entry.row for entry in ENTRIES if not entry.is_stand_in]
    assert own == [row for rows in TABLES.values() for row in rows]
    stand_ins = [(entry.row.table, entry.label) for entry in ENTRIES if entry.is_stand_in]
    assert stand_ins == [
        ("DILexp", "HAM10000 in place of Exp. 2 (10-classes)"),
        ("MLCexp", "RSMAS in place of Exp. 2 (2008-2009)"),
        ("gnf", "HAM10000 in place of DIL, F-measure"),
        ("gnf", "RSMAS in place of MLC, F-measure"),
        ("gnf", "HAM10000 in place of DIL, G-mean"),
        ("gnf", "RSMAS in place of MLC, G-mean"),
        ("comp_imbalanced", "HAM10000 in place of DIL"),
        ("comp_imbalanced", "RSMAS in place of MLC"),
        ("comp_fixedcost", "HAM10000 in place of DIL"),
        ("comp_fixedcost", "RSMAS in place of MLC"),
    ]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry.row.table}-{entry.label}")
def test_an_entry_has_a_method_for_each_number(entry):
    if entry.protocol is None:
        assert entry.methods == ()
        return
    assert entry.methods[0] == "baseline"
    assert set(entry.methods) <= set(METHODS)
    assert {"cosen", "cosen-paper"} <= set(entry.methods)
    assert entry.paper("cosen") == entry.paper("cosen-paper") == entry.row.numbers["cosen"]
    shown = {entry.paper(method) for method in entry.methods} - {None}
    assert shown == set(entry.row.numbers.values())


def test_a_row_is_found_by_a_part_of_its_words_or_by_its_protocol():
    def found(table, row):
        return [entry.label for entry in find_entries(table, row)]

    assert found("MNISTexp", "10%) OF ODD") == ["Low rep. (10%) of odd digits"]
    assert found("MNISTexp", "mnist/even-25") == ["Low rep. (25%) of even digits"]
    assert found("gnf", "mnist") == ["MNIST, F-measure", "MNIST, G-mean"], "one protocol"
    assert found("gnf", "dil") == ["DIL, F-measure", "DIL, G-mean"]
    assert found("comp_fixedcost", "dil") == ["DIL"], "the whole wins over a part"
    assert found("comp_fixedcost", "ham") == ["HAM10000 in place of DIL"]
    assert len(find_entries("MNISTexp")) == 5


@pytest.mark.parametrize(
    ("table", "row", "message"),
    [
        (
            "MNISTexp",
            "odd",
            "'odd' matches several rows of MNISTexp: choose one of Low rep. (10%) of odd digits; ",
        ),
        (
            "MNISTexp",
            "third",
            "no row of MNISTexp that can be run has 'third': choose from Stand. split",
        ),
        ("MNISTexp", "Maxout", "no row of MNISTexp that can be run has 'Maxout'"),
        ("MNIST", None, "there is no table 'MNIST': "),
    ],
)
def test_other_rows_are_refused_with_the_choices(table, row, message):
    with pytest.raises(InputError) as caught:
        find_entries(table, row)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_command_of_a_protocol_leads_to_it(name):
    record = protocol(name)
    table = first_table(record)
    assert {entry.protocol for entry in find_entries(table, name)} == {record}
    assert command_for(table, name) == f"cosen reproduce {table} --row {name}"


def test_a_command_has_what_is_unusual():
    command = command_for(
        *("gnf", "MLC, G-mean"),
        preset="paper",
        seeds=5,
        methods=("crt", "focal"),
        epochs=2,
        trials=8,
    )
    assert command == (
        "cosen reproduce gnf --row 'MLC, G-mean' --preset paper --seeds 5 --methods crt,focal "
        "--epochs 2 --trials 8"
    )


# Running them


def test_a_row_leaves_a_study_and_its_summary(options, tmp_path):
    found = reproduce(find_entries("MNISTexp", "mnist/odd-10"), options)
    assert found.reasons == {}
    folder = tmp_path / "out" / "cpu" / "mnist-odd-10"
    study = StudyFolder.existing(folder)
    assert study.record().config.imbalance == "odd:0.1"
    (summary,) = read_summaries(tmp_path / "out")
    assert summary == found.summaries["mnist/odd-10"]
    assert (summary.protocol, summary.preset, summary.seeds) == ("mnist/odd-10", "cpu", (0, 1))
    assert summary.command == ("cosen reproduce MNISTexp --row mnist/odd-10 --seeds 2 --epochs 1")
    assert str(tmp_path) not in (folder / "summary.json").read_text()
    assert list(summary.results) == ["baseline", "cosen-paper", "cosen"]
    for method, by_seed in summary.results.items():
        assert list(by_seed) == [0, 1]
        for seed, result in by_seed.items():
            run = study.run(method, seed)
            test = run.metrics().test
            assert result["accuracy"] == test.accuracy
            assert result["f_measure"] == test.paper_f_measure
            assert result["g_mean"] == test.paper_g_mean
            assert result["seconds"] == run.record().seconds
            plain = 1 - summary.results["baseline"][seed]["accuracy"]
            expected = (plain - (1 - test.accuracy)) / plain if plain else None
            assert result["error_reduction"] == pytest.approx(expected)

    # another table, with one more method, continues the same study
    files = {path: path.stat().st_mtime_ns for path in folder.glob("runs/*/*/metrics.json")}
    more = replace(options, methods=("focal", "cosen"))
    (summary,) = reproduce(find_entries("gnf", "mnist"), more).summaries.values()
    assert set(summary.results) == {"baseline", "cosen-paper", "cosen", "focal"}
    assert summary.command.endswith("--row mnist/odd-10 --seeds 2 --methods focal --epochs 1")
    assert all(path.stat().st_mtime_ns == before for path, before in files.items())


def test_a_part_of_the_methods_is_a_study_that_is_joined_with_the_rest(options, tmp_path):
    entries = find_entries("MNISTexp", "mnist/odd-10")
    whole = replace(options, out=tmp_path / "all" / "first")
    (first,) = reproduce(entries, whole).summaries.values()
    part = replace(options, out=tmp_path / "all" / "second", only=("focal",))
    (second,) = reproduce(entries, part).summaries.values()
    assert list(second.results) == ["baseline", "focal"]
    assert second.command == (
        "cosen reproduce MNISTexp --row mnist/odd-10 --seeds 2 --only focal --epochs 1"
    )
    (both,) = read_summaries(tmp_path / "all")
    assert list(both.results) == ["baseline", "cosen-paper", "cosen", "focal"]
    assert both.results["focal"] == second.results["focal"]
    assert both.results["baseline"] == first.results["baseline"]
    assert both.command == f"{first.command} && {second.command}"

    with pytest.raises(InputError, match="--only replaces the methods of the row"):
        reproduce(entries, replace(part, methods=("crt",)))


def test_missing_data_and_failing_methods_do_not_stop_the_others(options):
    small = replace(options, seeds=1, methods=("small_study:Stumbles",))
    entries = [
        *find_entries("MIT67exp", "mit67/standard"),
        *find_entries("MNISTexp", "mnist/odd-10"),
    ]
    found = reproduce(entries, small)
    assert list(found.summaries) == ["mnist/odd-10"]
    assert "mit67: " in found.reasons["mit67/standard"]
    assert "TrainImages.txt" in found.reasons["mit67/standard"], "what is missing"
    summary = found.summaries["mnist/odd-10"]
    assert summary.failures["stumbles"][0].startswith("ZeroDivisionError")
    assert summary.results["stumbles"] == {}
    assert set(summary.results) > {"baseline", "cosen"}


def test_a_study_with_other_settings_does_not_stop_the_others(options):
    one = replace(options, seeds=1)
    first = find_entries("MNISTexp", "mnist/odd-10")
    reproduce(first, one)
    both = [*first, *find_entries("MNISTexp", "mnist/even-10")]
    for entries in (both, both[::-1]):
        found = reproduce(entries, replace(one, epochs=2))
        assert list(found.summaries) == ["mnist/even-10"]
        (reason,) = found.reasons.values()
        folder = options.folder(protocol("mnist/odd-10"))
        assert reason == f"{folder} holds a study with other settings (epochs): use another --out"


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"methods": ("focal", "cosin")}, "there is no method 'cosin': did you mean 'cosen'?"),
        ({"methods": ("small_study:Missing",)}, "has no 'Missing'"),
        ({"methods": ("fixed-costs",)}, "method fixed-costs"),
        ({"seeds": 0}, "seeds must be at least 1, but is 0"),
        ({"workers": 0}, "workers must be at least 1, but is 0"),
        ({"trials": -1}, "trials must be at least 0, but is -1"),
        ({"epochs": 0}, "epochs must be at least 1"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_no_row_can_be_run_with_is_refused_before_any_is(
    options, monkeypatch, mistake, message
):
    ran = []
    monkeypatch.setattr("cosen.comparing.grid.compare_methods", lambda *_, **__: ran.append(1))
    entries = [
        *find_entries("MIT67exp", "mit67/standard"),  # its data is missing
        *find_entries("MNISTexp", "mnist/odd-10"),
    ]
    with pytest.raises(InputError, match=message):
        reproduce(entries, replace(options, **mistake))
    assert ran == []
    assert not options.out.exists()


def test_the_parts_are_run_and_the_command_asks_for_all_that_is_there(options):
    """Custom methods by module and class, and methods that ``all`` does not include."""
    small = replace(options, seeds=1, methods=("small_study:Smoothed", LINEAR_OUTPUT))
    entries = find_entries("MNISTexp", "mnist/odd-10")
    (summary,) = reproduce(entries, small).summaries.values()
    assert "smoothed" in summary.results
    assert summary.command == (
        "cosen reproduce MNISTexp --row mnist/odd-10 --seeds 1 "
        f"--methods 'small_study:Smoothed,{LINEAR_OUTPUT}' --epochs 1"
    )
    (summary,) = reproduce(entries, replace(small, methods=(), ablation=True)).summaries.values()
    assert set(variants_for("small-cnn")) < set(summary.results)
    assert summary.command == (
        "cosen reproduce MNISTexp --row mnist/odd-10 --seeds 1 --methods small_study:Smoothed "
        "--ablation --epochs 1"
    )


def test_on_a_head_the_linear_output_is_not_run(options, monkeypatch):
    asked = {}

    def compare(config, _, *, methods, **__):
        asked[config.network] = methods
        raise RunError("enough")

    monkeypatch.setattr("cosen.comparing.grid.compare_methods", compare)
    entries = [
        *find_entries("MNISTexp", "mnist/odd-10"),
        *find_entries("Caltechexp", "caltech101/60-odd-10"),
    ]
    options = replace(options, preset=PRESETS["vgg16"])
    reproduce(entries, replace(options, ablation=True))
    assert set(asked["small-cnn"]) - set(asked["head"]) == {LINEAR_OUTPUT}
    assert WITH_ERRORS in asked["head"]
    reproduce(entries, replace(options, ablation=True, methods=(LINEAR_OUTPUT,)))
    assert LINEAR_OUTPUT in asked["head"], "where it is asked for by itself"
    reproduce(entries, options)
    assert asked["small-cnn"] == ("baseline", "cosen-paper", "cosen")


def test_a_reduced_copy_is_refused_where_all_of_it_is_needed(options, tmp_path):
    cifar100(tmp_path / "data")
    (reason,) = reproduce(find_entries("CIFARexp", "cifar100/standard"), options).reasons.values()
    assert reason == (
        "cifar100/standard needs all 500 training images of each class, but 'class 01' has 0: "
        "download the full cifar100 (cosen fetch cifar100)"
    )
    (reason,) = reproduce(find_entries("CIFARexp", "cifar100/odd-10"), options).reasons.values()
    assert "needs all" not in reason


def test_trials_are_those_of_the_papers_method(options, monkeypatch):
    asked = {}

    def compare(config, out, *, options, **_):
        asked.update(options)
        raise RunError("enough")

    monkeypatch.setattr("cosen.comparing.grid.compare_methods", compare)
    entries = find_entries("MNISTexp", "mnist/odd-10")
    assert reproduce(entries, options).reasons == {"mnist/odd-10": "enough"}
    assert asked == {}
    reproduce(entries, replace(options, trials=8))
    assert asked == {"cosen-paper": {"trials": 8}}


# Summaries

COMMON = {
    "protocol": "mnist/odd-10",
    "preset": "cpu",
    "command": "cosen reproduce",
    "epochs": None,
    "settings": {"epochs": 4},
    "version": "1.0",
}


def test_a_summary_survives_its_file(tmp_path):
    summary = Summary(
        **COMMON,
        seeds=(0, 1),
        options={"baseline": {}},
        results={"baseline": {0: {"accuracy": 0.5}, 1: {"accuracy": None}}},
        failures={"smote": {1: "too few"}},
    )
    summary.write(tmp_path / "summary.json")
    assert read_summaries(tmp_path) == [summary]
    assert summary.values("baseline", "accuracy") == {0: 0.5}
    assert summary.spread("smote", "accuracy") is None
    found = json.loads((tmp_path / "summary.json").read_text())
    del found["results"]
    (tmp_path / "summary.json").write_text(json.dumps(found))
    with pytest.raises(RunError, match=r"summary\.json is damaged \(results: Field required\)"):
        read_summaries(tmp_path)
    with pytest.raises(ValidationError, match="frozen"):
        summary.seeds = (0,)


def part(*methods, **changes):
    """A part of a study; the accuracy of a method is its position in the row."""
    found = Summary(
        **COMMON,
        seeds=(0,),
        options={name: {} for name in methods},
        results={name: {0: {"accuracy": place / 10}} for place, name in enumerate(methods)},
        failures={},
    )
    return found.model_copy(update=changes)


def cross_validated(*methods, **changes):
    options = {name: {"trials": 8} if name == "cosen-paper" else {} for name in methods}
    return part(*methods, options=options, **changes)


def test_parts_are_joined_and_what_both_have_is_taken_from_the_first():
    first = part("baseline", "crt", failures={"smote": {0: "too few"}})
    second = cross_validated("focal", "baseline", "smote", "cosen-paper", command="cosen more")
    found = first.joined(second)
    assert {name: runs[0]["accuracy"] for name, runs in found.results.items()} == {
        **{"baseline": 0.0, "crt": 0.1},
        **{"focal": 0.0, "cosen-paper": 0.3},
    }
    assert found.failures == {"smote": {0: "too few"}}
    assert (found.trials, found.command) == (8, "cosen reproduce && cosen more")
    assert second.joined(first).trials == 8
    assert first.joined(first) == first


def test_costs_that_were_cross_validated_go_before_the_defaults():
    plain = part("baseline", "cosen-paper", "cosen")
    tuned = cross_validated("cosen-paper", "baseline")
    for found in (plain.joined(tuned), tuned.joined(plain)):
        assert found.results["cosen-paper"] == tuned.results["cosen-paper"]
        assert found.trials == 8
    assert list(plain.joined(tuned).results) == ["baseline", "cosen-paper", "cosen"]
    assert plain.joined(tuned).results["baseline"] == plain.results["baseline"]


def test_costs_whose_cross_validation_failed_do_not():
    plain = part("baseline", "cosen-paper", "cosen")
    tuned = cross_validated("baseline", "cosen-paper", failures={"cosen-paper": {0: "no memory"}})
    tuned = tuned.model_copy(update={"results": {"baseline": tuned.results["baseline"]}})
    found = plain.joined(tuned)
    assert found.results["cosen-paper"] == plain.results["cosen-paper"]
    assert (found.trials, found.failures) == (0, {})


def test_studies_with_other_settings_are_not_joined():
    other = part("baseline", seeds=(0, 1), settings={"epochs": 5})
    with pytest.raises(RunError, match="differ in seeds, settings and cannot be joined"):
        part("baseline").joined(other)
