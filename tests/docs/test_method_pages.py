"""Every method has a page with its options, a picture and examples that run."""

import importlib.util
import inspect
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cosen.comparing.grid import DEFAULT_METHODS
from cosen.costs import AdaptiveCosts, CostLearner
from cosen.methods import METHODS
from cosen.methods.learned_costs import TAKEN, CosenPaper

DOCS = Path(__file__).parents[2] / "docs"
ALL = tuple(METHODS)
SECTIONS = ["When it helps", "Cost", "Options", "Paper", "Example"]
EXAMPLE = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)
DRAWN = (
    "fixed-h",
    "smote",
    "rus",
    "sosr",
    "weighted-sampling",
    "focal",
    "class-balanced",
    "ldam-drw",
)
"""Methods whose pictures need no training."""


def page(name):
    return (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")


def option_rows(name):
    """Return the default of each option in the table of a page."""
    section = page(name).split("\n## Options\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \| (.*?) \|", section, re.M)
    return {
        option.strip(" `"): default.strip(" `")
        for options, defaults in rows
        for option, default in zip(
            options.split(","), defaults.split(",") if "," in options else [defaults], strict=True
        )
    }


def options_of(name):
    """Return the options of a method and their defaults."""
    method = METHODS[name]
    found = {}
    for option, parameter in inspect.signature(method).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            found[option] = parameter.default
            continue
        learned = CostLearner if issubclass(method, CosenPaper) else AdaptiveCosts
        for inner, value in inspect.signature(learned).parameters.items():
            if inner not in ("class_counts", *TAKEN):
                found[inner] = value.default
    return found | getattr(method, "defaults", {})


@pytest.mark.parametrize("name", ALL)
def test_page_has_all_sections(name):
    text = page(name)
    assert text.startswith(f"# {name}\n")
    assert re.findall(r"^## (.*)$", text, re.M) == SECTIONS
    assert text.index("\n$$") < text.index("\n![") < text.index("\n## When it helps")
    assert re.search(r"\((19|20)\d\d\): \*[A-Za-z]", text.split("\n## Paper\n")[1])


@pytest.mark.parametrize("name", ALL)
def test_page_names_every_option(name):
    section = page(name).split("\n## Options\n")[1].split("\n## ")[0]
    assert set(options_of(name)) <= set(re.findall(r"`(\w+)`", section))
    assert set(option_rows(name)) <= set(options_of(name))


@pytest.mark.parametrize(
    "name", [name for name in ALL if name != "cosen"]
)  # its defaults depend on the data
def test_page_has_the_defaults(name):
    defaults = options_of(name)
    for option, shown in option_rows(name).items():
        default = defaults[option]
        if default in (None, ""):
            assert shown.startswith("none")
        else:
            assert type(default)(shown) == default, option


@pytest.mark.parametrize("name", ALL)
def test_page_has_a_picture(name):
    found = re.search(rf"^!\[(.*)\]\(\.\./images/methods/{name}\.svg\)$", page(name), re.M)
    assert len(found[1]) > 40  # read aloud to those who cannot see it
    picture = (DOCS / "images" / "methods" / f"{name}.svg").read_bytes()
    assert len(picture) < 40_000
    assert b"<dc:date>" not in picture
    assert ElementTree.fromstring(picture).tag.endswith("svg")


@pytest.fixture(scope="module")
def pictures():
    path = DOCS / "images" / "draw_methods.py"
    spec = importlib.util.spec_from_file_location("draw_methods", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_script_draws_every_picture(pictures):
    assert set(pictures.PICTURES) == set(ALL)
    assert {path.stem for path in pictures.FOLDER.iterdir()} == set(ALL)


@pytest.mark.parametrize("name", DRAWN)
def test_picture_shows_what_the_code_does(pictures, tmp_path, name):
    """The same words and numbers; positions depend on the version of matplotlib."""

    def words(path):
        return [text.text for text in ElementTree.parse(path).iter() if text.tag.endswith("text")]

    drawn = words(pictures.draw(name, tmp_path))
    assert drawn == words(pictures.FOLDER / f"{name}.svg")
    assert len(drawn) > 2


def averages():
    """Return the number of experiments in docs/results.md, and the figures of each method there."""
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    section = text.split("## Today's methods")[1].split("## ")[0]
    rows = re.findall(r"^\| `(.*?)` \| (.*) \|$", section, re.M)
    found = {name: cells.replace("*", "").split(" | ") for name, cells in rows}
    count = re.search(r"averaged over (\d+) rows", section)[1]
    return int(count), {name: [cells[-5], cells[-3]] for name, cells in found.items()}


@pytest.mark.parametrize("name", averages()[1])
def test_page_has_the_averages_of_the_results(name):
    count, found = averages()
    text = page(name)
    for sentence in re.findall(r"over \d+ experiments.*?\.(?=\s|\Z)", text, re.S | re.I):
        assert f"ver {count} experiments" in sentence
        quoted = re.findall(r"(\d+\.\d) %", sentence)
        assert not quoted or {found[name][0], found["baseline"][0]} <= set(quoted)
        assert set(quoted) <= {average for average, _ in found.values()}
        for difference in re.findall(r"\d+\.\d+ ± \d+\.\d+", sentence):
            assert f"+{difference}" in {difference for _, difference in found.values()}


def test_overview_links_every_page():
    text = page("index")
    rows = re.findall(r"^\| \[`([\w-]+)`\]\(([\w-]+)\.md\)( \\\*)? \|", text, re.M)
    assert [link for _, link, _ in rows] == [name for name, _, _ in rows]
    assert sorted(name for name, _, _ in rows) == sorted(ALL)
    assert {name for name, _, star in rows if star} == set(DEFAULT_METHODS)
    in_menu = text.split("```{toctree}\n:hidden:\n\n")[1].split("\n```")[0].split("\n")
    assert sorted(in_menu) == sorted(ALL)
    assert {path.stem for path in (DOCS / "methods").glob("*.md")} == {*ALL, "index"}


def examples():
    """Return the name of a page, the code of an example and its output, if the page shows it."""
    for name in ("index", *ALL):
        found = EXAMPLE.findall(page(name))
        assert found, f"{name} has no example in Python"
        for code, output in found:
            trains = [pytest.mark.training] if "cosen.train(" in code else []
            yield pytest.param(name, code, output, marks=trains, id=name)


@pytest.mark.parametrize(("name", "code", "output"), list(examples()))
def test_example_runs(name, code, output, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, f"{name}.md", "exec"), {"__name__": f"example of {name}"})
    printed = capsys.readouterr().out
    assert printed == output or not output
    assert bool(printed) == ("print(" in code)
