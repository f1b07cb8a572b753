"""Every program in examples/ runs once, as its reader would run it, and shows what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def check_digits(output: str) -> None:
    """With costs the demo finds more of the rare digits."""
    rare = next(line for line in output.splitlines() if line.startswith("odd digits"))
    assert float(re.search(r"[+-]\d+\.\d$", rare)[0]) > 1


PROMISES = {"digits.py": check_digits}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path):
    alone = os.environ | {"OMP_NUM_THREADS": "1"}  # other tests are at work beside it
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, env=alone
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if path.name in PROMISES:
        PROMISES[path.name](done.stdout)
