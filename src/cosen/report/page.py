"""The report as one HTML text: template, styles, scripts and data, and nothing from elsewhere."""

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
    "colours.css",
    "text.css",
    "page.css",
    "verdict.css",
    "tables.css",
    "controls.css",
    "charts.css",
    "pictures.css",
    "made.css",
    "detail.css",
    "widths.css",
    "paper.css",
)
"""The page's styles, in the order in which they are joined: later ones win."""

SCRIPTS = (
    "unpack.js",
    "wording.js",
    "elements.js",
    "theme.js",
    "charts.js",
    "heatmap.js",
    "recalls.js",
    "sections.js",
    "classes.js",
    "confusions.js",
    "detail.js",
    "matrices.js",
    "costs.js",
    "steps.js",
    "curves.js",
    "tradeoff.js",
    "reliability.js",
    "command.js",
    "start.js",
)
"""The page's own scripts, in the order in which they are joined."""

FILTERED_FROM = 20
"""A table of more classes than this scrolls by itself and has a box to filter it."""

FOLDED_FROM = 14
"""Pictures of a kind that are seen at once; the rest unfolds."""

FULL_SHADE = 0.05
"""A change of recall of at least this is shaded fully, if none is larger."""


def render(contents: Mapping[str, Any]) -> str:
    """One self-contained page.

    What is read without scripts (verdict, tables, pictures) is written here; charts are drawn by
    the page from the same contents, which it carries as JSON. Every text is escaped.

    Args:
        contents: What ``contents.as_json`` gives.
    """
    contents = as_utf8(contents)
    script = own_script()
    page = environment().get_template("page.html.j2")
    return page.render(
        contents=contents,
        sections=sections_of(contents),
        table=class_table(contents),
        folded_from=FOLDED_FROM,
        filtered=len(contents["classes"]) > FILTERED_FROM,
        data=Markup(script_safe_json({k: v for k, v in contents.items() if k != "gallery"})),
        style=Markup("\n".join(asset(f"styles/{name}") for name in STYLES)),
        plotly=Markup(asset("plotly-cartesian.min.js")),
        plotly_license=Markup(asset("PLOTLY-LICENSE")),
        script=Markup(script),
        policy=content_security_policy(asset("plotly-cartesian.min.js"), script),
    )


def as_utf8(contents: Mapping[str, Any]) -> dict[str, Any]:
    r"""Contents that a file can hold, and that the template and the scripts read alike.

    A file name that is not UTF-8 has lone surrogates in Python; they become U+FFFD.

    Example:
        >>> as_utf8({"name": "caf\udce9/Ø😀.png"})
        {'name': 'caf\ufffd/Ø😀.png'}
    """
    text = json.dumps(contents, ensure_ascii=False, allow_nan=False)
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return dict(json.loads(whole))


def sections_of(contents: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The identifier and the heading of each section that there is something to show for."""
    gallery = contents["gallery"]
    kinds = ("gained", "lost", "wrong", "note")
    shown = {
        ("verdict", "Verdict"): True,
        ("leaderboard", "Leaderboard"): bool(contents["leaderboard"]),
        ("classes", "Class by class"): bool(contents["classes"]),
        ("confusion", "Confusions"): bool(contents["confusion"]),
        ("costs", "Learned costs"): bool(contents["costs"]),
        ("curves", "Error by epoch"): bool(contents["curves"]),
        ("pictures", "Pictures"): any(gallery[kind] for kind in kinds),
        ("tradeoff", "Trade-off"): bool(contents["tradeoff"]),
        ("reliability", "Reliability"): bool(contents["reliability"]),
        ("made", "How it was made"): bool(contents["made"] or contents["command"]),
    }
    return [section for section, is_shown in shown.items() if is_shown]


def class_table(contents: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of the table of classes, the rarest first.

    ``share`` is of the commonest class's training images; ``shade`` says how strongly the change
    is coloured, from 0 to 1.
    """
    classes = contents["classes"]
    most = max((one["train"] or 0 for one in classes), default=0) or 1
    changes = [difference(one["recall"]["chosen"], one["recall"]["baseline"]) for one in classes]
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


def difference(value: float | None, other: float | None) -> float | None:
    return None if value is None or other is None else value - other


def script_safe_json(value: Any) -> str:
    r"""JSON that can stand in a ``<script>``: no character of it ends or opens anything.

    Example:
        >>> print(script_safe_json({"name": "</script>&\u2028"}))
        {"name":"\u003c/script\u003e\u0026\u2028"}
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 is escaped
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def content_security_policy(*scripts: str) -> str:
    """A policy under which the page may run these scripts, and may load nothing at all.

    Styles are allowed inline because Plotly sets them on the elements it draws.
    """
    allowed = " ".join(f"'sha256-{digest(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


@cache
def own_script() -> str:
    """The page's scripts joined, in a scope of their own."""
    parts = "\n".join(asset(f"scripts/{name}") for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


@cache
def asset(name: str) -> str:
    """The text of a file in ``assets``, also where the package is installed as a wheel."""
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
    """A rate in per cent, as the leaderboard has it.

    Example:
        >>> percent(0.9134), percent(None)
        ('91.3', '–')
    """
    return "–" if rate is None else f"{100 * rate:.1f}"


def points(change: float | None) -> str:
    """A change of a rate, in points of per cent with its sign.

    Example:
        >>> points(0.024), points(-0.1), points(0.0001)
        ('+2.4', '−10.0', '0.0')
    """
    if change is None:
        return "–"
    text = f"{100 * change:+.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", "−")


def amount(count: float | None) -> str:
    """A mean number of images, without decimals where there are none.

    Example:
        >>> amount(14.0), amount(36.333), amount(12500.0)
        ('14', '36.3', '12,500')
    """
    if count is None:
        return "–"
    return f"{count:,.0f}" if round(count, 1) == round(count) else f"{count:,.1f}"


def tied(sentence: str) -> str:
    """A sentence in which no line ends between a number and its per cent or its spread.

    Example:
        >>> tied("95.2 ± 1.2, or 93 % of all")
        '95.2\xa0±\xa01.2, or 93\xa0% of all'
    """
    return sentence.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")
