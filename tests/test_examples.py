"""Run each program in examples/ as a user would, and check its output."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.training

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def check_digits(output: str) -> None:
    """Costs raise the recall of the rare digits."""
    rare = next(line for line in output.splitlines() if line.startswith("odd digits"))
    assert float(re.search(r"[+-]\d+\.\d$", rare)[0]) > 1


def check_quickstart(output: str) -> None:
    """All steps print their result, and a loaded run has the same metrics."""
    trained, loaded = re.findall(r"0\.\d{3}(?= mean recall)", output)
    assert trained == loaded
    assert float(trained) > 0.6
    assert "three.png is a 3 with probability" in output
    assert re.search(r"\d+ kB report", output)
    assert re.search(r"best run: study/runs/(cosen|balanced-softmax)/0", output)


CHECKS = {"digits.py": check_digits, "quickstart.py": check_quickstart}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path):
    alone = os.environ | {"OMP_NUM_THREADS": "1"}  # other tests run at the same time
    done = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, check=False, env=alone
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    CHECKS.get(path.name, bool)(done.stdout)
