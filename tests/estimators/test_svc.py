"""MulticlassSVC and TopKSVC: the optimum that they promise, biases, kernels, seeds."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

from tests.support import dual_references
from xmcjax import MulticlassSVC, MultinomialLogisticRegression, TopKSVC
from xmcjax.solvers import Status

FORMULATIONS = ["ww", "llw", "cs", "ovr", "ovr_squared"]
TOP_K = [(1, "alpha"), (2, "alpha"), (2, "beta"), (3, "beta")]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 6))
    return X, np.argmax(X @ rng.normal(size=(6, 4)) + rng.normal(size=(60, 4)), axis=1)


@pytest.mark.parametrize(
    ("estimator", "kind", "k"),
    [(MulticlassSVC(name, C=0.5, tol=1e-5), name, 1) for name in FORMULATIONS]
    + [(TopKSVC(k, variant, C=0.5, tol=1e-5), variant, k) for k, variant in TOP_K],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_the_optimum_is_that_of_an_interior_point_method(data, estimator, kind, k):
    X, y = data
    X = X * (abs(X) > 0.5)
    least = dual_references.bound(X, y, 4, kind, k, 0.5)
    for container in (np.asarray, sp.csr_matrix):
        ours = estimator.fit(container(X), y)
        assert -1e-12 < ours.dual_gap_ <= 1e-5 and ours.n_iter_ > 1
        value = dual_references.objective(ours.coef_.T, X, y, kind, k, 0.5)
        assert (1 - 1e-9) * least <= value <= (1 + 2e-5) * least
        if isinstance(ours, TopKSVC):
            assert ours.objective_ == pytest.approx(value, rel=1e-10)
        else:
            assert ours.status_ == Status.CONVERGED
        if kind == "llw":
            np.testing.assert_allclose(ours.coef_.sum(0), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("estimator", "C"),
    [
        (MulticlassSVC("ww", C=0.2, tol=1e-6), 0.4),
        (MulticlassSVC("ovr", C=0.2, tol=1e-6), 0.2),
        (TopKSVC(C=0.2, tol=1e-6), 0.4),
    ],
)
def test_two_classes_are_the_binary_svm(data, estimator, C):
    """w_1 = −w_0 = w/2 of the binary SVM with twice the C; of one against the rest with C itself."""
    X, y = data
    X, y = X[y < 2], y[y < 2]
    svc = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-9, max_iter=1_000_000).fit(X, y)
    np.testing.assert_allclose(estimator.fit(X, y).coef_, svc.coef_, atol=2e-3)


@pytest.mark.parametrize(
    ("formulation", "solver", "weighted"),
    [(name, "auto", weighted) for name in ("ovr", "ovr_squared") for weighted in (False, True)]
    + [("ovr_squared", "admm", False)],
)
def test_the_gap_of_two_classes_is_that_of_the_weights_that_are_kept(formulation, solver, weighted):
    """Each class is a problem of its own, and the weights of one of them are kept."""

    def objective(classifier, X, y):
        w, weight = classifier.coef_[0], np.linspace(1, 2, len(y)) if weighted else 1
        losses = np.maximum(0, 1 - np.where(y, 1, -1) * (X @ w))
        return w @ w / 2 + np.sum(weight * losses ** (1 if formulation == "ovr" else 2))

    for seed in range(2 if solver == "admm" else 8):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(80, 22))
        y = X[:, 0] + 0.5 * rng.normal(size=80) + rng.normal() > 0
        rows = X, y, np.linspace(1, 2, 80) if weighted else None
        ours = MulticlassSVC(formulation, solver=solver, tol=0.01).fit(*rows)
        found = objective(ours, X, y)
        least = objective(MulticlassSVC(formulation, tol=1e-9).fit(*rows), X, y)
        assert (found - least) / found <= ours.dual_gap_ + 1e-9
        assert ours.status_ == Status.CONVERGED and ours.dual_gap_ <= 0.01


def test_crammer_singer_with_a_bias_is_scikit_learns(data):
    X, y = data
    options = dict(C=0.3, tol=1e-8, max_iter=100_000, intercept_scaling=1)
    theirs = LinearSVC(multi_class="crammer_singer", **options).fit(X, y)
    for ours in (
        MulticlassSVC("cs", C=0.3, tol=1e-6, fit_intercept=True),
        TopKSVC(C=0.3, tol=1e-6, fit_intercept=True),
    ):
        ours.fit(X, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-3)
        np.testing.assert_allclose(ours.decision_function(X), X @ ours.coef_.T + ours.intercept_)


@pytest.mark.parametrize(("k", "variant"), [(1, "alpha"), (3, "beta")])
@pytest.mark.parametrize("bias", [False, True])
def test_a_precomputed_linear_kernel_is_the_linear_one(data, k, variant, bias):
    X, y = data
    X, y, X_test = X[:50] + np.array([1, 0, 0, 2, 0, 0]), y[:50], X[50:]
    options = dict(tol=1e-6, max_iter=20_000, fit_intercept=bias)
    linear = TopKSVC(k, variant, **options).fit(X, y)
    kernel = TopKSVC(k, variant, kernel="precomputed", **options).fit(X @ X.T, y)
    np.testing.assert_allclose(kernel.objective_, linear.objective_, rtol=2e-6)
    np.testing.assert_allclose(kernel.coef_ @ X, linear.coef_, atol=0.02)
    K = X_test @ X.T
    np.testing.assert_allclose(kernel.decision_function(K), linear.decision_function(X_test), atol=0.05)
    assert (kernel.predict(K) == linear.predict(X_test)).mean() >= 0.9
    assert kernel.predict_topk(K, 3)[0].shape == (10, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X, r"square matrix of inner products, got shape \(60, 6\)"),
        (lambda X: np.triu(X @ X.T), "symmetric matrix of inner products, found entries"),
        (lambda X: -np.eye(len(X)), "of a row with itself at least 0, found -1 on the diagonal"),
    ],
)
def test_inner_products_are_checked(data, change, message):
    X, y = data
    with pytest.raises(ValueError, match=message):
        TopKSVC(kernel="precomputed").fit(change(X), y)


@pytest.mark.parametrize("kind", [MulticlassSVC, TopKSVC])
def test_the_order_of_visits_is_seeded(data, kind):
    a, b, c = (kind(random_state=seed).fit(*data).coef_ for seed in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert np.any(a != c)


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (MulticlassSVC(max_iter=1), r"after 1 epochs, above tol=0.001: raise max_iter"),
        (
            TopKSVC(2, tol=1e-12, max_iter=2),
            r"gap is .* after 2 epochs, above tol = 1e-12: raise .* lower C, or scale the features",
        ),
    ],
)
def test_what_did_not_converge_is_said(data, estimator, message):
    with pytest.warns(ConvergenceWarning, match=message):
        ours = estimator.fit(*data)
    assert ours.n_iter_ <= 2 and ours.dual_gap_ > ours.tol


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "estimator", [MulticlassSVC("ovr_squared"), TopKSVC(2), MultinomialLogisticRegression()], ids=repr
)
def test_what_is_advised_against_rounding_is_of_the_dtype(data, estimator, dtype):
    X, y = data
    with pytest.warns(ConvergenceWarning, match="rounding keeps the duality gap too large") as told:
        ours = estimator.set_params(tol=1e-17).fit(X.astype(dtype), y)
    assert ours.status_ == Status.STALLED
    assert ("float64" in str(told[0].message)) == (dtype == "float32")


def test_numbers_of_the_least_and_the_largest_size(data):
    X, y = data
    assert TopKSVC(C=0.1, max_iter=2**31 - 1).fit(X, y).n_iter_ > 1
    # r ‖x‖² below the rounding of the scores: the dual variables stay in their sets
    for k in (1, 2):
        ours = TopKSVC(k, C=1e-20).fit(X, y)
        np.testing.assert_allclose(ours.objective_, len(y) * 1e-20, rtol=1e-12)
        assert abs(ours.dual_gap_) < 1e-12


def test_sums_beyond_float64_are_said():
    X = np.random.default_rng(0).standard_normal((30, 4))
    with pytest.raises(ValueError, match="expected features and C whose products are finite"):
        TopKSVC(C=1e300).fit(X, np.arange(30) % 5)


@pytest.mark.parametrize(("k", "variant"), [(1, "alpha"), (2, "alpha"), (2, "beta")])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_features_end_as_well_dense_as_sparse(k, variant, dtype):
    # visits to one row after another leave gaps of 0.02 in blocks, and of 0.38 without, after 1,000 epochs
    X, y = load_iris(return_X_y=True)
    X = X.astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dense, sparse = (TopKSVC(k, variant, C=10.0, random_state=0).fit(A, y) for A in (X, sp.csr_array(X)))
    np.testing.assert_array_equal(dense.coef_, sparse.coef_)
    assert dense.dual_gap_ <= 1e-3
    value = dual_references.objective(dense.coef_.T, X, y, variant, k, 10.0)
    np.testing.assert_allclose(dense.objective_, value, rtol=1e-6)


@pytest.mark.parametrize("kernel", ["linear", "precomputed"])
def test_rounding_that_is_above_the_tolerance_is_said(kernel):
    # all margins are close to 0 at the optimum, and half of what rounding moves is a loss of weight C
    rng = np.random.default_rng(0)
    y = np.arange(200) % 20
    X = 0.3 * rng.normal(size=(20, 300))[y] + rng.normal(size=(200, 300))
    X = 30 * X / np.linalg.norm(X, axis=1, keepdims=True) * (rng.random(X.shape) < 0.2)
    X = sp.csr_array(X, dtype="f4")
    X = X if kernel == "linear" else (X @ X.T).toarray()
    with pytest.warns(ConvergenceWarning, match="above tol = 1e-10: (rounding keeps|raise max_iter)"):
        TopKSVC(2, C=1e4, tol=1e-10, kernel=kernel, random_state=0).fit(X, y)


def test_products_of_c_and_weights_out_of_range_name_the_row_of_x():
    from xmcjax import MultinomialLogisticRegression, OneVsAllClassifier

    X, y = np.float32(np.eye(6)), np.arange(6) % 3
    low, high = np.array([0, 1, 1, 1e-42, 1, 1]), np.array([0, 1, 1, 1, 1e39, 1])
    for kind in (MulticlassSVC, TopKSVC, MultinomialLogisticRegression):
        for weight, said in ((low, "1e-42 times C = 1 for row 3"), (high, r"1e\+39 times C = 1 for row 4")):
            with pytest.raises(ValueError, match=f"class_weight: expected weights of rows .* {said} of X$"):
                kind().fit(X, y, weight)
    for options in (dict(class_weight={0: 1e-42}), dict(class_weight={1: 1e39})):
        with pytest.raises(ValueError, match="sample_weight, class_weight: expected weights"):
            OneVsAllClassifier(**options).fit(X, y)
        with pytest.raises(ValueError, match="sample_weight, class_weight: expected weights"):
            MultinomialLogisticRegression(**options).fit(X, y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_weights_leave_max_iter_what_it_is():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 80)
    X = (rng.normal(size=(80, 10)) + rng.normal(size=(4, 10))[y]).astype(np.float32)
    X[rng.random(X.shape) < 0.8] = 0
    for most in (1, 3, 7):
        for formulation in ("ww", "cs", "llw"):
            fitted = MulticlassSVC(formulation, C=100.0, tol=1e-9, max_iter=most, random_state=0)
            assert fitted.fit(X, y, 0.5 + rng.random(80)).n_iter_ <= most


@pytest.mark.parametrize("formulation", ["ovr", "ovr_squared", "ww", "cs", "llw"])
def test_one_pass_at_a_time_goes_on(formulation):
    X, y = load_iris(return_X_y=True)
    model = MulticlassSVC(formulation, max_iter=1, warm_start=True)
    gaps = []
    for _ in range(40):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of max_iter
            gaps.append(model.fit(X, y).dual_gap_)
        assert model.n_iter_ == 1
    assert max(gaps) < 1 and min(gaps[-3:]) < gaps[0]


@pytest.mark.parametrize("most", [1, 2, 7, 25, 33, 40])
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_no_method_passes_max_iter(formulation, most):
    """Coordinate ascent ends after some passes, and what takes over has the rest of them."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 6)), rng.integers(0, 4, 150)
    model = MulticlassSVC(formulation, C=100, tol=1e-13, max_iter=most, random_state=0)
    # steps for all rows at once and Newton's method may end within so many
    if most >= {"cs": 25, "ovr_squared": 25, "llw": 40}.get(formulation, np.inf):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of max_iter
            assert model.fit(X, y).dual_gap_ < 1e-6
    else:
        with pytest.warns(ConvergenceWarning):
            assert model.fit(X, y).status_ == Status.MAX_STEPS
    assert 0 < model.n_iter_ <= most


def test_products_that_no_features_have_are_refused():
    rng = np.random.default_rng(0)
    K = rng.standard_normal((60, 60))
    K = K + K.T
    np.fill_diagonal(K, 1)
    y = np.arange(60) % 4
    for dtype in (np.float32, np.float64):
        with pytest.raises(ValueError, match="semidefinite inner products, found the eigenvalue -"):
            TopKSVC(kernel="precomputed").fit(K.astype(dtype), y)
    X = rng.standard_normal((60, 3)).astype(np.float32)  # of rank 3: rounding makes eigenvalues below 0
    assert TopKSVC(kernel="precomputed", fit_intercept=False).fit(X @ X.T, y).status_.name == "CONVERGED"
