"""Logits of the shapes that torch.nn.functional.cross_entropy accepts, in every loss."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

import reference
from cosen import functional as F
from cosen.errors import InputError

CLASSES = 4
COUNTS = torch.tensor([500, 120, 30, 4])
GENERATOR = torch.Generator().manual_seed(3)
COSTS = torch.rand(CLASSES, CLASSES, generator=GENERATOR, dtype=torch.float64).clamp(0.05)
MISTAKES = 5 * torch.rand(4, 4, generator=GENERATOR, dtype=torch.float64).fill_diagonal_(0)
ONES = np.ones((CLASSES, CLASSES))
EFFECTIVE = reference.effective_number_weights(COUNTS.tolist(), 0.99)

LOSSES = {
    "cross_entropy": (
        lambda o, t, **k: F.cost_sensitive_cross_entropy(o, t, COSTS, **k),
        lambda o, p: reference.cross_entropy(o, p, COSTS.tolist()),
    ),
    "hinge": (
        lambda o, t, **k: F.cost_sensitive_hinge(o, t, COSTS, **k),
        lambda o, p: reference.hinge(o, p, COSTS.tolist()),
    ),
    "mse": (
        lambda o, t, **k: F.cost_sensitive_mse(o, t, COSTS, **k),
        lambda o, p: reference.mse(o, p, COSTS.tolist()),
    ),
    "pairwise_margin": (
        lambda o, t, **k: F.pairwise_margin_cross_entropy(o, t, -MISTAKES, **k),
        lambda o, p: reference.margin_softmax_loss(o, p, -MISTAKES.numpy()),
    ),
    "balanced_softmax": (
        lambda o, t, **k: F.balanced_softmax(o, t, COUNTS, tau=1.5, **k),
        lambda o, p: reference.margin_softmax_loss(
            o, p, np.tile(1.5 * np.log(COUNTS.numpy() / 654), (4, 1))
        ),
    ),
    "ldam": (
        lambda o, t, **k: F.ldam_loss(o, t, COUNTS, max_margin=0.4, scale=3.0, **k),
        lambda o, p: reference.ldam(o, p, COUNTS.tolist(), 0.4, 3.0),
    ),
    "focal": (
        lambda o, t, **k: F.focal_loss(o, t, gamma=1.7, **k),
        lambda o, p: reference.focal(o, p, 1.7),
    ),
    "class_balanced": (
        lambda o, t, **k: F.class_balanced_cross_entropy(o, t, COUNTS, beta=0.99, **k),
        lambda o, p: EFFECTIVE[p] * reference.cross_entropy(o, p, ONES),
    ),
    "sosr": (
        lambda o, t, **k: F.smooth_one_sided_regression(o, t, MISTAKES, **k),
        lambda o, p: reference.sosr(o, p, MISTAKES.tolist()),
    ),
}
every_loss = pytest.mark.parametrize(("loss", "oracle"), LOSSES.values(), ids=LOSSES.keys())
every_shape = pytest.mark.parametrize(
    "shape", [(), (5,), (2, 3), (2, 3, 2), (0, 3)], ids=lambda shape: "x".join(map(str, shape))
)
PLAIN = {
    "cross_entropy": lambda o, t, **k: F.cost_sensitive_cross_entropy(
        o, t, torch.ones_like(COSTS), **k
    ),
    "pairwise_margin": lambda o, t, **k: F.pairwise_margin_cross_entropy(
        o, t, torch.zeros_like(COSTS), **k
    ),
    "balanced_softmax": lambda o, t, **k: F.balanced_softmax(o, t, COUNTS, tau=0, **k),
    "ldam": lambda o, t, **k: F.ldam_loss(o, t, COUNTS, max_margin=0, scale=1, **k),
    "focal": lambda o, t, **k: F.focal_loss(o, t, gamma=0, **k),
    "class_balanced": lambda o, t, **k: F.class_balanced_cross_entropy(o, t, COUNTS, beta=0, **k),
}


def draw(shape, seed=0):
    """Logits with the classes where torch has them, class indices and probabilities."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(*shape, CLASSES, generator=generator, dtype=torch.float64)
    target = torch.randint(CLASSES, shape, generator=generator)
    mixed = 0.6 * one_hot(target, CLASSES).double() + 0.4 / CLASSES
    place = min(1, len(shape))
    return logits.movedim(-1, place), target, mixed.movedim(-1, place)


@every_loss
@every_shape
@pytest.mark.parametrize("kind", ["indices", "probabilities"])
def test_equals_reference_on_flattened_inputs(loss, oracle, shape, kind):
    logits, target, mixed = draw(shape)
    wanted = target if kind == "indices" else mixed
    flat = logits.movedim(min(1, len(shape)), -1).reshape(-1, CLASSES)
    flat_target = (
        target.reshape(-1)
        if kind == "indices"
        else mixed.movedim(min(1, len(shape)), -1).reshape(-1, CLASSES)
    )
    expected = reference.batch(oracle, flat.numpy(), flat_target.numpy())
    losses = loss(logits, wanted, reduction="none")
    assert losses.shape == shape
    np.testing.assert_allclose(losses.flatten(), expected, rtol=1e-6)
    np.testing.assert_allclose(
        loss(logits, wanted, reduction="sum"), expected.sum(), rtol=1e-6, atol=0
    )
    assert torch.equal(loss(logits, wanted), loss(flat, flat_target))


@pytest.mark.parametrize("loss", PLAIN.values(), ids=PLAIN.keys())
@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 3, 2)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_without_costs_equals_torch(loss, shape, reduction):
    logits, target, mixed = draw(shape, seed=1)
    for wanted in (target, mixed):
        torch.testing.assert_close(
            loss(logits, wanted, reduction=reduction),
            cross_entropy(logits, wanted, reduction=reduction),
        )


@every_loss
@pytest.mark.parametrize("ignore_index", [-100, 255])
def test_ignored_pixels_count_for_nothing(loss, oracle, ignore_index):
    logits, target, _ = draw((2, 3, 2))
    target[0, 1] = target[1, 2, 0] = ignore_index
    kept = target != ignore_index
    flat = loss(logits.movedim(1, -1)[kept], target[kept], reduction="none")
    losses = loss(logits, target, reduction="none", ignore_index=ignore_index)
    assert (losses[~kept] == 0).all()
    torch.testing.assert_close(losses[kept], flat)
    torch.testing.assert_close(
        loss(logits, target, ignore_index=ignore_index),
        loss(logits.movedim(1, -1)[kept], target[kept]),
    )


@every_loss
def test_gradcheck(loss, oracle):
    logits, target, mixed = draw((2, 2, 2))
    target[0, 0, 0] = -100
    for wanted in (target, mixed):
        assert torch.autograd.gradcheck(lambda o, t=wanted: loss(o, t), logits.requires_grad_())


@every_loss
def test_works_under_compile_tracing(loss, oracle):
    logits, target, _ = draw((2, 3))
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(
        compiled(logits, target, reduction="none"), loss(logits, target, reduction="none")
    )


@every_loss
@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        (torch.zeros(2, 4, 3), torch.zeros(2, 4).long(), r"shape \(2, 3\) .* but has \(2, 4\)"),
        (torch.zeros(2, 4, 3), torch.zeros(6).long(), r"shape \(2, 3\) .* but has \(6,\)"),
        (torch.zeros(2, 4, 3), torch.zeros(2, 3), r"the logits, \(2, 4, 3\), but has \(2, 3\)"),
        (torch.zeros(4), torch.tensor([0]), r"shape \(\) for logits of the shape \(4,\), but has"),
        (torch.zeros(2, 0, 3), torch.zeros(2, 3).long(), "at least one class, but have"),
        (torch.zeros(2, 4, 3), torch.full((2, 3), 4), r"0\.\.3 .* but sample \[0, 0\] has 4"),
        (torch.zeros(4), torch.tensor(4), r"0\.\.3 for 4 classes, but the sample has 4"),
        (torch.zeros(1, 4, 2), torch.full((1, 4, 2), 0.5), r"sum to 1, but sample \[0, 0\] has"),
        (
            torch.zeros(2, 4, 3).index_fill(2, torch.tensor([1]), torch.nan),
            torch.zeros(2, 3).long(),
            r"logits contain NaN, first in sample \[0, 1\]",
        ),
    ],
)
def test_bad_shapes_are_named(loss, oracle, logits, target, message):
    with pytest.raises(InputError, match=message):
        loss(logits, target)


@pytest.mark.parametrize("name", ["cross_entropy", "hinge", "mse", "balanced_softmax", "sosr"])
def test_the_second_dimension_is_the_classes(name):
    """Channels last, (2, 3, 4) for 4 classes, raises an error; it is not taken as 3 classes."""
    with pytest.raises(InputError, match=r"must have the shape \(3,"):
        LOSSES[name][0](torch.zeros(2, 3, 4), torch.zeros(2, 4).long())


@pytest.mark.parametrize("soft", [False, True], ids=["classes", "probabilities"])
@pytest.mark.parametrize("name", LOSSES)
def test_per_sample_gradients_with_vmap(name, soft):
    loss = LOSSES[name][0]
    logits = torch.randn(6, CLASSES, generator=GENERATOR, dtype=torch.float64)
    target = torch.tensor([0, 1, 2, 3, 3, 0])
    if soft:
        target = torch.rand(6, CLASSES, generator=GENERATOR, dtype=torch.float64).softmax(1)

    def of_sample(outputs, wanted):
        return loss(outputs[None], wanted[None])

    gradients, losses = torch.func.vmap(torch.func.grad_and_value(of_sample))(logits, target)
    for row in range(6):
        outputs = logits[row].clone().requires_grad_()
        value = of_sample(outputs, target[row])
        value.backward()
        torch.testing.assert_close(losses[row], value.detach())
        torch.testing.assert_close(gradients[row], outputs.grad)
