import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from imblearn.metrics import geometric_mean_score

import reference
from cosen import functional as F
from cosen.errors import InputError


def predictions(classes=5, samples=200, seed=0):
    generator = np.random.default_rng(seed)
    target = generator.choice(classes, size=samples, p=generator.dirichlet(np.ones(classes)))
    scores = generator.normal(size=(samples, classes)).round(1)  # rounded: ties
    scores[np.arange(samples), target] += 1
    return torch.tensor(target), torch.tensor(scores)


@pytest.fixture(params=range(4), ids=lambda seed: f"seed{seed}")
def case(request):
    target, scores = predictions(seed=request.param)
    predicted = scores.argmax(1)
    return target, scores, predicted, F.confusion_matrix(target, predicted, num_classes=5)


def test_confusion_metrics_equal_scikit_learn(case):
    target, _, predicted, confusion = case
    present = target.unique().numpy()
    np.testing.assert_array_equal(
        confusion, sk.confusion_matrix(target, predicted, labels=range(5))
    )
    close = {"rtol": 1e-5}
    np.testing.assert_allclose(
        F.overall_accuracy(confusion), sk.accuracy_score(target, predicted), **close
    )
    np.testing.assert_allclose(
        F.class_recall(confusion)[present],
        sk.recall_score(target, predicted, labels=present, average=None),
        **close,
    )
    np.testing.assert_allclose(
        F.mean_recall(confusion),
        sk.recall_score(target, predicted, labels=present, average="macro"),
        **close,
    )
    np.testing.assert_allclose(
        F.class_precision(confusion),
        sk.precision_score(target, predicted, labels=range(5), average=None, zero_division=0),
        **close,
    )
    np.testing.assert_allclose(
        F.macro_f1(confusion), sk.f1_score(target, predicted, average="macro"), **close
    )


def test_g_mean_equals_imbalanced_learn(case):
    target, _, predicted, confusion = case
    expected = geometric_mean_score(target, predicted, labels=target.unique().numpy())
    np.testing.assert_allclose(F.g_mean(confusion), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["paper_g_mean", "paper_f_measure", "g_mean", "macro_f1", "confusion_rates"]
)
def test_metrics_equal_reference(case, name):
    confusion = case[3]
    expected = getattr(reference, name)(confusion.tolist())
    np.testing.assert_allclose(getattr(F, name)(confusion), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "metric",
    [
        F.confusion_rates,
        F.overall_accuracy,
        F.class_recall,
        F.mean_recall,
        F.class_precision,
        F.g_mean,
        F.macro_f1,
        F.paper_g_mean,
        F.paper_f_measure,
    ],
)
def test_a_confusion_of_shares_gives_what_its_counts_give(case, metric):
    confusion = case[3].double()
    torch.testing.assert_close(metric(confusion / 200), metric(confusion), equal_nan=True)


def test_the_papers_metrics_fit_its_table():
    """Table gnf, MNIST, CoSen CNN: 98.6 % accuracy, F-measure 0.493 and G-mean 0.992."""
    confusion = torch.full((10, 10), 14 / 9).fill_diagonal_(986)
    assert F.overall_accuracy(confusion) == pytest.approx(0.986)
    assert F.paper_f_measure(confusion) == pytest.approx(0.493, abs=5e-4)
    assert F.paper_g_mean(confusion) == pytest.approx(0.992, abs=5e-4)


def test_auc_and_average_precision_equal_scikit_learn(case):
    target, scores, _, _ = case
    auc = F.one_vs_rest_auc(scores, target)
    precision = F.one_vs_rest_average_precision(scores, target)
    for label in range(5):
        member = (target == label).numpy()
        if not member.any():
            assert auc[label].isnan()
            assert precision[label].isnan()
            continue
        np.testing.assert_allclose(
            auc[label], sk.roc_auc_score(member, scores[:, label]), rtol=1e-5
        )
        np.testing.assert_allclose(
            precision[label], sk.average_precision_score(member, scores[:, label]), rtol=1e-5
        )


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_calibration_error_equals_reference(bins):
    target, scores = predictions(seed=9)
    probabilities = scores.softmax(1)
    expected = reference.calibration_error(probabilities.tolist(), target.tolist(), bins)
    actual = F.expected_calibration_error(probabilities, target, bins=bins)
    np.testing.assert_allclose(actual, expected, rtol=1e-4)
    found = F.calibration_bins(probabilities, target, bins=bins)
    assert found.counts.sum() == len(target)
    filled = found.counts > 0
    gaps = found.counts * (found.accuracy - found.confidence).abs()
    np.testing.assert_allclose(gaps[filled].sum() / len(target), expected, rtol=1e-4)
    assert found.confidence[~filled].isnan().all()


def test_a_class_with_no_sample_is_left_out_of_averages():
    confusion = torch.tensor([[3, 1, 0], [2, 2, 0], [0, 0, 0]])
    assert F.class_recall(confusion)[2].isnan()
    torch.testing.assert_close(F.mean_recall(confusion), torch.tensor(0.625))
    torch.testing.assert_close(F.g_mean(confusion), torch.tensor(0.375).sqrt())
    assert F.macro_f1(confusion).isfinite()
    assert torch.equal(F.confusion_rates(confusion)[2], torch.zeros(3))


def test_a_class_never_found_makes_the_g_mean_zero():
    assert F.g_mean(torch.tensor([[3, 0], [2, 0]])) == 0


def test_small_integer_classes():
    target = torch.tensor([156, 3, 156], dtype=torch.uint8)
    confusion = F.confusion_matrix(target, target, num_classes=256)
    assert (int(confusion[156, 156]), int(confusion[3, 3])) == (2, 1)
    scores = torch.rand(3, 256, generator=torch.Generator().manual_seed(0))
    for metric in (F.one_vs_rest_auc, F.one_vs_rest_average_precision):
        torch.testing.assert_close(
            metric(scores, target), metric(scores, target.long()), equal_nan=True
        )


def test_rates_are_shares_of_rows(case):
    rates = F.confusion_rates(case[3])
    present = case[3].sum(1) > 0
    torch.testing.assert_close(rates.sum(1)[present], torch.ones(int(present.sum())))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: F.confusion_matrix(torch.tensor([0, 2]), torch.tensor([0, 1]), num_classes=2),
            r"target must lie in 0\.\.1, but runs from 0 to 2",
        ),
        (
            lambda: F.confusion_matrix(torch.tensor([0, 1]), torch.tensor([0]), num_classes=2),
            "predicted must be class indices",
        ),
        (
            lambda: F.confusion_matrix(torch.tensor(1), torch.tensor(1), num_classes=2),
            r"target must be class indices .* of \(\)",
        ),
        (
            lambda: F.confusion_matrix(
                torch.tensor([1]), torch.tensor([1], device="meta"), num_classes=2
            ),
            "predicted and target must be on one device",
        ),
        (
            lambda: F.confusion_matrix(torch.tensor([0]), torch.tensor([0]), num_classes=0),
            "num_classes must be at least 1",
        ),
        (lambda: F.overall_accuracy(torch.ones(0, 0)), r"\(classes, classes\)"),
        (lambda: F.overall_accuracy(torch.ones(2, 3)), r"\(classes, classes\)"),
        (lambda: F.class_recall(-torch.ones(2, 2)), "negative"),
        (lambda: F.one_vs_rest_auc(torch.ones(2), torch.tensor([0, 1])), "scores must be floating"),
        (lambda: F.one_vs_rest_auc(torch.ones(2, 2), torch.tensor([0])), r"shape \(2,\)"),
        (
            lambda: F.one_vs_rest_auc(torch.full((1, 2), torch.nan), torch.tensor([0])),
            "NaN",
        ),
        (
            lambda: F.one_vs_rest_auc(torch.ones(2, 2), torch.tensor([0, 7])),
            r"target must lie in 0\.\.1, but runs from 0 to 7",
        ),
        (
            lambda: F.one_vs_rest_average_precision(torch.ones(2, 2), torch.tensor([-1, 1])),
            r"target must lie in 0\.\.1, but runs from -1 to 1",
        ),
        (
            lambda: F.expected_calibration_error(torch.ones(1, 2), torch.tensor([2])),
            r"target must lie in 0\.\.1",
        ),
        (
            lambda: F.expected_calibration_error(torch.ones(2), torch.tensor([0, 1])),
            "probabilities must be floating point",
        ),
        (
            lambda: F.expected_calibration_error(torch.tensor([[5.0, -2.0]]), torch.tensor([0])),
            r"probabilities must lie in \[0, 1\], but run from -2 to 5",
        ),
        (
            lambda: F.expected_calibration_error(torch.ones(1, 1), torch.tensor([0]), bins=0),
            "bins",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


METRICS_OF_COUNTS = [
    *(F.overall_accuracy, F.class_recall, F.mean_recall, F.class_precision, F.g_mean),
    *(F.macro_f1, F.paper_g_mean, F.paper_f_measure),
]


@pytest.mark.parametrize("metric", METRICS_OF_COUNTS, ids=lambda metric: metric.__name__)
def test_sparse_counts_have_the_same_metrics(metric):
    generator = torch.Generator().manual_seed(0)
    target, predicted = torch.randint(6, (2, 50), generator=generator)
    target[target == 3] = 2  # an empty class
    dense, sparse = (
        F.confusion_matrix(target, predicted, num_classes=6, sparse=sparse)
        for sparse in (False, True)
    )
    assert torch.equal(sparse.to_dense(), dense)
    torch.testing.assert_close(metric(sparse), metric(dense), equal_nan=True)
    rates = F.confusion_rates(sparse)
    torch.testing.assert_close(rates.to_dense(), F.confusion_rates(dense))


@pytest.mark.parametrize("metric", [F.one_vs_rest_auc, F.one_vs_rest_average_precision])
def test_classes_are_sorted_some_at_a_time(monkeypatch, metric):
    generator = torch.Generator().manual_seed(0)
    scores, target = torch.rand(40, 7, generator=generator), torch.arange(40) % 7
    whole = metric(scores, target)
    monkeypatch.setattr("cosen.functional.metrics.CHUNK", 80)
    torch.testing.assert_close(metric(scores, target), whole)
