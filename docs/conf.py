"""Configuration of the documentation site: Sphinx with Markdown pages. ``make docs`` builds it."""

import inspect
import json
import re
import sys
from dataclasses import is_dataclass
from pathlib import Path

from docutils.nodes import SkipNode
from latex2mathml.converter import convert
from myst_parser.parsers.sphinx_ import MystParser

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import cosen  # noqa: E402

project = "cosen"
author = "the cosen developers"
version = release = cosen.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown", ".ipynb": "notebook"}
exclude_patterns = ["results", "images"]

html_theme = "furo"
html_title = f"cosen {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"
pygments_style, pygments_dark_style = "github-light", "github-dark"

myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline"]
myst_heading_anchors = 4  # links such as page.md#section, as on GitHub
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True

autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "forward, extra_repr, model_config, state_names"}
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
add_module_names = False
python_maximum_signature_line_length = 72
napoleon_numpy_docstring = False
napoleon_use_ivar = True
toc_object_entries_show_parents = "hide"


class NotebookParser(MystParser):
    """Read a notebook with its stored outputs as a Markdown page."""

    supported = ("notebook",)

    def parse(self, inputstring, document):
        parts = []
        for cell in json.loads(inputstring)["cells"]:
            source = "".join(cell["source"])
            parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
            for output in cell.get("outputs", []):
                data = output.get("data", {"text/plain": output.get("text")})
                text = "".join(data.get("text/markdown", data["text/plain"]))
                if "text/markdown" not in data:
                    text = f":::{{code-block}} text\n:class: output\n\n{text}\n:::"
                parts.append(text)
        super().parse("\n\n".join(parts), document)


def point_to_pages(app, docname, source):
    """Point links to Markdown files outside docs/ to their pages."""
    up = "../" * docname.count("/")
    for page in Path(app.srcdir, "project").glob("*.md"):
        source[0] = source[0].replace(f"]({up}../{page.name}", f"]({up}project/{page.name}")


def is_record(obj):
    return is_dataclass(obj) or hasattr(obj, "__pydantic_fields__")


def shorten_signature(_app, what, _name, obj, *_):
    """Leave out the fields of a validated record, which are listed below it."""
    return ("", None) if what == "class" and hasattr(obj, "__pydantic_fields__") else None


def describe_fields(_app, what, _name, obj, _options, lines):
    """List the fields of a record with the comments behind them."""
    if what == "class" and is_record(obj) and "Attributes:" not in lines:
        fields = re.findall(r"^    (\w+): .*  # (.*)$", inspect.getsource(obj), re.MULTILINE)
        if fields:
            lines += ["Attributes:", *(f"    {field}: {text}." for field, text in fields), ""]


def add_formula(translator, node):
    """Write a formula as MathML, which browsers show without scripts."""
    display = "inline" if node.tagname == "math" else "block"
    translator.body.append(convert(node.astext(), display=display))
    raise SkipNode


def setup(app):
    app.add_source_parser(NotebookParser)
    app.add_html_math_renderer("mathml", (add_formula, None), (add_formula, None))
    app.connect("source-read", point_to_pages)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-process-docstring", describe_fields, priority=400)  # before napoleon
