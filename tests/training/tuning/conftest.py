import optuna
import pytest

from cosen.training import tuning
from cosen.training.config import TrainConfig
from cosen.training.tuning import folds


@pytest.fixture
def config():
    """A search on the digits that takes a second."""
    return TrainConfig(imbalance="odd:0.2", split="fraction:0.4", epochs=2)


@pytest.fixture(autouse=True)
def quick_features(monkeypatch):
    monkeypatch.setattr(folds, "FEATURE_EPOCHS", 1)


@pytest.fixture
def made_up_errors(monkeypatch):
    """Held-out errors from a function of the options and the fold, instead of training."""

    def use(error):
        samples = {}  # the number of each fold, by its samples

        def held_out_error(config, fold, options, *, setting):
            return error(options, samples.setdefault(id(fold), len(samples)))

        real = folds.features_of_folds

        def features_of_folds(*arguments):
            samples.clear()
            found = real(*arguments)
            samples.update({id(fold): number for number, fold in enumerate(found)})
            return found

        monkeypatch.setattr(tuning, "features_of_folds", features_of_folds)
        monkeypatch.setattr(tuning, "held_out_error", held_out_error)

    return use


@pytest.fixture
def finished_trials():
    """The finished trials in a folder: ``finished_trials(out)``."""

    def read(out):
        storage = optuna.storages.JournalStorage(
            optuna.storages.journal.JournalFileBackend(str(out / "study.log"))
        )
        study = optuna.load_study(study_name="cosen", storage=storage)
        return [trial for trial in study.trials if trial.state.name in ("COMPLETE", "PRUNED")]

    return read
