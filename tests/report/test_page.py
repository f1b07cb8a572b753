"""The page as text: complete without scripts, self-contained, and safe for any text in the data."""

import base64
import hashlib
import json
import re
from collections import Counter
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise

import pytest

from cosen.report.page import LISTED_UP_TO, SCRIPTS, STYLES, amount, percent, points, render
from report.example_contents import EXAMPLES, HOSTILE, contents_of, page_of

MEGABYTE = 1_000_000
VOID = {"meta", "link", "img", "input", "br"}


class Page(HTMLParser):
    """Elements with their attributes, the text of scripts, and the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)
        elif not self.open or self.open[-1] != "style":
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module", params=EXAMPLES)
def example(request):
    text = page_of(request.param)
    return contents_of(request.param), text, Page(text)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def readable(text: str) -> str:
    """A name as the page writes it: characters that are not UTF-8 are replaced."""
    return squeezed(text.replace("\udc80", "\ufffd"))


def test_read_without_scripts(example):
    contents, _, page = example
    text = squeezed(page.text)
    assert readable(contents["verdict"]) in text
    for row in (contents["leaderboard"] or {"rows": []})["rows"]:
        assert readable(row["method"]) in text
        assert readable(row["cells"][1]) in text
    for group in contents["groups"] or ():
        assert f"{group['name']} ({group['limit']})" in text
        assert percent(group["recall"]["chosen"]["mean"]) in text
    for one in contents["classes"] if len(contents["classes"]) <= LISTED_UP_TO else ():
        assert readable(one["name"]) in text
        assert percent(one["recall"]["chosen"]) in text
    assert "need JavaScript" in text


def test_classes_stand_by_rarity(example):
    contents, text, _ = example
    labels = [int(label) for label in re.findall(r'<tr data-label="(\d+)">', text)]
    is_listed = len(contents["classes"]) <= LISTED_UP_TO
    assert labels == (contents["by_rarity"] if is_listed else [])


def test_every_element_is_closed(example):
    assert example[2].open == []


def test_the_only_scripts_are_the_pages_own(example):
    _, text, page = example
    assert len(page.scripts) == text.count("<script") == 3
    assert page.scripts[0][0] == {"type": "application/json", "id": "contents"}
    assert all(attributes == {} for attributes, _ in page.scripts[1:])
    for _, attributes in page.elements:
        assert not any(name.startswith("on") for name in attributes)


def test_policy_allows_these_scripts_and_nothing_else(example):
    _, _, page = example
    policy = next(
        one["content"]
        for one in page.all("meta")
        if one.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    for _, script in page.scripts[1:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "unsafe-eval" not in policy
    assert "http" not in policy


def test_loads_nothing(example):
    for tag, attributes in example[2].elements:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            address = attributes.get(name) or "#"
            assert address.startswith(("#", "data:image/")), (tag, address)
    assert "@import" not in example[1]


def test_carries_its_contents(example):
    contents, _, page = example
    carried = json.loads(page.scripts[0][1])
    wanted = {name: value for name, value in contents.items() if name not in ("gallery", "labels")}
    assert carried == json.loads(json.dumps(wanted).replace(r"\udc80", r"\ufffd"))
    assert not set("<>&\u2028\u2029") & set(page.scripts[0][1])


def test_pictures_are_shown(example):
    contents, _, page = example
    gallery = contents["gallery"]
    shown = [one["src"] for one in page.all("img")]
    wanted = [*gallery["gained"], *gallery["lost"], *gallery["wrong"], *gallery["examples"]]
    expected = [[one["image"]] + [one["image"], one["map"]] * bool(one["map"]) for one in wanted]
    labels = [one["picture"] for one in contents["labels"]["problems"] if one["picture"]]
    expected += [[one["image"]] for one in labels]
    assert shown == [image for images in expected for image in images]
    assert sum(bool(one["alt"]) for one in page.all("img")) == len(wanted) + len(labels)


def test_headings_tables_and_identifiers_are_in_order(example):
    page = example[2]
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))
    assert len(page.all("table")) == len(page.all("caption"))
    assert all(one.get("scope") for one in page.all("th"))
    identifiers = Counter(one["id"] for _, one in page.elements if "id" in one)
    assert set(identifiers.values()) == {1}
    for _, one in page.elements:
        for name in ("for", "aria-labelledby"):
            assert one.get(name) is None or one[name] in identifiers
    assert {tag for tag, _ in page.elements} >= {"header", "nav", "main", "footer"}


def test_has_the_licence_of_plotly(example):
    assert "Plotly Technologies Inc." in example[1]
    assert "Licensed under the MIT license" in example[1]


def test_hostile_names_are_text():
    text = page_of("hostile")
    for name in HOSTILE[:5]:
        assert name not in text
    assert "<b>bold</b>" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    text.encode("utf-8")  # can be written to a file


def test_sections_without_data_are_left_out():
    page = Page(page_of("lone_run"))
    shown = [one["id"] for one in page.all("section")]
    wanted = ["verdict", "classes", "confusion", "curves", "pictures", "labels", "provenance"]
    assert shown == wanted
    assert [one["href"] for one in page.all("a")][1:] == [f"#{section}" for section in wanted]


def test_sections_of_a_study():
    shown = [one["id"] for one in Page(page_of("ten_classes")).all("section")]
    assert shown == [
        *("verdict", "leaderboard", "classes", "confusion", "costs"),
        *("curves", "pictures", "labels", "tradeoff", "reliability", "provenance"),
    ]


def costs_section(name: str) -> str:
    """The visible text of the section on costs, with the choices and the names of the charts."""
    return re.search(r'<section[^>]*id="costs".*?</section>', page_of(name), re.DOTALL)[0]


def test_costs_of_the_papers_algorithm_are_said_to_move_towards_a_target():
    section = costs_section("ten_classes")
    choices = re.findall(r'name="statistic" value="(\w+)"', section)
    assert choices == ["target_costs", "frequencies", "separability", "confusion"]
    assert "move towards T by γ" in section
    assert "A step is rejected if the validation error increases" in section
    assert not re.search("τ|strength", section)


def test_costs_with_strengths_are_not_said_to_have_a_target():
    section = costs_section("two_strengths")
    assert "The costs have two strengths" in section
    assert "Validation error, τ and m at each step" in section
    assert not re.search(r"γ|\b[THS]\b|target|made of|rate\b|accepted|rejected|shrink", section)
    assert re.search(r"\bR\b", section)


def test_a_filter_is_there_for_many_classes_only():
    assert 'id="class-filter"' in page_of("many_classes")
    assert 'id="class-filter"' not in page_of("ten_classes")


def test_rows_are_marked_in_words():
    rows = re.findall(r"<tr class=\"(\w+)\">\s*<th.*?badge\">(\w+)<", page_of("ten_classes"))
    assert rows == [("chosen", "chosen"), ("baseline", "baseline")]


@pytest.mark.parametrize(("name", "most"), [("ten_classes", 3), ("many_classes", 8)])
def test_sizes(name, most):
    assert len(page_of(name).encode()) < most * MEGABYTE


def test_refuses_what_json_has_no_word_for():
    contents = contents_of("ten_classes") | {"seeds": [float("nan")]}
    with pytest.raises(ValueError, match="JSON"):
        render(contents)


@pytest.mark.parametrize(("folder", "names"), [("scripts", SCRIPTS), ("styles", STYLES)])
def test_every_file_is_in_the_page(folder, names):
    assets = files("cosen.report") / "assets" / folder
    assert sorted(names) == sorted(one.name for one in assets.iterdir())


def test_scripts_make_no_markup_of_texts():
    for name in SCRIPTS:
        text = (files("cosen.report") / "assets" / "scripts" / name).read_text(encoding="utf-8")
        for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert way not in text, name


def test_numbers_are_written_as_they_are_read():
    assert percent(0.8125) == "81.2"
    assert points(-0.00001) == "0.0"
    assert amount(1234.0) == "1,234"
