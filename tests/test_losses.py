import copy
import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import cosen
from cosen import functional as F
from cosen.costs.step_files import step_tensors
from cosen.errors import InputError

COUNTS = [50, 20, 5]
COSTS = F.frequency_matrix(F.class_frequencies(torch.tensor(COUNTS)))
MISTAKES = [[0, 1, 2], [3, 0, 1], [9, 4, 0]]
LOGITS = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
TARGET = torch.tensor([0, 1, 2, 0, 1, 2, 0, 0])

MODULES = {
    "cross_entropy": (
        cosen.CostSensitiveCrossEntropyLoss(COSTS),
        lambda **k: F.cost_sensitive_cross_entropy(LOGITS, TARGET, COSTS, **k),
    ),
    "hinge": (
        cosen.CostSensitiveHingeLoss(COSTS),
        lambda **k: F.cost_sensitive_hinge(LOGITS, TARGET, COSTS, **k),
    ),
    "mse": (
        cosen.CostSensitiveMSELoss(COSTS),
        lambda **k: F.cost_sensitive_mse(LOGITS, TARGET, COSTS, **k),
    ),
    "balanced_softmax": (
        cosen.BalancedSoftmaxLoss(COUNTS, tau=0.7),
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
        cosen.ClassBalancedLoss(COUNTS, beta=0.99),
        lambda **k: F.class_balanced_cross_entropy(
            LOGITS, TARGET, torch.tensor(COUNTS), beta=0.99, **k
        ),
    ),
    "sosr": (
        cosen.SmoothOneSidedRegressionLoss(MISTAKES),
        lambda **k: F.smooth_one_sided_regression(
            LOGITS, TARGET, torch.tensor(MISTAKES, dtype=torch.float32), **k
        ),
    ),
    "adaptive": (
        cosen.AdaptiveCosts(COUNTS, margin=1.0),
        lambda **k: F.cost_sensitive_cross_entropy(
            LOGITS, TARGET, cosen.AdaptiveCosts(COUNTS, margin=1.0).costs, **k
        ),
    ),
    "learner": (
        cosen.CostLearner(COUNTS, loss="hinge"),
        lambda **k: F.cost_sensitive_hinge(LOGITS, TARGET, torch.ones(3, 3), **k),
    ),
}
every_module = pytest.mark.parametrize(("module", "function"), MODULES.values(), ids=MODULES.keys())


@every_module
def test_module_is_its_function(module, function):
    torch.testing.assert_close(module(LOGITS, TARGET), function())
    unreduced = copy.deepcopy(module)
    unreduced.reduction = "none"
    torch.testing.assert_close(unreduced(LOGITS, TARGET), function(reduction="none"))


@every_module
def test_modules_accept_images(module, function):
    images, target = LOGITS.reshape(2, 2, 2, 3).movedim(-1, 1), TARGET.reshape(2, 2, 2)
    torch.testing.assert_close(module(images, target), function())
    unreduced = copy.deepcopy(module)
    unreduced.reduction, unreduced.ignore_index = "none", 0
    expected = function(reduction="none", ignore_index=0).reshape(2, 2, 2)
    torch.testing.assert_close(unreduced(images, target), expected)
    assert (expected[target == 0] == 0).all()


@every_module
def test_buffers_move_and_are_saved(module, function):
    assert list(module.parameters()) == []
    assert len(module.state_dict()) >= 1
    for buffer in copy.deepcopy(module).to("meta").buffers():
        assert buffer.device.type == "meta"


@every_module
def test_buffers_fit_in_half_precision(module, function):
    half = copy.deepcopy(module).half()
    torch.testing.assert_close(half(LOGITS, TARGET), function(), rtol=1e-2, atol=0)


def test_modules_restore_their_costs():
    trained = cosen.CostSensitiveCrossEntropyLoss(COSTS)
    restored = cosen.CostSensitiveCrossEntropyLoss(torch.ones(3, 3))
    restored.load_state_dict(trained.state_dict())
    assert torch.equal(restored.costs, COSTS)


@pytest.mark.parametrize(
    "build", [cosen.BalancedSoftmaxLoss, cosen.LDAMLoss, cosen.ClassBalancedLoss]
)
def test_large_counts_do_not_overflow_in_half_precision(build):
    counts = [196_910, 2_622]
    logits, target = torch.tensor([[0.3, 0.1], [0.2, 0.4]]), torch.tensor([0, 1])
    expected = build(counts)(logits, target)
    torch.testing.assert_close(build(counts).half()(logits, target), expected, rtol=1e-2, atol=0)


def test_deferred_re_weighting_survives_saving():
    trained = cosen.LDAMLoss(COUNTS)
    plain = trained(LOGITS, TARGET)
    torch.testing.assert_close(plain, F.ldam_loss(LOGITS, TARGET, torch.tensor(COUNTS)))
    trained.weight = F.class_balanced_weights(torch.tensor(COUNTS), beta=0.99)
    restored = cosen.LDAMLoss(COUNTS)
    restored.load_state_dict(trained.state_dict())
    assert torch.equal(restored(LOGITS, TARGET), trained(LOGITS, TARGET))
    assert restored(LOGITS, TARGET) != plain


def test_functional_is_there_after_import_cosen():
    program = (
        "import sys, cosen; assert 'torch' not in sys.modules; "
        "cosen.functional.class_recall; cosen.data; cosen.losses"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_costs_are_a_copy_and_float32():
    given = torch.ones(2, 2, dtype=torch.float64)
    criterion = cosen.CostSensitiveCrossEntropyLoss(given)
    given[0, 0] = 0.5
    assert torch.equal(criterion.costs, torch.ones(2, 2))
    assert cosen.CostSensitiveMSELoss([[1, 1], [0.5, 1]]).costs.dtype == torch.float32


def test_from_class_counts_is_the_frequency_matrix():
    criterion = cosen.CostSensitiveCrossEntropyLoss.from_class_counts(COUNTS, label_smoothing=0.1)
    torch.testing.assert_close(criterion.costs, COSTS)
    assert criterion.label_smoothing == 0.1
    largest = cosen.CostSensitiveHingeLoss.from_class_counts(COUNTS, relative_to="largest")
    assert largest.costs.max() == 1


def test_three_lines_in_any_loop():
    network, optimiser_class = nn.Linear(3, 3), torch.optim.SGD
    criterion = cosen.CostSensitiveCrossEntropyLoss.from_class_counts(COUNTS)
    optimiser = optimiser_class(network.parameters(), lr=0.5)
    first = None
    for _ in range(50):
        loss = criterion(network(LOGITS), TARGET)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        first = first if first is not None else loss.item()
    assert loss.item() < first


LABELS = pd.Series([0] * 5 + [1] * 9 + [2] * 2)


def test_labelled_counts_in_the_order_of_the_classes_are_taken():
    counts = LABELS.value_counts().sort_index()
    assert torch.equal(cosen.AdaptiveCosts(counts).costs, cosen.AdaptiveCosts([5, 9, 2]).costs)


@pytest.mark.parametrize("kind", [lambda c: c[::-1], lambda c: c[::-1].astype(">i4"), pd.Series])
def test_counts_may_be_any_array(kind):
    counts = kind(np.array([2, 9, 5]))
    expected = cosen.AdaptiveCosts(np.asarray(counts).tolist()).costs
    assert torch.equal(cosen.AdaptiveCosts(counts).costs, expected)


def test_costs_may_be_a_frame_without_names():
    criterion = cosen.CostSensitiveCrossEntropyLoss(pd.DataFrame(COSTS.numpy()))
    assert torch.equal(criterion.costs, COSTS)


def test_costs_have_no_graph():
    free = torch.zeros(3, 3, requires_grad=True)
    criterion = copy.deepcopy(cosen.CostSensitiveCrossEntropyLoss(free.sigmoid()))
    for _ in range(2):
        criterion(LOGITS.clone().requires_grad_(), TARGET).backward()
    assert free.grad is None


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: cosen.CostSensitiveCrossEntropyLoss(torch.zeros(2, 2)), r"\(0, 1\]"),
        (lambda: cosen.CostSensitiveCrossEntropyLoss([1.0, 1.0]), r"shape \(classes, classes\)"),
        (lambda: cosen.CostSensitiveHingeLoss.from_class_counts([5, 0]), "is 0 for class 1"),
        (lambda: cosen.BalancedSoftmaxLoss([5, 0]), "is 0 for class 1"),
        (lambda: cosen.SmoothOneSidedRegressionLoss([[1, 2], [3, 0]]), "zero diagonal"),
        (lambda: cosen.BalancedSoftmaxLoss(COUNTS, tau=math.inf), "tau must be finite"),
        (
            lambda: cosen.BalancedSoftmaxLoss(COUNTS, label_smoothing=1),
            r"label_smoothing .* \[0, 1\)",
        ),
        (lambda: cosen.CostSensitiveMSELoss(COSTS, label_smoothing=-0.1), "label_smoothing"),
        (lambda: cosen.LDAMLoss(COUNTS, max_margin=math.nan), "max_margin must be finite"),
        (lambda: cosen.LDAMLoss(COUNTS, scale=0), "scale must be finite and positive"),
        (lambda: cosen.LDAMLoss(COUNTS, weight=[1, 2]), r"weight must have the shape \(3,\)"),
        (lambda: cosen.LDAMLoss(COUNTS, weight=[1, -2, 1]), "not negative, but class 1 has -2"),
        (lambda: cosen.FocalLoss(gamma=-1), "gamma must be finite and not negative"),
        (lambda: cosen.FocalLoss(weight=[math.nan]), "class 0 has nan"),
        (lambda: cosen.ClassBalancedLoss(COUNTS, beta=1), r"beta must lie in \[0, 1\)"),
        (lambda: cosen.CostSensitiveCrossEntropyLoss("H"), "costs must be numbers"),
        (lambda: cosen.CostSensitiveCrossEntropyLoss([[1], [1, 1]]), "costs must be numbers"),
        (lambda: cosen.BalancedSoftmaxLoss(Counter("aab")), r"is a Counter: pass \[class_counts\["),
        (
            lambda: cosen.AdaptiveCosts(LABELS.value_counts()),
            "has the labels 1, 0, 2: sort it and pass",
        ),
        (
            lambda: cosen.CostLearner(LABELS.value_counts()),
            "has the labels 1, 0, 2: sort it and pass",
        ),
    ],
)
def test_bad_arguments_raise_in_the_constructor(build, message):
    with pytest.raises(InputError, match=message):
        build()


@pytest.mark.parametrize(
    "build",
    [
        lambda **k: cosen.CostSensitiveCrossEntropyLoss(COSTS, **k),
        lambda **k: cosen.BalancedSoftmaxLoss(COUNTS, **k),
        lambda **k: cosen.LDAMLoss(COUNTS, **k),
        lambda **k: cosen.FocalLoss(**k),
        lambda **k: cosen.ClassBalancedLoss(COUNTS, **k),
        lambda **k: cosen.SmoothOneSidedRegressionLoss(MISTAKES, **k),
        lambda **k: cosen.AdaptiveCosts(COUNTS, **k),
        lambda **k: cosen.CostLearner(COUNTS, **k),
    ],
)
def test_an_unknown_reduction_raises_in_the_constructor(build):
    with pytest.raises(InputError, match="reduction must be one of"):
        build(reduction="average")


def test_a_class_of_weight_zero_counts_for_nothing():
    kept = TARGET != 1
    torch.testing.assert_close(
        cosen.FocalLoss(weight=[1, 0, 1])(LOGITS, TARGET),
        cosen.FocalLoss()(LOGITS[kept], TARGET[kept]),
    )


FAST_LOSSES = {
    "cross_entropy": lambda: cosen.CostSensitiveCrossEntropyLoss(COSTS),
    "hinge": lambda: cosen.CostSensitiveHingeLoss(COSTS),
    "mse": lambda: cosen.CostSensitiveMSELoss(COSTS),
    "balanced_softmax": lambda: cosen.BalancedSoftmaxLoss(COUNTS),
    "ldam": lambda: cosen.LDAMLoss(COUNTS),
    "adaptive": lambda: cosen.AdaptiveCosts(COUNTS, margin=2.0),
}


def _never_fused(_batch, _compute, _plain):
    return None


@pytest.mark.parametrize("name", FAST_LOSSES)
@pytest.mark.parametrize("small", [0, 10**9], ids=["row and diagonal", "matrix"])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_a_loss_computed_with_its_gradient_is_the_same(monkeypatch, name, small, reduction):
    found = []
    for is_fast in (True, False):
        for limit in ("functional.margins.SMALL", "costs.adaptive.SMALL", "losses.KEPT"):
            monkeypatch.setattr(f"cosen.{limit}", small)
        for module in ("margins", "losses"):
            monkeypatch.setattr(f"cosen.functional.{module}.LARGE", 0)
            if not is_fast:
                monkeypatch.setattr(f"cosen.functional.{module}.fused_loss", _never_fused)
        loss = FAST_LOSSES[name]()
        loss.reduction = reduction
        logits = LOGITS.double().requires_grad_()
        value = loss(logits, TARGET)
        if reduction != "none":
            assert (type(value.grad_fn).__name__ == "_FusedLossBackward") == is_fast
        slopes = [
            *torch.autograd.grad(value.sum(), logits, retain_graph=True),
            *torch.autograd.grad(2 * value.sum(), logits, retain_graph=True),
        ]
        (again,) = torch.autograd.grad(value.sum(), logits, create_graph=True)
        found.append([value, *slopes, again])
        if name != "hinge":  # its slope is constant
            found[-1] += torch.autograd.grad(again.square().sum(), logits)
    for fast, plain in zip(*found, strict=True):
        torch.testing.assert_close(fast, plain)


def test_a_share_too_small_for_float32_has_its_loss():
    logits = torch.tensor([[0.0, 200.0, 0.0]], requires_grad=True)
    value = cosen.BalancedSoftmaxLoss([1, 1, 1])(logits, torch.tensor([0]))
    value.backward()
    torch.testing.assert_close(value, torch.tensor(200.0))
    torch.testing.assert_close(logits.grad, torch.tensor([[-1.0, 1.0, 0.0]]))


def test_costs_that_change_in_place_are_noticed():
    loss = cosen.CostSensitiveCrossEntropyLoss(torch.ones(3, 3))
    before = loss(LOGITS, TARGET)
    loss.costs[0, 1] = 0.5
    changed = loss(LOGITS, TARGET)
    assert changed != before
    torch.testing.assert_close(changed, F.cost_sensitive_cross_entropy(LOGITS, TARGET, loss.costs))
    loss.costs = torch.ones(3, 3)
    assert loss(LOGITS, TARGET) == before
    loss.costs[0, 0] = 2.0
    with pytest.raises(InputError, match=r"costs must lie in \(0, 1\], but costs\[0, 0\] is 2"):
        loss(LOGITS, TARGET)
    balanced = cosen.BalancedSoftmaxLoss(COUNTS)
    before = balanced(LOGITS, TARGET)
    balanced.tau = 0.5
    assert balanced(LOGITS, TARGET) != before


def test_copies_do_not_contain_what_is_computed_again():
    loss = cosen.CostSensitiveCrossEntropyLoss(COSTS)
    loss(LOGITS, TARGET)
    copied = copy.deepcopy(loss)
    assert copied._seen == {}
    assert copied(LOGITS, TARGET) == loss(LOGITS, TARGET)


def test_learned_costs_of_thousands_of_classes_need_little_memory():
    counts = torch.arange(1, 10_001)
    costs = cosen.AdaptiveCosts(counts)
    step = costs.step(torch.randn(500, 10_000), torch.randint(10_000, (500,)))
    stored = step_tensors(step).values()
    assert sum(tensor.numel() * tensor.element_size() for tensor in stored) < 200_000
    assert sum(buffer.numel() for buffer in costs.buffers()) == 20_000
    assert step.confusion.is_sparse


def test_the_loss_of_a_large_batch_is_not_negative():
    """Confident outputs have a loss of nearly 0, and rounding must not make it negative."""
    target = torch.arange(1000) % 100
    logits = (40 * torch.eye(100)[target]).requires_grad_()
    losses = cosen.BalancedSoftmaxLoss(torch.arange(1, 101), reduction="none")(logits, target)
    assert 0 <= losses.min() <= losses.max() < 1e-5
