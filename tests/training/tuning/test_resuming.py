"""A search that was stopped, killed, or has other settings."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from cosen.errors import RunError
from cosen.training import tuning
from cosen.training.config import make_config
from cosen.training.tuning import tune

pytestmark = pytest.mark.training


def test_a_stopped_search_ends_as_one_never_stopped(tmp_path, config, finished_trials, monkeypatch):
    tune(config, tmp_path / "stopped", trials=2, folds=2)
    evaluated = []
    real = tuning.held_out_error

    def counted(*arguments, **options):
        evaluated.append(1)
        return real(*arguments, **options)

    monkeypatch.setattr(tuning, "held_out_error", counted)
    parts = tune(config, tmp_path / "stopped", trials=4, folds=2)
    assert len(evaluated) == 2 * 2, "two more trials of two folds, and not plain training again"
    whole = tune(config, tmp_path / "whole", trials=4, folds=2)
    assert parts.sentence() == whole.sentence()
    first, second = finished_trials(tmp_path / "stopped"), finished_trials(tmp_path / "whole")
    assert [t.params for t in first] == [t.params for t in second]
    assert [t.user_attrs for t in first] == [t.user_attrs for t in second]
    assert len({json.dumps(t.params) for t in first}) == 4
    evaluated.clear()
    assert tune(config, tmp_path / "whole", trials=3, folds=2).finished == 4
    assert not evaluated


def test_a_stopped_trial_is_tried_again(tmp_path, config, made_up_errors):
    def stop(costs, fold):
        if costs["cost_lr"] and fold == 1:
            raise KeyboardInterrupt
        return 0.5

    made_up_errors(stop)
    with pytest.raises(KeyboardInterrupt):
        tune(config, tmp_path, trials=3, folds=2)
    with (tmp_path / "study.log").open("ab") as file:
        file.write(b'{"op_code": 4, "half a li')  # as a killed process may leave it
    made_up_errors(lambda _, __: 0.5)
    assert tune(config, tmp_path, trials=3, folds=2).finished == 3


def test_a_killed_search_continues(tmp_path, config, finished_trials):
    program = (
        "import sys; from pathlib import Path; from cosen.training.tuning import tune; "
        "from cosen.training.config import TrainConfig; import torch; torch.set_num_threads(1); "
        "tune(TrainConfig(imbalance='odd:0.2', split='fraction:0.4', epochs=2), "
        "Path(sys.argv[1]), trials=500, folds=2)"
    )
    out = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", program, str(out)], env=dict(os.environ))
    try:
        deadline = time.monotonic() + 60
        log = out / "study.log"
        while not log.exists() or b'"errors"' not in log.read_bytes():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = len(finished_trials(out))
    assert tune(config, out, trials=before + 1, folds=2).finished == before + 1


def test_a_search_with_other_settings_is_refused(tmp_path, config, made_up_errors):
    made_up_errors(lambda _, __: 0.5)
    tune(config, tmp_path, trials=1, folds=2)
    with pytest.raises(RunError, match="holds a search with folds 2, not 3: use another --out"):
        tune(config, tmp_path, trials=1, folds=3)
    with pytest.raises(RunError, match=r"holds a search with lr 0\.05, not 0\.1"):
        tune(make_config({"lr": 0.1}, base=config), tmp_path, trials=1, folds=2)
    (tmp_path / "run.json").touch()
    with pytest.raises(RunError, match="holds a training run"):
        tune(config, tmp_path, trials=1, folds=2)
