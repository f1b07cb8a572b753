import pytest

from cosen.training.config import TrainConfig
from cosen.training.run import train

QUICK = {
    "data": "digits",
    "imbalance": "odd:0.1",
    "epochs": 3,
    "device": "cpu",
    "precision": "float32",
}


@pytest.fixture
def quick_train(tmp_path):
    """Trains on the digits for a few epochs: ``quick_train(method="baseline")``."""

    def run(out="run", *, resume=False, watcher=None, **settings):
        config = TrainConfig(**(QUICK | settings))
        return train(config, tmp_path / out, resume=resume, watcher=watcher)

    return run
