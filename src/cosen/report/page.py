"""Render the report as one HTML page with its styles, scripts and data."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

STYLES = (
    *("base.css", "page.css", "tables.css", "controls.css", "charts.css", "pictures.css"),
    *("responsive.css", "print.css"),
)
"""Order matters: later styles override earlier ones."""

SCRIPTS = (
    *("format.js", "elements.js", "theme.js", "charts.js", "heatmap.js", "classes.js"),
    *("confusions.js", "detail.js", "costs.js", "cost_steps.js", "curves.js", "tradeoff.js"),
    *("reliability.js", "start.js"),
)

SECTIONS = {
    "verdict": "Verdict",
    "leaderboard": "Leaderboard",
    "classes": "Class by class",
    "confusion": "Confusions",
    "costs": "Learned costs",
    "curves": "Error by epoch",
    "pictures": "Pictures",
    "labels": "Labels to check",
    "tradeoff": "Trade-off",
    "reliability": "Reliability",
    "provenance": "How it was produced",
}

IN_TEMPLATE_ONLY = ("gallery", "labels")
"""Contents that scripts do not need."""

FILTERED_FROM = 20
"""Tables with more classes scroll and have a filter."""

LISTED_UP_TO = 500
"""Larger tables of classes are filled by a script, which shows some of them at a time."""

VISIBLE_PICTURES = 14
"""Pictures of a group that are always visible."""

FULL_SHADE = 0.05
"""Smallest change of recall that can have the full shade."""


def render(contents: Mapping[str, Any]) -> str:
    """Render a self-contained page.

    The template renders the parts without scripts: verdict, tables and pictures. The scripts draw
    the charts from the same contents, which are in the page as JSON. Every text is escaped.
    """
    contents = as_utf8(contents)
    script = own_script()
    page = environment().get_template("page.html.j2")
    return page.render(
        contents=contents,
        sections=sections_of(contents),
        table=class_table(contents),
        visible_pictures=VISIBLE_PICTURES,
        filtered=len(contents["classes"]) > FILTERED_FROM,
        listed=len(contents["classes"]) <= LISTED_UP_TO,
        data=Markup(
            script_safe_json({k: v for k, v in contents.items() if k not in IN_TEMPLATE_ONLY})
        ),
        style=Markup("\n".join(asset(f"styles/{name}") for name in STYLES)),
        plotly=Markup(asset("plotly-cartesian.min.js")),
        plotly_license=Markup(asset("PLOTLY-LICENSE")),
        script=Markup(script),
        policy=content_security_policy(asset("plotly-cartesian.min.js"), script),
    )


def as_utf8(contents: Mapping[str, Any]) -> dict[str, Any]:
    r"""Replace lone surrogates, which Python uses for file names that are not UTF-8, by U+FFFD.

    Example:
        >>> as_utf8({"name": "caf\udce9/Ø😀.png"})
        {'name': 'caf\ufffd/Ø😀.png'}
    """
    text = json.dumps(contents, ensure_ascii=False, allow_nan=False)
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return dict(json.loads(whole))


def sections_of(contents: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The identifier and the heading of each section that has contents."""
    pictures = any(contents["gallery"][name] for name in ("gained", "lost", "wrong", "note"))
    available = {**contents, "pictures": pictures}
    return [(name, heading) for name, heading in SECTIONS.items() if available[name]]


def class_table(contents: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table of classes, the rarest first.

    ``share`` is the number of training images relative to the largest class, ``shade`` the strength
    of the colour of the change, from 0 to 1.
    """
    classes = contents["classes"]
    most = max((one["train"] or 0 for one in classes), default=0) or 1
    recalls = [(one["recall"]["chosen"], one["recall"]["baseline"]) for one in classes]
    changes = [None if None in pair else pair[0] - pair[1] for pair in recalls]
    largest = max([FULL_SHADE, *(abs(change) for change in changes if change is not None)])
    return [
        {
            "label": label,
            **classes[label],
            "share": (classes[label]["train"] or 0) / most,
            "change": changes[label],
            "shade": abs(changes[label] or 0) / largest,
        }
        for label in contents["by_rarity"]
    ]


def script_safe_json(value: Any) -> str:
    r"""JSON without characters that have a meaning in HTML, for a ``<script>``.

    Example:
        >>> print(script_safe_json({"name": "</script>&\u2028"}))
        {"name":"\u003c/script\u003e\u0026\u2028"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 is escaped
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def content_security_policy(*scripts: str) -> str:
    """A policy that allows these scripts and no external resources.

    Inline styles are allowed because Plotly sets them on the elements it draws.
    """
    digests = [hashlib.sha256(script.encode()).digest() for script in scripts]
    hashes = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
    allowed = " ".join(hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def own_script() -> str:
    """All scripts, in one scope."""
    parts = "\n".join(asset(f"scripts/{name}") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


@cache
def asset(name: str) -> str:
    """The text of a file in ``assets``."""
    return files("cosen.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cosen.report"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "points": points, "amount": amount, "tied": tied}
    return environment


def percent(rate: float | None) -> str:
    """A rate in per cent.

    Example:
        >>> percent(0.9134), percent(None)
        ('91.3', '–')
    """
    return "–" if rate is None else f"{100 * rate:.1f}"


def points(change: float | None) -> str:
    """A change of a rate in percentage points, with its sign.

    Example:
        >>> points(0.024), points(-0.1), points(0.0001)
        ('+2.4', '−10.0', '0.0')
    """
    if change is None:
        return "–"
    text = f"{100 * change:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def amount(count: float | None) -> str:
    """A mean number of images, with a decimal only if it is not an integer.

    Example:
        >>> amount(14.0), amount(36.333), amount(12500.0)
        ('14', '36.3', '12,500')
    """
    if count is None:
        return "–"
    return f"{count:,.0f}" if round(count, 1) == round(count) else f"{count:,.1f}"


def tied(sentence: str) -> str:
    """A sentence without line breaks between a number and its unit or spread.

    Example:
        >>> tied("95.2 ± 1.2, or 93 % of all")
        '95.2\xa0±\xa01.2, or 93\xa0% of all'
    """
    return sentence.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")
