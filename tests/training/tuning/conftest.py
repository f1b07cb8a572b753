import optuna
import pytest

from cosen.training.config import TrainConfig
from cosen.training.tuning import features
from cosen.training.tuning.evaluation import Judge


@pytest.fixture
def config():
    """A search on the digits that takes a second."""
    return TrainConfig(imbalance="odd:0.2", split="fraction:0.4", epochs=2)


@pytest.fixture(autouse=True)
def quick_features(monkeypatch):
    monkeypatch.setattr(features, "FEATURE_EPOCHS", 1)


@pytest.fixture
def made_up_errors(monkeypatch):
    """Held-out errors by a function of the costs and of the fold, in place of training."""

    def use(error):
        def errors(self, costs):
            return (error(costs, fold) for fold in range(len(self.folds)))

        monkeypatch.setattr(Judge, "errors", errors)

    return use


@pytest.fixture
def finished_trials():
    """The trials in a folder that count: ``finished_trials(out)``."""

    def read(out):
        storage = optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(out / "study.log"))
        )
        study = optuna.load_study(study_name="cosen", storage=storage)
        return [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]

    return read
