"""The results page, from summaries with known numbers; and the timing comparison."""

import json
from functools import partial
from pathlib import Path
from unittest import mock

import pytest

from cosen.errors import InputError, RunError
from cosen.methods import make_method, parse_method
from cosen.methods.learned_costs import Cosen
from cosen.paper import ablation
from cosen.paper.overview import DATASETS, read_others, render_overview
from cosen.paper.protocols import PROTOCOLS
from cosen.paper.reproduce import find_entries
from cosen.paper.results_page import (
    END,
    START,
    best_alternatives_table,
    gains_table,
    methods_table,
    paper_table,
    read_timings,
    render_results,
    write_page,
)
from cosen.paper.side_by_side import lines_of
from cosen.paper.summary import Summary, error_reduction, read_summaries
from cosen.paper.timing import EpochSeconds, Overhead, measure_overhead
from cosen.training.config import TrainConfig

DOCS = Path(__file__).parents[2] / "docs"


LINEAR = ablation.LINEAR_OUTPUT

render = partial(render_results, preset="cpu")


def summary_of(
    protocol="mnist/odd-10", *, preset="cpu", failures=None, network="small-cnn", **accuracies
):
    """A summary from accuracies in per cent by method; mean class recall is the same."""
    named = {
        method if "(" in method else method.replace("_", "-"): values
        for method, values in accuracies.items()
    }
    results = {
        method: {
            seed: {
                "accuracy": value / 100,
                "mean_recall": value / 100,
                "f_measure": value / 200,
                "g_mean": value / 100,
                "seconds": 12.0 + seed,
                "error_reduction": error_reduction(value / 100, named["baseline"][seed] / 100),
            }
            for seed, value in enumerate(values)
        }
        for method, values in named.items()
    }
    return Summary(
        protocol=protocol,
        preset=preset,
        command="cosen reproduce",
        seeds=tuple(range(len(named["baseline"]))),
        epochs=None,
        settings={"network": network},
        version="0.1",
        options={},
        results=results,
        failures=failures or {},
    )


GOOD = summary_of(
    baseline=[97.5, 97.7, 97.6], cosen_paper=[98.0, 98.1, 98.2], cosen=[98.6, 98.7, 98.8]
)


def rows(summary, table="MNISTexp"):
    return [(entry, summary) for entry in find_entries(table, summary.protocol)]


# The paper's tables


def test_a_row_has_ours_beside_the_papers():
    (entry,) = find_entries("MNISTexp", "mnist/odd-10")
    baseline, paper, ours = lines_of(entry, GOOD)
    assert (baseline.method, paper.method, ours.method) == ("baseline", "cosen-paper", "cosen")
    assert (baseline.ours.mean, baseline.paper) == (pytest.approx(97.6), 97.6)
    assert (ours.ours.mean, ours.ours.deviation) == (pytest.approx(98.7), pytest.approx(0.1))
    assert paper.paper == ours.paper == 98.6
    assert paper.paper_cut == ours.paper_cut == pytest.approx(1 / 2.4)
    assert ours.cut.mean == pytest.approx((1.1 / 2.5 + 1 / 2.3 + 1.2 / 2.4) / 3)
    assert (baseline.cut, baseline.paper_cut) == (None, None)
    assert ours.seconds.mean == 13

    lines = paper_table(rows(GOOD)).splitlines()
    assert lines[0].split(" | ")[2:4] == ["ours", "paper"], "in the next column"
    assert lines[2] == (
        "| Low rep. (10%) of odd digits | `baseline` | 97.60 ± 0.10 | 97.6 | - | - | 97.60 ± 0.10 "
        "| 13 | 3 | `cosen reproduce MNISTexp --row mnist/odd-10` |"
    )
    assert lines[4] == (
        "|  | `cosen` | 98.70 ± 0.10 | 98.6 | 45.8 ± 3.6 | 42 | 98.70 ± 0.10 | 13 | 3 |  |"
    )


def paper_cells(summary, table="MNISTexp"):
    """The paper's number and cut by method, as marked in the table."""
    lines = [line.split(" | ") for line in paper_table(rows(summary, table)).splitlines()[2:]]
    return {cells[1].strip("`"): (cells[3], cells[5]) for cells in lines}


def test_numbers_of_the_paper_that_are_clearly_higher_are_bold():
    assert paper_cells(GOOD) == {
        "baseline": ("97.6", "-"),
        "cosen-paper": ("**98.6**", "**42**"),
        "cosen": ("98.6", "42"),
    }


def test_numbers_of_the_paper_that_are_higher_within_the_interval_are_italic():
    """Three standard errors higher; with two seeds the interval has 12.7 on either side."""
    few = summary_of(baseline=[97.6] * 2, cosen_paper=[98.2, 98.4], cosen=[98.7, 98.9])
    found = paper_cells(few)
    assert found["cosen-paper"] == ("_98.6_", "_42_")
    assert found["cosen"] == ("98.6", "42")


def test_with_one_seed_nothing_is_marked():
    single = summary_of(baseline=[97.5], cosen_paper=[90.0], cosen=[99.0])
    assert set(paper_cells(single).values()) == {("97.6", "-"), ("98.6", "42")}
    one_left = summary_of(baseline=[97.6] * 2, cosen_paper=[90.0] * 2, cosen=[90.0])
    assert paper_cells(one_left)["cosen-paper"] == ("**98.6**", "**42**")
    assert paper_cells(one_left)["cosen"] == ("98.6", "42")


def test_other_metrics_are_in_the_papers_unit():
    table = paper_table(rows(GOOD, "gnf"))
    assert "| MNIST, F-measure | `baseline` | 0.488 ± 0.001 | 0.488 | 97.60 ± 0.10 |" in table
    assert "cut" not in table


def test_numbers_of_other_data_are_in_brackets_and_never_marked():
    summary = summary_of("ham10000/3-fold", baseline=[50, 51], cosen_paper=[50, 51], cosen=[50, 51])
    found = paper_cells(summary, "DILexp")
    assert found["baseline"] == ("(69.5)", "-")
    assert found["cosen"] == ("(72.6)", "(10)")


MISSING = "| method | row | finished seeds | reason |"


def test_failed_methods_are_listed_with_their_reason():
    summary = summary_of(
        baseline=[97.6] * 2, cosen=[98.6] * 2, failures={"cosen-paper": {0: "no\nmemory."}}
    )
    assert "|  | `cosen-paper` | - | 98.6 | - | 42 | - | - | 0 |" in paper_table(rows(summary))
    page = render([summary])
    assert MISSING in page
    row = "Low rep. (10%) of odd digits"
    assert f"| `cosen-paper` | {row} | 0 of 2 | no memory. |" in page
    assert MISSING not in render([GOOD])


def test_methods_that_failed_beside_the_alternatives_are_listed():
    summary = summary_of(
        baseline=[97.6] * 2, cosen=[98.6] * 2, crt=[98.0] * 2, failures={"smote": {0: "one image"}}
    )
    page = render([summary])
    assert "| `smote` | mnist/odd-10 | 0 of 2 | one image |" in page


def test_parts_that_failed_are_listed_below_their_own_table():
    summary = summary_of(
        baseline=[97.6] * 2,
        cosen=[98.6] * 2,
        crt=[98.0] * 2,
        **{ablation.LEARNED_TAU: [98.0] * 2},
        failures={ablation.WITH_ERRORS: {0: "no memory"}},
    )
    alternatives, parts = render([summary]).split("## What each part")
    assert f"| `{ablation.WITH_ERRORS}` | mnist/odd-10 | 0 of 2 | no memory |" in parts
    assert ablation.WITH_ERRORS not in alternatives.split("## Against today")[1]


def test_methods_that_were_not_run_are_listed_and_rows_without_their_own_are_left_out():
    assert "comp_fixedcost" not in render([GOOD]), "nothing but what MNISTexp has"
    more = summary_of(
        baseline=[97.6] * 2, cosen_paper=[98.6] * 2, cosen=[98.6] * 2, fixed_h=[97.2] * 2
    )
    page = render([more])
    table, missing = page[page.index("## comp_fixedcost") :].split(MISSING)
    assert "|  | `fixed-h` | 97.20 ± 0.00 | 97.2 |" in table
    assert "| `fixed-s` |" not in table
    for method in ("fixed-s", "fixed-m"):
        assert f"| `{method}` | MNIST | 0 of 2 | not run |" in missing


# Today's alternatives


def test_methods_stand_side_by_side_and_the_best_is_marked():
    first = summary_of(baseline=[50, 60], cosen=[70, 72], crt=[65, 64])
    second = summary_of(baseline=[40, 40], cosen=[50, 50], focal=[60, 60])
    methods = ["baseline", "cosen", "crt", "focal", "nothing"]
    assert methods_table({"a": first, "b": second}, methods).splitlines() == [
        "| method | a | b | average |",
        "| --- | ---: | ---: | ---: |",
        "| `baseline` | 55.00 ± 7.07 | 40.00 ± 0.00 | 47.50 |",
        "| `cosen` | **71.00 ± 1.41** | 50.00 ± 0.00 | **60.50** |",
        "| `crt` | 64.50 ± 0.71 | - | - |",
        "| `focal` | - | **60.00 ± 0.00** | - |",
    ]
    only = methods_table({"a": first}, ["crt", "nothing"])
    assert only.splitlines()[2:] == ["| `crt` | **64.50 ± 0.71** | **64.50** |"]


def test_noise_is_paired_over_seeds():
    """Seeds differ much, but the methods differ equally for each seed: more than noise.

    With three seeds the interval is 4.30 standard errors on either side.
    """
    below = summary_of(baseline=[50, 60, 70], cosen=[60, 70, 80], crt=[61, 71.1, 80.9])
    within = summary_of(baseline=[50, 60, 70], cosen=[60, 70, 80], crt=[61, 69, 80.5])
    above = summary_of(baseline=[50, 60, 70], cosen=[60, 70, 80], crt=[50, 61, 70], focal=[1, 1, 1])
    single = summary_of(baseline=[50], cosen=[60], crt=[50])
    studies = {"a": below, "b": within, "c": above, "d": single}
    assert best_alternatives_table(studies).splitlines()[2:] == [
        "| a | `crt` | **-1.00 ± 0.25** |",
        "| b | `crt` | -0.17 ± 2.59 |",
        "| c | `crt` | **+9.67 ± 1.43** |",
        "| d | `crt` | +10.00 |",
    ]


def test_gains_are_paired_over_seeds_and_bold_beyond_noise():
    above = summary_of(baseline=[50, 60, 70], cosen=[60, 70.3, 80])
    below = summary_of(baseline=[50, 60, 70], cosen=[49, 58.9, 69])
    within = summary_of(baseline=[50, 60, 70], cosen=[49, 61, 70])
    single = summary_of(baseline=[50], cosen=[60], crt=[50])
    studies = {"a": above, "b": below, "c": within, "d": single}
    table = gains_table(studies, [("cosen", "baseline"), ("cosen", "crt"), ("cosen", "focal")])
    assert table.splitlines() == [
        "| method | minus | a | b | c | d |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
        "| `cosen` | `baseline` | **+10.10 ± 0.43** | **-1.03 ± 0.14** | +0.00 ± 2.48 | +10.00 |",
        "| `cosen` | `crt` | - | - | - | +10.00 |",
    ]


def test_the_page_shows_where_costs_were_cross_validated():
    plain = summary_of(baseline=[50] * 2, cosen_paper=[60, 61])
    options = {"cosen-paper": {"trials": 8}}
    tuned = plain.model_copy(update={"protocol": "mnist/odd-25", "options": options})
    page = render([plain, tuned])
    assert "`cosen reproduce MNISTexp --row mnist/odd-10 --seeds 2`" in page
    assert "`cosen reproduce MNISTexp --row mnist/odd-25 --seeds 2 --trials 8`" in page
    assert "| `cosen-paper` | `baseline` | +10.50 ± 6.35 | +10.50 ± 6.35 |" in page.replace(
        "**", ""
    )
    assert PAPERS not in render([summary_of(baseline=[50])])


def test_a_few_standard_errors_are_noise_with_a_few_seeds():
    """Three standard errors with three seeds, five with two."""
    three = summary_of(baseline=[50] * 3, cosen=[60, 70, 80], crt=[61, 71.7, 83])
    two = summary_of(baseline=[50] * 2, cosen=[60, 70], crt=[60.8, 71.2])
    assert best_alternatives_table({"three": three, "two": two}).splitlines()[2:] == [
        "| three | `crt` | -1.90 ± 2.52 |",
        "| two | `crt` | -1.00 ± 2.54 |",
    ]


# The parts of cosen


def test_only_parts_with_results_are_named():
    page = render(
        [
            summary_of(
                baseline=[50] * 2,
                cosen=[60] * 2,
                **{ablation.LEARNED_MARGIN: [55] * 2, ablation.WITH_ERRORS: []},
            )
        ]
    )
    part = page[page.index("## What each part") :]
    described = [line.split(" | ") for line in part.splitlines() if line.startswith("| `")][:2]
    assert described[0] == [
        f"| `{ablation.LEARNED_MARGIN}`",
        "class frequencies and a learned margin |",
    ]
    assert described[1][0] == "| `cosen`"
    for label in ablation.VARIANTS:
        assert (f"| `{label}` |" in part) is (label == ablation.LEARNED_MARGIN)


def test_on_a_head_the_linear_output_is_that_of_cosen_itself():
    whole = summary_of(baseline=[50] * 2, cosen=[60] * 2, **{LINEAR: [58] * 2})
    head = summary_of(
        "rsmas/standard",
        network="head",
        baseline=[40] * 2,
        cosen=[70] * 2,
        **{ablation.LEARNED_MARGIN: [65] * 2},
    )
    page = render([whole, head])
    told = page[page.index("## What each part") :]
    assert f"| `{LINEAR}` | 58.00 ± 0.00 | **70.00 ± 0.00** | 64.00 |" in told
    assert f"| `{LINEAR}` |" not in render([head])
    trained = summary_of(
        "mnist/even-10",
        baseline=[50] * 2,
        cosen=[60] * 2,
        **{ablation.LEARNED_MARGIN: [55] * 2},
    )
    told = render([whole, trained])
    assert f"| `{LINEAR}` | 58.00 ± 0.00 | - | - |" in told, "not the same where it is trained"


def test_the_fixed_margin_differs_from_learned_ones_with_a_linear_output_by_itself_alone():
    plain = {"output": "linear", "separability": 0}
    assert parse_method(ablation.FIXED_MARGIN)[1] == {"margin": 4, **plain}
    assert parse_method(LINEAR)[1] == plain
    assert parse_method(ablation.WITH_ERRORS)[1] == {"errors": 1}, "all of cosen besides"


@pytest.mark.parametrize("learns_features", [False, True])
def test_the_linear_output_is_cosen_itself_on_frozen_features(learns_features):
    setting = mock.Mock(learns_features=learns_features)
    linear = make_method(*parse_method(LINEAR))
    same = linear.cosine_scale(setting) == Cosen().cosine_scale(setting)
    assert same is not learns_features
    network = "small-cnn" if learns_features else "head"
    assert (LINEAR in ablation.variants_for(network)) is learns_features


# The page


PAPERS = "## What the paper's algorithm adds"


def test_the_page_does_not_depend_on_the_order():
    others = summary_of(
        "mnist/even-10", baseline=[97, 98], cosen_paper=[98, 98], cosen=[98, 99], crt=[98, 97]
    )
    tuned = summary_of(preset="paper", baseline=[97], cosen_paper=[98], cosen=[98])
    page = render([GOOD, others, tuned], timing())
    assert page == render([tuned, others, GOOD], timing())
    headings = [line for line in page.splitlines() if line.startswith("#")]
    assert headings == [
        *("## MNISTexp", "## gnf", "## timing"),
        *("## Against today's alternatives", PAPERS),
    ]
    assert "| method | mnist/even-10 | average |" in page, "only where there are alternatives"
    assert "--preset" not in page
    other = render([GOOD, others, tuned], preset="paper")
    assert "--row mnist/odd-10 --preset paper --seeds 1`" in other


def test_the_page_in_the_docs_is_what_the_summaries_give():
    kept = read_summaries(DOCS / "results")
    timings = read_timings(DOCS / "results")
    pages = {"results.md": render_overview(kept, read_others(DOCS / "results"))}
    for preset in ("cpu", "vgg16"):
        pages[f"results-{preset}.md"] = render(kept, timings.get(preset), preset=preset)
    for name, wanted in pages.items():
        page = (DOCS / name).read_text(encoding="utf-8")
        assert page.split(START)[1].split(END)[0].strip() == wanted.strip()


def test_the_generated_part_replaces_what_stood_between_the_markers(tmp_path):
    page = tmp_path / "docs" / "results.md"
    write_page(page, "first\n")
    assert page.read_text() == f"# Results\n\n{START}\n\nfirst\n\n{END}\n"
    page.write_text(f"By hand.\n\n{page.read_text()}\nMore by hand.\n")
    write_page(page, "second\n")
    assert page.read_text() == (
        f"By hand.\n\n# Results\n\n{START}\n\nsecond\n\n{END}\n\nMore by hand.\n"
    )
    page.write_text("nothing generated")
    with pytest.raises(InputError, match=r"results\.md has no place for the results"):
        write_page(page, "third")
    assert page.read_text() == "nothing generated"


# The first page


def test_the_first_page_has_the_papers_numbers_the_methods_and_the_parts():
    odd = summary_of(
        baseline=[97.0, 97.1, 97.2],
        cosen=[98.6, 98.7, 98.8],
        balanced_softmax=[98.0, 98.1, 98.2],
        **{LINEAR: [98.1, 98.2, 98.3]},
    )
    even = summary_of(
        "mnist/even-10",
        baseline=[97.0, 97.1, 97.2],
        cosen=[98.0, 98.1, 98.2],
        balanced_softmax=[98.0, 98.1, 98.2],
    )
    corals = summary_of("rsmas/standard", baseline=[90.0, 91], cosen=[95.0, 96], crt=[93.0, 93])
    page = render_overview([corals, odd, even])
    lines = page.splitlines()
    assert "| MNIST, odd-10 | 97.6 | 98.6 | 42 | 97.10 ± 0.10 | 98.70 ± 0.10 | 55.2 ± 1.9 |" in page
    assert "| MNIST, even-10 | 97.1 | **98.4** |" in page
    assert "| RSMAS, standard | - | - | - | 90.50 ± 0.71 |" in page
    assert "averaged over 2 rows" in page, "only those with balanced softmax"
    methods = [line for line in lines if line.startswith("| `")]
    assert methods[0] == "| `cosen` | 98.4 | 98.4 | 2 | - | - | - |"
    assert methods[1].startswith("| `balanced-softmax` | 98.1 | 98.1 | 2 | +0.30 ± 3.81 | 1 | 0 |")
    assert methods[2].startswith("| `baseline` | 97.1 | 97.1 | 2 | +1.30 ± 3.81 | 2 | 0 |")
    assert methods[3].startswith(f"| `cosen` | `{LINEAR}` | 1 | +0.50 | 1 | 0 |")
    assert render_overview([]) == "\n"


def test_a_method_that_was_run_in_most_rows_has_a_line_without_an_average():
    rows = [
        summary_of(name, baseline=[0.0], cosen=[90.0], balanced_softmax=[80.0], **more)
        for name, more in {
            "mnist/odd-10": {"crt": [85.0], "ldam_drw": [95.0]},
            "mnist/even-10": {"crt": [85.0]},
            "rsmas/standard": {},
        }.items()
    ]
    methods = [line for line in render_overview(rows).splitlines() if line.startswith("| `")]
    assert methods[0].startswith("| `cosen` | 90.0 | 90.0 | 90.0 | 3 | - |")
    assert methods[1].startswith("| `crt` | 85.0 | - | - | 2 | ")
    assert methods[2].startswith("| `balanced-softmax` | 80.0 | 80.0 | 80.0 | 3 | ")
    assert not any("ldam-drw" in line for line in methods)


def test_other_data_stands_below(tmp_path):
    assert read_others(tmp_path) == {}
    accuracies = {"crt": 0.9, "cosen": 0.8}
    for name, recalls in {"a": {"crt": 0.5, "cosen": 0.7}, "b": {"cosen": 0.8, "crt": 0.9}}.items():
        folder = tmp_path / "unseen" / name
        folder.mkdir(parents=True)
        rows = [
            {
                "method": method,
                "test": {
                    "mean_recall": {"mean": recall, "deviation": 0.01, "count": 3},
                    "accuracy": {"mean": accuracies[method], "deviation": 0.01, "count": 3},
                },
            }
            for method, recall in recalls.items()
        ]
        (folder / "leaderboard.json").write_text(json.dumps({"rows": rows}))
    lines = render_overview([], read_others(tmp_path)).splitlines()
    assert lines[-3:] == [
        "| --- | ---: | ---: | ---: |",
        "| `cosen` | 70.0 ± 1.0 / 80.0 | 80.0 ± 1.0 / 80.0 | 75.0 / 80.0 |",
        "| `crt` | 50.0 ± 1.0 / 90.0 | 90.0 ± 1.0 / 90.0 | 70.0 / 90.0 |",
    ]


def test_every_dataset_has_a_name_on_the_first_page():
    assert {name.partition("/")[0] for name in PROTOCOLS} == set(DATASETS)


# Timing


def timing(ratio=1.05):
    def seconds(method, epoch):
        return EpochSeconds(
            method=method,
            batch=0.1,
            quartiles=(0.09, 0.11),
            step=0.01,
            file=0.01,
            separability=0.1,
            separability_every=10,
            epoch=epoch,
        )

    settings = {"network": "resnet32", "data": "cifar100", "batch_size": 64}
    learned = (seconds("cosen-paper", 20 * ratio), seconds("cosen", 20.2))
    return Overhead(
        settings=settings,
        batches=200,
        validation=2.0,
        plain=seconds("baseline", 20.0),
        learned=learned,
    )


def test_timing_is_shown_beside_the_papers():
    page = render([], timing())
    assert "| without costs | 20.00 | 1 | 71.87 | 1 |" in page
    assert "| cosen-paper | 21.00 | 1.050 | 80.19 | 1.116 |" in page


def test_timings_are_read_by_preset(tmp_path):
    assert read_timings(tmp_path) == {}
    for preset, found in (("cpu", timing()), ("paper", timing(1.2))):
        found.write(tmp_path / preset / "timing" / "timing.json")
    assert read_timings(tmp_path) == {"cpu": timing(), "paper": timing(1.2)}
    (tmp_path / "cpu" / "timing" / "timing.json").write_text('{"settings": {}}')
    with pytest.raises(RunError, match=r"timing\.json is damaged \(batches: Field required\)"):
        read_timings(tmp_path)


def test_an_epoch_is_timed_with_costs_and_without(tmp_path, make_folder):
    config = TrainConfig(
        data=str(make_folder(cat=24, dog=24, owl=24)),
        network="small-cnn",
        split="fraction:0.8",
        validation=0.3,
        batch_size=8,
        device="cpu",
        weights=None,
        data_root=str(tmp_path),
    )
    told = []
    found = measure_overhead(config, turns=4, progress=lambda *counts: told.append(counts))
    assert told[-4:] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found.batches == 5  # 57 images less 3 x 6 for validation, by 8
    assert [method.method for method in found.learned] == ["cosen-paper", "cosen"]
    assert found.plain.step == found.plain.separability == 0
    paper = found.learned[0]
    assert min(paper.batch, paper.step, paper.file, paper.separability, found.validation) > 0
    extra = paper.step + paper.file + paper.separability / paper.separability_every
    assert paper.epoch == pytest.approx(5 * paper.batch + found.validation + extra)
    assert [found.ratio(method) for method in found.learned] == [
        method.epoch / found.plain.epoch for method in found.learned
    ]
    assert "data_root" not in found.settings
    text = found.model_dump_json()
    assert Overhead.model_validate_json(text).model_dump_json() == text
    with pytest.raises(InputError, match="smote does not train the network"):
        measure_overhead(config, methods={"smote": {}})
