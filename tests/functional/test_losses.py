import itertools

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

import reference
from cosen import functional as F
from cosen.errors import InputError

LOSSES = {
    "cross_entropy": (
        F.cost_sensitive_cross_entropy,
        reference.cross_entropy,
        reference.cross_entropy_gradient,
    ),
    "hinge": (F.cost_sensitive_hinge, reference.hinge, reference.hinge_gradient),
    "mse": (F.cost_sensitive_mse, reference.mse, reference.mse_gradient),
}
every_loss = pytest.mark.parametrize(
    ("loss", "oracle", "gradient"), LOSSES.values(), ids=LOSSES.keys()
)


def draw(classes: int = 5, samples: int = 12, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(samples, classes, generator=generator, dtype=torch.float64)
    target = torch.randint(classes, (samples,), generator=generator)
    costs = torch.rand(classes, classes, generator=generator, dtype=torch.float64).clamp(0.01)
    return logits, target, costs


def mixed_target(target: Tensor, classes: int) -> Tensor:
    """Mixup of each sample with the next one."""
    hot = one_hot(target, classes).double()
    return 0.7 * hot + 0.3 * hot.roll(1, 0)


@every_loss
@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("soft", [False, True])
def test_equals_reference(loss, oracle, gradient, classes, smoothing, soft):
    logits, target, costs = draw(classes, seed=classes)
    wanted = mixed_target(target, classes) if soft else target
    expected = reference.batch(
        oracle, logits.numpy(), wanted.numpy(), costs.numpy(), smoothing=smoothing
    )
    losses = loss(logits, wanted, costs, label_smoothing=smoothing, reduction="none")
    np.testing.assert_allclose(losses, expected, rtol=1e-10)
    mean = loss(logits, wanted, costs, label_smoothing=smoothing)
    np.testing.assert_allclose(mean, expected.mean(), rtol=1e-10)
    total = loss(logits, wanted, costs, label_smoothing=smoothing, reduction="sum")
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-10)


@every_loss
def test_gradient_is_the_papers(loss, oracle, gradient):
    """Sec. 'Effect on Error Back-propagation'."""
    logits, target, costs = draw(seed=3)
    logits.requires_grad_()
    loss(logits, target, costs, reduction="sum").backward()
    expected = [
        gradient(o.tolist(), int(p), costs.tolist())
        for o, p in zip(logits.detach(), target, strict=True)
    ]
    np.testing.assert_allclose(logits.grad, expected, atol=1e-12)


@every_loss
@pytest.mark.parametrize("soft", [False, True])
def test_gradcheck(loss, oracle, gradient, soft):
    logits, target, costs = draw(4, 5, seed=4)
    wanted = mixed_target(target, 4) if soft else target
    logits.requires_grad_()
    costs.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda o, c: loss(o, wanted, c.clamp(0.005, 1), label_smoothing=0.05), (logits, costs)
    )


@every_loss
def test_one_hot_probabilities_equal_indices(loss, oracle, gradient):
    logits, target, costs = draw()
    for reduction, smoothing in itertools.product(("none", "mean"), (0.0, 0.2)):
        options = {"reduction": reduction, "label_smoothing": smoothing}
        torch.testing.assert_close(
            loss(logits, one_hot(target, 5).double(), costs, **options),
            loss(logits, target, costs, **options),
        )


@every_loss
def test_ignored_samples_count_for_nothing(loss, oracle, gradient):
    logits, target, costs = draw()
    some = target.clone()
    some[::3] = -100
    kept = some != -100
    torch.testing.assert_close(loss(logits, some, costs), loss(logits[kept], target[kept], costs))
    assert (loss(logits, some, costs, reduction="none")[~kept] == 0).all()
    logits.requires_grad_()
    nothing = loss(logits, torch.full_like(target, -100), costs)
    nothing.backward()
    assert nothing == 0
    assert (logits.grad == 0).all()
    other = target.clone()
    other[0] = 99
    torch.testing.assert_close(
        loss(logits, other, costs, ignore_index=99), loss(logits[1:], target[1:], costs)
    )


@every_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_worked_in_float32(loss, oracle, gradient, dtype):
    logits, target, costs = draw()
    half = logits.to(dtype)
    for wanted in (target, mixed_target(target, 5)):
        expected = loss(half.float(), wanted, costs.float())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            under_autocast = loss(half, wanted, costs.float())
        assert under_autocast.dtype == torch.float32
        torch.testing.assert_close(under_autocast, expected)
        torch.testing.assert_close(loss(half, wanted, costs.float()), expected)


@every_loss
@pytest.mark.parametrize("size", [1e4, 1e30])
@pytest.mark.parametrize("soft", [False, True])
def test_huge_logits_stay_finite(loss, oracle, gradient, size, soft):
    logits = torch.tensor([[size, 0.0, -size], [-size, size, 0.0]], requires_grad=True)
    target = torch.tensor([0, 0])
    wanted = mixed_target(target, 3).float() if soft else target
    value = loss(logits, wanted, torch.full((3, 3), 0.5), reduction="none")
    value.sum().backward()
    assert value.isfinite().all()
    assert logits.grad.isfinite().all()
    if loss is F.cost_sensitive_cross_entropy:
        torch.testing.assert_close(value, torch.tensor([0.0, 2 * size]))


def test_tiny_costs_do_not_underflow():
    costs = torch.full((2, 2), 1e-30)
    logits = torch.tensor([[50.0, -50.0]])
    for target in (torch.tensor([1]), torch.tensor([[0.0, 1.0]])):
        torch.testing.assert_close(
            F.cost_sensitive_cross_entropy(logits, target, costs), torch.tensor(100.0)
        )


def test_masked_classes_may_have_infinite_logits():
    logits = torch.tensor([[1.0, 0.0, -torch.inf]])
    expected = cross_entropy(logits[:, :2], torch.tensor([0]))
    for target in (torch.tensor([0]), torch.tensor([[1.0, 0.0, 0.0]])):
        value = F.cost_sensitive_cross_entropy(logits, target, torch.ones(3, 3))
        torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_all_ones_costs_equal_cross_entropy(smoothing):
    logits, target, costs = draw()
    for wanted in (target, mixed_target(target, 5)):
        torch.testing.assert_close(
            F.cost_sensitive_cross_entropy(
                logits, wanted, torch.ones_like(costs), label_smoothing=smoothing
            ),
            cross_entropy(logits, wanted, label_smoothing=smoothing),
        )


def test_scaling_a_row_changes_nothing_in_cross_entropy():
    logits, target, costs = draw()
    scale = torch.tensor([1.0, 0.5, 0.1, 0.01, 0.3], dtype=torch.float64)
    torch.testing.assert_close(
        F.cost_sensitive_cross_entropy(logits, target, scale[:, None] * costs),
        F.cost_sensitive_cross_entropy(logits, target, costs),
    )


def test_a_lower_diagonal_raises_the_loss():
    logits, target, costs = draw()
    lower = costs - 0.5 * torch.diag(costs.diagonal())
    before = F.cost_sensitive_cross_entropy(logits, target, costs, reduction="none")
    assert (F.cost_sensitive_cross_entropy(logits, target, lower, reduction="none") > before).all()


def test_weighted_mean_is_cross_entropys():
    logits, target, _ = draw()
    weight = torch.tensor([0.2, 1.0, 3.0, 0.5, 2.0], dtype=torch.float64)
    margins = torch.zeros(5, 5, dtype=torch.float64)
    expected = cross_entropy(logits, target, weight=weight)
    for wanted in (target, one_hot(target, 5).double()):
        value = F.pairwise_margin_cross_entropy(logits, wanted, margins, weight=weight)
        torch.testing.assert_close(value, expected)


@every_loss
def test_works_under_compile_tracing(loss, oracle, gradient):
    logits, target, costs = draw()
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits, target, costs), loss(logits, target, costs))


@every_loss
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.zeros(3)}, r"logits must have the shape \(samples, classes\)"),
        ({"logits": torch.zeros(2, 3, dtype=torch.long)}, "logits must be floating point"),
        ({"logits": torch.tensor([[0.0, 0, 0], [0, torch.nan, 0]])}, "NaN, first in sample 1"),
        ({"target": torch.tensor([0, 3])}, r"lie in 0\.\.2 .* sample 1 has 3"),
        ({"target": torch.tensor([-1, 0])}, "sample 0 has -1"),
        ({"target": torch.tensor([0])}, r"shape \(2,\)"),
        ({"target": torch.tensor([True, False])}, "class indices or probabilities"),
        ({"target": torch.zeros(2)}, r"shape \(2, 3\)"),
        ({"target": torch.zeros(2, 3)}, "sum to 1, but sample 0"),
        ({"costs": torch.ones(2, 2)}, r"shape \(3, 3\)"),
        ({"costs": torch.ones(3, 3, dtype=torch.long)}, "costs must be floating point"),
        ({"costs": torch.ones(3, 3) - torch.eye(3)}, r"\(0, 1\], but costs\[0, 0\] is 0"),
        ({"costs": torch.ones(3, 3) + torch.eye(3)}, r"costs\[0, 0\] is 2"),
        ({"costs": torch.full((3, 3), torch.nan)}, r"costs\[0, 0\] is nan"),
        ({"reduction": "average"}, "reduction must be one of mean, sum, none"),
        ({"label_smoothing": 1.5}, r"label_smoothing must lie in \[0, 1\)"),
        ({"costs": torch.ones(3, 3, device="meta")}, "costs is on meta, but logits are on cpu"),
        ({"target": torch.zeros(2, dtype=torch.long, device="meta")}, "target is on meta"),
    ],
)
def test_bad_input_is_named(loss, oracle, gradient, change, message):
    inputs = {
        "logits": torch.zeros(2, 3),
        "target": torch.tensor([0, 1]),
        "costs": torch.ones(3, 3),
    }
    with pytest.raises(InputError, match=message):
        loss(**(inputs | change))
