"""The machine's own Chromium, for tests that look at a page as a person would."""

import shutil
from collections.abc import Iterator

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """The first Chromium on the path."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def launched_chromium() -> Iterator:
    """A headless Chromium, or a test that says why it was skipped."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed: install cosen[dev]"
    )
    executable = find_chromium()
    if executable is None:
        pytest.skip(f"no Chromium on the path (looked for {', '.join(NAMES)})")
    with playwright.sync_playwright() as driver:
        # Containers have neither user namespaces for the sandbox nor a large /dev/shm.
        chromium = driver.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield chromium
        chromium.close()
