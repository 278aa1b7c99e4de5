"""Thresholds of labels for F1 against a slow loop of the definition."""

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import f1_score

from xmcjax.metrics import above_thresholds, f1_thresholds, label_precision_recall, macro_f1


def f1_of(true, z, threshold):
    """F1 of one label by its definition."""
    predicted = (z >= threshold) & (z > -np.inf)
    hits = (predicted & true).sum()
    total = predicted.sum() + true.sum()
    return 2 * hits / total if total else 0.0


def slow(true, z):
    """(best F1, the fewest rows that are predicted with it), over every threshold there is."""
    found = [(f1_of(true, z, t), -((z >= t) & (z > -np.inf)).sum()) for t in [*np.unique(z), np.inf]]
    best, rows = max(found)
    return best, -rows


def drawn(seed, rows=40, labels=15, ties=False):
    rng = np.random.default_rng(seed)
    Y = rng.random((rows, labels)) < rng.uniform(0, 0.4, labels)
    Y[:, 0] = False
    Z = rng.normal(size=(rows, labels)) + Y
    return Y, np.round(Z, 0) if ties else Z


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_dense_scores(seed, ties):
    Y, Z = drawn(seed, ties=ties)
    limits = f1_thresholds(Y.astype(int), Z)
    for label in range(Y.shape[1]):
        best, rows = slow(Y[:, label], Z[:, label])
        assert f1_of(Y[:, label], Z[:, label], limits[label]) == pytest.approx(best, abs=1e-12)
        assert (Z[:, label] >= limits[label]).sum() == (rows if best else 0)
    assert limits[0] == np.inf
    P = above_thresholds(Z, limits)
    np.testing.assert_array_equal(P.toarray(), limits <= Z)
    # no threshold alone is better
    both = f1_score(Y, P.toarray(), average="macro", zero_division=0)
    assert macro_f1(Y.astype(int), P) == pytest.approx(both)
    assert both >= max(f1_score(Y, t <= Z, average="macro", zero_division=0) for t in np.unique(Z)) - 1e-12


@pytest.mark.parametrize("form", [np.asarray, lambda Z: sp.csr_array(np.where(Z > 0, Z, 0))])
def test_labels_in_blocks_have_the_same_thresholds(form, monkeypatch):
    Y, Z = drawn(6, ties=True)
    expected = f1_thresholds(Y.astype(int), form(Z))
    for block in (1, 90):
        monkeypatch.setattr("xmcjax.metrics._thresholds._BLOCK", block)
        np.testing.assert_array_equal(f1_thresholds(Y.astype(int), form(Z)), expected)


@pytest.mark.parametrize("seed", range(5))
def test_of_sparse_scores_only_stored_ones_are_predictions(seed):
    Y, Z = drawn(seed)
    kept = np.random.default_rng(seed).random(Z.shape) < 0.5
    Z[3, kept[3]] = 0  # which is a score like others
    kept[:, 1] = False
    scores = sp.csr_array((Z[kept], np.nonzero(kept)), shape=Z.shape)
    limits = f1_thresholds(sp.csr_array(Y.astype(int)), scores)
    dense = np.where(kept, Z, -np.inf)
    np.testing.assert_array_equal(limits, f1_thresholds(Y.astype(int), dense))
    for label in range(Y.shape[1]):
        best, _ = slow(Y[:, label], dense[:, label])
        assert f1_of(Y[:, label], dense[:, label], limits[label]) == pytest.approx(best, abs=1e-12)
    assert limits[1] == np.inf
    expected = kept & (limits <= Z)
    np.testing.assert_array_equal(above_thresholds(scores, limits).toarray(), expected)


def test_labels_without_rows_are_never_predicted_and_a_threshold_is_in_the_middle():
    Y = np.array([[0, 1, 1], [0, 1, 0], [0, 0, 0]])
    Z = np.array([[9.0, 3.0, 1.0], [8.0, 2.0, 2.0], [7.0, 1.0, 3.0]])
    np.testing.assert_array_equal(f1_thresholds(Y, Z), [np.inf, 1.5, 1.0])
    assert not above_thresholds(Z, [np.inf] * 3).nnz
    # neighbours among the numbers have no middle
    close = np.array([[np.nextafter(1.0, 2)], [1.0]])
    assert f1_thresholds(np.array([[1], [0]]), close) == [np.nextafter(1.0, 2)]
    huge = np.array([[1e308], [-1e308]])
    assert f1_thresholds(np.array([[1], [0]]), huge) == [0]


def test_what_is_refused():
    Y, Z = np.eye(3, dtype=int), np.eye(3)
    with pytest.raises(ValueError, match=r"predictions: expected shape \(3, 3\) as Y_true, found \(2, 3\)"):
        f1_thresholds(Y, Z[:2])
    with pytest.raises(ValueError, match="Y_true: expected at least one row, found none"):
        f1_thresholds(Y[:0], Z[:0])
    Z[1, 2] = np.nan
    with pytest.raises(ValueError, match="predictions: expected numbers, found nan in row 1, label 2"):
        f1_thresholds(Y, Z)
    with pytest.raises(ValueError, match="thresholds: expected 3 numbers, one a label, found"):
        above_thresholds(np.eye(3), [1.0])
    with pytest.raises(ValueError, match="thresholds: expected numbers, found nan for label 1"):
        above_thresholds(np.eye(3), [1.0, np.nan, 0.0])
    with pytest.raises(ValueError, match="Y_true: expected 0 and 1, found 2"):
        f1_thresholds(2 * Y, np.eye(3))


def test_no_labels_have_no_thresholds():
    assert f1_thresholds(np.zeros((3, 0)), np.zeros((3, 0))).shape == (0,)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int64])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_whole_numbers_are_scores_like_others(dtype, form):
    Y, Z = drawn(3)
    Z = (np.clip(10 * Z + 40, 1, 90)).astype(dtype)
    Z[0] = np.iinfo(dtype).min if dtype in (np.int8, np.int64) else 1
    expected = f1_thresholds(Y.astype(int), Z.astype(float))
    np.testing.assert_array_equal(f1_thresholds(Y.astype(int), form(Z)), expected)


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16, ">f4"])
def test_halves_and_the_byte_order_of_another_machine(dtype):
    Y, Z = drawn(3)
    Z = np.where(Z > -0.5, Z, -np.inf).astype(dtype)
    thresholds = f1_thresholds(Y, Z)
    np.testing.assert_array_equal(thresholds, f1_thresholds(Y, Z.astype(np.float32)))
    found = above_thresholds(Z, thresholds)
    np.testing.assert_array_equal(found.toarray(), above_thresholds(Z.astype(float), thresholds).toarray())


def test_truth_values_are_no_scores():
    Y, Z = drawn(3)
    for form in (np.asarray, sp.csr_array, sp.coo_array):
        with pytest.raises(ValueError, match="expected scores"):
            f1_thresholds(Y.astype(int), form(Z > 0))


def test_a_score_that_is_stored_twice_is_no_second_prediction():
    # refused, as by the metrics at k, or added up, where the matrix may be one of labels
    scores = sp.csr_array((np.array([0.3, 0.3, 0.9]), [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    for call in (
        lambda: f1_thresholds(np.eye(2), scores),
        lambda: above_thresholds(scores, [0.2, 0.2]),
    ):
        with pytest.raises(ValueError, match="predictions: expected one score for each row and label"):
            call()
    assert label_precision_recall(np.eye(2), scores, 0.5).recall == 1
