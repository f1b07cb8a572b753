"""Take the screenshot of a report for the README.

    python docs/images/make.py studies/demo/report.html

writes ``docs/images/report.png`` and ``report-dark.png``: the top of the report down to the chart
of the classes, 1200 pixels wide. Needs Playwright and a Chromium on the path.
"""

import argparse
import shutil
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

HERE = Path(__file__).parent
WIDTH, MARGIN = 1200, 12
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUIET = """
  .contents { position: static !important; }
  #theme { display: none; }
"""


def take(
    browser: Browser, report: Path, *, scheme: str, parts: list[str], until: str, out: Path
) -> None:
    """Take a screenshot of some sections of a report, down to an element."""
    page = browser.new_page(
        viewport={"width": WIDTH, "height": 900}, color_scheme=scheme, device_scale_factor=1.5
    )
    page.goto(report.resolve().as_uri())
    kept = ", ".join(f"#{part}" for part in parts)
    page.add_style_tag(content=f"{QUIET} section:not({kept}), footer {{ display: none; }}")
    page.set_viewport_size({"width": WIDTH, "height": 4000})  # draws every chart that is kept
    page.wait_for_timeout(1500)
    last = page.locator(until).bounding_box()
    height = 900 if last is None else last["y"] + last["height"] + MARGIN
    page.set_viewport_size({"width": WIDTH, "height": 900})  # the bar then marks the first section
    page.wait_for_timeout(300)
    clip = {"x": 0, "y": 0, "width": WIDTH, "height": height}
    page.screenshot(path=out, full_page=True, clip=clip)
    page.close()
    with Image.open(out) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(out, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("report", type=Path, help="a report, as `cosen report` writes it")
    parser.add_argument("--out", type=Path, default=HERE / "report.png")
    parser.add_argument("--sections", default="verdict,classes", help="of the page, by identifier")
    parser.add_argument("--until", default="#recalls-chart", help="the last element (CSS)")
    given = parser.parse_args()
    executable = next((found for name in NAMES if (found := shutil.which(name))), None)
    if executable is None:
        parser.error(f"no Chromium on the path (looked for {', '.join(NAMES)})")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for scheme, suffix in (("light", ""), ("dark", "-dark")):
            out = given.out.with_stem(given.out.stem + suffix)
            parts = given.sections.split(",")
            take(browser, given.report, scheme=scheme, parts=parts, until=given.until, out=out)
            print(out)
        browser.close()


if __name__ == "__main__":
    main()
