"""Options that a run finds by itself before it trains: ``trials`` of the method cosen-paper."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from cosen.errors import InputError
from cosen.methods import Method
from cosen.methods.learned_costs import CosenPaper
from cosen.training.config import TrainConfig
from cosen.training.loop import Watcher
from cosen.training.run_folder import RunFolder

EPOCHS = 15
"""Of a head, as ``cosen tune`` has them unless told otherwise."""

ON_VGG16 = ("auto", "head", "paper")
"""Networks whose pre-trained weights are VGG-16's: candidates are judged on its features then."""

ON_HEADS = ("auto", "head")
"""Networks whose settings of the optimiser suit the heads that candidates are judged on."""

OPTIMISATION = (
    "batch_size",
    "accumulate",
    "optimizer",
    "lr",
    "momentum",
    "weight_decay",
    "schedule",
)
"""Those settings; others go back to their defaults."""


def check_trials(config: TrainConfig, method: Method) -> None:
    """Refuse to look for options where several processes train."""
    processes = config.devices
    if torch.distributed.is_torchelastic_launched():  # by torchrun, which decides
        processes = int(os.environ["WORLD_SIZE"])
    if _trials(method) and processes > 1:
        raise InputError(
            f"trials are for a run in one process, but this one has {processes}: find the options "
            "with cosen tune first, and train with --config tuned.toml"
        )


def with_tuned_costs(
    config: TrainConfig,
    method: Method,
    run: RunFolder,
    watcher: Watcher,
    *,
    own_network: bool = False,
) -> tuple[TrainConfig, Method]:
    """The configuration and the method with the options that cross-validation chooses.

    Other methods, and one without ``trials``, are given back as they are. The search is in
    ``tuning`` in the run folder, and what it chose becomes the configuration in ``run.json``: a run
    that is resumed goes on with a search that was cut off, and does not repeat one that was over.

    Args:
        config: The configuration of the run.
        method: Its method.
        run: Its folder, with a ``run.json``.
        watcher: Told how far the search is, and what it chose.
        own_network: Whether the user brings a network, which knows nothing of our features.
    """
    if not (isinstance(method, CosenPaper) and method.trials):
        return config, method
    if "tuned" in run.about():
        return config, CosenPaper(**config.options)
    watcher.phase(f"Choosing options of {method.name} by cross-validation")
    start = time.perf_counter()
    options, sentence = _search(
        _for_tuning(config, method, own_network), method, run, watcher.batch
    )
    config = replace(config, options=options)
    found = {
        "trials": method.trials,
        "folds": method.folds,
        "seconds": round(time.perf_counter() - start, 3),
        "sentence": sentence,
    }
    run.write_about(run.about() | {"config": config.as_json(), "tuned": found})
    watcher.phase(sentence)
    return config, CosenPaper(**options)


def _trials(method: Method) -> int:
    return method.trials if isinstance(method, CosenPaper) else 0


def _search(
    config: TrainConfig, method: CosenPaper, run: RunFolder, tell: Callable[[int, int], None]
) -> tuple[dict[str, Any], str]:
    """The options that were chosen, and why."""
    from cosen.training.tuning import tune  # takes a while to import, and most runs do without

    tuned = tune(
        config,
        run.path / "tuning",
        trials=method.trials,
        folds=method.folds,
        progress=lambda _, done, total: tell(done, total),
    )
    return tuned.chosen.costs, tuned.sentence()


def _for_tuning(config: TrainConfig, method: CosenPaper, own_network: bool) -> TrainConfig:
    """The settings of the run, on features as ``cosen tune`` has them."""
    if not isinstance(method.options.get("expert", ""), str):
        raise InputError("with trials, expert must be a CSV: write the costs to one")
    on_vgg16 = config.network in ON_VGG16 and not own_network
    if config.network not in ON_HEADS:  # how a network is fine-tuned is no way to train a head
        config = replace(config, **{name: getattr(TrainConfig, name) for name in OPTIMISATION})
    return replace(
        config,
        method=method.name,
        options=method.options,
        network="auto",
        network_options={},
        weights=config.weights if on_vgg16 else None,
        freeze=None,
        epochs=EPOCHS,
    )
