"""scikit-learn's own checks, every one of them, with warnings as errors."""

import json
import os
import subprocess
import sys

import pytest
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency

from cosen.sklearn import CosenClassifier

PROGRAM = """
import json
from sklearn.utils.estimator_checks import check_estimator
from cosen.sklearn import CosenClassifier
models = [CosenClassifier(), CosenClassifier("H", epochs=10), CosenClassifier(None, epochs=10)]
print(json.dumps([
    [repr(model), check["check_name"], check["status"], str(check["exception"])]
    for model in models
    for check in check_estimator(model, on_skip=None, on_fail=None)
]))
"""


def test_check_estimator_in_full():
    """In a process of its own: SciPy reads SCIPY_ARRAY_API once, when it is imported.

    Without it scikit-learn would skip a check; a skipped check fails here as any other does.
    """
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)
    assert [check for check in checks if check[2] != "passed"] == []
    assert len(checks) > 3 * 40


@pytest.mark.parametrize("costs", ["adaptive", "H"])
def test_frames(costs):
    """A check that scikit-learn runs over its own estimators and leaves out of check_estimator."""
    check_dataframe_column_names_consistency("CosenClassifier", CosenClassifier(costs, epochs=5))
