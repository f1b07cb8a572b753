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

    def run(out="run", *, resume=False, watcher=None, network=None, **settings):
        own = network if callable(network) else None
        named = {"network": network} if isinstance(network, str) else {}
        config = TrainConfig(**(QUICK | settings | named))
        return train(config, tmp_path / out, resume=resume, watcher=watcher, network=own)

    return run
