"""TopKSVC: labels, features and options of every kind, and what it promises of its optimum."""

import pickle
import warnings

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.svm import LinearSVC

from tests.support import dual_references as reference
from xmcjax import TopKSVC

NAMES = np.array(["ant", "bee", "cow", "dog"])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6))
    return X, np.argmax(X @ rng.normal(size=(6, 4)) + rng.normal(size=(120, 4)), axis=1)


def objective(X, y, W, k, variant, C):
    Z = X @ W.T
    H = 1 + Z - np.take_along_axis(Z, y[:, None], 1)
    H = -np.sort(-H[np.arange(len(W)) != y[:, None]].reshape(len(y), -1), axis=1)[:, :k]
    losses = np.maximum(H.mean(1), 0) if variant == "alpha" else np.maximum(H, 0).mean(1)
    return (W**2).sum() / 2 + C * losses.sum()


@pytest.mark.parametrize(("k", "variant"), [(1, "alpha"), (2, "alpha"), (2, "beta"), (3, "beta")])
def test_the_objective_is_that_of_the_weights(data, k, variant):
    X, y = data
    ours = TopKSVC(k, variant, C=0.5, tol=1e-5).fit(X, y)
    np.testing.assert_allclose(ours.objective_, objective(X, y, ours.coef_, k, variant, 0.5), rtol=1e-10)
    assert 0 <= ours.dual_gap_ <= 1e-5 and ours.n_iter_ > 1
    # no other weights are better
    rng = np.random.default_rng(1)
    for size in (1e-3, 1e-2, 0.1):
        other = ours.coef_ + size * rng.normal(size=ours.coef_.shape)
        assert objective(X, y, other, k, variant, 0.5) > (1 - 1e-5) * ours.objective_


def test_k_1_beside_linear_svc(data):
    X, y = data
    svc = LinearSVC(multi_class="crammer_singer", C=0.3, fit_intercept=False, tol=1e-8, max_iter=100_000)
    best = objective(X, y, svc.fit(X, y).coef_, 1, "alpha", 0.3)
    ours = TopKSVC(C=0.3, tol=1e-5).fit(X, y)
    print(f"TopKSVC(k=1) over LinearSVC's objective, less 1: {ours.objective_ / best - 1:.1e}")
    np.testing.assert_allclose(ours.objective_, best, rtol=1e-4)
    np.testing.assert_allclose(ours.coef_, svc.coef_, atol=0.02)


def test_labels_of_any_kind(data):
    X, y = data
    numbers = TopKSVC(2, random_state=0).fit(X, y)
    for names in (NAMES, np.array([-7, 3, 20, 1000]), np.array([0.0, 1.0, 2.0, 5.0])):
        ours = TopKSVC(2, random_state=0).fit(X, names[y])
        np.testing.assert_array_equal(ours.classes_, names)
        np.testing.assert_array_equal(ours.coef_, numbers.coef_)
        predicted = ours.predict(X)
        assert predicted.dtype == names.dtype
        np.testing.assert_array_equal(predicted, names[np.argmax(X @ ours.coef_.T, axis=1)])
        labels, scores = ours.predict_topk(X, 2)
        order = np.argsort(-(X @ ours.coef_.T), axis=1)[:, :2]
        np.testing.assert_array_equal(labels, names[order])
        np.testing.assert_allclose(scores, np.take_along_axis(X @ ours.coef_.T, order, 1))


def test_two_classes_have_one_row_of_weights(data):
    X, y = data
    two = y < 2
    ours = TopKSVC(tol=1e-6).fit(X[two], NAMES[y[two]])
    assert ours.coef_.shape == (1, 6) and ours.intercept_.shape == (1,)
    scores = ours.decision_function(X)
    np.testing.assert_allclose(scores, X @ ours.coef_[0])
    np.testing.assert_array_equal(ours.predict(X), NAMES[(scores > 0).astype(int)])
    # w_1 = −w_0 = w/2: the hinge loss SVM with twice the C
    svc = LinearSVC(loss="hinge", C=2.0, fit_intercept=False, tol=1e-8, max_iter=1_000_000)
    np.testing.assert_allclose(ours.coef_, svc.fit(X[two], y[two]).coef_, atol=0.02)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix, sp.csc_array, sp.coo_array])
def test_dense_and_sparse_features_and_their_dtype(data, dtype, container):
    X, y = data
    X = (X * (abs(X) > 0.5)).astype(dtype)
    ours = TopKSVC(2, C=0.5, tol=1e-5).fit(container(X), y)
    assert ours.coef_.dtype == ours.intercept_.dtype == ours.decision_function(X).dtype == dtype
    np.testing.assert_allclose(ours.objective_, objective(X, y, ours.coef_, 2, "alpha", 0.5), rtol=1e-4)
    best = TopKSVC(2, C=0.5, tol=1e-6).fit(X.astype(np.float64), y)
    np.testing.assert_allclose(ours.objective_, best.objective_, rtol=3e-5)
    assert not jax.config.jax_enable_x64


def test_the_intercept_is_the_weight_of_a_one(data):
    X, y = data
    X = X + np.array([1, 0, 0, 2, 0, 0])
    ours = TopKSVC(2, fit_intercept=True, tol=1e-5, max_iter=20_000).fit(X, y)
    ones = TopKSVC(2, tol=1e-5, max_iter=20_000).fit(np.hstack([X, np.ones((len(X), 1))]), y)
    np.testing.assert_allclose(ours.objective_, ones.objective_, rtol=2e-5)
    np.testing.assert_allclose(ours.coef_, ones.coef_[:, :-1], atol=0.02)
    np.testing.assert_allclose(ours.intercept_, ones.coef_[:, -1], atol=0.02)
    kernel = TopKSVC(2, fit_intercept=True, tol=1e-5, max_iter=20_000, kernel="precomputed").fit(X @ X.T, y)
    scores = ours.decision_function(X)
    np.testing.assert_allclose(kernel.decision_function(X @ X.T), scores, atol=0.05)
    sparse = TopKSVC(2, fit_intercept=True, tol=1e-5, max_iter=20_000).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.decision_function(X), scores, atol=0.05)


def test_a_precomputed_linear_kernel_is_the_linear_one(data):
    X, y = data
    X, X_test = X[:100], X[100:]
    for k, variant in ((1, "alpha"), (3, "beta")):
        linear = TopKSVC(k, variant, tol=1e-6).fit(X, y[:100])
        kernel = TopKSVC(k, variant, tol=1e-6, kernel="precomputed").fit(X @ X.T, y[:100])
        np.testing.assert_allclose(kernel.objective_, linear.objective_, rtol=2e-6)
        np.testing.assert_allclose(kernel.coef_ @ X, linear.coef_, atol=0.02)
        K = X_test @ X.T
        np.testing.assert_allclose(kernel.decision_function(K), linear.decision_function(X_test), atol=0.05)
        assert (kernel.predict(K) == linear.predict(X_test)).mean() >= 0.95
        assert kernel.predict_topk(K, 3)[0].shape == (20, 3)
    with pytest.raises(ValueError, match=r"square matrix of inner products, got shape \(100, 6\)"):
        TopKSVC(kernel="precomputed").fit(X, y[:100])
    with pytest.raises(ValueError, match="symmetric matrix of inner products, found entries"):
        TopKSVC(kernel="precomputed").fit(np.triu(X @ X.T), y[:100])
    with pytest.raises(ValueError, match="of a row with itself at least 0, found -1 on the diagonal"):
        TopKSVC(kernel="precomputed").fit(np.diag([-1.0, *np.ones(99)]), y[:100])


def test_the_order_of_visits_is_seeded(data):
    X, y = data
    a, b, c = (TopKSVC(2, random_state=seed).fit(X, y).coef_ for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert np.any(a != c)


def test_it_says_when_the_gap_is_not_closed(data):
    X, y = data
    with pytest.warns(
        ConvergenceWarning, match=r"duality gap is .* after 2 epochs, above tol = 1e-12: raise"
    ) as caught:
        ours = TopKSVC(2, tol=1e-12, max_iter=2).fit(X, y)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert ours.n_iter_ == 2 and ours.dual_gap_ > 1e-12
    assert np.all(np.isfinite(ours.coef_))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (dict(k=0), ValueError, "k: expected at least 1, got 0"),
        (dict(k=4), ValueError, "k: expected at most 3, the number of classes less one, got 4"),
        (dict(k=1.5), TypeError, "k: expected a whole number"),
        (dict(variant="gamma"), ValueError, "variant: expected one of alpha, beta, got 'gamma'"),
        (dict(C=0), ValueError, "C: expected a finite number above 0, got 0"),
        (dict(C=np.inf), ValueError, "C: expected a finite number above 0"),
        (dict(C="a"), TypeError, "C: expected a number"),
        (dict(tol=-1.0), ValueError, "tol: expected a finite number above 0"),
        (dict(max_iter=0), ValueError, "max_iter: expected at least 1, got 0"),
        (dict(kernel="rbf"), ValueError, "kernel: expected one of linear, precomputed, got 'rbf'"),
        (
            dict(n_jobs=0),
            ValueError,
            "n_jobs: expected from 1 to 16384 threads, or -1 for one per core, got 0",
        ),
    ],
)
def test_options_are_checked(data, options, error, message):
    with pytest.raises(error, match=message):
        TopKSVC(**options).fit(*data)


def test_features_and_classes_are_checked(data):
    X, y = data
    bad = X.copy()
    bad[7, 2] = np.nan
    with pytest.raises(ValueError, match="found NaN in row 7, column 2 of X"):
        TopKSVC().fit(bad, y)
    with pytest.raises(ValueError, match="at least two classes in y, found one class"):
        TopKSVC().fit(X, np.zeros(len(y)))
    with pytest.raises(ValueError, match="Unknown label type"):
        TopKSVC().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="squared norm is a finite float32"):
        TopKSVC().fit(np.full_like(X, 1e30, np.float32), y)


def test_numbers_beyond_the_dtypes(data):
    X, y = data
    for C in (1e-42, 1e39):
        with pytest.raises(ValueError, match=r"C: expected a number from 1.18e-38 to 3.4e.38"):
            TopKSVC(C=C).fit(X.astype(np.float32), y)
    assert TopKSVC(C=0.1, max_iter=2**31 - 1).fit(X, y).n_iter_ > 1
    with pytest.raises(ValueError, match="max_iter: expected at most 2147483647, got 1099511627776"):
        TopKSVC(C=0.1, max_iter=2**40).fit(X, y)
    # r ‖x‖² below the rounding of the scores: the dual variables stay in their sets
    for k in (1, 2):
        ours = TopKSVC(k, C=1e-20).fit(X, y)
        np.testing.assert_allclose(ours.objective_, len(y) * 1e-20, rtol=1e-12)
        assert abs(ours.dual_gap_) < 1e-12


def test_clone_pickle_and_grid_search(data):
    X, y = data
    ours = TopKSVC(2, random_state=0).fit(X, y)
    again = pickle.loads(pickle.dumps(ours))
    np.testing.assert_array_equal(again.decision_function(X), ours.decision_function(X))
    assert clone(ours).get_params() == ours.get_params()
    search = GridSearchCV(TopKSVC(tol=1e-2), {"k": [1, 2], "C": [0.1, 1.0]}, cv=2).fit(X, NAMES[y])
    assert search.best_score_ > 0.5


@pytest.mark.parametrize("k, variant", [(1, "alpha"), (2, "alpha"), (2, "beta")])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_features_end_as_well_dense_as_sparse(k, variant, dtype):
    # visits to one row after another leave gaps of 0.02 in blocks, and of 0.38 without, after 1,000 epochs
    X, y = load_iris(return_X_y=True)
    X = X.astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dense, sparse = (TopKSVC(k, variant, C=10.0, random_state=0).fit(A, y) for A in (X, sp.csr_array(X)))
    np.testing.assert_array_equal(dense.coef_, sparse.coef_)
    value = reference.objective(dense.coef_.T, X, y, variant, k, 10.0)
    assert dense.dual_gap_ <= 1e-3
    if (k, variant) != (2, "alpha"):  # whose dual set has no inside for 3 classes
        assert value - reference.bound(X, y, 3, variant, k, 10.0) <= 1e-3 * value
    np.testing.assert_allclose(dense.objective_, value, rtol=1e-6)


@pytest.mark.parametrize("kernel", ["linear", "precomputed"])
def test_rounding_that_is_above_the_tolerance_is_said(kernel):
    # all margins are close to 0 at the optimum, and half of what rounding moves is a loss of weight C
    rng = np.random.default_rng(0)
    y = np.arange(200) % 20
    X = 0.3 * rng.normal(size=(20, 300))[y] + rng.normal(size=(200, 300))
    X = sp.csr_array(
        (30 * X / np.linalg.norm(X, axis=1, keepdims=True) * (rng.random(X.shape) < 0.2)), dtype="f4"
    )
    X = X if kernel == "linear" else (X @ X.T).toarray()
    with pytest.warns(ConvergenceWarning, match="above tol = 1e-10: (rounding keeps|raise max_iter)"):
        TopKSVC(2, C=1e4, tol=1e-10, kernel=kernel, random_state=0).fit(X, y)
