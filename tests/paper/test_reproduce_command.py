"""``cosen reproduce`` and its output."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from commands import Done, run_command, words
from cosen.paper import reproduce as study
from cosen.paper import reproduce_command as cli
from cosen.paper.protocols import TABLES
from cosen.paper.summary import Summary
from cosen.training.config import TrainConfig
from small_mnist import make_mnist
from small_study import run_here

pytestmark = pytest.mark.training


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs a command in this process, in its own folder: ``run("list")``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cosen.comparing.grid.run_locally", run_here)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("COSEN_DATA", str(tmp_path / "data"))

    def call(*arguments: str) -> Done:
        return run_command(capsys, monkeypatch, "reproduce", *arguments)

    return call


def test_the_tables_and_defaults_are_those_of_the_study():
    assert list(cli.TABLE_TITLES) == list(TABLES)
    assert (cli.FOLDER, cli.SEEDS) == (study.FOLDER, study.SEEDS)


def test_every_row_is_listed_at_80_columns(run):
    done = run("list")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "…" not in done.stdout
    tables = done.stdout.split("\n\n")
    for table, entries in zip(TABLES, tables, strict=False):
        assert entries.startswith(f"{table}: ")
        for row in TABLES[table]:
            assert row.row.split()[0] in entries
            for number in row.numbers.values():
                assert f"{number:.1f}" in entries or f"{number:.3f}" in entries
    assert "HAM10000 in place of Exp. 2" in tables[0]
    assert "with costs 80.19 s, without costs 71.87 s" in done.stdout

    rows = json.loads(run("list", "--json").stdout)
    assert len(rows) == sum(map(len, TABLES.values())) + 10 + 1  # stand-ins, timing
    found = next(row for row in rows if row["row"] == "Low rep. (10%) of odd digits")
    assert found["numbers"] == {"baseline": 97.6, "cosen": 98.6}
    assert (found["needs"], found["protocol"]) == ("mnist", "mnist/odd-10")
    assert found["minutes"] > 0
    assert {
        row["minutes"] for row in json.loads(run("list", "--preset=paper", "--json").stdout)
    } == {None}


def test_listing_does_without_torch():
    program = (
        "import sys; from cosen.__main__ import app; "
        "app(['reproduce', 'list'], standalone_mode=False); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


def test_a_row_is_run_and_the_page_is_written(run, tmp_path):
    make_mnist(tmp_path / "data")
    arguments = ("mnistexp", "--row=10%) of odd", "--seeds=1", "--epochs=1")
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[:2] == [
        "mnist/odd-10, in studies/reproduce/cpu/mnist-odd-10",
        "3 runs",
    ]
    lines = done.stdout.splitlines()
    assert lines[0] == "MNISTexp: Low rep. (10%) of odd digits (mnist/odd-10)"
    assert [line.split()[0] for line in lines[2:5]] == ["baseline", "cosen-paper", "cosen"]
    assert [line.split()[2] for line in lines[2:5]] == ["97.6", "98.6", "98.6"]
    assert max(map(len, lines)) <= 80

    found = json.loads(run(*arguments, "--methods=tau-norm", "--json").stdout)["rows"]
    assert [line["method"] for line in found[0]["methods"]] == [
        *("baseline", "cosen-paper", "cosen", "tau-norm"),
    ]
    assert found[0]["methods"][0]["paper"] == 97.6
    assert found[0]["command"] == (
        "cosen reproduce MNISTexp --row mnist/odd-10 --seeds 1 --methods tau-norm --epochs 1"
    )

    part = run(*arguments, "--only=tau-norm", "--out=part").stdout.splitlines()
    assert [line.split()[0] for line in part[2:4]] == ["baseline", "tau-norm"]
    assert part[4] == ""

    page = Path("docs/results.md")
    printed = run("results", "studies/reproduce")
    assert "| MNIST, odd-10 | 97.6 |" in printed.stdout
    told = run("results", "studies/reproduce", f"--out={page}")
    details = page.with_name("results-cpu.md")
    assert told.stdout == f"Results written to {page}\nResults written to {details}\n"
    assert printed.stdout in page.read_text()
    assert "| Low rep. (10%) of odd digits | `baseline` |" in details.read_text()


def test_a_study_with_other_settings_is_told_in_its_row(run, tmp_path):
    make_mnist(tmp_path / "data")
    arguments = ("--row=mnist/odd-10", "--seeds=1")
    assert run("MNISTexp", *arguments, "--epochs=1").returncode == 0
    done = run("gnf", *arguments, "--epochs=2")
    assert done.returncode == 1
    assert words(done.stdout).startswith(
        "gnf: MNIST, F-measure (mnist/odd-10) Not run: studies/reproduce/cpu/mnist-odd-10 holds a "
        "study with other settings (epochs): use another --out"
    )
    assert done.stderr.splitlines() == ["mnist/odd-10, in studies/reproduce/cpu/mnist-odd-10"]


def test_the_parts_of_cosen_are_shown_where_they_are_asked_for(run, monkeypatch):
    asked = []
    summary = Summary(
        protocol="mnist/odd-10",
        preset="cpu",
        command="cosen reproduce",
        seeds=(0,),
        epochs=None,
        settings={},
        version="1.0",
        options={},
        results={name: {0: {"accuracy": 0.5}} for name in ("baseline", "cosen", "cosen-margin")},
        failures={},
    )

    def reproduce(entries, options, **_):
        asked.append(options.ablation)
        return study.Reproduced(tuple(entries), {"mnist/odd-10": summary}, {})

    monkeypatch.setattr("cosen.paper.reproduce.reproduce", reproduce)
    arguments = ("MNISTexp", "--row=mnist/odd-10")
    assert "cosen-margin" in run(*arguments, "--ablation").stdout
    assert "cosen-margin" in run(*arguments, "--ablation", "--json").stdout
    assert "cosen-margin" not in run(*arguments).stdout
    assert asked == [True, True, False]


def test_data_that_is_missing_is_told_in_its_row(run):
    done = run("MIT67exp", "--row=mit67/standard")
    assert done.returncode == 1
    assert "MIT67exp: Stand. split (80 trn, 20 tst) (mit67/standard) Not run: mit67: " in words(
        done.stdout
    )
    found = json.loads(run("MIT67exp", "--row=mit67/standard", "--json").stdout)
    assert "TrainImages.txt" in found["rows"][0]["not_run"]


def test_timing_is_printed_and_kept(run, tmp_path, monkeypatch, make_folder):
    from cosen.paper import timing

    config = TrainConfig(
        *(str(make_folder(cat=24, dog=24)),), network="small-cnn", batch_size=8, device="cpu"
    )
    monkeypatch.setattr("cosen.paper.presets.Preset.timing_config", lambda *_, **__: config)
    monkeypatch.setattr(
        timing.measure_overhead,
        "__kwdefaults__",
        {**timing.measure_overhead.__kwdefaults__, "turns": 2},
    )
    done = run("timing")
    assert done.returncode == 0, done.stderr
    assert "80.19" in done.stdout
    assert Path("studies/reproduce/cpu/timing/timing.json").exists()
    assert run("results", "--out=page.md").returncode == 0
    assert "## timing" in Path("page-cpu.md").read_text()


MISTAKES = {
    "row": (("MNISTexp", "--row=odd"), "'odd' matches several rows of MNISTexp: choose one of "),
    "preset": (("MNISTexp", "--preset=gpu"), "there is no preset 'gpu': did you mean 'cpu'"),
    "cited": (
        ("MNISTexp", "--row=maxout"),
        "no row of MNISTexp that can be run has 'maxout': choose from",
    ),
    "no-folder": (("results", "nowhere"), "there is no folder nowhere: run cosen reproduce TABLE"),
    "empty": (("results", "."), ". has no summary.json: run cosen reproduce TABLE first"),
    "method": (("MNISTexp", "--methods=cosin"), "there is no method 'cosin': did you mean"),
    "no-data": (("CIFARexp", "--methods=crt,cosin"), "there is no method 'cosin': did you mean"),
    "only": (("MNISTexp", "--only=cosin"), "there is no method 'cosin': did you mean"),
    "seeds": (("MNISTexp", "--seeds=0"), "seeds must be at least 1, but is 0"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(run, mistake):
    arguments, message = MISTAKES[mistake]
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
