"""Top-k prediction in blocks against a full sort of all scores, on the host and as on a device."""

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import cuda_builds
from tests.support.internals import device_memory, device_prediction
from tests.support.memory import peak_of
from tests.support.models import write
from tests.support.processes import python
from xmcjax import linops, native
from xmcjax.models import (
    ArrayModel,
    LinearModel,
    Predictor,
    decision_function,
    predict_topk,
    scores_above,
)


@pytest.fixture
def device(monkeypatch):
    """Prediction goes the way that it goes where JAX has another device than the CPU."""
    monkeypatch.setattr("xmcjax.models._predict._on_a_device", lambda: True)


@pytest.fixture(params=["native", "scipy", "device", "pairs"])
def where(request):
    """What makes the scores."""
    if request.param == "native" and not linops.native_ready():
        pytest.skip("the native library was not built")
    if request.param == "scipy":
        request.getfixturevalue("monkeypatch").setattr("xmcjax.native.load_library", lambda: None)
    if request.param in ("device", "pairs"):
        request.getfixturevalue("device")
    if request.param == "pairs":  # which are added where that moves fewer bytes, as it never does here
        request.getfixturevalue("monkeypatch").setattr(device_prediction, "by_pairs", lambda work: True)
    return request.param


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
def test_blocks_give_what_a_full_sort_gives(where, sparse):
    X, coef, intercept = problem()
    blocks = [(None, None), (4, 7), (16, 36)]
    if where not in ("device", "pairs"):  # which have the others in test_device_prediction.py
        blocks += [(1, 1), (29, 37), (100, 100), (5, None)]
    model = ArrayModel(coef if sparse else coef.toarray(), intercept)
    for k in (1, 5, 29, 40):
        expected = sorted_topk(all_scores(X, coef, intercept), k)
        for block in blocks:
            labels, scores = predict_topk(model, X if sparse else X.toarray(), k, *block)
            assert (labels.dtype, scores.dtype) == (np.int32, np.float32)
            np.testing.assert_array_equal(labels, expected[0], err_msg=str((k, block)))
            np.testing.assert_array_equal(scores, expected[1], err_msg=str((k, block)))


@pytest.fixture(params=linops.BACKENDS)
def backend(request, monkeypatch, device):
    """Which all operators on a device are of."""
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


@pytest.mark.parametrize("row_block", [10, 100])
def test_the_kernels_in_cuda_score_blocks_of_one_shape(monkeypatch, device, compilations, row_block):
    """Compiled for the CPU; one program serves all blocks of rows, whichever have long ones."""
    cuda_builds.register()
    monkeypatch.setattr(native, "cuda_available", lambda: True)
    monkeypatch.setattr(device_prediction, "by_pairs", lambda work: False)
    X, coef, intercept = problem(2, d=700)
    X = sp.csr_array(sp.vstack([X[:15], np.ones((1, 700), np.float32), X[16:]]))
    expected = sorted_topk(all_scores(X, coef, intercept), 4)
    found = []
    programs = compilations(
        lambda: found.append(predict_topk(ArrayModel(coef, intercept), X, 4, 40, row_block))
    )
    labels, scores = found.pop()
    np.testing.assert_array_equal(labels, expected[0])
    np.testing.assert_array_equal(scores, expected[1])
    assert sum("jit(merge_topk)" in program for program in programs) == 1


def test_rows_that_do_not_fit_onto_a_gpu_are_refused(monkeypatch, device):
    monkeypatch.setattr(native, "cuda_available", lambda: True)
    monkeypatch.setattr(device_memory, "free_memory", lambda device=None: 100)
    X, coef, intercept = problem()
    with pytest.raises(
        linops.DeviceMemoryError, match=r"^expected X to fit into the memory of .*: 37 rows of 20"
    ):
        predict_topk(ArrayModel(coef, intercept), X, 2)


def test_few_rows_of_many_features(where):
    for n in (1, 33) if where in ("device", "pairs") else (1, 2, 5, 32, 33):
        rng = np.random.default_rng(n)
        X, coef, intercept = problem(n=n, d=5000, n_labels=29)
        X[-1:] *= 0  # one without features
        for rows in (X, X[:, rng.permutation(5000)], X[:0], X * 0, X.toarray()):
            expected = sorted_topk(all_scores(rows, coef, intercept), 5)
            np.testing.assert_array_equal(predict_topk(ArrayModel(coef, intercept), rows, 5), expected)
            scores = decision_function(ArrayModel(coef, intercept), rows)
            np.testing.assert_array_equal(scores, all_scores(rows, coef, intercept))


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_few_rows_of_a_million_features(form):
    rng = np.random.default_rng(0)
    X, coef = (
        sp.random_array((n, 1 << 20), density=5e-5, rng=rng, format="csr", dtype=np.float32) for n in (3, 200)
    )
    scores = (X @ coef.T).toarray()
    (labels, best), peak = peak_of(
        lambda: predict_topk(ArrayModel(coef), X if form == "sparse" else X.toarray(), 5)
    )
    assert peak < 2 * 3 * 4 << 20  # rows of 16 lanes would take 64 MiB
    np.testing.assert_allclose(best, -np.sort(-scores)[:, :5], rtol=1e-6)
    np.testing.assert_allclose(np.take_along_axis(scores, labels, axis=1), best, rtol=1e-6)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtypes", [(np.float32, np.float64), (np.float64, np.float32), (np.float32,) * 2])
def test_all_scores(where, threads, dtypes):
    X, coef, intercept = problem(8)
    status = np.ones(29, np.int8)
    status[[2, 28]] = 5
    expected = all_scores(X, coef, intercept)
    expected[:, [2, 28]] = -np.inf
    for rows in (X, X.toarray()):
        for weights in (coef, coef.toarray()):
            model = ArrayModel(weights.astype(dtypes[1]), intercept, status)
            found = decision_function(model, rows.astype(dtypes[0]), threads=threads)
            assert found.dtype == np.result_type(*dtypes)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rows", [1, 5, 36, 37])
def test_rows_in_parts_score_as_all_together(monkeypatch, rows):
    X, coef, intercept = problem(8, integers=False)
    X.data[X.indptr[5] : X.indptr[7]] = 0  # zeros that are stored
    X = sp.vstack(
        [sp.csr_array((2, 20), dtype=X.dtype), X[2:-1], sp.csr_array((1, 20), dtype=X.dtype)]
    ).tocsr()
    before = [array.copy() for array in (X.data, X.indices, X.indptr)]
    intercept[4] = -np.inf
    for weights in (coef, coef.toarray()):
        model = ArrayModel(weights, intercept)
        for given in (X, X.toarray()):
            whole, best = decision_function(model, given), predict_topk(model, given, 3)
            with monkeypatch.context() as patch:
                patch.setattr("xmcjax.models._weights._SCORES", rows * 29)
                parts = decision_function(model, given)
                held = Predictor(model).decision_function(given)
                found = predict_topk(model, given, 3)
            if sp.issparse(given):
                np.testing.assert_array_equal(parts, whole)
            np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(held, parts)
            np.testing.assert_array_equal(found[0], best[0])
            assert whole.flags.c_contiguous and whole.flags.writeable and (whole[:, 4] == -np.inf).all()
    for array, known in zip((X.data, X.indices, X.indptr), before, strict=True):
        np.testing.assert_array_equal(array, known)


def test_float64_stays_float64(where):
    X, coef, intercept = problem(2, dtype=np.float64, integers=False)
    expected = sorted_topk(all_scores(X, coef, intercept), 3)
    labels, scores = predict_topk(ArrayModel(coef, intercept), X, 3, 8)
    assert scores.dtype == np.float64
    np.testing.assert_array_equal(labels, expected[0])
    np.testing.assert_allclose(scores, expected[1], rtol=1e-14)
    if where in ("device", "pairs"):
        with jax.enable_x64(False):
            assert predict_topk(ArrayModel(coef, intercept), X, 3, 8)[1].dtype == np.float32
    # A float32 model is not made more precise by its features.
    assert predict_topk(ArrayModel(coef.astype(np.float32)), X, 3)[1].dtype == np.float32


def test_labels_without_weights_never_outrank_trained_ones(where):
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


def test_stored_models_predict_as_their_arrays(where, tmp_path):
    model = LinearModel.load(write(tmp_path / "m"))
    X = sp.random_array((31, 50), density=0.2, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    in_memory = ArrayModel(model.coef(), model.intercept(), model.status)
    expected = predict_topk(in_memory, X, 6)
    assert not np.isin(expected[0], [6, 13, 20]).any()
    for label_block in (3, 5, 16, 23):
        got = predict_topk(model, X, 6, label_block, 12)
        np.testing.assert_array_equal(got[0], expected[0])
        np.testing.assert_allclose(got[1], expected[1], rtol=1e-6)


def test_partial_models_and_ranges_predict_what_they_hold(where, tmp_path):
    X = sp.random_array((31, 50), density=0.2, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    part = write(tmp_path / "m", range(5, 10))
    labels, _ = predict_topk(LinearModel.load(part, partial=True), X, 6, 4)
    # Labels 5, 7, 8, 9; 6 has no positives.
    assert set(np.unique(labels)) == {-1, 5, 7, 8, 9}
    of_range = LinearModel.load(write(tmp_path / "r", label_range=(5, 10)))
    np.testing.assert_array_equal(predict_topk(of_range, X, 6)[0], labels)


def test_a_score_that_is_no_number_is_not_among_the_best(backend):
    huge = np.float32(3e38)
    # scores of a row of tens, which the native product adds up in four parts: inf − inf, 2, inf, −inf
    coef = np.zeros((4, 4), np.float32)
    coef[:, :2] = [[huge, -huge], [0.1, 0.1], [huge, 0], [-huge, 0]]
    X = np.full((1, 4), 10, np.float32)
    labels, scores = predict_topk(ArrayModel(coef), sp.csr_array(X) if backend != "dense" else X, 3)
    assert labels.tolist() == [[2, 1, -1]] and scores.tolist() == [[np.inf, 2, -np.inf]]


def test_a_block_of_labels_is_read_at_a_time(monkeypatch):
    X, coef, _ = problem(5, n=64, n_labels=96)
    seen = []
    weights = ArrayModel.weights
    monkeypatch.setattr(ArrayModel, "weights", lambda self, *b: seen.append(b) or weights(self, *b))
    predict_topk(ArrayModel(coef), X, 3, 8)
    assert seen == [(first, first + 8) for first in range(0, 96, 8)]


@pytest.mark.parametrize("X", [np.eye(3, 20), sp.eye_array(3, 20, format="csr")])
def test_models_of_ones_own_predict(where, X):
    """All that is asked of a model is the protocol WeightSource."""
    _, coef, intercept = problem(9)
    model = ArrayModel(coef, intercept)

    class Own:
        n_labels, n_features, dtype, label_range = 29, 20, np.dtype(np.float32), (0, 29)
        dense_block, trained = model.dense_block, model.trained

    for found, expected in zip(predict_topk(Own(), X, 4, 10), predict_topk(model, X, 4), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_jax_is_not_needed():
    program = """
import sys
import numpy as np
from xmcjax.models import ArrayModel, decision_function, predict_topk, scores_above
model = ArrayModel(np.eye(3, 4))
predict_topk(model, np.ones((2, 4)), 1), scores_above(model, np.ones((2, 4)))
decision_function(model, np.ones((2, 4)))
print("jax" in sys.modules)
"""
    done = python(program)
    assert done.stdout.strip() == "False", done.stderr


@pytest.mark.parametrize("threshold", [0.0, 2.0])
@pytest.mark.parametrize("blocks", [(None, None), (4, 7)])
def test_scores_above_a_threshold(where, threshold, blocks):
    X, coef, intercept = problem(6)
    scores = all_scores(X, coef, intercept)
    status = np.ones(29, np.int8)
    status[5] = 5
    expected = np.where(scores > threshold, scores, 0)
    expected[:, 5] = 0
    got = scores_above(ArrayModel(coef, intercept, status), X, threshold, *blocks)
    assert got.nnz == np.count_nonzero(expected)
    np.testing.assert_array_equal(got.toarray(), expected)


def test_no_rows(where):
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


def test_the_weights_that_were_checked_cannot_be_changed():
    model = ArrayModel(sp.csr_array(np.eye(4)))
    for array in (model.coef().indices, model.coef().indptr, model.weights(0, 4).data):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9
