import pytest
import torch
from torch import nn

import cosen
from cosen import functional as F
from cosen.errors import InputError

COUNTS = [50, 20, 5]
COSTS = F.frequency_matrix(F.class_frequencies(torch.tensor(COUNTS)))
MISTAKES = [[0, 1, 2], [3, 0, 1], [9, 4, 0]]
LOGITS = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0])

MODULES = {
    "cross_entropy": (
        cosen.CostSensitiveCrossEntropy(COSTS),
        lambda **k: F.cost_sensitive_cross_entropy(LOGITS, TARGET, COSTS, **k),
    ),
    "hinge": (
        cosen.CostSensitiveHinge(COSTS),
        lambda **k: F.cost_sensitive_hinge(LOGITS, TARGET, COSTS, **k),
    ),
    "mse": (
        cosen.CostSensitiveMSE(COSTS),
        lambda **k: F.cost_sensitive_mse(LOGITS, TARGET, COSTS, **k),
    ),
    "balanced_softmax": (
        cosen.BalancedSoftmax(COUNTS, tau=0.7),
        lambda **k: F.balanced_softmax(LOGITS, TARGET, torch.tensor(COUNTS), tau=0.7, **k),
    ),
    "ldam": (
        cosen.LDAMLoss(COUNTS, weight=[1, 2, 3]),
        lambda **k: F.ldam_loss(
            LOGITS, TARGET, torch.tensor(COUNTS), weight=torch.tensor([1.0, 2, 3]), **k
        ),
    ),
    "focal": (
        cosen.FocalLoss(gamma=1.0, weight=[1, 2, 3]),
        lambda **k: F.focal_loss(LOGITS, TARGET, gamma=1.0, weight=torch.tensor([1.0, 2, 3]), **k),
    ),
    "class_balanced": (
        cosen.ClassBalancedCrossEntropy(COUNTS, beta=0.99),
        lambda **k: F.class_balanced_cross_entropy(
            LOGITS, TARGET, torch.tensor(COUNTS), beta=0.99, **k
        ),
    ),
    "sosr": (
        cosen.SmoothOneSidedRegression(MISTAKES),
        lambda **k: F.smooth_one_sided_regression(
            LOGITS, TARGET, torch.tensor(MISTAKES, dtype=torch.float32), **k
        ),
    ),
}
every_module = pytest.mark.parametrize(("module", "function"), MODULES.values(), ids=MODULES.keys())


@every_module
def test_module_is_its_function(module, function):
    torch.testing.assert_close(module(LOGITS, TARGET), function())
    module.reduction = "none"
    torch.testing.assert_close(module(LOGITS, TARGET), function(reduction="none"))
    module.reduction = "mean"


@every_module
def test_what_it_knows_of_the_classes_moves_and_is_saved(module, function):
    assert list(module.parameters()) == []
    assert len(module.state_dict()) >= 1
    for buffer in module.to("meta").buffers():
        assert buffer.device.type == "meta"


def test_modules_restore_their_costs():
    trained = cosen.CostSensitiveCrossEntropy(COSTS)
    restored = cosen.CostSensitiveCrossEntropy(torch.ones(3, 3))
    restored.load_state_dict(trained.state_dict())
    assert torch.equal(restored.costs, COSTS)


def test_costs_are_a_copy_and_float32():
    given = torch.ones(2, 2, dtype=torch.float64)
    criterion = cosen.CostSensitiveCrossEntropy(given)
    given[0, 0] = 0.5
    assert torch.equal(criterion.costs, torch.ones(2, 2))
    assert cosen.CostSensitiveMSE([[1, 1], [0.5, 1]]).costs.dtype == torch.float32


def test_from_class_counts_is_the_frequency_matrix():
    criterion = cosen.CostSensitiveCrossEntropy.from_class_counts(COUNTS, label_smoothing=0.1)
    torch.testing.assert_close(criterion.costs, COSTS)
    assert criterion.label_smoothing == 0.1
    largest = cosen.CostSensitiveHinge.from_class_counts(COUNTS, relative_to="largest")
    assert largest.costs.max() == 1


def test_three_lines_in_a_strangers_loop():
    network, optimiser_class = nn.Linear(3, 3), torch.optim.SGD
    criterion = cosen.CostSensitiveCrossEntropy.from_class_counts(COUNTS)
    optimiser = optimiser_class(network.parameters(), lr=0.5)
    first = None
    for _ in range(50):
        loss = criterion(network(LOGITS), TARGET)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        first = first if first is not None else loss.item()
    assert loss.item() < first


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: cosen.CostSensitiveCrossEntropy(torch.zeros(2, 2)), r"\(0, 1\]"),
        (lambda: cosen.CostSensitiveCrossEntropy([1.0, 1.0]), r"shape \(classes, classes\)"),
        (lambda: cosen.CostSensitiveHinge.from_class_counts([5, 0]), "class 1 has none"),
        (lambda: cosen.BalancedSoftmax([5, 0]), "class 1 has none"),
        (lambda: cosen.SmoothOneSidedRegression([[1, 2], [3, 0]]), "zero diagonal"),
    ],
)
def test_bad_costs_are_refused_when_built(build, message):
    with pytest.raises(InputError, match=message):
        build()
