"""Recall, coverage and F1 at k, and labels by frequency, against loops written from the definitions."""

import numpy as np
import pytest
import scipy.sparse as sp
from test_ranking import random_problem, ranked

from xmcjax import metrics


def best(scores, k):
    return [ranked(row)[:k] for row in scores]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 4, 25])
def test_the_definitions(seed, k):
    Y, scores = random_problem(seed, ties=seed == 2)
    truth, top = Y.toarray(), best(scores, k)
    n, L = truth.shape
    hit = [[l for l in top[i] if truth[i, l]] for i in range(n)]
    recall = sum(len(hit[i]) / truth[i].sum() if truth[i].any() else 0 for i in range(n)) / n
    assert metrics.recall_at_k(Y, scores, k) == pytest.approx(recall)
    occur = {l for l in range(L) if truth[:, l].any()}
    assert metrics.coverage_at_k(Y, scores, k) == len({l for row in hit for l in row}) / len(occur)
    tp = sum(map(len, hit))
    assert metrics.micro_f1_at_k(Y, scores, k) == pytest.approx(2 * tp / (n * k + truth.sum()))
    each = []
    for l in range(L):
        predicted, true = sum(l in row for row in top), truth[:, l].sum()
        if predicted + true:
            each.append(2 * sum(l in row for row in hit) / (predicted + true))
    assert metrics.macro_f1_at_k(Y, scores, k) == pytest.approx(np.mean(each))


def test_bins_of_frequency():
    Y, scores = random_problem(5)
    frequencies = np.random.default_rng(0).integers(0, 30, Y.shape[1])
    found = metrics.by_frequency(Y, scores, 3, frequencies=frequencies, edges=[1, 5, 20])
    truth, top = Y.toarray(), best(scores, 3)
    for b, (low, high) in enumerate(((0, 1), (1, 5), (5, 20), (20, 99))):
        inside = (frequencies >= low) & (frequencies < high)
        hit = sum(truth[i, l] for i, row in enumerate(top) for l in row if inside[l])
        assert found.labels[b] == inside.sum() and found.positives[b] == truth[:, inside].sum()
        assert found.precision[b] == pytest.approx(hit / (3 * len(truth)))
        assert found.recall[b] == pytest.approx(hit / max(1, truth[:, inside].sum()))
    assert found.precision.sum() == pytest.approx(metrics.precision_at_k(Y, scores, 3))


def test_classes_and_label_numbers():
    y, top = np.array([0, 2, 1]), np.array([[0, 1], [1, 2], [-1, -1]])
    assert metrics.recall_at_k(y, top, 2) == pytest.approx(2 / 3)
    assert metrics.coverage_at_k(y, top, 1) == pytest.approx(1 / 3)
    assert metrics.micro_f1_at_k(y, top, 2) == pytest.approx(4 / 7)
    assert metrics.by_frequency(y, top, 1, frequencies=[1, 2, 3], edges=[2]).recall.tolist() == [1.0, 0.0]


def test_class_numbers_may_be_hashes():
    y = np.array([2**62 + 5, 3, 2**62 + 5, 2**60])
    top = np.stack([y, np.array([1, 2, 3, 2**61])], axis=1)
    assert metrics.coverage_at_k(y, top, 1) == metrics.micro_f1_at_k(y, top, 1) == 1.0
    assert metrics.micro_f1_at_k(y, top, 2) == pytest.approx(2 * 4 / (8 + 4))
    # F1 of the three that occur is 1, 2/3 and 1; of three others it is 0
    assert metrics.macro_f1_at_k(y, top, 2) == pytest.approx((1 + 2 / 3 + 1) / 6)


def test_without_any_label():
    Y, top = sp.csr_array((2, 3)), np.full((2, 1), -1)
    for metric in (metrics.recall_at_k, metrics.coverage_at_k, metrics.micro_f1_at_k, metrics.macro_f1_at_k):
        assert metric(Y, top, 1) == 0
    assert metrics.by_frequency(Y, top, 1, frequencies=np.ones(3), edges=[]).recall.tolist() == [0.0]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (dict(frequencies=[1, 2], edges=[1]), "^frequencies: expected one number per label, 3 or more"),
        (dict(frequencies=np.ones((3, 1)), edges=[1]), "^frequencies: expected one number per label"),
        (dict(frequencies=[1, -2, 3], edges=[1]), "^frequencies: expected finite numbers from 0"),
        (dict(frequencies=[1, 2, 3], edges=[2, 1]), "^edges: expected ascending numbers"),
        (dict(frequencies=[1, 2, 3], edges=[[1]]), "^edges: expected ascending numbers"),
    ],
)
def test_frequencies_and_edges_that_do_not_fit(options, said):
    with pytest.raises(ValueError, match=said):
        metrics.by_frequency(np.array([0, 2]), np.array([[0], [1]]), 1, **options)
