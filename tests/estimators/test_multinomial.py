"""MultinomialLogisticRegression beside scikit-learn's LogisticRegression."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from tests.support import cuda_builds
from tests.support.objectives import multinomial
from xmcjax import MultinomialLogisticRegression, linops
from xmcjax.solvers import Status

TIGHT = dict(tol=1e-13)


@pytest.fixture(scope="module")
def classes():
    """Four noisy clusters; names in no order."""
    rng = np.random.default_rng(0)
    number = np.concatenate([np.arange(4), rng.integers(0, 4, 116)])
    X = rng.normal(size=(120, 5)) + 1.5 * np.eye(5)[number]
    return X, np.array(["pear", "apple", "quince", "fig"])[number]


def reference(X, y, lam, weight=None, **options):
    return LogisticRegression(C=1 / lam, tol=1e-10, max_iter=10000, **options).fit(X, y, weight)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_probabilities_are_those_of_scikit_learn(classes, fit_intercept):
    X, y = classes
    for features in (X, sp.csr_matrix(X)):
        model = MultinomialLogisticRegression(C=2.0, fit_intercept=fit_intercept, **TIGHT).fit(features, y)
        other = reference(X, y, 0.5, fit_intercept=fit_intercept)
        np.testing.assert_array_equal(model.classes_, other.classes_)
        proba = model.predict_proba(features)
        np.testing.assert_allclose(proba, other.predict_proba(X), atol=5e-7)
        np.testing.assert_allclose(proba.sum(1), 1, rtol=1e-12)
        np.testing.assert_allclose(model.predict_log_proba(features), np.log(proba), rtol=1e-9)
        np.testing.assert_array_equal(model.predict(features), other.predict(X))
        assert log_loss(y, proba) == pytest.approx(log_loss(y, other.predict_proba(X)), rel=1e-6)
        assert model.coef_.shape == (4, 5) and model.intercept_.shape == (4,)
        assert model.status_ == Status.CONVERGED
        penalty = 0.25 * np.sum(model.coef_**2)
        assert model.objective_ == pytest.approx(penalty + len(y) * log_loss(y, proba), rel=1e-9)


def test_the_kernels_in_cuda_solve_the_same_problem(classes, monkeypatch):
    """Compiled for the CPU."""
    cuda_builds.register()
    options = dict(solver="newton", tol=1e-8)
    X, y = sp.csr_matrix(classes[0].astype(np.float32)), classes[1]
    plain = MultinomialLogisticRegression(**options).fit(X, y)
    monkeypatch.setattr(linops, "_kernels", lambda: "cuda")
    model, again = (MultinomialLogisticRegression(**options).fit(X, y) for _ in range(2))
    assert model.coef_.tobytes() == again.coef_.tobytes()
    np.testing.assert_allclose(model.coef_, plain.coef_, atol=1e-3)
    assert model.objective_ == pytest.approx(plain.objective_, rel=1e-6)


@pytest.mark.parametrize("features", [np.asarray, sp.csr_matrix])
def test_folds_share_their_programs(classes, features, compilations):
    # one size is a power of two; some rows and columns are empty
    X, y = np.tile(classes[0].astype(np.float32), (3, 1)), np.tile(classes[1], 3)
    X[::7] = 0
    MultinomialLogisticRegression(C=3.0).fit(features(X[:256]), y[:256])

    def folds():
        for n, d in ((255, 5), (245, 8), (256, 6)):
            part = np.pad(X, [(0, 0), (0, 3)])[:n, :d]
            model = MultinomialLogisticRegression(C=2.5, tol=1e-8).fit(features(part), y[:n])
            other = reference(part.astype(float), y[:n], 0.4)
            np.testing.assert_allclose(model.coef_, other.coef_, atol=2e-4)
            assert model.coef_.shape == (4, d)

    assert compilations(folds) == []


def test_two_classes_have_one_weight_vector(classes):
    X, y = classes
    kept = np.isin(y, ["fig", "pear"])
    model = MultinomialLogisticRegression(C=2.0, **TIGHT).fit(X[kept], y[kept])
    # ½λ(‖w_0‖² + ‖w_1‖²) is λ/4 ‖w_1 − w_0‖² at the minimum, with λ = 1/C
    other = reference(X[kept], y[kept], 0.25)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=1e-6)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=5e-7)


@pytest.mark.parametrize("solver", ["lc", "lc_extrapolated", "admm"])
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.filterwarnings("ignore:not converged")
def test_the_objective_of_two_classes_is_that_of_the_weights_that_are_kept(classes, solver, fit_intercept):
    X, y = classes
    kept = np.isin(y, ["fig", "pear"])
    X, y = X[kept], y[kept] == "pear"
    for max_iter in (1, 5, 1000):
        model = MultinomialLogisticRegression(
            solver, C=100.0, fit_intercept=fit_intercept, tol=1e-6, max_iter=max_iter
        ).fit(X, y)
        W, b = (np.stack([-a[0], a[0]], axis=-1) / 2 for a in (model.coef_, model.intercept_))
        assert model.objective_ == pytest.approx(multinomial(X, y.astype(int), W, b, 0.01), rel=1e-9)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64])
@pytest.mark.parametrize("step", [1, 3, 60])
def test_classes_are_whole_numbers_of_any_size(classes, dtype, step):
    X, y = classes
    number = np.unique(y, return_inverse=True)[1]
    texts = MultinomialLogisticRegression().fit(X, number.astype(str))
    for low in (np.iinfo(dtype).min, np.iinfo(dtype).max - 3 * step):
        names = (np.arange(4, dtype=object) * step + low).astype(dtype)
        model = MultinomialLogisticRegression().fit(X, names[number])
        assert model.classes_.dtype == dtype and model.classes_.tolist() == names.tolist()
        np.testing.assert_array_equal(model.coef_, texts.coef_)


@pytest.mark.parametrize("kind", [int, float, str, object])
def test_many_classes_of_few_rows_are_not_called_a_regression(classes, kind):
    X, _ = classes
    y = np.array([*range(20), *range(10)]).astype(str if kind is object else kind).astype(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = MultinomialLogisticRegression(max_iter=1, tol=10).fit(X[:30], y)
        assert len(model.classes_) == 20
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        MultinomialLogisticRegression().fit(X[:30], np.arange(30) + 0.5)


@pytest.mark.parametrize("class_weight", ["balanced", {"fig": 3.0, "pear": 0.5}])
def test_class_and_sample_weights(classes, class_weight):
    X, y = classes
    weight = np.random.default_rng(1).choice([0.0, 1.0, 2.0], len(y))
    model = MultinomialLogisticRegression(class_weight=class_weight, **TIGHT).fit(X, y, weight)
    other = reference(X, y, 1.0, weight, class_weight=class_weight)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-6)


def test_scores_of_1e4_give_probabilities(classes):
    X, y = classes
    model = MultinomialLogisticRegression().fit(X, y)
    proba = model.predict_proba(1e6 * X)
    assert np.all(np.isfinite(proba)) and abs(proba.sum(1) - 1).max() < 1e-6
