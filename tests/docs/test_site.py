"""The site builds without warnings, has every public name, and loads nothing from elsewhere."""

import importlib
import inspect
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

import cosen

ROOT = Path(__file__).parents[2]
MODULES = ("costs", "data", "errors", "functional", "losses", "methods", "networks", "sklearn")

pytestmark = [pytest.mark.processes, pytest.mark.xdist_group("site")]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going"]
    done = subprocess.run(
        [*command, ROOT / "docs", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


def documented(site):
    """The names in the inventory of the site."""
    *_, packed = (site / "objects.inv").read_bytes().split(b"\n", 4)
    lines = zlib.decompress(packed).decode().splitlines()
    return {line.split()[0] for line in lines if " py:" in line}


def find(name):
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute) if module else cosen


def public_names():
    """Every name in an ``__all__``, and the classes of modules without one."""
    yield from (f"cosen.{name}" for name in cosen.__all__)
    for module in MODULES:
        contents = importlib.import_module(f"cosen.{module}")
        defined = [
            name
            for name, value in vars(contents).items()
            if inspect.isclass(value) and value.__module__ == contents.__name__ and name[0] != "_"
        ]
        yield from (f"cosen.{module}.{name}" for name in getattr(contents, "__all__", defined))


def test_every_public_name_is_in_the_reference(site):
    names = documented(site)
    # AdaptiveCosts is documented as cosen.AdaptiveCosts, and public in cosen.costs, too.
    objects = {id(find(name)) for name in names if name.count(".") == 1}
    missing = [
        name
        for name in public_names()
        if name not in names and not (callable(find(name)) and id(find(name)) in objects)
    ]
    assert not missing


def test_the_site_loads_nothing_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.findall(
            r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="(?:https?:)?//', text
        )
    for style in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import\s)[\"']?(https?:)?//", style.read_text("utf-8")), (
            style
        )


def test_roles_and_formulas_of_docstrings_are_rendered(site):
    text = (site / "api" / "functional.html").read_text(encoding="utf-8")
    assert text.count("<math") > 40
    assert not re.search(r":(class|func|meth|math|data|attr|mod):", text)


def test_the_search_index_has_the_pages(site):
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    for page in ("tutorials/photos", "methods/cosen", "api/functional"):
        assert f'"{page}"' in index


def test_every_benchmark_is_listed():
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    programs = {path.name for path in (ROOT / "benchmarks").glob("[a-z]*.py")}
    assert programs == set(re.findall(r"\(\.\./benchmarks/(\w+\.py)", text))
