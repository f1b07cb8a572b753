import itertools

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

import reference
from cosen import functional as F
from cosen.errors import InputError
from cosen.functional.margins import Margins, margin_cross_entropy
from cosen.functional.reduction import prepare_batch

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


def dense_target(samples: int, classes: int) -> Tensor:
    """A share of every class in each sample, as in distillation."""
    generator = torch.Generator().manual_seed(9)
    return torch.randn(samples, classes, generator=generator, dtype=torch.float64).softmax(1)


@every_loss
@pytest.mark.parametrize("classes", [2, 3, 10])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["index", "mixed", "dense"])
def test_equals_reference(loss, oracle, gradient, classes, smoothing, kind):
    logits, target, costs = draw(classes, seed=classes)
    wanted = {
        "index": target,
        "mixed": mixed_target(target, classes),
        "dense": dense_target(len(target), classes),
    }[kind]
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
@pytest.mark.parametrize(
    "wanted",
    [draw(6, 5, seed=4)[1], mixed_target(draw(6, 5, seed=4)[1], 6), dense_target(5, 6)],
    ids=["index", "mixed", "dense"],
)
def test_gradcheck(loss, oracle, gradient, wanted):
    logits, _, costs = draw(6, 5, seed=4)
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
def test_half_precision_uses_float32(loss, oracle, gradient, dtype):
    logits, target, costs = draw()
    half = logits.to(dtype)
    for wanted in (target, mixed_target(target, 5)):
        expected = loss(half.float(), wanted, costs.float())
        with torch.autocast("cpu", dtype=dtype):
            under_autocast = loss(half, wanted, costs.float())
        assert under_autocast.dtype == torch.float32
        torch.testing.assert_close(under_autocast, expected)
        torch.testing.assert_close(loss(half, wanted, costs.float()), expected)


MIXTURES = torch.tensor([[0.7, 0.3, 0.0], [0.6, 0.0, 0.4]])


@every_loss
@pytest.mark.parametrize("size", [1e4, 1e30])
@pytest.mark.parametrize("target", [torch.tensor([0, 0]), MIXTURES], ids=["indices", "mixed"])
def test_huge_logits_stay_finite(loss, oracle, gradient, size, target):
    logits = torch.tensor([[size, 0.0, -size], [-size, size, 0.0]], requires_grad=True)
    value = loss(logits, target, torch.full((3, 3), 0.5), reduction="none")
    value.sum().backward()
    assert value.isfinite().all()
    assert logits.grad.isfinite().all()
    if loss is F.cost_sensitive_cross_entropy:
        gaps = torch.tensor([[0.0, size, 2 * size], [2 * size, 0.0, size]])  # to the largest
        shares = target if target.is_floating_point() else one_hot(target, 3)
        torch.testing.assert_close(value, (shares * gaps).sum(1))


@pytest.mark.parametrize("size", [1e7, 1e8])
def test_cross_entropy_keeps_its_digits_at_large_logits(size):
    """float32 cannot add a margin to 1e8, so the logits are shifted first."""
    logits = torch.full((1, 2), size)
    even = F.cost_sensitive_cross_entropy(logits, torch.tensor([[0.7, 0.3]]), torch.ones(2, 2))
    torch.testing.assert_close(even, torch.tensor(0.693147))
    costs = torch.tensor([[0.5, 1.0], [1.0, 1.0]])
    for target in (torch.tensor([0]), torch.tensor([[1.0, 0.0]])):
        value = F.cost_sensitive_cross_entropy(logits, target, costs)
        torch.testing.assert_close(value, torch.tensor(1.098612))  # log 3


@pytest.mark.parametrize("size", [10.0, 1e7])
@pytest.mark.parametrize("form", ["matrix", "costs", "row and diagonal"])
def test_a_large_batch_keeps_its_digits(form, size):
    """Large batches are computed with their gradient if no logit is large."""
    classes, samples = 600, 200
    generator = torch.Generator().manual_seed(0)
    row, diagonal = torch.randn(2, classes, generator=generator)
    matrix = row + torch.diag(diagonal)
    margins = {
        "matrix": Margins(matrix=matrix),
        "costs": Margins(costs=matrix.exp()),
        "row and diagonal": Margins(row=row, diagonal=diagonal),
    }[form]
    logits = (size + torch.randn(samples, classes, generator=generator)).requires_grad_()
    target = torch.randint(classes, (samples,), generator=generator)
    batch = prepare_batch(logits, target, reduction="mean", ignore_index=-100)
    value = margin_cross_entropy(batch, margins)
    value.backward()
    assert (type(value.grad_fn).__name__ == "_FusedLossBackward") == (size == 10)
    exact = logits.detach().double().requires_grad_()
    expected = cross_entropy(exact + matrix.double()[target], target)
    expected.backward()
    torch.testing.assert_close(value, expected.float())
    torch.testing.assert_close(logits.grad, exact.grad.float(), rtol=1e-4, atol=1e-8)


@pytest.mark.parametrize("size", [-80.0, 60.0, 80.0])
def test_the_gradient_of_many_samples_keeps_its_digits(size):
    """Each gradient is divided by the sum of exponentials and by the number of samples."""
    generator = torch.Generator().manual_seed(0)
    logits = (size + torch.randn(40_000, 4, generator=generator)).requires_grad_()
    target = torch.randint(4, (40_000,), generator=generator)
    margins = torch.randn(4, 4, generator=generator)
    F.pairwise_margin_cross_entropy(logits, target, margins).backward()
    exact = logits.detach().double().requires_grad_()
    F.pairwise_margin_cross_entropy(exact, target, margins.double()).backward()
    torch.testing.assert_close(logits.grad.double(), exact.grad, rtol=1e-4, atol=0)


def test_a_large_batch_has_the_digits_of_large_losses():
    """float32 has no digits left for a likelihood of e^-100."""
    logits = torch.zeros(1000, 100)
    logits[:, 0] = 100
    target = torch.ones(1000, dtype=torch.long)
    value = F.cost_sensitive_cross_entropy(logits.requires_grad_(), target, torch.ones(100, 100))
    torch.testing.assert_close(value, torch.tensor(100.0))


@pytest.mark.parametrize("few", [4, 0], ids=["few shares", "many"])
def test_wide_margins_stay_finite_with_probabilities(monkeypatch, few):
    """exp(margin) and exp(logit) would each underflow."""
    monkeypatch.setattr("cosen.functional.reduction.FEW", few)
    margins = torch.tensor([[-150.0, 0.0], [0.0, 0.0]])
    logits = torch.tensor([[0.0, -150.0]], requires_grad=True)
    value = F.pairwise_margin_cross_entropy(logits, torch.tensor([[0.5, 0.5]]), margins)
    value.backward()
    torch.testing.assert_close(value, torch.tensor((0.693147 + 150) / 2))
    torch.testing.assert_close(logits.grad, torch.tensor([[0.25, -0.25]]))


def test_many_shares_have_second_derivatives_up_to_the_widest_margins():
    margins = torch.zeros(6, 6)
    margins[:, 0] = -39.0
    found = []
    for dtype in (torch.float32, torch.float64):
        logits = torch.tensor([[45.0, 0, 1, 2, 3, 4]], dtype=dtype, requires_grad=True)
        target = torch.full((1, 6), 1 / 6, dtype=dtype)
        value = F.pairwise_margin_cross_entropy(logits, target, margins.to(dtype))
        (slope,) = torch.autograd.grad(value, logits, create_graph=True)
        found.append(torch.autograd.grad(slope.square().sum(), logits)[0])
    torch.testing.assert_close(found[0].double(), found[1], rtol=1e-3, atol=1e-6)


def test_tiny_costs_do_not_underflow():
    costs = torch.tensor([[1e-30, 1e-20], [1e-38, 1e-30]])
    logits = torch.tensor([[50.0, -50.0]])
    for target in (torch.tensor([1]), torch.tensor([[0.0, 1.0]])):
        torch.testing.assert_close(
            F.cost_sensitive_cross_entropy(logits, target, costs),
            torch.tensor(100 - 8 * 2.302585),  # log of the ratio 1e-38 / 1e-30
        )


@pytest.mark.parametrize(
    "target",
    [torch.tensor([0]), torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.6, 0.4, 0.0]])],
    ids=["index", "one-hot", "mixed"],
)
@pytest.mark.parametrize("few", [4, 0], ids=["few shares", "many"])
def test_masked_classes_may_have_infinite_logits(monkeypatch, target, few):
    monkeypatch.setattr("cosen.functional.reduction.FEW", few)
    logits = torch.tensor([[1.0, 0.0, -torch.inf]], requires_grad=True)
    kept = torch.tensor([[1.0, 0.0]], requires_grad=True)
    two = target[:, :2] if target.is_floating_point() else target
    costs = torch.tensor([[0.5, 1.0, 0.1], [1.0, 0.2, 0.3], [1.0, 1.0, 1.0]])
    value = F.cost_sensitive_cross_entropy(logits, target, costs)
    expected = F.cost_sensitive_cross_entropy(kept, two, costs[:2, :2])
    value.backward()
    expected.backward()
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(logits.grad[:, :2], kept.grad)
    assert logits.grad[0, 2] == 0
    smooth = {"label_smoothing": 0.1}  # a share of the masked class: infinite, as in torch
    assert F.cost_sensitive_cross_entropy(logits, target, costs, **smooth) == torch.inf
    assert cross_entropy(logits, target, **smooth) == torch.inf


def test_what_is_ignored_may_have_an_infinite_loss():
    logits = torch.tensor([[-torch.inf, 0.0, 0.0], [1.0, 2.0, 3.0]], requires_grad=True)
    expected = cross_entropy(logits[1:], torch.tensor([1]))
    ignored = F.cost_sensitive_cross_entropy(logits, torch.tensor([-100, 1]), torch.ones(3, 3))
    torch.testing.assert_close(ignored, expected)
    zeros, weight = torch.zeros(3, 3), torch.tensor([0.0, 1.0, 1.0])
    for target in (torch.tensor([0, 1]), torch.tensor([[1.0, 0, 0], [0, 1, 0]])):
        value = F.pairwise_margin_cross_entropy(logits, target, zeros, weight=weight)
        torch.testing.assert_close(value, expected)
    value.backward()
    assert logits.grad.isfinite().all()
    half = torch.tensor([[0.5, 0.5, 0], [0, 1, 0]])  # half a sample: log 2 counts by 0.5
    value = F.pairwise_margin_cross_entropy(logits, half, zeros, weight=weight)
    torch.testing.assert_close(value, (0.5 * torch.tensor(2.0).log() + expected) / 1.5)


HAND_COSTS = torch.tensor([[0.5, 1.0, 0.25], [1.0, 0.2, 0.5], [0.1, 0.4, 0.8]])
HAND_LOGITS = torch.tensor([[2.0, 1.0, -4.0], [0.0, -1.0, 2.0]])


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        # y = (.5 e², e, .25 e⁻⁴), -log(y_0 / Σ);  y = (1, .2 e⁻¹, .5 e²), -log(y_1 / Σ)
        (F.cost_sensitive_cross_entropy, [0.552158, 4.171387]),
        # outputs ξo = (1, 1, -1): 0 + 2 + 0;  (0, -.2, 1): 1 + 1.2 + 2
        (F.cost_sensitive_hinge, [2.0, 4.2]),
        # logistic of the same: (.269² + .731² + .269²) / 2;  (.5² + .55² + .731²) / 2
        (F.cost_sensitive_mse, [0.339552, 0.543381]),
    ],
)
def test_by_hand(loss, expected):
    losses = loss(HAND_LOGITS, torch.tensor([0, 1]), HAND_COSTS, reduction="none")
    torch.testing.assert_close(losses, torch.tensor(expected), rtol=1e-5, atol=0)


@every_loss
@pytest.mark.parametrize(
    ("classes", "dtype"),
    [(200, torch.uint8), (256, torch.uint8), (300, torch.uint8), (200, torch.int8)],
)
def test_small_integer_targets(loss, oracle, gradient, classes, dtype):
    """uint8 156 is not -100, and 256 classes are not 0."""
    labels = [156, 3] if dtype == torch.uint8 else [101, 3]
    logits, _, costs = draw(classes, 2)
    torch.testing.assert_close(
        loss(logits, torch.tensor(labels, dtype=dtype), costs, reduction="none"),
        loss(logits, torch.tensor(labels), costs, reduction="none"),
    )


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


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("soft", [False, True])
def test_a_weight_belongs_to_the_true_class(smoothing, soft):
    """The documented rule, which is not torch's for smoothed labels and for probabilities."""
    logits, target, costs = draw()
    weight = torch.tensor([0.2, 1.0, 0.0, 0.5, 2.0], dtype=torch.float64)
    wanted = mixed_target(target, 5) if soft else target
    expected = reference.weighted_mean(
        reference.cross_entropy,
        logits.numpy(),
        wanted.numpy(),
        weight.tolist(),
        costs.numpy(),
        smoothing=smoothing,
    )
    value = F.pairwise_margin_cross_entropy(
        logits, wanted, costs.log(), weight=weight, label_smoothing=smoothing
    )
    np.testing.assert_allclose(value, expected, rtol=1e-10)
    if smoothing or soft:
        torchs = cross_entropy(logits, wanted, weight=weight, label_smoothing=smoothing)
        assert value != pytest.approx(float(torchs))


@every_loss
def test_works_under_compile_tracing(loss, oracle, gradient):
    logits, target, costs = draw()
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits, target, costs), loss(logits, target, costs))
    shares = dense_target(*logits.shape)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch.testing.assert_close(compiled(logits, shares, costs), loss(logits, shares, costs))


@every_loss
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logits": torch.tensor(1.0)}, r"logits must have the shape \(samples, classes\)"),
        ({"logits": torch.zeros(3)}, r"target .* must have the shape \(\) for logits .* \(3,\)"),
        ({"logits": torch.zeros(2, 0)}, "at least one class"),
        ({"logits": torch.zeros(2, 3, dtype=torch.long)}, "logits must be floating point"),
        ({"logits": torch.tensor([[0.0, 0, 0], [0, torch.nan, 0]])}, "NaN, first in sample 1"),
        ({"target": torch.tensor([0, 3])}, r"lie in 0\.\.2 .* sample 1 has 3"),
        ({"target": torch.tensor([-1, 0])}, "sample 0 has -1"),
        (
            {"target": torch.tensor([0])},
            r"shape \(2,\) for .* \(2, 3\), but has \(1,\)",
        ),
        ({"target": torch.tensor([True, False])}, "class indices or probabilities"),
        ({"target": torch.zeros(2)}, r"the shape of the logits, \(2, 3\), but has \(2,\); for "),
        ({"target": torch.zeros(2, 3)}, "sum to 1, but sample 0"),
        ({"costs": torch.ones(2, 2)}, r"shape \(3, 3\)"),
        ({"costs": torch.ones(3, 3, dtype=torch.long)}, "costs must be floating point"),
        ({"costs": torch.ones(3, 3) - torch.eye(3)}, r"\(0, 1\], but costs\[0, 0\] is 0"),
        ({"costs": torch.ones(3, 3) + torch.eye(3)}, r"costs\[0, 0\] is 2"),
        ({"costs": torch.full((3, 3), torch.nan)}, r"costs\[0, 0\] is nan"),
        ({"reduction": "average"}, "reduction must be one of mean, sum, none"),
        ({"label_smoothing": 1.5}, r"label_smoothing must lie in \[0, 1\)"),
        ({"costs": torch.ones(3, 3, device="meta")}, "costs and logits must .* on meta and cpu"),
        (
            {"target": torch.zeros(2, dtype=torch.long, device="meta")},
            "target and logits must .* on meta and cpu",
        ),
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


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"margins": torch.full((2, 2), torch.nan)}, r"margins\[0, 0\] is nan"),
        ({"margins": torch.full((2, 2), torch.inf)}, r"below infinity, but margins\[0, 0\] is inf"),
        ({"margins": torch.zeros(3, 3)}, r"margins must have the shape \(2, 2\)"),
        ({"weight": torch.tensor([1.0, -1.0])}, "weight .* not negative, but class 1 has -1"),
        ({"weight": torch.tensor([torch.nan, 1.0])}, "weight .* class 0 has nan"),
        ({"weight": torch.ones(3)}, r"weight must have the shape \(2,\)"),
        ({"weight": torch.ones(2, device="meta")}, "weight and logits must be on one device"),
    ],
)
def test_bad_margins_and_weights_are_named(change, message):
    inputs = {
        "logits": torch.zeros(1, 2),
        "target": torch.tensor([0]),
        "margins": torch.zeros(2, 2),
    }
    with pytest.raises(InputError, match=message):
        F.pairwise_margin_cross_entropy(**(inputs | change))
