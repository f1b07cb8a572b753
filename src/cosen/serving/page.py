"""The page of the server: one HTML file with its styles and scripts."""

from functools import cache
from importlib.resources import files

from cosen.report.page import asset, content_security_policy

SHARED_STYLES = ("base.css", "controls.css")
SHARED_SCRIPTS = ("elements.js", "theme.js")
"""The same as those of the report."""


@cache
def page() -> str:
    """Return the page; it loads nothing but the server's own answers."""
    styles = [asset(f"styles/{name}") for name in SHARED_STYLES]
    return (
        _own("page.html")
        .replace("/* styles */", "\n".join([*styles, _own("page.css")]))
        .replace("/* scripts */", _script())
    )


@cache
def policy() -> str:
    """Return the content security policy of the page."""
    allowed = content_security_policy(_script())
    return allowed.replace("img-src data:", "img-src data: blob:; connect-src 'self'")


def _script() -> str:
    parts = [asset(f"scripts/{name}") for name in SHARED_SCRIPTS]
    return "\n".join(['"use strict";', *parts, _own("page.js")])


def _own(name: str) -> str:
    return files("cosen.serving").joinpath("assets", name).read_text(encoding="utf-8")
