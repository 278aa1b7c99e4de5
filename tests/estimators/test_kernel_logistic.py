"""KernelLogisticClassifier against its own optimality condition and sums written out in NumPy."""

import warnings

import jax
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning

from xmcjax import KernelLogisticClassifier, kernels
from xmcjax.metrics import taxonomy_loss
from xmcjax.solvers import Status

N, D = 40, 3
# leaves 1, 2, 5 and 7; 7 hangs on the root
EDGES = [(0, 4), (4, 2), (4, 3), (3, 1), (3, 5), (0, 7)]
LEAVES = np.array([1, 2, 5, 7])


def data():
    rng = np.random.default_rng(0)
    number = rng.integers(0, 4, N)
    centres = np.array([[2, 0, 0], [2, 1, 0], [2, 0, 2], [-2, 0, 0]])
    X = centres[number] + 0.7 * rng.standard_normal((N, D))
    return X, LEAVES[number], rng.permutation(N) % 3


def rbf(X, Z, w):
    return np.exp(-w / (2 * D) * ((X[:, None] - Z[None]) ** 2).sum(-1))


def test_fit_is_the_optimum_and_scores_are_the_sums():
    X, y, _ = data()
    v, w = np.array([3.0, 1.0, 2.0, 5.0]), np.array([0.5, 1.0, 2.0, 4.0])
    model = KernelLogisticClassifier(v=v, w=w, sigma2=0.5, tol=1e-11).fit(X, y)
    assert list(model.classes_) == list(LEAVES) and model.dual_coef_.shape == (N, 4)
    targets = (y[:, None] == LEAVES).astype(float)
    np.testing.assert_allclose(model.dual_coef_, targets - model.predict_proba(X), atol=1e-9)
    Z = X[:7] + 0.3
    u = np.stack([(v[c] * rbf(Z, X, w[c]) + 0.5) @ model.dual_coef_[:, c] for c in range(4)], axis=1)
    np.testing.assert_allclose(model.decision_function(Z), u, atol=1e-10)
    np.testing.assert_allclose(model.predict_proba(Z), np.exp(u) / np.exp(u).sum(1, keepdims=True))
    assert (model.predict(Z) == LEAVES[u.argmax(1)]).all()


@pytest.mark.slow
def test_kernels_by_name_as_objects_precomputed_and_of_full_rank():
    X, y, _ = data()
    Z, w = X[:7] + 0.3, D / X.var(axis=0).sum()
    plain = KernelLogisticClassifier(tol=1e-11).fit(X, y)
    np.testing.assert_allclose(plain.kernel_.w, w)
    proba = plain.predict_proba(Z)
    given = KernelLogisticClassifier("precomputed", tol=1e-11).fit(rbf(X, X, w), y)
    np.testing.assert_allclose(given.predict_proba(rbf(Z, X, w)), proba, atol=1e-8)
    own = KernelLogisticClassifier(kernels.RBF(w), tol=1e-11).fit(X, y)
    np.testing.assert_allclose(own.predict_proba(Z), proba, atol=1e-8)
    whole = KernelLogisticClassifier(tol=1e-11, rank=N).fit(X, y)
    np.testing.assert_allclose(whole.predict_proba(Z), proba, atol=1e-6)


@pytest.mark.parametrize(
    "hierarchy", [pytest.param(None, marks=pytest.mark.slow), EDGES], ids=["flat", "tree"]
)
def test_criterion_and_tuning(hierarchy):
    X, y, folds = data()
    functions = np.unique(y) if hierarchy is None else np.unique(np.array(EDGES)[:, 1])
    v, options = np.linspace(2, 5, len(functions)), dict(hierarchy=hierarchy, tol=1e-10)
    model = KernelLogisticClassifier(v=v, w=0.5, sigma2=0.8, **options)
    value, gradient = model.cv_criterion(X, y, folds)
    assert gradient.log_v.shape == v.shape and np.ndim(gradient.log_w) == 0
    h = 1e-4
    for place in (0, len(v) - 2):
        sides = []
        for sign in (1, -1):
            moved = v * np.exp(sign * h * (np.arange(len(v)) == place))
            sides.append(KernelLogisticClassifier(v=moved, w=0.5, sigma2=0.8, **options))
        up, down = (m.cv_criterion(X, y, folds)[0] for m in sides)
        np.testing.assert_allclose(gradient.log_v[place], (up - down) / (2 * h), rtol=1e-5)
    tuned = model.tune(X, y, folds, share="all", free=("v", "w", "sigma2"), max_iter=4)
    assert tuned.criterion_ < value - 1 and tuned is model and model.v is v
    assert len(tuned.v_) == len(functions) and np.ptp(tuned.v_) == 0
    again = KernelLogisticClassifier(
        v=tuned.v_, w=tuned.kernel_.w[0], sigma2=tuned.sigma2_, hierarchy=hierarchy, tol=1e-10
    )
    np.testing.assert_allclose(again.cv_criterion(X, y, folds)[0], tuned.criterion_, rtol=1e-7)
    np.testing.assert_allclose(again.fit(X, y).dual_coef_, tuned.dual_coef_, atol=1e-8)


def test_least_expected_loss():
    X, y, _ = data()
    model = KernelLogisticClassifier(hierarchy=EDGES, v=np.array([2.0, 1, 3, 4, 2, 1]), w=0.5).fit(X, y)
    Z = np.random.default_rng(2).standard_normal((50, D))
    proba = model.predict_proba(Z)
    distance = np.array([[taxonomy_loss([a], [b], EDGES) for b in LEAVES] for a in LEAVES])
    predicted = model.predict(Z, loss="taxonomy")
    assert (predicted == LEAVES[np.argmin(proba @ distance, axis=1)]).all()
    assert (model.predict(Z, loss=distance) == predicted).all()
    assert (predicted != model.predict(Z)).any()
    # parents: 1 and 5 share node 3; 2 has node 4 and 7 the root for themselves
    mass = np.stack([proba[:, 0] + proba[:, 2], proba[:, 1], proba[:, 3]], axis=1)
    likelier = np.where(proba[:, 0] >= proba[:, 2], 1, 5)
    expected = np.choose(np.argmax(mass, axis=1), np.broadcast_arrays(likelier, 2, 7))
    assert (model.predict(Z, loss="parent") == expected).all()


def some_inner(y):
    """Labels of which some are 3, which stands above 1 and 5, and some 0, where nothing is known of a row."""
    return np.where((np.arange(N) % 2 == 0) & np.isin(y, (1, 5)), 3, np.where(np.arange(N) % 7 == 0, 0, y))


def test_inner_labels_are_fitted_by_their_likelihood():
    X, y, folds = data()
    vague, options = some_inner(y), dict(hierarchy=EDGES, inner_labels=True, w=1.0, tol=1e-9)
    model = KernelLogisticClassifier(**options).fit(X, vague)
    proba = model.predict_proba(X)
    known = proba[np.arange(N), np.searchsorted(LEAVES, y)]
    of_label = np.where(vague == 0, 1, np.where(vague == 3, proba[:, 0] + proba[:, 2], known))
    # Σ_c α_ic = 0, so that log π may stand for u
    observed = -np.log(of_label).sum() + np.vdot(model.dual_coef_, np.log(proba)) / 2
    np.testing.assert_allclose(model.objective_, observed, rtol=1e-10)
    with pytest.warns(ConvergenceWarning, match="MAX_STEPS"):
        few = KernelLogisticClassifier(max_iter=1, **options).fit(X, vague)
    assert few.n_iter_ == 1 < model.n_iter_ and few.objective_ > model.objective_

    value, gradient = model.cv_criterion(X, vague, folds)
    judged = 0.0
    for fold in range(3):
        train, test = folds != fold, folds == fold
        proba = KernelLogisticClassifier(**options).fit(X[train], vague[train]).predict_proba(X[test])
        known = proba[np.arange(test.sum()), np.searchsorted(LEAVES, y[test])]
        inner = np.where(vague[test] == 3, proba[:, 0] + proba[:, 2], known)
        judged -= np.log(np.where(vague[test] == 0, 1, inner)).sum()
    np.testing.assert_allclose(value, judged, rtol=1e-6)
    tuned = KernelLogisticClassifier(**options).tune(X, vague, folds, max_iter=2)
    assert tuned.criterion_ < value and np.isfinite(gradient.log_v).all()
    with pytest.raises(ValueError, match="two classes or more in every training part, that of fold 0 has 0"):
        model.tune(X, vague, np.isin(vague, (0, 3)).astype(int))


@pytest.mark.slow
def test_inner_labels_and_loadings():
    X, y, folds = data()
    options = dict(hierarchy=EDGES, w=1.0, tol=1e-9)
    plain = KernelLogisticClassifier(**options).fit(X, y)
    same = KernelLogisticClassifier(inner_labels=True, **options).fit(X, y)
    np.testing.assert_allclose(same.dual_coef_, plain.dual_coef_, atol=1e-8)
    vague = some_inner(y)
    model = KernelLogisticClassifier(inner_labels=True, **options).fit(X, vague)
    assert (model.dual_coef_[vague == 3].sum(axis=1) < 1e-9).all()
    assert np.mean(model.predict(X) == y) > 0.6
    with pytest.raises(ValueError, match="expected leaves of the hierarchy, found"):
        KernelLogisticClassifier(**options).fit(X, vague)

    B = np.random.default_rng(3).standard_normal((4, 2))
    mixed = KernelLogisticClassifier(w=1.0, loadings=B, tol=1e-9)
    value, _ = mixed.cv_criterion(X, y, folds)
    mixed.tune(X, y, folds, free=("v", "loadings"), max_iter=3)
    assert mixed.criterion_ < value and len(mixed.v_) == 2
    assert mixed.loadings_ is not None and mixed.loadings_.shape == (4, 2)


@pytest.mark.slow
def test_one_against_the_rest():
    X, y, _ = data()
    joint = KernelLogisticClassifier(v=3.0, w=1.0, likelihood="one_vs_rest", tol=1e-10).fit(X, y)
    # the binary softmax with kernels of half the variance
    binary = KernelLogisticClassifier(v=1.5, w=1.0, sigma2=0.5, tol=1e-10).fit(X, y == LEAVES[1])
    np.testing.assert_allclose(joint.decision_function(X)[:, 1], binary.decision_function(X), atol=1e-8)
    sigmoid = 1 / (1 + np.exp(-joint.decision_function(X)))
    np.testing.assert_allclose(joint.predict_proba(X), sigmoid / sigmoid.sum(1, keepdims=True))


def test_bad_input():
    X, y, folds = data()
    indefinite = np.eye(N) - 0.5
    with pytest.raises(ValueError, match="positive semidefinite kernel matrix, found the eigenvalue -"):
        KernelLogisticClassifier("precomputed").fit(indefinite, y)
    model = KernelLogisticClassifier()
    for arguments, more, message in [
        ((41,), {}, "folds: expected from 2 to 40, the number of points, got 41"),
        ((folds,), dict(share="level"), "share: expected one of class, all, got 'level'"),
        ((folds,), dict(free=("u",)), "free: expected some of v, w, sigma2"),
        (((y == 7).astype(int),), {}, "two classes or more in every training part, that of fold 0 has 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            model.tune(X, y, *arguments, **more)
    without = KernelLogisticClassifier(sigma2=0)
    with pytest.raises(ValueError, match="free: sigma2 is learnt by its logarithm, expected above 0, got 0"):
        without.tune(X, y, folds, free=("sigma2",))
    with pytest.raises(ValueError, match="free, found none: the kernel has none of those that are named"):
        KernelLogisticClassifier("linear").tune(X, y, folds, free=("w",))
    with pytest.raises(ValueError, match="memory: expected a finite number from 0, got inf"):
        KernelLogisticClassifier(memory=np.inf).fit(X, y)  # no model that has it can be stored
    model.fit(X, y)
    for loss in ("taxonomy", np.ones((2, 2))):
        with pytest.raises(ValueError, match="loss: expected"):
            model.predict(X, loss=loss)


def test_folds_that_did_not_converge_are_counted():
    X, y, _ = data()
    with pytest.warns(ConvergenceWarning, match="2 of 2 fits to the folds did not converge"):
        KernelLogisticClassifier(max_iter=1, v=4.0, w=1.0, tol=1e-11).cv_criterion(X, y, folds=2)


def test_a_failed_search_changes_nothing():
    X, y, _ = data()
    estimator = KernelLogisticClassifier(max_iter=1, v=4.0, w=1.0, tol=1e-11)
    with pytest.warns(ConvergenceWarning):
        estimator.fit(X, y)
    before = dict(vars(estimator))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning):
            estimator.tune(X[:30], y[:30], folds=3, max_iter=1)
    assert vars(estimator) == before


def test_a_kernel_is_as_wide_as_the_features_at_any_size():
    X, y = load_iris(return_X_y=True)
    widths = [
        np.mean(KernelLogisticClassifier().fit((X * size).astype(dtype), y).kernel_.w) * size**2
        for dtype, size in ((np.float64, 1.0), (np.float64, 1e149), (np.float32, 1e15), (np.float32, 1e-17))
    ]
    np.testing.assert_allclose(widths, widths[0], rtol=1e-5)


@pytest.mark.parametrize("likelihood", ["softmax", "one_vs_rest"])
@pytest.mark.parametrize(
    ("dtype", "v", "rounding"), [(np.float32, 1e6, 1e-2), (np.float32, 1e7, 1e-2), (np.float64, 1e7, 0.0)]
)
def test_the_objective_is_near_its_minimum_where_the_variance_is_large(likelihood, dtype, v, rounding):
    # small residuals alone left it 14 to 60 per cent above: Φ − min Φ ≤ ½ rᵀK̃ r, and K̃ is large
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 3
    K = np.exp(-((X[:, None] - X) ** 2).sum(axis=2) / 2).astype(dtype)
    options = dict(kernel="precomputed", likelihood=likelihood, v=v)
    exact = KernelLogisticClassifier(**options, tol=1e-12).fit(K.astype(np.float64), y)
    assert exact.status_ == Status.CONVERGED
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = KernelLogisticClassifier(**options, tol=1e-4).fit(K, y)
    if dtype == np.float32 and v == 1e7 and caught:  # how far float32 gets depends on the processor
        assert model.status_ == Status.STALLED
        return
    assert not caught and model.status_ == Status.CONVERGED
    assert abs(model.objective_ / exact.objective_ - 1) <= 1e-3 + rounding


def test_weights_of_classes_leave_the_kernel():
    X, y, _ = data()
    plain, weighted = (KernelLogisticClassifier(class_weight=c).fit(X, y) for c in (None, {2: 100.0}))
    assert plain.kernel_.w == weighted.kernel_.w


def test_weights_of_tune_are_rows_and_their_absence():
    rng = np.random.default_rng(4)
    y = rng.integers(0, 3, 60)
    X = rng.normal(size=(60, 4)) + rng.normal(size=(3, 4))[y]
    folds, weight = np.arange(60) % 3, rng.integers(0, 3, 60)
    weight[y == 2] += weight[y == 2] == 0  # every class stays in every part
    repeated = np.repeat(np.arange(60), weight)
    classifier = KernelLogisticClassifier(w=0.2, v=3.0, random_state=0, tol=1e-7)
    value, slopes = classifier.cv_criterion(X, y, folds, sample_weight=weight)
    expected, others = classifier.cv_criterion(X[repeated], y[repeated], folds[repeated])
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    np.testing.assert_allclose(slopes[0], others[0], rtol=1e-3)
    assert value != classifier.cv_criterion(X, y, folds)[0]
    tuned = classifier.tune(X, y, folds, sample_weight=weight, max_iter=5, share="all").v_.copy()
    again = classifier.tune(X[repeated], y[repeated], folds[repeated], max_iter=5, share="all").v_
    np.testing.assert_allclose(tuned, again, rtol=1e-2)
    # folds that are drawn do not depend on rows of weight 0
    there = weight > 0
    drawn = classifier.cv_criterion(X, y, 3, sample_weight=there.astype(float))[0]
    np.testing.assert_allclose(drawn, classifier.cv_criterion(X[there], y[there], 3)[0], rtol=1e-6)


@pytest.mark.parametrize("n_classes", [3, 35])  # by Newton's method, and by nonlinear CG
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_unit_of_weights_does_not_matter(n_classes, dtype):
    # s and 1/v times the same number are the same model: α is s times as large, and the tolerance with it
    rng = np.random.default_rng(0)
    y = np.arange(105) % n_classes
    X = (rng.normal(size=(n_classes, 4))[y] + rng.normal(size=(105, 4))).astype(dtype)
    weight, folds = rng.uniform(0.5, 2, 105), np.arange(105) % 2
    found = []
    for size in (1.0, 1e-6, 1e4):
        model = KernelLogisticClassifier(v=10 / size, sigma2=1 / size).fit(X, y, sample_weight=size * weight)
        assert model.status_ == Status.CONVERGED  # and no warning
        value, slopes = model.cv_criterion(X, y, folds, sample_weight=size * weight)
        found.append((model.objective_ / size, value / size, float(slopes[1]) / size))
    np.testing.assert_allclose(found[1:], found[:1] * 2, rtol=1e-3 if dtype == np.float32 else 1e-4)


@pytest.mark.parametrize("n_classes", [3, 35])
def test_heavy_rows_beside_light_ones(n_classes):
    # near the end the objective falls by less than the rounding of the losses of heavy rows
    rng = np.random.default_rng(1)
    y = np.arange(105) % n_classes
    X = 20 * rng.normal(size=(105, 2)) + rng.normal(size=(n_classes, 2))[y]
    class_weight = {0: 1000.0} | dict.fromkeys(range(1, n_classes), 1e-4)
    model = KernelLogisticClassifier(w=2.6e-3, tol=1e-6, class_weight=class_weight)
    model.fit(X, y)  # without a warning
    assert model.status_ == Status.CONVERGED
    assert (model.predict(X) == 0).mean() > 0.9


@pytest.mark.parametrize("n_classes", [3, 35])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_features_that_are_not_scaled_are_fitted_in_float64(n_classes, form):
    # K̃α has no digits in single precision: predictions of such a fit were wrong altogether
    rng = np.random.default_rng(0)
    y = np.arange(140) % n_classes
    X = (rng.normal(size=(n_classes, 4))[y] + rng.normal(size=(140, 4))).astype(np.float32)
    for size in (0.1, 100.0):
        model = KernelLogisticClassifier("linear").fit(form(size * X), y)
        exact = KernelLogisticClassifier("linear", v=10.0 * size**2).fit(X.astype(np.float64), y)
        np.testing.assert_allclose(model.predict_proba(form(size * X)), exact.predict_proba(X), atol=2e-3)
        np.testing.assert_allclose(model.objective_, exact.objective_, rtol=1e-4)
        assert model.dual_coef_.dtype == (np.float32 if size < 1 else np.float64)
        assert ("in float64" in model.reason_) == (size > 1)


def test_what_chooses_the_precision():
    rng = np.random.default_rng(0)
    y = np.arange(141) % 3
    X = (rng.normal(size=(3, 4))[y] + rng.normal(size=(141, 4))).astype(np.float32)
    X[0] = 1e4
    weight = (np.arange(141) > 0).astype(np.float64)  # a row of weight 0 is none
    for rows, s in ((slice(1, None), None), (slice(None), weight)):
        model = KernelLogisticClassifier("linear", v=1.0).fit(X[rows], y[rows], s)
        assert model.dual_coef_.dtype == np.float32
    # kernel values are rounded as much themselves, and checked in their own precision
    given = KernelLogisticClassifier("precomputed", v=1.0).fit(X[1:] @ X[1:].T, y[1:])
    assert given.dual_coef_.dtype == np.float32
    np.testing.assert_allclose(given.objective_, model.objective_, rtol=1e-4)


@pytest.mark.parametrize("size", [1.0, 1e3])
def test_a_kernel_without_full_rank_converges(size):
    # r has a part that no product sees, and is small in the end
    rng = np.random.default_rng(0)
    y = np.arange(420) % 3
    X = rng.normal(size=(3, 4))[y] + rng.normal(size=(420, 4))
    model = KernelLogisticClassifier("linear", v=100.0 / size**2).fit(size * X, y)
    assert model.status_ == Status.CONVERGED
    residual = model.dual_coef_ + model.predict_proba(size * X) - np.eye(3)[y]
    assert np.abs(residual).max() <= 1e-4


@pytest.mark.filterwarnings("ignore:not converged:sklearn.exceptions.ConvergenceWarning")  # to the tolerance
@pytest.mark.parametrize("seed", [1, 2])
def test_many_classes_and_features_that_are_not_scaled(seed):
    # products of directions are in single precision where it has digits: else u drifted away from K̃α
    rng = np.random.default_rng(seed)
    y = np.arange(140) % 35
    X = rng.normal(size=(35, 4))[y] + rng.normal(size=(140, 4))
    found = [KernelLogisticClassifier("linear").fit(size * X, y).objective_ for size in (1e2, 1e3, 1e4, 1e5)]
    np.testing.assert_allclose(found[1:], found[0], rtol=1e-4)


@pytest.mark.parametrize(("kernel", "dtype"), [("rbf", np.float32), ("linear", np.float64)])
@pytest.mark.parametrize("options", [{}, dict(memory=0), dict(rank=20, approximation="nystrom")])
def test_a_column_of_years_leaves_digits_to_the_others(kernel, dtype, options):
    # dense and sparse as dense in float64; the squares of such a column are 10⁶ times the distances
    rng = np.random.default_rng(0)
    y = np.arange(80) % 3
    X = 2 * rng.normal(size=(3, 4))[y] + rng.normal(size=(80, 4))
    X[:, 1] *= rng.random(80) < 0.6  # and a column with gaps
    X = (X + np.array([2000, 0, 0, 0])).astype(np.float32)
    options = dict(options, v=1e-3 if kernel == "linear" else 10.0, random_state=0)
    exact = KernelLogisticClassifier(kernel, **options).fit(X.astype(np.float64), y)
    expected = exact.predict_proba(X.astype(np.float64))
    for form in (np.asarray, sp.csr_array):
        given = form(X.astype(dtype))
        model = KernelLogisticClassifier(kernel, **options).fit(given, y)
        np.testing.assert_allclose(model.predict_proba(given), expected, atol=1e-4)
        np.testing.assert_allclose(
            model.score(given[:9], y[:9]), exact.score(X[:9].astype(np.float64), y[:9])
        )
        for a, b in zip(jax.tree.leaves(model.kernel_), jax.tree.leaves(exact.kernel_), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5)


def test_the_width_is_by_the_spread_however_large_the_mean():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    for dtype, mean in ((np.float64, 1e9), (np.float32, 1e5)):
        for form in (np.asarray, sp.csr_array):
            model = KernelLogisticClassifier().fit(form((X + mean).astype(dtype)), [0, 1, 0, 1])
            np.testing.assert_allclose(model.kernel_.w, 1 / 1.25)
            constant = KernelLogisticClassifier().fit(
                form(np.full((7, 1), mean / 3, dtype)), [0, 1] * 3 + [1]
            )
            np.testing.assert_allclose(constant.kernel_.w, 1)
            # the mean of many rows is rounded more than they are
            alike, y = np.full((12_000, 1), 1 / 3, dtype), np.arange(12_000) % 2
            constant = KernelLogisticClassifier(rank=5, approximation="nystrom").fit(form(alike), y)
            np.testing.assert_allclose(constant.kernel_.w, 1)


def test_a_few_heavy_rows_do_not_loosen_the_fit_of_the_others():
    rng = np.random.default_rng(0)
    y, weight = np.arange(210) % 3, np.ones(210)
    X = rng.normal(size=(3, 4))[y] + rng.normal(size=(210, 4))
    weight[:2] = 1e7
    found, exact = (
        KernelLogisticClassifier(v=1.0, **limits).fit(X, y, weight).predict_proba(X)
        for limits in ({}, dict(tol=1e-7))
    )
    np.testing.assert_allclose(found, exact, atol=1e-5)


def test_hyperparameters_as_lists_are_those_of_an_array(tmp_path):
    """By ascending node number in a list too, in arguments, kernels and models that were stored."""
    X, y, folds = data()
    v, w = [1.0, 2, 3, 4, 5, 6], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]
    model = KernelLogisticClassifier(hierarchy=EDGES, v=np.array(v), w=np.array(w)).fit(X, y)
    model.save(tmp_path / "model")
    loaded = KernelLogisticClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.kernel_.w, w)
    for other in (
        KernelLogisticClassifier(hierarchy=EDGES, v=v, w=tuple(w)).fit(X, y),
        KernelLogisticClassifier(kernels.RBF(w), hierarchy=EDGES, v=v).fit(X, y),
        loaded.fit(X, y),
    ):
        np.testing.assert_array_equal(other.v_, v)
        np.testing.assert_array_equal(other.kernel_.w, w)
        np.testing.assert_array_equal(other.dual_coef_, model.dual_coef_)
    flat = [KernelLogisticClassifier(kernels.RBF(kind(w[:4])), v=kind(v[:4])) for kind in (list, np.array)]
    lists, arrays = (one.tune(X, y, folds, max_iter=1) for one in flat)
    np.testing.assert_array_equal(lists.dual_coef_, arrays.dual_coef_)
    assert lists.cv_criterion(X, y, folds)[0] == arrays.cv_criterion(X, y, folds)[0]


@pytest.mark.parametrize("share", ["level", "subtree", "all", "class"])
def test_what_was_learnt_can_be_given_back(share):
    X, y, folds = data()
    model = KernelLogisticClassifier(hierarchy=EDGES, tol=1e-10).tune(X, y, folds, share=share, max_iter=2)
    again = KernelLogisticClassifier(
        model.kernel_, hierarchy=EDGES, v=model.v_, sigma2=model.sigma2_, tol=1e-10
    )
    np.testing.assert_allclose(again.fit(X, y).objective_, model.objective_, rtol=1e-9)
    np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), atol=1e-6)


def test_probabilities_are_those_of_the_likelihood_of_the_fit(tmp_path):
    X, y, _ = data()
    model = KernelLogisticClassifier().fit(X, y)
    expected = model.predict_proba(X)
    model.set_params(likelihood="one_vs_rest")
    np.testing.assert_array_equal(model.predict_proba(X), expected)
    model.save(tmp_path / "model")
    loaded = KernelLogisticClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), expected)
    assert loaded.likelihood == "one_vs_rest"
    assert abs(model.fit(X, y).predict_proba(X) - expected).max() > 0.05


@pytest.mark.parametrize("kernel", ["rbf", "matern"])
def test_clusters_that_are_far_apart_keep_their_distances(kernel):
    """In float32 distances within a cluster are lost where squares of the distance between clusters are."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    X[:, 0] += 1e4 * rng.choice([-1, 1], 120)
    X = X.astype(np.float32)
    found = KernelLogisticClassifier(kernel, w=4.0).fit(X, y)
    exact = KernelLogisticClassifier(kernel, w=4.0).fit(X.astype(np.float64), y)
    assert found.score(X, y) > 0.95
    np.testing.assert_allclose(found.predict_proba(X), exact.predict_proba(X.astype(np.float64)), atol=1e-6)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rows_whose_norm_overflows_are_refused_in_prediction(form):
    X, y, _ = data()
    X = X.astype(np.float32)
    model = KernelLogisticClassifier().fit(form(X), y)
    far = X[:2].copy()
    far[1] *= 1e20
    for method in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(ValueError, match="squared norm is a finite float32, which that of row 1 is not"):
            method(form(far))
