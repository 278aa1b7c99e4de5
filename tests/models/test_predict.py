"""Top-k prediction in blocks against a full sort of all scores."""

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.models import write
from xmcjax import linops
from xmcjax.models import ArrayModel, LinearModel, _block_scores, predict_topk, scores_above


def problem(seed=0, n=37, d=20, n_labels=29, dtype=np.float32, integers=True):
    """Small integers make every sum exact, and many of them equal: ties are part of the test."""
    rng = np.random.default_rng(seed)
    X = sp.random_array((n, d), density=0.3, rng=rng, format="csr")
    coef = sp.random_array((n_labels, d), density=0.3, rng=rng, format="csr")
    X.data = rng.integers(-3, 4, X.nnz) if integers else rng.standard_normal(X.nnz)
    coef.data = rng.integers(-3, 4, coef.nnz) if integers else rng.standard_normal(coef.nnz)
    intercept = rng.integers(-2, 3, n_labels)
    return X.astype(dtype), coef.astype(dtype), intercept.astype(dtype)


def sorted_topk(scores, k):
    """The definition: labels by falling score, then rising number; −1 where the score is −inf."""
    labels = np.full((len(scores), k), -1, np.int32)
    best = np.full((len(scores), k), -np.inf, scores.dtype)
    for i, row in enumerate(scores):
        order = sorted(range(len(row)), key=lambda l: (-row[l], l))[:k]
        for place, label in enumerate(order):
            if row[label] > -np.inf:
                labels[i, place], best[i, place] = label, row[label]
    return labels, best


def all_scores(X, coef, intercept):
    return np.asarray((X @ coef.T).todense() if sp.issparse(X) else X @ coef.T.toarray()) + intercept


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("k", [1, 5, 29, 40])
@pytest.mark.parametrize("blocks", [(None, None), (1, 1), (4, 7), (29, 37), (16, 36), (100, 100), (5, None)])
def test_blocks_give_what_a_full_sort_gives(sparse, k, blocks):
    X, coef, intercept = problem()
    expected = sorted_topk(all_scores(X, coef, intercept), k)
    model = ArrayModel(coef if sparse else coef.toarray(), intercept)
    labels, scores = predict_topk(model, X if sparse else X.toarray(), k, *blocks)
    assert (labels.dtype, scores.dtype) == (np.int32, np.float32)
    np.testing.assert_array_equal(labels, expected[0])
    np.testing.assert_array_equal(scores, expected[1])


@pytest.fixture(params=linops.BACKENDS)
def backend(request, monkeypatch):
    """Which all operators are of."""
    if request.param == "native" and not linops.native_ready():
        pytest.skip("the native library was not built")
    make = linops.make
    monkeypatch.setattr(linops, "make", lambda X, dtype, **more: make(X, dtype, backend=request.param))
    return request.param


def test_every_backend_of_the_operators(backend):
    X, coef, intercept = problem(1)
    expected = sorted_topk(all_scores(X, coef, intercept), 4)
    labels, scores = predict_topk(ArrayModel(coef, intercept), X, 4, 6, 10)
    np.testing.assert_array_equal(labels, expected[0])
    np.testing.assert_array_equal(scores, expected[1])


def test_float64_stays_float64():
    X, coef, intercept = problem(2, dtype=np.float64, integers=False)
    expected = sorted_topk(all_scores(X, coef, intercept), 3)
    labels, scores = predict_topk(ArrayModel(coef, intercept), X, 3, 8)
    assert scores.dtype == np.float64
    np.testing.assert_array_equal(labels, expected[0])
    np.testing.assert_allclose(scores, expected[1], rtol=1e-14)
    with jax.enable_x64(False):
        assert predict_topk(ArrayModel(coef, intercept), X, 3, 8)[1].dtype == np.float32
    # A float32 model is not made more precise by its features.
    assert predict_topk(ArrayModel(coef.astype(np.float32)), X, 3)[1].dtype == np.float32


def test_labels_without_weights_never_outrank_trained_ones():
    X, coef, intercept = problem(3)
    status = np.ones(29, np.int8)
    untrained = np.array([0, 3, 17, 28])
    status[untrained] = [5, 4, 5, 4]  # no positives, not finite
    intercept[:] = -1000  # all trained scores are far below 0, which untrained weights would score
    coef = coef.toarray()
    coef[untrained] = 0
    model = ArrayModel(coef, np.where(status == 1, intercept, 0), status)
    scores = all_scores(X, sp.csr_array(coef), intercept)
    scores[:, untrained] = -np.inf
    expected = sorted_topk(scores, 27)
    labels, best = predict_topk(model, X, 27, 4)
    np.testing.assert_array_equal(labels, expected[0])
    np.testing.assert_array_equal(best, expected[1])
    assert not np.isin(labels, untrained).any()
    # 25 trained labels: two slots stay empty.
    assert (labels[:, 25:] == -1).all() and (best[:, 25:] == -np.inf).all() and (labels[:, :25] >= 0).all()
    # A bias of −inf says the same as the status.
    by_bias = ArrayModel(coef, np.where(status == 1, intercept, -np.inf))
    np.testing.assert_array_equal(predict_topk(by_bias, X, 27, 4)[0], labels)
    # Nothing trained at all.
    none = ArrayModel(coef, None, np.full(29, 5))
    labels, best = predict_topk(none, X, 2)
    assert (labels == -1).all() and (best == -np.inf).all()


def test_stored_models_predict_as_their_arrays(tmp_path):
    model = LinearModel.load(write(tmp_path / "m"))
    X = sp.random_array((31, 50), density=0.2, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    in_memory = ArrayModel(model.coef(), model.intercept(), model.status)
    expected = predict_topk(in_memory, X, 6)
    assert not np.isin(expected[0], [6, 13, 20]).any()
    for label_block in (3, 5, 16, 23):
        got = predict_topk(model, X, 6, label_block, 12)
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_allclose(got[1], expected[1], rtol=1e-6)


def test_partial_models_and_ranges_predict_what_they_hold(tmp_path):
    X = sp.random_array((31, 50), density=0.2, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    part = write(tmp_path / "m", range(5, 10))
    labels, _ = predict_topk(LinearModel.load(part, partial=True), X, 6, 4)
    # Labels 5, 7, 8, 9; 6 has no positives.
    assert set(np.unique(labels)) == {-1, 5, 7, 8, 9}
    of_range = LinearModel.load(write(tmp_path / "r", label_range=(5, 10)))
    np.testing.assert_array_equal(predict_topk(of_range, X, 6)[0], labels)


def test_one_compilation_whatever_the_number_of_blocks(compilations):
    X, coef, intercept = problem(4, n=41, n_labels=31)  # shapes that no other test has
    model = ArrayModel(coef, intercept)
    # 8 blocks of labels, 6 of rows, both with a rest
    for call, name in (
        (lambda: predict_topk(model, X, 3, 4, 7), "merge_topk"),
        (lambda: scores_above(model, X, 0.0, 4, 7), "block_scores"),
    ):
        assert sum(f"jit({name})" in program for program in compilations(call)) == 1
        assert compilations(call) == []


def test_a_score_that_is_no_number_is_not_among_the_best(backend):
    huge = np.float32(3e38)
    # scores of a row of tens, which the native product adds up in four parts: inf − inf, 2, inf, −inf
    coef = np.zeros((4, 4), np.float32)
    coef[:, :2] = [[huge, -huge], [0.1, 0.1], [huge, 0], [-huge, 0]]
    X = np.full((1, 4), 10, np.float32)
    labels, scores = predict_topk(ArrayModel(coef), sp.csr_array(X) if backend != "dense" else X, 3)
    assert labels.tolist() == [[2, 1, -1]] and scores.tolist() == [[np.inf, 2, -np.inf]]


def test_the_score_matrix_is_never_built(monkeypatch):
    """No array of the computation has n x L elements, nor rows x L nor n x labels of a block."""
    X, coef, _ = problem(5, n=64, n_labels=96)
    for backend, built in (("jnp", True), ("native", False)):
        if backend == "native" and not linops.native_ready():
            continue
        jaxpr = str(
            jax.make_jaxpr(lambda *a: _block_scores.merge_topk(*a, k=3))(
                linops.make(X[:16], np.float32, backend=backend),
                np.zeros((20, 8), np.float32),
                np.zeros(8, np.float32),
                np.int32(0),
                np.zeros((16, 3), np.float32),
                np.zeros((16, 3), np.int32),
            )
        )
        # the native step has no scores of a block but those in registers
        assert ("f32[16,8]" in jaxpr) == built
        assert "96" not in jaxpr
    seen = []
    dense_block = ArrayModel.dense_block
    monkeypatch.setattr(ArrayModel, "dense_block", lambda self, *b: seen.append(b) or dense_block(self, *b))
    predict_topk(ArrayModel(coef), X, 3, 8, 16)
    assert seen == [(first, first + 8) for first in range(0, 96, 8)]


@pytest.mark.parametrize("threshold", [0.0, 2.0])
@pytest.mark.parametrize("blocks", [(None, None), (4, 7)])
def test_scores_above_a_threshold(threshold, blocks):
    X, coef, intercept = problem(6)
    scores = all_scores(X, coef, intercept)
    status = np.ones(29, np.int8)
    status[5] = 5
    expected = np.where(scores > threshold, scores, 0)
    expected[:, 5] = 0
    got = scores_above(ArrayModel(coef, intercept, status), X, threshold, *blocks)
    assert got.nnz == np.count_nonzero(expected)
    np.testing.assert_array_equal(got.toarray(), expected)


def test_no_rows():
    _, coef, intercept = problem()
    labels, scores = predict_topk(ArrayModel(coef, intercept), sp.csr_array((0, 20), dtype=np.float32), 3)
    assert labels.shape == scores.shape == (0, 3)
    assert scores_above(ArrayModel(coef, intercept), np.zeros((0, 20), np.float32)).shape == (0, 29)


@pytest.mark.parametrize(
    ("X", "options", "words"),
    [
        (np.zeros((3, 19), np.float32), {}, r"expected 20 features as in the model, found shape \(3, 19\)"),
        (np.zeros(20, np.float32), {}, "expected 20 features"),
        (np.zeros((3, 20), np.float32), {"k": 0}, "k: expected at least 1"),
        (np.zeros((3, 20), np.float32), {"label_block": 0}, "label_block: expected at least 1"),
        (np.zeros((3, 20), np.float32), {"row_block": -1}, "row_block: expected at least 1"),
        (np.array([["a"] * 20]), {}, "of real numbers, found values of type <U1"),
        (
            sp.csr_array(np.array([[0.0] * 20, [0, 0, np.inf, *[0.0] * 17]])),
            {},
            "found inf in row 1, column 2",
        ),
        (np.array([[0.0] * 20, [0, np.nan, *[0.0] * 18]]), {}, "found nan in row 1, column 1"),
    ],
)
def test_bad_input_is_named(X, options, words):
    _, coef, intercept = problem()
    with pytest.raises((ValueError, TypeError), match=words):
        predict_topk(ArrayModel(coef, intercept), X, **({"k": 2} | options))


def test_bad_arrays_are_named():
    with pytest.raises(ValueError, match="coef: expected"):
        ArrayModel(np.zeros(3))
    with pytest.raises(ValueError, match=r"intercept: expected shape \(3,\), found \(2,\)"):
        ArrayModel(np.zeros((3, 2)), np.zeros(2))
    with pytest.raises(ValueError, match="status: expected shape"):
        ArrayModel(np.zeros((3, 2)), None, np.zeros(4))
    with pytest.raises(ValueError, match="threshold: expected at least 0"):
        scores_above(ArrayModel(np.zeros((3, 2))), np.zeros((1, 2)), -1.0)
