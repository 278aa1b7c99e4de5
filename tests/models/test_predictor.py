"""Prediction of few rows, against a full sort of all scores."""

import copy
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import log_expit, softmax
from test_predict import all_scores, problem, sorted_topk

from tests.support.models import LABELS, N_FEATURES, expected_weights, write
from tests.support.problems import needs_native
from xmcjax.models import (
    ArrayModel,
    LinearModel,
    ModelFormatError,
    Predictor,
    ShardWriter,
    decision_function,
    predict_topk,
    write_index,
)


@pytest.fixture(params=["native", "scipy"])
def path(request, monkeypatch):
    """What makes the scores of sparse weights."""
    if request.param == "scipy":
        monkeypatch.setattr("xmcjax.native._library.load_library", lambda: None)
        monkeypatch.setattr("xmcjax.native.load_library", lambda: None, raising=False)
        monkeypatch.setenv("XMCJAX_NATIVE", "0")
    return request.param


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weights", ["sparse", "dense"])
@pytest.mark.parametrize("rows", ["sparse", "dense"])
@pytest.mark.parametrize("k", [1, 5, 29, 40])
def test_the_best_are_those_of_a_full_sort(path, dtype, weights, rows, k):
    X, coef, intercept = problem(dtype=dtype)
    expected = sorted_topk(all_scores(X, coef, intercept), k)
    predictor = Predictor(ArrayModel(coef if weights == "sparse" else coef.toarray(), intercept), n_jobs=2)
    given = X if rows == "sparse" else X.toarray()
    labels, scores = predictor.predict_topk(given, k)
    assert (labels.dtype, scores.dtype) == (np.int32, dtype)
    np.testing.assert_array_equal(labels, expected[0])
    np.testing.assert_array_equal(scores, expected[1])
    one = [predictor.predict_topk(given[i : i + 1], k) for i in range(X.shape[0])]
    np.testing.assert_array_equal(np.concatenate([found for found, _ in one]), expected[0])


@pytest.mark.parametrize(("features", "density"), [(90, 0.3), (5000, 0.01)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_scores_of_a_row_depend_on_no_other_row_and_on_no_form(path, features, density, dtype):
    """Sums have one order, of few rows, many and dense ones, with weights for one call and with kept ones."""
    rng = np.random.default_rng(0)
    X = sp.random_array((600, features), density=density, rng=rng, format="csr", dtype=dtype)
    coef = sp.random_array((150, features), density=0.45, rng=rng, format="csr", dtype=dtype)
    bias = rng.standard_normal(150)
    bias[::9] = -0.0
    model = ArrayModel(coef, bias)
    (labels, scores), whole = predict_topk(model, X, 7), decision_function(model, X)
    np.testing.assert_array_equal(np.sort(whole, axis=1)[:, ::-1][:, :7], scores)
    # float32 sums of some 40 or 25 products
    np.testing.assert_allclose(whole, X @ coef.T.toarray() + model.intercept(), rtol=1e-4, atol=1e-5)
    turned = sp.csr_array(X[::-1, ::-1])[::-1, ::-1]  # whose features descend
    for part in (slice(0, 40), slice(599, 600), slice(7, 9), slice(3, 35), slice(100, 300)):
        for rows in (X[part], X[part].toarray(), sp.csr_array(turned[part])):
            for best in (predict_topk(model, rows, 7), Predictor(model).predict_topk(rows, 7)):
                np.testing.assert_array_equal(best[0], labels[part])
                assert best[1].tobytes() == scores[part].tobytes()
            assert decision_function(model, rows).tobytes() == whole[part].tobytes()
            assert Predictor(model).decision_function(rows).tobytes() == whole[part].tobytes()


@pytest.mark.parametrize(("dtype", "labels"), [(np.float32, 401), (np.float64, 258), (np.float64, 256 + 63)])
def test_the_scores_of_many_rows_with_all_of_many_weights_are_those_of_each(dtype, labels):
    """Of many rows the weights are copied some labels at a time; the sums have one order."""
    rng = np.random.default_rng(1)
    n, d = 4000, 6000
    X = sp.random_array((n, d), density=0.01, rng=rng, format="csr", dtype=dtype)
    W, bias = rng.normal(size=(labels, d)).astype(dtype), rng.normal(size=labels).astype(dtype)
    predictor = Predictor(ArrayModel(W, bias), n_jobs=2)
    scores = predictor.decision_function(X)
    np.testing.assert_allclose(scores, X @ W.T + bias, rtol=0, atol=1e-4 if dtype == np.float32 else 1e-12)
    for i in range(0, n, 211):
        np.testing.assert_array_equal(predictor.decision_function(X[i : i + 1])[0], scores[i])


def test_a_directory_predicts_as_its_weights(path, tmp_path):
    coef, intercept, status = expected_weights()
    X = sp.random_array((9, N_FEATURES), density=0.3, rng=np.random.default_rng(0), format="csr")
    X = X.astype(np.float32)
    directory = write(tmp_path / "model")
    expected = predict_topk(ArrayModel(coef, intercept, status), X, 4)
    for model in (directory, str(directory), LinearModel.load(directory)):
        predictor = Predictor(model)
        assert (predictor.n_labels, predictor.n_features, predictor.dtype) == (LABELS, N_FEATURES, np.float32)
        labels, scores = predictor.predict_topk(X, 4)
        np.testing.assert_array_equal(labels, expected[0])
        np.testing.assert_allclose(scores, expected[1], rtol=1e-6, atol=1e-6)


def test_scores_of_chosen_labels(path):
    X, coef, intercept = problem()
    status = np.ones(29, np.int8)
    status[3] = 5  # without positives
    for weights in (coef, coef.toarray()):
        predictor = Predictor(ArrayModel(weights, intercept, status))
        expected = all_scores(X, coef, intercept)
        expected[:, 3] = -np.inf
        np.testing.assert_array_equal(predictor.decision_function(X), expected)
        np.testing.assert_array_equal(predictor.decision_function(X.toarray()), expected)
        np.testing.assert_array_equal(predictor.decision_function(X, [7, 3, 7]), expected[:, [7, 3, 7]])
        for wrong, error, message in (
            ([29], IndexError, "labels: expected numbers from 0 to 28, found 29"),
            ([-1], IndexError, "found -1"),
            ([0.5], TypeError, "labels: expected whole numbers"),
        ):
            with pytest.raises(error, match=message):
                predictor.decision_function(X, wrong)


@pytest.mark.parametrize("weights", ["sparse", "dense"])
def test_a_list_of_no_labels_has_no_scores(path, weights):
    X, coef, intercept = problem()
    predictor = Predictor(ArrayModel(coef if weights == "sparse" else coef.toarray(), intercept))
    for none in ([], (), np.empty(0, int)):
        assert predictor.decision_function(X, none).shape == (X.shape[0], 0)
        assert predictor.decision_function(X[:0], none).shape == (0, 0)


def test_bad_rows_are_one_sentence():
    X, coef, intercept = problem()
    predictor = Predictor(ArrayModel(coef, intercept))
    with pytest.raises(ValueError, match="X: expected 20 features as in the model"):
        predictor.predict_topk(X[:, :19], 1)
    wrong = X.toarray()
    wrong[3, 4] = np.nan
    with pytest.raises(ValueError, match="X: expected finite features, found nan in row 3, column 4"):
        predictor.predict_topk(wrong, 1)
    with pytest.raises(ValueError, match="k: expected"):
        predictor.predict_topk(X, 0)
    with pytest.raises(TypeError, match="model: expected a directory, a LinearModel or an ArrayModel"):
        Predictor(coef)


def test_a_damaged_shard_is_said_at_the_first_prediction(tmp_path):
    directory = write(tmp_path / "model")
    model = LinearModel.load(directory, verify="lazy")
    shard = next(directory.glob("*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-5] ^= 1
    shard.write_bytes(content)
    predictor = Predictor(model)
    for _ in range(2):
        with pytest.raises(ModelFormatError, match="SHA-256"):
            predictor.predict_topk(np.zeros((1, N_FEATURES), np.float32), 1)


@pytest.mark.parametrize("index", [False, True])
def test_models_and_predictors_are_pickled_and_copied_without_what_they_have_read(tmp_path, index):
    write(tmp_path / "m")
    if index:
        write_index(tmp_path / "m")
    X = np.ones((2, N_FEATURES), np.float32)
    predictor, model = Predictor(tmp_path / "m", n_jobs=2), LinearModel.load(tmp_path / "m")
    expected, coef = predictor.predict_topk(X, 3), model.coef()
    for copied in (lambda made: pickle.loads(pickle.dumps(made)), copy.deepcopy):
        for found, wanted in zip(copied(predictor).predict_topk(X, 3), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
        assert (copied(model).coef() != coef).nnz == 0
    assert len(pickle.dumps(predictor)) < 10_000


def test_threads_share_a_predictor():
    X, coef, intercept = problem(n=400)
    predictor = Predictor(ArrayModel(coef, intercept))
    expected = sorted_topk(all_scores(X, coef, intercept), 3)[0]
    found = {}

    def predict(part):
        found[part] = np.concatenate([predictor.predict_topk(X[i], 3)[0] for i in rows[part]])

    rows = {part: [slice(i, i + 1) for i in range(part, 400, 4)] for part in range(4)}
    workers = [threading.Thread(target=predict, args=(part,)) for part in rows]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    for part in rows:
        np.testing.assert_array_equal(found[part], expected[part::4])


def of_classes(directory, link, weights):
    """A model of classes on two features whose last class is never predicted."""
    meta = {"n_features": 2, "n_labels": len(weights) + 1, "dtype": "float32", "link": link}
    with ShardWriter(directory, meta) as writer:
        for label, weight in enumerate(weights):
            writer.add(label, [0, 1], np.float32(weight), -label / 2)
        writer.add(len(weights), [], np.float32([]), 0.0, 5)
    return Predictor(directory)


@pytest.mark.parametrize("link", ["softmax", "one_of"])
@pytest.mark.parametrize("size", [1, 1e3, 1e5, 1e8, 1e20, 3e38])
def test_probabilities_of_classes_sum_to_1_whatever_the_size_of_the_scores(tmp_path, link, size):
    predictor = of_classes(tmp_path / "m", link, [[size, 0]] * 3 + [[-size, 0]])
    for X in np.array([[[1, 0]], [[-1, 0]], [[0, 1]]], np.float32):
        labels, p = predictor.predict_topk(X, 5, probabilities=True)
        z = predictor.decision_function(X)[0].astype(float)[labels[0]]
        expected = softmax(log_expit(z) if link == "one_of" else z)
        np.testing.assert_allclose(p[0], expected, rtol=2e-6, atol=1e-30)
        assert p.sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("link", ["softmax", "one_of"])
def test_probabilities_of_scores_beyond_the_range_of_their_type(tmp_path, link):
    predictor = of_classes(tmp_path / "m", link, [[1e30, 0], [1e30, -1e30], [1e30, 0], [-1e30, 0]])
    X = np.float32([[1e20, 1e20]])
    assert np.isnan(predictor.decision_function(X)[0, 1])  # inf − inf
    labels, p = predictor.predict_topk(X, 3, probabilities=True)
    assert labels.tolist() == [[0, 2, -1]] and p.tolist() == [[0.5, 0.5, 0]]


def test_no_rows_and_no_labels():
    X, coef, intercept = problem()
    labels, scores = Predictor(ArrayModel(coef, intercept)).predict_topk(X[:0], 3)
    assert labels.shape == scores.shape == (0, 3)
    for none in (coef[:0], coef[:0].toarray()):
        labels, scores = Predictor(ArrayModel(none)).predict_topk(X, 2)
        assert (labels == -1).all() and (scores == -np.inf).all()


@needs_native
def test_jax_is_not_imported(tmp_path):
    directory = write(tmp_path / "model")
    program = f"""
import sys
import numpy as np
from xmcjax.models import Predictor
labels, scores = Predictor({str(directory)!r}).predict_topk(np.ones((1, {N_FEATURES}), np.float32), 3)
assert (labels >= 0).all()
print("jax" in sys.modules)
"""
    run = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, env=dict(os.environ))
    assert done.stdout.strip() == "False", done.stderr


@needs_native
@pytest.mark.parametrize("weights", ["sparse", "dense"])
def test_all_labels_are_ranked_as_some(weights):
    """Beyond some labels per row the best are collected, sorted and merged, in place of a list of them."""
    X, coef, intercept = problem(n_labels=300)
    predictor = Predictor(ArrayModel(coef if weights == "sparse" else coef.toarray(), intercept))
    expected = sorted_topk(all_scores(X, coef, intercept), 350)
    for k in (127, 128, 129, 300, 350):
        labels, scores = predictor.predict_topk(X, k)
        np.testing.assert_array_equal(labels, expected[0][:, :k])
        np.testing.assert_array_equal(scores, expected[1][:, :k])


@pytest.mark.parametrize("order", ["rising", "falling", "ties", "drawn"])
@pytest.mark.parametrize("label_block", [None, 700])
def test_many_of_many_labels(path, order, label_block):
    n_labels, rng = 5000, np.random.default_rng(3)
    scores = {
        "rising": np.arange(n_labels),
        "falling": -np.arange(n_labels),
        "ties": rng.integers(0, 3, n_labels),
        "drawn": rng.permutation(n_labels),
    }[order].astype(np.float32)
    scores[rng.random(n_labels) < 0.2] = -np.inf
    model = ArrayModel(sp.csr_array((n_labels, 2), dtype=np.float32), scores)
    X = np.ones((2, 2), np.float32)
    expected = sorted_topk(np.stack([scores, scores]), 6000)
    for k in (129, 1025, 4000, 5000, 6000):
        for labels, best in (
            Predictor(model).predict_topk(X, k),
            predict_topk(model, X, k, label_block=label_block),
        ):
            np.testing.assert_array_equal(labels, expected[0][:, :k])
            np.testing.assert_array_equal(best, expected[1][:, :k])


def test_features_beyond_the_range_of_the_weights_are_refused(path):
    X, coef, intercept = problem()
    X = X.astype(np.float64)
    X.data[5] = 1e39
    for rows in (X, X.toarray()):
        with pytest.raises(
            ValueError, match=r"X: expected features in the range of float32, .* found 1e\+39 in row"
        ):
            Predictor(ArrayModel(coef, intercept)).predict_topk(rows, 2)
        with pytest.raises(
            ValueError, match=r"X: expected features in the range of float32, .* found 1e\+39 in row"
        ):
            predict_topk(ArrayModel(coef, intercept), rows, 2)
