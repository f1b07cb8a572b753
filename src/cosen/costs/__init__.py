"""Learned costs for any training loop.

Create ``costs = AdaptiveCosts(class_counts)``, use ``costs(logits, target)`` as the loss, and call
``costs.step(val_logits, val_target)`` after each epoch. ``CostLearner`` is the paper's algorithm.
"""

from cosen.costs.adaptive import AdaptiveCosts, AdaptiveCostStep
from cosen.costs.cost_learner import LOSSES, Acceptance, CostLearner, LossName, PaperCostStep
from cosen.costs.cost_table import read_cost_table, read_misclassification_costs
from cosen.costs.learned import CostStep, LearnedCosts
from cosen.costs.objective import BALANCED, OVERALL, Objective, validation_rates

__all__ = [
    "BALANCED",
    "LOSSES",
    "OVERALL",
    "Acceptance",
    "AdaptiveCostStep",
    "AdaptiveCosts",
    "CostLearner",
    "CostStep",
    "LearnedCosts",
    "LossName",
    "Objective",
    "PaperCostStep",
    "read_cost_table",
    "read_misclassification_costs",
    "validation_rates",
]
