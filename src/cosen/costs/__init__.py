"""Learning the costs, in any training loop: today's way, and the paper's.

Make ``costs = AdaptiveCosts(class_counts)``, use ``costs(logits, target)`` as the loss, and call
``costs.step(val_logits, val_target)`` once an epoch. ``CostLearner`` is the paper's algorithm.
"""

from cosen.costs.adaptive import AdaptiveCosts
from cosen.costs.cost_learner import LOSSES, Acceptance, CostLearner, LossName
from cosen.costs.learned import CostStep, LearnedCosts
from cosen.costs.objective import (
    Objective,
    class_importance,
    validation_error,
    validation_noise,
    validation_rates,
)

__all__ = [
    "LOSSES",
    "Acceptance",
    "AdaptiveCosts",
    "CostLearner",
    "CostStep",
    "LearnedCosts",
    "LossName",
    "Objective",
    "class_importance",
    "validation_error",
    "validation_noise",
    "validation_rates",
]
