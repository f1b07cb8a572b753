"""docs/results.md says what the summaries beside it say."""

from pathlib import Path

from cosen.paper.results_page import END, START, read_timings, render_results
from cosen.paper.summary import read_summaries

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_what_the_summaries_give():
    page = (DOCS / "results.md").read_text(encoding="utf-8")
    written = page.split(START)[1].split(END)[0].strip()
    kept = DOCS / "results"
    assert written == render_results(read_summaries(kept), read_timings(kept)).strip()
