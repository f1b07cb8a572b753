import copy
import math

import numpy as np
import pytest
import torch

import cosen
import reference
from cosen import functional as F
from cosen.costs import LOSSES, CostLearner, Objective
from cosen.errors import InputError

COUNTS = [60, 30, 10]
TARGET = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
GENERATOR = torch.Generator().manual_seed(0)
FEATURES = torch.randn(8, 5, generator=GENERATOR)


def logits_for(predicted):
    return torch.nn.functional.one_hot(torch.tensor(predicted), 3).float()


GOOD = logits_for([0, 0, 0, 1, 1, 1, 2, 0])
WORSE = logits_for([0, 0, 0, 1, 1, 0, 0, 0])
PERFECT = logits_for(TARGET.tolist())


def test_costs_start_all_ones_and_the_loss_is_plain():
    learner = CostLearner(COUNTS)
    assert torch.equal(learner.costs, torch.ones(3, 3))
    logits = torch.randn(8, 3, generator=GENERATOR)
    plain = torch.nn.functional.cross_entropy(logits, TARGET)
    torch.testing.assert_close(learner(logits, TARGET), plain)


def test_a_step_goes_towards_the_papers_target():
    """ξ + γ (T - ξ), with T computed by the oracle from H, S and R."""
    options = {
        "separability_mean": 0.4,
        "separability_std": 0.7,
        "confusion_mean": 0.8,
        "confusion_std": 0.6,
    }
    learner = CostLearner(COUNTS, cost_lr=0.3, **options)
    step = learner.step(GOOD, TARGET, FEATURES)
    rates = np.array([[1, 0, 0], [0, 1, 0], [0.5, 0, 0.5]])
    separability = reference.separability(FEATURES.double().numpy(), TARGET.tolist(), 3)
    goal = reference.target_costs(
        reference.frequency_matrix([0.6, 0.3, 0.1]),
        separability,
        rates,
        *options.values(),
        1e-6,
    )
    np.testing.assert_allclose(step.confusion, rates)
    np.testing.assert_allclose(step.separability, separability, rtol=1e-4)
    np.testing.assert_allclose(step.target_costs, goal, rtol=1e-4)
    np.testing.assert_allclose(step.costs, 1 + 0.3 * (goal - 1), rtol=1e-4)
    assert torch.equal(step.costs, learner.costs)
    assert step.val_error == pytest.approx(1 / 8)


def test_shrink_is_algorithm_1():
    """cost_lr shrinks if the error rises above the lowest so far; the step is kept."""
    learner = CostLearner(COUNTS, cost_lr=0.2, acceptance="shrink")
    first = learner.step(GOOD, TARGET)
    second = learner.step(WORSE, TARGET)
    third = learner.step(GOOD, TARGET)
    fourth = learner.step(PERFECT, TARGET)
    assert [s.accepted for s in (first, second, third, fourth)] == [True, False, True, True]
    rates = [s.cost_lr for s in (first, second, third, fourth)]
    assert rates == pytest.approx([0.2, 0.002, 0.002, 0.002])
    expected = F.step_costs(first.costs, second.target_costs, cost_lr=0.002)
    torch.testing.assert_close(second.costs, expected)
    assert fourth.best_error == 0


def test_revert_also_undoes_the_step():
    learner = CostLearner(COUNTS, cost_lr=0.2, acceptance="revert", shrink=0.5)
    learner.step(GOOD, TARGET)
    second = learner.step(WORSE, TARGET)
    assert not second.accepted
    expected = F.step_costs(torch.ones(3, 3), second.target_costs, cost_lr=0.1)
    torch.testing.assert_close(second.costs, expected)


def test_always_accepts_every_step():
    learner = CostLearner(COUNTS, cost_lr=0.2, acceptance="always")
    learner.step(GOOD, TARGET)
    step = learner.step(WORSE, TARGET)
    assert not step.accepted
    assert step.cost_lr == 0.2


def test_separability_is_computed_every_tenth_step():
    learner = CostLearner(COUNTS, separability_std=1.0, separability_every=3)
    first = learner.step(GOOD, TARGET, FEATURES)
    for _ in range(2):
        same = learner.step(GOOD, TARGET, 100 * FEATURES + torch.randn(8, 5))
        assert torch.equal(same.separability, first.separability)
    new = learner.step(GOOD, TARGET, FEATURES.flip(0))
    assert not torch.equal(new.separability, first.separability)
    assert CostLearner(COUNTS).separability_every == 10


def test_without_separability_no_features_are_needed():
    assert not CostLearner(COUNTS).needs_features
    learner = CostLearner(COUNTS, separability_std=0.5)
    with pytest.raises(InputError, match="step\\(\\) needs features"):
        learner.step(GOOD, TARGET)


@pytest.mark.parametrize("features", [None, FEATURES[:5]])
def test_a_step_that_fails_changes_nothing(features):
    learner = CostLearner(COUNTS, separability_std=0.5, separability_every=1)
    learner.step(GOOD, TARGET, FEATURES)
    before = str(learner.state_dict())
    with pytest.raises(InputError, match="features"):
        learner.step(WORSE, TARGET, features)
    assert str(learner.state_dict()) == before


def test_pixels_teach_what_samples_teach():
    """Validation images, with ignored pixels whose features are ignored too."""
    plain, dense = (CostLearner(COUNTS, separability_std=0.7) for _ in range(2))
    between = torch.full_like(TARGET, -100)
    target = torch.stack([TARGET, between], 1).reshape(2, 4, 2)
    features = torch.stack([FEATURES, 0 * FEATURES], 1).reshape(2, 4, 2, 5).movedim(-1, 1)
    for logits in (GOOD, WORSE):
        images = torch.stack([logits, -logits], 1).reshape(2, 4, 2, 3).movedim(-1, 1)
        one, two = plain.step(logits, TARGET, FEATURES), dense.step(images, target, features)
        assert torch.equal(one.costs, two.costs)
        assert torch.equal(one.separability, two.separability)
        assert (one.val_error, one.cost_lr) == (two.val_error, two.cost_lr)
        torch.testing.assert_close(dense(images, target), plain(logits, TARGET))
    with pytest.raises(InputError, match="needs features of 16 samples, but was given 8"):
        CostLearner(COUNTS, separability_std=0.7).step(images, target, FEATURES)


def test_misclassification_costs_are_blended_in():
    given = [[0, 1, 1], [1, 0, 1], [9, 9, 0]]
    alone = CostLearner(
        COUNTS, misclassification_costs=given, misclassification_weight=1.0, cost_lr=1.0
    )
    alone.step(GOOD, TARGET)
    torch.testing.assert_close(
        alone.costs, F.costs_from_misclassification(torch.tensor(given, dtype=torch.float32))
    )
    none = CostLearner(
        COUNTS, misclassification_costs=given, misclassification_weight=0.0, cost_lr=1.0
    )
    none.step(GOOD, TARGET)
    plain = CostLearner(COUNTS, cost_lr=1.0)
    plain.step(GOOD, TARGET)
    torch.testing.assert_close(none.costs, plain.costs)
    half = CostLearner(
        COUNTS, misclassification_costs=given, misclassification_weight=0.5, cost_lr=1.0
    )
    half.step(GOOD, TARGET)
    torch.testing.assert_close(half.costs, (alone.costs * plain.costs).sqrt())


def test_what_the_validation_error_measures():
    confusion = torch.tensor([[8, 2], [1, 1]])
    assert Objective.of("overall").error(confusion) == pytest.approx(0.25)
    assert Objective.of("balanced").error(confusion) == pytest.approx(0.35)
    mistakes = torch.tensor([[0.0, 1.0], [4.0, 0.0]])
    assert Objective.of(mistakes).error(confusion) == pytest.approx((2 * 1 + 1 * 4) / 12 / 4)
    learner = CostLearner([10, 2], objective=mistakes)
    step = learner.step(torch.eye(2)[[0, 1, 0]], torch.tensor([0, 0, 1]))
    assert step.val_error == pytest.approx((1 + 4) / 3 / 4)


def test_a_class_without_validation_samples_gets_averages_and_one_warning(caplog):
    learner = CostLearner(COUNTS, separability_std=1.0)
    few = TARGET[:7].clone()
    few[6] = 1  # class 2 is gone
    step = learner.step(GOOD[:7], few, FEATURES[:7])
    learner.step(GOOD[:7], few, FEATURES[:7])
    recall = (3 / 3 + 3 / 4) / 2
    np.testing.assert_allclose(step.confusion[2], [(1 - recall) / 2, (1 - recall) / 2, recall])
    assert step.costs.isfinite().all()
    assert caplog.text.count("are used for the errors") == 1
    assert caplog.text.count("are used for the separability") == 1


def test_a_warning_lists_ten_of_many_missing_classes(caplog):
    CostLearner(torch.ones(30)).step(torch.eye(30)[:2], torch.tensor([0, 1]))
    assert "2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 18 others: averages" in caplog.text


@pytest.mark.parametrize("loss", LOSSES)
def test_resumes_from_its_state_dict(loss, tmp_path):
    learner = CostLearner(COUNTS, loss=loss, separability_std=0.8, acceptance="revert")
    learner.step(GOOD, TARGET, FEATURES)
    learner.step(WORSE, TARGET, FEATURES)
    torch.save(learner.state_dict(), tmp_path / "learner.pt")
    restored = CostLearner(COUNTS, loss=loss, separability_std=0.8, acceptance="revert")
    restored.load_state_dict(torch.load(tmp_path / "learner.pt", weights_only=True))
    for logits in (GOOD, WORSE, PERFECT):
        one = learner.step(logits, TARGET, FEATURES)
        two = restored.step(logits, TARGET, FEATURES)
        assert torch.equal(one.costs, two.costs)
        assert (one.accepted, one.cost_lr, one.number) == (two.accepted, two.cost_lr, two.number)
    assert torch.equal(learner(GOOD, TARGET), restored(GOOD, TARGET))


def test_costs_stay_in_range_over_many_random_steps():
    learner = CostLearner(COUNTS, cost_lr=0.9, acceptance="always", separability_std=0.3)
    for seed in range(30):
        generator = torch.Generator().manual_seed(seed)
        learner.step(
            torch.randn(8, 3, generator=generator), TARGET, torch.randn(8, 4, generator=generator)
        )
        assert ((learner.costs > 0) & (learner.costs <= 1)).all()


def test_the_learner_is_a_module_that_moves_and_copies():
    learner = copy.deepcopy(CostLearner(COUNTS))
    assert list(learner.parameters()) == []
    moved = copy.deepcopy(learner).to("meta")
    assert moved.costs.device.type == "meta"
    assert cosen.CostLearner is CostLearner


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "huber"}, "loss must be one of cross_entropy, hinge, mse"),
        ({"acceptance": "never"}, "acceptance must be one of shrink, revert, always"),
        ({"objective": "fairness"}, "objective must be 'overall', 'balanced'"),
        ({"objective": torch.ones(3, 3)}, "zero diagonal"),
        ({"cost_lr": 1.5}, "cost_lr must lie in"),
        ({"cost_lr": math.nan}, "cost_lr must lie in"),
        ({"confusion_std": 0.0}, "confusion_std positive"),
        ({"separability_every": 0}, "separability_every"),
        ({"misclassification_costs": torch.ones(2, 2) - torch.eye(2)}, r"shape \(3, 3\)"),
        ({"misclassification_weight": 2.0}, "misclassification_weight"),
    ],
)
def test_bad_options_raise_in_the_constructor(options, message):
    with pytest.raises(InputError, match=message):
        CostLearner(COUNTS, **options)


def test_a_class_without_training_samples_is_named():
    with pytest.raises(InputError, match="class_counts must be positive, but is 0 for class 1"):
        CostLearner([5, 0, 3])
