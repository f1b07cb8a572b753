import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, one_hot

import reference
from cosen import functional as F
from cosen.errors import InputError

COUNTS = torch.tensor([500, 120, 30, 4])
GENERATOR = torch.Generator().manual_seed(1)
LOGITS = 2 * torch.randn(20, 4, generator=GENERATOR, dtype=torch.float64)
TARGET = torch.randint(4, (20,), generator=GENERATOR)
MIXED = 0.6 * one_hot(TARGET, 4).double() + 0.4 * one_hot(TARGET.roll(1), 4).double()
MISTAKES = 5 * torch.rand(4, 4, generator=GENERATOR, dtype=torch.float64).fill_diagonal_(0)

LOSSES = {
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
    "sosr": (
        lambda o, t, **k: F.smooth_one_sided_regression(o, t, MISTAKES, **k),
        lambda o, p: reference.sosr(o, p, MISTAKES.tolist()),
    ),
}
every_loss = pytest.mark.parametrize(("loss", "oracle"), LOSSES.values(), ids=LOSSES.keys())


@every_loss
@pytest.mark.parametrize("target", [TARGET, MIXED], ids=["indices", "mixup"])
def test_equals_reference(loss, oracle, target):
    expected = reference.batch(oracle, LOGITS.numpy(), target.numpy())
    np.testing.assert_allclose(loss(LOGITS, target, reduction="none"), expected, rtol=1e-9)
    np.testing.assert_allclose(loss(LOGITS, target), expected.mean(), rtol=1e-9)


@every_loss
def test_many_shares_give_what_each_of_them_gives(loss, oracle, monkeypatch):
    target = LOGITS.roll(1).softmax(1)
    expected = reference.batch(oracle, LOGITS.numpy(), target.numpy())
    for few in (4, 0):
        monkeypatch.setattr("cosen.functional.reduction.FEW", few)
        np.testing.assert_allclose(loss(LOGITS, target, reduction="none"), expected, rtol=1e-9)
        assert torch.autograd.gradcheck(lambda o: loss(o, target), LOGITS.clone().requires_grad_())


@pytest.mark.parametrize("name", ["balanced_softmax", "ldam", "focal"])
def test_many_shares_leave_masked_classes_without_gradients(name, monkeypatch):
    loss = LOSSES[name][0]
    found = []
    for few in (4, 0):
        monkeypatch.setattr("cosen.functional.reduction.FEW", few)
        logits = LOGITS.clone()
        logits[:, 3] = -torch.inf
        target = logits.roll(1, 0).softmax(1)  # no share of the masked class
        logits.requires_grad_()
        target.requires_grad_()
        loss(logits, target).backward()
        assert (logits.grad[:, 3] == 0).all()
        found.append((logits.grad, target.grad[:, :3]))
        assert target.grad.isfinite().all()
    torch.testing.assert_close(*found)


@every_loss
@pytest.mark.parametrize("target", [TARGET, MIXED], ids=["indices", "mixup"])
def test_gradcheck(loss, oracle, target):
    assert torch.autograd.gradcheck(lambda o: loss(o, target), LOGITS.clone().requires_grad_())


@every_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_uses_float32(loss, oracle, dtype):
    for target in (TARGET, MIXED):
        with torch.autocast("cpu", dtype=dtype):
            value = loss(LOGITS.to(dtype), target)
        assert value.dtype == torch.float32
        torch.testing.assert_close(value, loss(LOGITS.to(dtype).float(), target))


@every_loss
def test_huge_logits_stay_finite(loss, oracle):
    logits = torch.tensor([[1e4, 0, -1e4, 0.0]], requires_grad=True)
    for target in (*torch.arange(4)[:, None], torch.tensor([[0.4, 0.3, 0.2, 0.1]])):
        logits.grad = None
        value = loss(logits, target)
        value.backward()
        assert value.isfinite()
        assert logits.grad.isfinite().all()


@every_loss
def test_works_under_compile_tracing(loss, oracle):
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(LOGITS, TARGET), loss(LOGITS, TARGET))


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_focal_loss_of_a_certain_sample_has_a_gradient(gamma):
    """At y = 1 the slope of (1 - y)^gamma is infinite for gamma < 1."""
    logits = torch.tensor([[200.0, 0.0]], requires_grad=True)
    value = F.focal_loss(logits, torch.tensor([0]), gamma=gamma)
    value.backward()
    assert value == 0
    assert torch.equal(logits.grad, torch.zeros(1, 2))


@every_loss
def test_ignored_samples_count_for_nothing(loss, oracle):
    some = TARGET.clone()
    some[:7] = -100
    torch.testing.assert_close(loss(LOGITS, some), loss(LOGITS[7:], TARGET[7:]))


def test_rows_of_class_frequencies_are_balanced_softmax():
    frequencies = F.class_frequencies(COUNTS).double()
    costs = frequencies.expand(4, 4)
    torch.testing.assert_close(
        F.cost_sensitive_cross_entropy(LOGITS, TARGET, costs),
        F.balanced_softmax(LOGITS, TARGET, COUNTS),
        rtol=1e-6,
        atol=0,
    )


def test_frequency_matrix_times_its_complement_is_balanced_softmax():
    frequencies = F.class_frequencies(COUNTS).double()
    costs = F.frequency_matrix(frequencies) * F.frequency_complement(frequencies)
    torch.testing.assert_close(costs, frequencies.expand(4, 4))
    torch.testing.assert_close(
        F.cost_sensitive_cross_entropy(LOGITS, TARGET, costs),
        F.balanced_softmax(LOGITS, TARGET, COUNTS),
        rtol=1e-6,
        atol=0,
    )


def test_each_alternative_has_cross_entropy_at_zero_strength():
    expected = cross_entropy(LOGITS, TARGET)
    torch.testing.assert_close(F.balanced_softmax(LOGITS, TARGET, COUNTS, tau=0), expected)
    torch.testing.assert_close(F.focal_loss(LOGITS, TARGET, gamma=0), expected)
    torch.testing.assert_close(F.ldam_loss(LOGITS, TARGET, COUNTS, max_margin=0, scale=1), expected)
    torch.testing.assert_close(
        F.class_balanced_cross_entropy(LOGITS, TARGET, COUNTS, beta=0), expected
    )


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.9, 0.999, 0.9999])
def test_class_balanced_weights_equal_reference(beta):
    expected = reference.effective_number_weights(COUNTS.tolist(), beta)
    weights = F.class_balanced_weights(COUNTS, beta=beta)
    np.testing.assert_allclose(weights, expected, rtol=1e-4)
    torch.testing.assert_close(
        F.class_balanced_cross_entropy(LOGITS, TARGET, COUNTS, beta=beta),
        cross_entropy(LOGITS, TARGET, weight=weights.double()),
        rtol=1e-5,
        atol=0,
    )


def test_class_balanced_cross_entropy_keeps_the_weight_of_the_true_class():
    weight = reference.effective_number_weights(COUNTS.tolist(), 0.99)
    ones = np.ones((4, 4))
    for target, smoothing in ((TARGET, 0.2), (MIXED, 0.0), (MIXED, 0.2)):
        expected = reference.weighted_mean(
            reference.cross_entropy,
            LOGITS.numpy(),
            target.numpy(),
            weight,
            ones,
            smoothing=smoothing,
        )
        value = F.class_balanced_cross_entropy(
            LOGITS, target, COUNTS, beta=0.99, label_smoothing=smoothing
        )
        np.testing.assert_allclose(value, expected, rtol=1e-9)


def test_class_balanced_focal_loss_is_the_weighted_mean():
    weight = F.class_balanced_weights(COUNTS).double()
    losses = F.focal_loss(LOGITS, TARGET, reduction="none")
    expected = (losses * weight[TARGET]).sum() / weight[TARGET].sum()
    torch.testing.assert_close(F.focal_loss(LOGITS, TARGET, weight=weight), expected)


def test_ldam_re_weighting_is_cross_entropys():
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    torch.testing.assert_close(
        F.ldam_loss(LOGITS, TARGET, COUNTS, max_margin=0, scale=1, weight=weight),
        cross_entropy(LOGITS, TARGET, weight=weight),
    )


def test_sosr_is_least_where_outputs_are_the_negated_costs_and_beyond():
    """Estimates below the cost of the right decision and above that of wrong ones have no loss."""
    generous = torch.where(torch.eye(4, dtype=torch.bool), 30.0, -MISTAKES - 30)
    value = F.smooth_one_sided_regression(generous, torch.arange(4), MISTAKES)
    assert value < 1e-9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: F.balanced_softmax(LOGITS, TARGET, torch.tensor([1, 0, 2, 3])),
            "class_frequencies must be positive, but is 0 for class 1: add",
        ),
        (
            lambda: F.balanced_softmax(LOGITS, TARGET, torch.tensor([0, 0, 2, 3])),
            "is 0 for class 0, 1",
        ),
        (lambda: F.balanced_softmax(LOGITS, TARGET, torch.ones(3)), r"shape \(4,\)"),
        (lambda: F.ldam_loss(LOGITS, TARGET, torch.tensor([1, -1, 2, 3])), "class 1 has -1"),
        (lambda: F.ldam_loss(LOGITS, TARGET, COUNTS, scale=0), "scale must be finite and pos"),
        (lambda: F.ldam_loss(LOGITS, TARGET, COUNTS, scale=math.nan), "scale must be finite"),
        (lambda: F.ldam_loss(LOGITS, TARGET, COUNTS, max_margin=math.inf), "max_margin .* inf"),
        (lambda: F.balanced_softmax(LOGITS, TARGET, COUNTS, tau=math.nan), "tau must be finite"),
        (lambda: F.class_balanced_weights(torch.tensor([0.9, 0.1])), "counts of samples.* is 0.1"),
        (
            lambda: F.class_balanced_cross_entropy(LOGITS, TARGET, COUNTS / 654),
            "class_counts must be counts of samples, at least 1, but one is 0.006",
        ),
        (
            lambda: F.balanced_softmax(LOGITS, TARGET, [1, 2, 3, 4]),
            "must be a tensor, but is a lis",
        ),
        (lambda: F.focal_loss(LOGITS, TARGET, gamma=math.nan), "gamma must be finite"),
        (lambda: F.focal_loss(LOGITS, TARGET, weight=-torch.ones(4)), "weight must be .* not neg"),
        (lambda: F.focal_loss(LOGITS, TARGET, gamma=-1), "gamma must be finite and not negative"),
        (lambda: F.class_balanced_weights(COUNTS, beta=1.0), r"beta must lie in \[0, 1\)"),
        (
            lambda: F.smooth_one_sided_regression(LOGITS, TARGET, torch.ones(4, 4)),
            "zero diagonal",
        ),
        (
            lambda: F.smooth_one_sided_regression(LOGITS, TARGET, -MISTAKES),
            "non-negative and finite",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
