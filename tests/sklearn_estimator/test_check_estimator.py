"""All checks of scikit-learn, with warnings as errors."""

import json
import os
import subprocess
import sys

import pytest
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency

from cosen.sklearn import CosenClassifier

pytestmark = pytest.mark.training

PROGRAM = """
import json
from sklearn.utils.estimator_checks import check_estimator
from cosen.sklearn import CosenClassifier
models = [CosenClassifier(costs, epochs=10) for costs in ("adaptive", "H", None)]
expected = {
    "check_sample_weight_equivalence_on_dense_data":
    "A weight of 2 and a sample that occurs twice differ: samples are drawn in mini-batches, and "
    "some are held out for validation."
}
print(json.dumps([
    [repr(model), check["check_name"], check["status"], str(check["exception"])]
    for model in models
    for check in check_estimator(
        model, expected_failed_checks=expected, on_skip=None, on_fail=None
    )
]))
"""


def test_check_estimator_in_full():
    """All checks pass except the one that mini-batches cannot pass.

    In its own process: SciPy reads SCIPY_ARRAY_API when it is imported. Without it scikit-learn
    skips a check, and a skipped check fails here.
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
    names = {(check[1], check[2]) for check in checks if check[2] != "passed"}
    assert names == {("check_sample_weight_equivalence_on_dense_data", "xfail")}, checks
    assert len(checks) > 3 * 40


@pytest.mark.parametrize("costs", ["adaptive", "H"])
def test_frames(costs):
    """A check that scikit-learn runs on its own estimators, but not in check_estimator."""
    check_dataframe_column_names_consistency("CosenClassifier", CosenClassifier(costs, epochs=5))
