"""Every program in examples/ runs, as its reader would run it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path):
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_demo_finds_more_rare_digits_with_costs():
    done = subprocess.run(
        [sys.executable, str(EXAMPLES[0].with_name("digits.py"))],
        capture_output=True,
        text=True,
        check=True,
    )
    rare = next(line for line in done.stdout.splitlines() if line.startswith("odd digits"))
    change = float(re.search(r"[+-]\d+\.\d$", rare)[0])
    assert change > 1
