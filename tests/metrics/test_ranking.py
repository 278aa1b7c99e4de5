"""Ranking metrics against loops written from the definitions, and against values worked out by hand."""

import functools
import math

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.memory import peak_of
from xmcjax import metrics


def random_problem(seed, n=40, n_labels=25, ties=False):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, n_labels)) < 0.12).astype(np.float64)
    Y[:3] = 0  # rows without labels
    scores = rng.standard_normal((n, n_labels))
    if ties:
        scores = np.round(scores)
    return sp.csr_array(Y), scores


def ranked(row_scores):
    """Labels by falling score, ties by the lower label: the definition."""
    return sorted(range(len(row_scores)), key=lambda l: (-row_scores[l], l))


def order_of(scores):
    """Label numbers of all rows in that order; −1 for the score −∞."""
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.where(np.take_along_axis(scores, order, axis=1) == -np.inf, -1, order)


def loop_precision(Y, scores, k):
    return sum(sum(Y[i, l] for l in ranked(scores[i])[:k]) / k for i in range(len(Y))) / len(Y)


def loop_ndcg(Y, scores, k):
    total = 0.0
    for i in range(len(Y)):
        positives = int(Y[i].sum())
        if positives:
            gain = sum(Y[i, l] / math.log2(r + 2) for r, l in enumerate(ranked(scores[i])[:k]))
            total += gain / sum(1 / math.log2(r + 2) for r in range(min(k, positives)))
    return total / len(Y)


def loop_psp(Y, scores, k, q):
    achieved = best = 0.0
    for i in range(len(Y)):
        achieved += sum(q[l] * Y[i, l] for l in ranked(scores[i])[:k])
        best += sum(sorted((q[l] for l in range(len(q)) if Y[i, l]), reverse=True)[:k])
    return achieved / best


def loop_psndcg(Y, scores, k, q):
    achieved = best = 0.0
    for i in range(len(Y)):
        positives = int(Y[i].sum())
        if positives:
            ideal = sum(1 / math.log2(r + 2) for r in range(min(k, positives)))
            gains = [q[l] * Y[i, l] for l in ranked(scores[i])[:k]]
            bests = sorted((q[l] for l in range(len(q)) if Y[i, l]), reverse=True)[:k]
            achieved += sum(g / math.log2(r + 2) for r, g in enumerate(gains)) / ideal
            best += sum(g / math.log2(r + 2) for r, g in enumerate(bests)) / ideal
    return achieved / best


def loop_mrr(Y, scores):
    total = 0.0
    for i in range(len(Y)):
        ranks = [r + 1 for r, l in enumerate(ranked(scores[i])) if Y[i, l]]
        total += 1 / ranks[0] if ranks else 0.0
    return total / len(Y)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("k", [1, 3, 5, 25])
def test_equals_the_definition(seed, ties, k):
    Y, scores = random_problem(seed, ties=ties)
    dense = Y.toarray()
    q = metrics.inverse_propensities(Y)
    expect = pytest.approx
    assert metrics.precision_at_k(Y, scores, k) == expect(loop_precision(dense, scores, k), abs=1e-12)
    assert metrics.ndcg_at_k(Y, scores, k) == expect(loop_ndcg(dense, scores, k), abs=1e-12)
    psp = metrics.propensity_scored_precision_at_k(Y, scores, k, inverse_propensities=q)
    assert psp == expect(loop_psp(dense, scores, k, q), abs=1e-12)
    psndcg = metrics.propensity_scored_ndcg_at_k(Y, scores, k, inverse_propensities=q)
    assert psndcg == expect(loop_psndcg(dense, scores, k, q), abs=1e-12)
    assert metrics.mean_reciprocal_rank(Y, scores) == expect(loop_mrr(dense, scores), abs=1e-12)
    accuracy = np.mean([any(dense[i, l] for l in ranked(scores[i])[:k]) for i in range(len(dense))])
    assert metrics.topk_accuracy(Y, scores, k) == expect(accuracy, abs=1e-12)


@pytest.mark.parametrize("ties", [False, True])
def test_the_best_rank_is_counted_without_an_order_of_all(ties):
    rng = np.random.default_rng(3)
    scores = rng.standard_normal((400, 500))
    scores = np.round(scores) if ties else scores
    scores[:, ::7] = -np.inf
    scores[5] = -np.inf
    y = rng.integers(0, 500, 400)
    found, most = peak_of(lambda: metrics.mean_reciprocal_rank(y, scores))
    assert most < scores.nbytes / 2
    assert found == metrics.mean_reciprocal_rank(y, order_of(scores))
    for k in (1, 3, 600):
        ordered = order_of(scores)[:, :k]
        ordered = np.pad(ordered, ((0, 0), (0, k - ordered.shape[1])), constant_values=-1)
        assert metrics.mean_reciprocal_rank(y, scores, k) == metrics.mean_reciprocal_rank(y, ordered, k)


@pytest.mark.parametrize("form", ["float32", "csr", "csr unsorted", "numbers", "int32 numbers"])
def test_every_form_of_predictions_gives_the_same(form):
    Y, scores = random_problem(7, ties=True)
    q = metrics.inverse_propensities(Y)
    numbers = np.array([ranked(row) for row in scores])
    if form == "float32":
        predictions = scores.astype(np.float32)
    elif form == "csr":
        # 0 is a score like any other: store every entry.
        rows, columns = np.indices(scores.shape)
        predictions = sp.csr_array((scores.ravel(), (rows.ravel(), columns.ravel())), shape=scores.shape)
        assert predictions.nnz == scores.size
    elif form == "csr unsorted":
        indices = np.tile(np.arange(scores.shape[1])[::-1], len(scores))
        indptr = np.arange(len(scores) + 1) * scores.shape[1]
        predictions = sp.csr_array((scores[:, ::-1].ravel(), indices, indptr), shape=scores.shape)
    else:
        predictions = numbers[:, :7].astype(np.int32 if form == "int32 numbers" else np.int64)
    before = predictions.copy()
    for function, arguments in [
        (metrics.precision_at_k, {}),
        (metrics.ndcg_at_k, {}),
        (metrics.topk_accuracy, {}),
        (metrics.propensity_scored_precision_at_k, {"inverse_propensities": q}),
        (metrics.propensity_scored_ndcg_at_k, {"inverse_propensities": q}),
    ]:
        assert function(Y, predictions, 5, **arguments) == function(Y, scores, 5, **arguments)
    if sp.issparse(predictions):
        for part in ("indices", "data"):
            np.testing.assert_array_equal(getattr(predictions, part), getattr(before, part))


def test_sparse_rows_of_all_lengths():
    rng = np.random.default_rng(11)
    lengths = np.r_[rng.integers(0, 30, 3000), 40_000, np.zeros(50, int)]
    rng.shuffle(lengths)
    columns = [rng.choice(50_000, length, replace=False) for length in lengths]
    # few different scores, so that ties run through the k-th place
    scores = [rng.choice([-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf], length) for length in lengths]
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    predictions = sp.csr_array(
        (np.concatenate(scores), np.concatenate(columns), indptr), shape=(len(lengths), 50_000)
    )
    Y = sp.csr_array(([1.0] * len(lengths), [row[0] if len(row) else 7 for row in columns], range(3052)))
    Y.resize(predictions.shape)
    for k in (1, 4, 60):
        numbers = np.full((len(lengths), k), -1)
        for i, (labels, values) in enumerate(zip(columns, scores, strict=True)):
            ranked = sorted((-z, l) for z, l in zip(values, labels, strict=True) if z > -np.inf)[:k]
            numbers[i, : len(ranked)] = [l for _, l in ranked]
        found, most = peak_of(functools.partial(metrics.ndcg_at_k, Y, predictions, k))
        assert found == metrics.ndcg_at_k(Y, numbers, k)
        assert most < 1 << 25  # every row as long as the longest would be 30 times that


# Rows: labels {0, 2}, {3}, {} ; ranked 2 0 1 …, 1 3 0 …, any.
GOLDEN_Y = np.array([[1, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]])
GOLDEN_TOP = np.array([[2, 0, 1], [1, 3, 0], [0, 1, 2]])


def test_values_worked_out_by_hand():
    assert metrics.precision_at_k(GOLDEN_Y, GOLDEN_TOP, 1) == pytest.approx(1 / 3)
    assert metrics.precision_at_k(GOLDEN_Y, GOLDEN_TOP, 2) == pytest.approx((1 + 0.5 + 0) / 3)
    assert metrics.precision_at_k(GOLDEN_Y, GOLDEN_TOP, 3) == pytest.approx((2 / 3 + 1 / 3 + 0) / 3)
    # Row 0 is perfect: 1. Row 1 hits at rank 2 of one label: 1/log2(3).
    assert metrics.ndcg_at_k(GOLDEN_Y, GOLDEN_TOP, 3) == pytest.approx((1 + 1 / math.log2(3)) / 3)
    q = np.array([1.0, 2.0, 3.0, 10.0])
    psp = metrics.propensity_scored_precision_at_k
    # k = 1: achieved 3 (row 0), 0; best 3, 10.
    assert psp(GOLDEN_Y, GOLDEN_TOP, 1, inverse_propensities=q) == pytest.approx(3 / 13)
    assert psp(GOLDEN_Y, GOLDEN_TOP, 1, inverse_propensities=q, normalize=False) == pytest.approx(3 / 3)
    # k = 2: achieved 3 + 1, 10; best the same.
    assert psp(GOLDEN_Y, GOLDEN_TOP, 2, inverse_propensities=q) == pytest.approx(1)
    log3 = math.log2(3)
    ideal = 1 + 1 / log3
    psndcg = metrics.propensity_scored_ndcg_at_k
    row0 = (3 + 1 / log3) / ideal
    assert psndcg(GOLDEN_Y, GOLDEN_TOP, 2, inverse_propensities=q) == pytest.approx(
        (row0 + 10 / log3) / (row0 + 10)
    )
    raw = psndcg(GOLDEN_Y, GOLDEN_TOP, 2, inverse_propensities=q, normalize=False)
    assert raw == pytest.approx((row0 + 10 / log3) / 3)
    assert metrics.mean_reciprocal_rank(GOLDEN_Y, GOLDEN_TOP) == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert metrics.mean_reciprocal_rank(GOLDEN_Y, GOLDEN_TOP, 1) == pytest.approx(1 / 3)
    assert metrics.topk_accuracy(GOLDEN_Y, GOLDEN_TOP, 2) == pytest.approx(2 / 3)


def test_class_vector_is_one_label_a_row():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 6, 50)
    scores = rng.standard_normal((50, 6))
    onehot = np.eye(6)[y]
    for k in (1, 2, 5):
        expected = np.mean([y[i] in np.argsort(-scores[i])[:k] for i in range(50)])
        assert metrics.topk_accuracy(y, scores, k) == pytest.approx(expected)
        assert metrics.topk_accuracy(onehot, scores, k) == pytest.approx(expected)
        assert metrics.precision_at_k(y, scores, k) == pytest.approx(expected / k)
        assert metrics.ndcg_at_k(y, scores, k) == metrics.ndcg_at_k(onehot, scores, k)
    q = rng.random(6) + 1
    weighted = metrics.propensity_scored_precision_at_k
    assert weighted(y, scores, 2, inverse_propensities=q) == weighted(
        onehot, scores, 2, inverse_propensities=q
    )


ONE, TWO = np.array([[0, 1, 0, 0]]), np.ones((2, 3))
NONE = np.full((2, 2), -1)
STORED = sp.csr_array((np.zeros(4), np.array([3, 2, 1, 0]), np.array([0, 4])), shape=(1, 4))
# Ties go to the lower label. No prediction, which is −1, −∞ or an entry that sparse scores do not store, is
# never a hit and keeps its rank.
EDGES = [
    (metrics.precision_at_k, ONE, np.zeros((1, 4)), 1, 0.0),
    (metrics.precision_at_k, ONE, np.zeros((1, 4)), 2, 0.5),
    (metrics.precision_at_k, ONE, STORED, 2, 0.5),
    (metrics.mean_reciprocal_rank, ONE, np.zeros((1, 4)), None, 0.5),
    (metrics.precision_at_k, TWO, NONE, 2, 0.0),
    (metrics.precision_at_k, TWO, np.array([[-np.inf, 1.0, -np.inf]] * 2), 2, 0.5),
    (metrics.precision_at_k, TWO, sp.csr_array(np.array([[0, -1.0, 0]] * 2)), 2, 0.5),
    (metrics.precision_at_k, TWO, sp.csr_array((2, 3)), 1, 0.0),
    (metrics.mean_reciprocal_rank, TWO, NONE, None, 0.0),
    (metrics.mean_reciprocal_rank, TWO, np.array([[-1, 0], [-1, 2]]), None, 0.5),
    (metrics.mean_reciprocal_rank, TWO, sp.csr_array((2, 3)), None, 0.0),
    # label numbers beyond the first k are not looked at; places beyond all labels stay empty
    (metrics.precision_at_k, np.array([[1, 0, 0], [0, 1, 1]]), np.array([[0, 3], [0, 1]]), 1, 0.5),
    (metrics.precision_at_k, np.array([[1, 1]]), np.array([[0.5, 0.1]]), 4, 0.5),
    (metrics.ndcg_at_k, np.array([[1, 1]]), np.array([[0.5, 0.1]]), 4, 1.0),
]


@pytest.mark.parametrize(("metric", "Y", "predictions", "k", "value"), EDGES)
def test_what_counts_as_a_hit(metric, Y, predictions, k, value):
    assert metric(Y, predictions, *([] if k is None else [k])) == pytest.approx(value)


def test_no_label_at_all_is_zero_not_nan():
    Y, scores = sp.csr_array((3, 4)), np.ones((3, 4))
    q = np.ones(4)
    assert metrics.ndcg_at_k(Y, scores, 2) == 0.0
    assert metrics.propensity_scored_precision_at_k(Y, scores, 2, inverse_propensities=q) == 0.0
    assert metrics.propensity_scored_ndcg_at_k(Y, scores, 2, inverse_propensities=q) == 0.0


def test_large_label_numbers_need_no_dense_matrix():
    # 2000 x 3,000,000: an array of that shape would need 6 GB even at one byte an entry.
    n, n_labels = 2000, 3_000_000
    rng = np.random.default_rng(0)
    labels = rng.integers(0, n_labels, n)
    Y = sp.csr_array((np.ones(n, np.float32), (np.arange(n), labels)), shape=(n, n_labels))
    top = np.stack([(labels + 1) % n_labels, labels], axis=1)
    top[: n // 2, 1] = -1
    assert metrics.precision_at_k(Y, top, 2) == pytest.approx(0.25)
    scores = sp.csr_array((np.arange(1.0, n + 1), (np.arange(n), labels)), shape=(n, n_labels))
    assert metrics.precision_at_k(Y, scores, 1) == 1.0


def test_class_numbers_may_be_hashes():
    # (row, number) has no place in 64 bits
    y = np.array([2**62 + 5, 3, 2**62 + 1, 2**63 - 1, 0])
    assert metrics.precision_at_k(y, y[:, None], 1) == 1.0
    assert metrics.precision_at_k(y, y[::-1, None], 1) == pytest.approx(1 / 5)
    assert metrics.ndcg_at_k(y, np.stack([y[::-1] // 2, y], axis=1), 2) == pytest.approx(1 / np.log2(3))
    assert metrics.topk_accuracy(np.zeros(5, int), y[:, None], 1) == pytest.approx(1 / 5)


def test_dense_blocks_agree_with_one_block(monkeypatch):
    Y, scores = random_problem(11, ties=True)
    whole = metrics.ndcg_at_k(Y, scores, 4)
    monkeypatch.setattr("xmcjax.metrics._labels._BLOCK_ELEMENTS", 3 * scores.shape[1])
    assert metrics.ndcg_at_k(Y, scores, 4) == whole == pytest.approx(loop_ndcg(Y.toarray(), scores, 4))


SCORES = np.zeros((2, 3))
TRUE = np.array([[1, 0, 0], [0, 1, 1]])


@pytest.mark.parametrize(
    ("Y", "predictions", "k", "error", "words"),
    [
        (TRUE, SCORES, 0, ValueError, "k: expected at least 1, got 0"),
        (TRUE, SCORES, 1.5, TypeError, "k: expected a whole number of at least 1, got 1.5"),
        (TRUE, SCORES, True, TypeError, "k: expected a whole number"),
        (TRUE, np.zeros((3, 3)), 1, ValueError, "expected 2 rows as in Y_true, found 3"),
        (TRUE, np.zeros((2, 4)), 1, ValueError, "expected scores of 3 labels as in Y_true, found 4"),
        (TRUE, np.zeros(3), 1, ValueError, "expected two dimensions, found 1"),
        (TRUE, np.zeros((2, 1), int), 2, ValueError, "at least k = 2 label numbers per row, found 1"),
        (TRUE, np.array([[3], [0]]), 1, ValueError, "expected label numbers below 3, found 3"),
        (TRUE, np.array([[-2], [0]]), 1, ValueError, "found -2"),
        (TRUE, np.array([[0, 1], [2, 2]]), 2, ValueError, "found label 2 twice in row 1"),
        (TRUE, np.array([[0, np.nan, 0], [0, 0, 0]]), 1, ValueError, "found nan in row 0, label 1"),
        (TRUE, sp.csr_array([[0, np.nan, 0], [0, 0, 0]]), 1, ValueError, "found nan in row 0, label 1"),
        (TRUE, np.zeros((2, 3), bool), 1, TypeError, "found bool"),
        (TRUE, np.array([["a"], ["b"]]), 1, TypeError, "found <U1"),
        (TRUE * 2, SCORES, 1, ValueError, "Y_true: expected 0 and 1, found 2 in row 0, label 0"),
        (TRUE * 2 - 1, SCORES, 1, ValueError, "Y_true: expected 0 and 1, found -1 in row 0, label 1"),
        (np.array(["a", "b"]), SCORES, 1, TypeError, "expected class numbers"),
        (np.array([0, -1]), SCORES, 1, ValueError, "expected class numbers from 0, found -1"),
        (np.array([0, 3]), SCORES, 1, ValueError, "expected class numbers below 3"),
        (
            np.array([0, 2**63], np.uint64),
            SCORES,
            1,
            ValueError,
            r"Y_true: .* below 2\^63, found 9223372036854775808",
        ),
        (TRUE, np.array([[2**63], [0]], np.uint64), 1, ValueError, r"predictions: .* below 2\^63, found 922"),
        (np.zeros((0, 3)), np.zeros((0, 3)), 1, ValueError, "at least one row"),
        (None, SCORES, 1, ValueError, "Y_true: expected a label matrix or class numbers, found NoneType"),
        (np.zeros((1, 2, 3)), SCORES, 1, ValueError, "found 3 dimension"),
    ],
)
def test_bad_input_is_named(Y, predictions, k, error, words):
    with pytest.raises(error, match=words):
        metrics.precision_at_k(Y, predictions, k)


@pytest.mark.parametrize(
    ("q", "words"),
    [
        (np.ones(2), "expected 3 numbers, found 2"),
        (np.ones((3, 1)), "found shape"),
        (np.array([1.0, 0.0, 1.0]), "positive finite"),
        (np.array([1.0, np.inf, 1.0]), "positive finite"),
    ],
)
def test_bad_inverse_propensities_are_named(q, words):
    with pytest.raises(ValueError, match=words):
        metrics.propensity_scored_precision_at_k(TRUE, SCORES, 1, inverse_propensities=q)
    with pytest.raises(ValueError, match=words):
        metrics.propensity_scored_ndcg_at_k(TRUE, SCORES, 1, inverse_propensities=q)


def test_short_inverse_propensities_for_classes():
    with pytest.raises(ValueError, match="more than 2 numbers, found 2"):
        metrics.propensity_scored_precision_at_k(np.array([0, 2]), SCORES, 1, inverse_propensities=np.ones(2))
    with pytest.raises(ValueError, match="label numbers below 2, found 2"):
        metrics.propensity_scored_precision_at_k(
            np.array([0, 1]), np.array([[2], [0]]), 1, inverse_propensities=np.ones(2)
        )


def test_the_callers_matrices_are_not_changed():
    Y = sp.csr_array((np.array([1.0, 0.0, 1.0]), np.array([2, 1, 0]), np.array([0, 3])), shape=(1, 3))
    metrics.precision_at_k(Y, np.zeros((1, 3)), 1)
    np.testing.assert_array_equal(Y.indices, [2, 1, 0])
    assert Y.nnz == 3


@pytest.mark.parametrize("table", ["RANKING_METRICS", "PROPENSITY_METRICS"])
def test_every_metric_of_the_tables_is_perfect_for_a_perfect_ranking(table):
    rng = np.random.default_rng(1)
    Y = np.zeros((30, 10))
    for row in Y:
        row[rng.choice(10, 3, replace=False)] = 1
    q = metrics.inverse_propensities(Y)
    # Scores that put the true labels first, rarest first.
    scores = Y * q
    arguments = {"inverse_propensities": q} if table == "PROPENSITY_METRICS" else {}
    for name, function in getattr(metrics, table).items():
        assert function(Y, scores, 3, **arguments) == pytest.approx(1.0), name
        assert function(Y, -scores, 3, **arguments) < 1.0, name


@pytest.mark.parametrize("width", [2, 8, 9, 12])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_a_label_twice_is_found_in_any_row_and_place(width, dtype):
    best = np.tile(np.arange(width), (9_000, 1)).astype(dtype)  # more than are looked at together
    best[::3] = best[::3, ::-1]
    truth = np.full(len(best), width - 1)
    assert metrics.precision_at_k(truth, best, width) == pytest.approx(1 / width)
    for row, first, last in [(0, 0, 1), (4_321, 0, width - 1), (8_999, width - 2, width - 1)]:
        wrong = best.copy()
        wrong[row, first] = wrong[row, last]
        with pytest.raises(ValueError, match=rf"found label {wrong[row, last]} twice in row {row}$"):
            metrics.precision_at_k(truth, wrong, width)
    if dtype is np.int64:
        best[:, 1:] = -1  # no prediction, any number of times
        assert metrics.precision_at_k(truth, best, width) == pytest.approx(1 / width / 3)


def test_one_label_per_row_is_not_as_many_labels_as_rows():
    best = np.array([[0, 1], [0, 1], [2, -1]])
    one_each, as_many = np.eye(3)[[1, 2, 2]], np.array([[1, 1, 0], [0, 0, 0], [0, 0, 1.0]])
    assert metrics.precision_at_k(one_each, best, 2) == metrics.precision_at_k([1, 2, 2], best, 2) == 2 / 6
    assert metrics.precision_at_k(as_many, best, 2) == 3 / 6
    np.testing.assert_array_equal(best, [[0, 1], [0, 1], [2, -1]])
    assert metrics.precision_at_k([1, 2, 9], np.full((3, 2), -1), 2) == 0
