import shutil

import pytest

from cosen.training.config import TrainConfig
from cosen.training.run import Inputs, train_run
from cosen.training.run_folder import RunFolder

QUICK = {
    "data": "digits",
    "imbalance": "odd:0.1",
    "epochs": 3,
    "device": "cpu",
    "precision": "float32",
}


@pytest.fixture
def quick_train(tmp_path):
    """Train on the digits for a few epochs: ``quick_train(method="baseline")``."""

    def run(out="run", *, resume=False, callbacks=None, network=None, **settings):
        own = network if callable(network) else None
        named = {"network": network} if isinstance(network, str) else {}
        config = TrainConfig(**(QUICK | settings | named))
        inputs = Inputs(network=own)
        return train_run(config, tmp_path / out, resume=resume, inputs=inputs, callbacks=callbacks)

    return run


@pytest.fixture(scope="session")
def finished_runs(tmp_path_factory):
    """A finished run of ``cosen`` and one of ``baseline``, by name. Do not change their files."""
    folder = tmp_path_factory.mktemp("finished")
    runs = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSEN_CACHE", str(folder / "cache"))
        for method in ("cosen", "baseline"):
            runs[method] = train_run(TrainConfig(**QUICK, method=method), folder / method)
    return runs


@pytest.fixture
def finished_run(finished_runs):
    """The finished run of ``cosen``. Do not change its files."""
    return finished_runs["cosen"]


@pytest.fixture
def copied_run(finished_run, tmp_path):
    """A copy of the finished run of ``cosen``, which ``quick_train(resume=True)`` resumes."""
    return RunFolder(shutil.copytree(finished_run.path, tmp_path / "run"))
