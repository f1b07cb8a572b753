"""Values are always checked, except in losses where reading them is expensive."""

import pytest
import torch

import cosen
from cosen import functional as F
from cosen.errors import InputError

ZEROS = torch.zeros(2, 2)


@pytest.fixture(autouse=True)
def values_are_expensive(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)


def test_losses_do_not_read_values():
    value = F.cost_sensitive_cross_entropy(ZEROS, torch.tensor([0, 1]), ZEROS)
    assert not value.isfinite()


@pytest.mark.parametrize(
    "call",
    [
        lambda: F.class_frequencies(torch.tensor([1, 0])),
        lambda: F.frequency_matrix(torch.tensor([0.5, 2.0])),
        lambda: F.class_balanced_weights(torch.tensor([1, 0])),
        lambda: F.project_costs(ZEROS / 0),
        lambda: F.cost_objective(ZEROS, ZEROS, 0),
        lambda: F.step_costs(ZEROS, ZEROS, cost_lr=1),
        lambda: F.costs_from_misclassification(ZEROS),
        lambda: F.bayes_decision(ZEROS / 0, ZEROS),
        lambda: F.confusion_matrix(torch.tensor([2]), torch.tensor([0]), num_classes=2),
        lambda: F.overall_accuracy(-torch.ones(2, 2)),
        lambda: F.one_vs_rest_auc(ZEROS, torch.tensor([0, 2])),
        lambda: F.calibration_bins(ZEROS - 1, torch.tensor([0, 1])),
        lambda: F.expected_calibration_error(ZEROS - 1, torch.tensor([0, 1])),
        lambda: F.class_separability(ZEROS / 0, torch.tensor([0, 1]), num_classes=2),
        lambda: cosen.CostSensitiveHingeLoss(ZEROS),
        lambda: cosen.BalancedSoftmaxLoss([1, 0]),
        lambda: cosen.FocalLoss(weight=[-1, 1]),
        lambda: cosen.SmoothOneSidedRegressionLoss(ZEROS + 1),
    ],
)
def test_all_other_functions_do(call):
    with pytest.raises(InputError):
        call()
