"""The choice of the output layer on pretrained features."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from cosen.costs import Objective
from cosen.data.batches import Batch
from cosen.data.sources import from_arrays
from cosen.data.splits import fold_of_each, split_off_validation
from cosen.errors import DataError
from cosen.methods import Setting, make_method
from cosen.training import head_search
from cosen.training.config import TrainConfig
from cosen.training.finetuning import with_defaults
from cosen.training.head_search import (
    DECAYS,
    EPOCHS,
    Candidate,
    choose_head,
    fit_head,
    recall_error,
)
from cosen.training.loop import Diverged
from cosen.training.records import HeadRecord

pytestmark = pytest.mark.training

CONFIG = replace(with_defaults(TrainConfig(validation=0.1), "none"), batch_size=32)


@pytest.fixture(scope="module")
def noisy():
    """Features with little signal in many dimensions, which need strong regularisation."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 3
    features = torch.randn(120, 200, generator=generator)
    features[torch.arange(120), labels] += 4.0
    features[:, 0] *= 5  # one feature drowns the others
    pool = from_arrays(np.zeros((120, 4, 4), np.uint8), labels.numpy())
    setting = Setting(
        class_counts=pool.class_counts,
        class_names=("a", "b", "c"),
        objective=Objective.of("balanced"),
    )
    return features, pool, setting


def choose(noisy, method="balanced-softmax", config=CONFIG, **options):
    features, pool, setting = noisy
    return choose_head(make_method(method), features, pool, setting, config, **options)


def test_all_candidates_are_compared_and_the_best_is_taken(noisy):
    head = choose(noisy)
    assert len(head.errors) == len(DECAYS) + 1
    assert head.errors[f"{head.output}, weight decay {head.weight_decay:g}"] == min(
        head.errors.values()
    )
    assert len(set(head.errors.values())) > 1
    assert choose(noisy).errors == head.errors, "the search is deterministic"
    assert head.sentence().startswith(f"Output layer: {head.output}, weight decay ")


def test_the_held_out_error_is_that_of_a_plain_cross_validation(noisy):
    """Each fold trains without its own images, and the errors of all folds are joined."""
    features, pool, setting = noisy
    config = replace(CONFIG, head="linear", epochs=EPOCHS)
    found = choose(noisy, config=replace(config, weight_decay=None))
    folds = fold_of_each(pool, folds=3, seed=0)
    wrong = torch.zeros(3)
    for fold in range(3):
        rest, held_out = pool.take(folds != fold), pool.take(folds == fold)
        train, val = split_off_validation(rest, share=0.1, seed=0)
        batches = [
            (features[torch.from_numpy(part.rows)], torch.from_numpy(part.labels))
            for part in (train, val, held_out)
        ]
        network = fit_head(
            make_method("balanced-softmax"),
            Batch(*batches[0]),
            Batch(*batches[1]),
            replace(setting, class_counts=train.class_counts),
            replace(config, weight_decay=1e-2),
            output="linear",
        )
        with torch.no_grad():
            predicted = network(batches[2][0]).logits.argmax(1)
        wrong += batches[2][1][predicted != batches[2][1]].bincount(minlength=3)
    expected = float((wrong / pool.class_counts).mean())
    assert found.errors["linear, weight decay 0.01"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("method", "outputs"),
    [
        ("baseline", {"linear"}),
        ("crt", {"linear"}),
        ("ldam-drw", {"cosine"}),
        ("cosen", {"linear", "cosine"}),
    ],
)
def test_methods_restrict_the_form(noisy, method, outputs):
    head = choose(noisy, method)
    assert {name.partition(",")[0] for name in head.errors} <= outputs
    assert head.output in outputs


def test_settings_restrict_the_search(noisy):
    head = choose(noisy, config=replace(CONFIG, head="linear", weight_decay=0.003))
    assert head == HeadRecord(
        output="linear", weight_decay=0.003, errors={}, seconds=head.seconds
    ), "nothing to compare"
    assert head.sentence() == "Output layer: linear, weight decay 0.003"


def test_a_method_that_fails_in_a_fold_gets_the_default(noisy, caplog):
    def refuse(*_):
        raise DataError("too few samples")

    head = choose(noisy, resample=refuse)
    assert head.errors == {}
    assert (head.output, head.weight_decay) == ("linear", DECAYS[0])
    assert "not cross-validated, its default is used: too few samples" in caplog.text


def test_a_candidate_that_diverges_is_dropped(noisy, monkeypatch, caplog):
    real = head_search._held_out_outputs

    def diverge(method, parts, setting, config, candidate, **options):
        if stable is None or candidate.output != stable:
            raise Diverged("the loss is not finite")
        return real(method, parts, setting, config, candidate, **options)

    monkeypatch.setattr(head_search, "_held_out_outputs", diverge)
    stable = "cosine"
    head = choose(noisy)
    assert head.output == "cosine"
    assert len(head.errors) == 1
    stable = None
    assert choose(noisy).errors == {}
    assert "its default is used: training diverged with every candidate" in caplog.text


@pytest.mark.parametrize("output", ["linear", "cosine"])
def test_learned_costs_use_separability_with_both_forms(noisy, output):
    features, pool, setting = noisy
    samples = Batch(features, torch.from_numpy(pool.labels))
    config = replace(CONFIG, epochs=2, weight_decay=1e-3)
    setting = replace(setting, has_cosine_output=output == "cosine")
    weights = [
        fit_head(
            make_method("cosen", options), samples, samples, setting, config, output=output
        ).output_layer.weight
        for options in ({}, {"separability": 0})
    ]
    assert not torch.allclose(*weights, atol=1e-4)


def test_learned_costs_also_get_offsets(noisy):
    features, pool, setting = noisy
    assert choose(noisy).offsets is None
    assert choose(noisy, "cosen").offsets is not None
    fixed = replace(CONFIG, head="linear", weight_decay=0.01)
    head = choose(noisy, "cosen", fixed)
    assert len(head.errors) == 1, "classes are balanced, so weights would change nothing"
    assert head.offsets is not None
    method = make_method("cosen", {"learn_tau": True})
    assert choose_head(method, features, pool, setting, fixed).offsets is None


def test_learned_costs_also_get_the_strength_of_frequencies(noisy):
    features, pool, setting = noisy
    fixed = replace(CONFIG, head="linear", weight_decay=0.01)
    uneven = replace(setting, class_counts=torch.tensor([800, 30, 10]))
    heads = {
        name: choose_head(make_method(name), features, pool, uneven, fixed)
        for name in ("balanced-softmax", "cosen")
    }
    assert heads["balanced-softmax"].tau == 1
    assert 0 <= heads["cosen"].tau <= 1
    known = replace(setting, tau=0.7, offsets=torch.zeros(3))
    assert make_method("cosen").make_loss(known).tau == 0.7
    assert make_method("cosen", {"tau": 0.9}).make_loss(known).tau == 0.9
    assert make_method("cosen", {"learn_tau": True}).make_loss(known).tau == 1
    weaker = heads["cosen"].model_copy(update={"tau": 0.7})
    assert weaker.applied_to(uneven).tau == 0.7
    assert "strength of class frequencies 0.7" in weaker.sentence()


def test_learned_costs_try_class_weights(noisy):
    features, pool, setting = noisy
    uneven = replace(setting, class_counts=torch.tensor([80, 30, 10]))
    head = choose_head(make_method("cosen"), features, pool, uneven, CONFIG)
    assert len(head.errors) == 2 * len(DECAYS) + 2
    weighted = {label: error for label, error in head.errors.items() if "class weights" in label}
    assert len(weighted) == len(DECAYS)
    assert set(weighted.values()) != set(head.errors.values()) - set(weighted.values())
    fixed = make_method("cosen", {"weighting": 1})
    head = choose_head(fixed, features, pool, uneven, CONFIG)
    assert not any("class weights" in label for label in head.errors)


def test_large_data_needs_fewer_folds(monkeypatch):
    """Folds are added until the error is known well enough."""
    asked = []
    monkeypatch.setattr(
        "cosen.training.head_search._held_out_outputs",
        lambda _, parts, *__, **___: (
            asked.append(len(parts[2].target)) or (torch.randn(9, 2), torch.arange(9) % 2, slice(9))
        ),
    )
    for samples, folds in ((60, 3), (9000, 1)):
        labels = np.arange(samples) % 2
        pool = from_arrays(np.zeros((samples, 4, 4), np.uint8), labels)
        setting = Setting(pool.class_counts, ("a", "b"), Objective.of("balanced"))
        asked.clear()
        fixed = replace(CONFIG, head="linear", weight_decay=0.01)
        choose_head(make_method("cosen"), torch.zeros(samples, 3), pool, setting, fixed)
        assert asked == [samples // 3] * folds
    assert recall_error(np.array([1250, 1250])) == pytest.approx(0.01)


def test_offsets_are_not_fitted_to_validation_images(noisy, monkeypatch):
    """Validation images compare methods, so no method may learn from their labels."""
    features, pool, setting = noisy
    is_validation = np.arange(len(pool)) >= 90
    fitted = []
    monkeypatch.setattr(
        "cosen.training.head_search.class_offsets",
        lambda logits, target, _: fitted.append((logits, target)) or torch.zeros(3),
    )
    fixed = replace(CONFIG, head="linear", weight_decay=0.01)
    heads = [
        choose_head(make_method("cosen"), features, pool, setting, fixed, is_validation=given)
        for given in (is_validation, None)
    ]
    assert heads[0].errors == heads[1].errors
    (_, some), (_, everyone) = fitted
    assert torch.equal(everyone.bincount(), pool.class_counts)
    assert torch.equal(some.bincount(), torch.from_numpy(pool.labels[:90]).bincount())


@pytest.mark.parametrize("seed", range(5))
def test_every_class_of_two_images_is_held_out(monkeypatch, seed):
    """Two images of a rare class can be in any fold, also if the others have enough images."""
    held_out = []
    monkeypatch.setattr(
        "cosen.training.head_search._held_out_outputs",
        lambda _, parts, *__, **___: (
            held_out.append(parts[2].target) or (torch.randn(9, 3), torch.arange(9) % 3, slice(9))
        ),
    )
    labels = np.repeat([0, 1, 2], [9000, 9000, 2])
    pool = from_arrays(np.zeros((len(labels), 1, 1), np.uint8), labels)
    setting = Setting(pool.class_counts, ("a", "b", "c"), Objective.of("balanced"))
    fixed = replace(CONFIG, head="linear", weight_decay=0.01, seed=seed)
    choose_head(make_method("cosen"), torch.zeros(len(labels), 3), pool, setting, fixed)
    assert (torch.cat(held_out) == 2).any()


def test_the_objective_decides(noisy):
    features, pool, setting = noisy
    costs = Objective.of([[0, 1, 1], [1, 0, 1], [50, 50, 0]])
    other = replace(setting, objective=costs)
    head = choose_head(make_method("cosen"), features, pool, other, CONFIG)
    assert head.errors != choose(noisy, "cosen").errors


def test_a_candidate_that_is_clearly_worse_is_not_tried_on_the_next_fold(noisy, monkeypatch):
    tried = []
    real = head_search._held_out_outputs

    def count(method, parts, setting, config, candidate, **options):
        tried.append(candidate)
        logits, target, known = real(method, parts, setting, config, candidate, **options)
        if candidate.output == "cosine":
            logits = logits.roll(1, 1)  # always wrong
        return logits, target, known

    monkeypatch.setattr(head_search, "_held_out_outputs", count)
    head = choose(noisy)
    assert head.output == "linear"
    assert tried.count(Candidate("cosine", DECAYS[0])) == 1
    best = Candidate(head.output, head.weight_decay, head.weighting, head.margin)
    assert tried.count(best) == head_search.FOLDS


def test_learned_costs_try_cosines_without_a_margin(noisy):
    features, pool, setting = noisy
    cosine = replace(CONFIG, head="cosine")
    both = "cosine, weight decay 0.001", "cosine, weight decay 0.001, margin 0"
    assert tuple(choose(noisy, "cosen", cosine).errors) == both
    fixed = make_method("cosen", {"margin": 2})
    assert tuple(choose_head(fixed, features, pool, setting, cosine).errors) == both[:1]
    without = HeadRecord(output="cosine", weight_decay=0.001, errors={}, seconds=0, margin=0.0)
    loss = make_method("cosen").make_loss(without.applied_to(setting))
    assert (loss.margin, loss.learn_margin) == (0.0, False)
    assert without.sentence() == "Output layer: cosine, weight decay 0.001, margin 0"
