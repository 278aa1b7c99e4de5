"""KernelLogisticClassifier of neighbouring numbers of rows: one set of programs, and the results of each."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from xmcjax import KernelLogisticClassifier, kernels
from xmcjax.solvers import kernel_multinomial

D, CLASSES = 6, 3


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Tanimoto(kernels.Kernel):
    """x·x' / (‖x‖² + ‖x'‖² − x·x'), which is no number where both are 0."""

    def value(self, pairs):
        return pairs.inner / (pairs.inner + pairs.distance2)


def data(n, dtype=np.float32):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((n, D)).astype(dtype), np.arange(n) % CLASSES
    X[:, :CLASSES] += 2 * (y[:, None] == np.arange(CLASSES))
    return X, y


def thinned(X):
    return sp.csr_array(np.where(np.abs(X) > 0.8, X, 0))


def levelled(X):  # with a column whose mean is subtracted
    return sp.csr_array(np.column_stack([np.where(np.abs(X) > 0.8, X, 0), np.full(len(X), 3.0, X.dtype)]))


@pytest.mark.parametrize(
    ("kernel", "features"),
    [
        ("rbf", np.asarray),
        ("linear", np.asarray),
        ("rbf", thinned),
        ("linear", levelled),
        ("precomputed", lambda X: X @ X.T + np.eye(len(X), dtype=X.dtype)),
    ],
)
def test_numbers_of_rows_share_their_programs(kernel, features, compilations):
    X, y = data(180)
    weight = 1 + np.arange(len(y)) % 2
    # which put the features on the device, and take their centre away: each number of rows has its own
    own = ("stage", "_centred", "_of_rest")

    def fits(*sizes):
        for n in sizes:
            given = features(X[:n])
            model = KernelLogisticClassifier(kernel, v=1.0).fit(given, y[:n], weight[:n])
            for rows in (20, 30):
                model.predict(given[:rows])
            model.cv_criterion(given, y[:n], 3)

    fits(170)
    programs = compilations(lambda: fits(150, 151, 143))
    assert [program for program in programs if not any(name in program for name in own)] == []


def test_predictions_of_few_rows_share_a_program(compilations):
    X, y = data(150)
    model = KernelLogisticClassifier().fit(X, y)
    model.predict(X[:16])
    assert compilations(lambda: [model.predict_proba(X[:rows]) for rows in range(1, 16)]) == []


@pytest.mark.parametrize("n", [150, 700])
@pytest.mark.parametrize("form", [np.asarray, levelled])
def test_rows_behind_change_nothing(n, form):
    X, y = data(n, np.float64)
    X, weight, folds = form(X), 0.5 + np.arange(n) % 3, np.arange(n) % 4
    model = KernelLogisticClassifier(v=3.0, w=1.0, sigma2=0.5, tol=1e-11)
    psi, _ = model.cv_criterion(X, y, folds, sample_weight=weight)
    model.fit(X, y, weight)
    assert model.dual_coef_.shape == (n, CLASSES) and model._kernels.gram.points.n == n
    assert model.dual_coef_.flags.c_contiguous

    solver, limits = kernel_multinomial, kernel_multinomial.HParams(tolerance=1e-11)
    with jax.enable_x64(True):
        gram = kernels.gram(kernels.RBF(1.0), kernels.points(X))
        family = kernels.class_kernels(gram, 3.0, 0.5, CLASSES)
        problem = solver.kernel_problem(family, y, weight)
        state = solver.run(problem, limits, solver.init(problem))
        judged = (folds[:, None] == np.arange(4)) * weight[:, None]
        of_folds = solver.kernel_problem(family, y, weight[:, None] - judged)
        expected = solver.cv_criterion(of_folds, jnp.asarray(judged), limits).value.sum()
    np.testing.assert_allclose(model.dual_coef_, np.asarray(state.alpha)[..., 0], atol=1e-9)
    np.testing.assert_allclose(model.objective_, state.value[0], rtol=1e-12)
    np.testing.assert_allclose(psi, expected, rtol=1e-9)
    np.testing.assert_allclose(model.decision_function(X), np.asarray(state.u)[..., 0], atol=1e-8)


def test_a_sum_of_linear_kernels_is_a_linear_one(tmp_path):
    """Its fits, its derivatives, and the predictions of what is stored."""
    X, y = data(150, np.float64)
    base = kernels.Scaled(1.5, kernels.Linear()) + kernels.Linear()
    ours, theirs = KernelLogisticClassifier(base, v=2.0), KernelLogisticClassifier("linear", v=5.0)
    (value, slope), (expected, steep) = (m.cv_criterion(X, y, np.arange(150) % 4) for m in (ours, theirs))
    np.testing.assert_allclose([value, slope.log_v], [expected, steep.log_v], rtol=1e-5)
    # s = v (1.5 + 1), of which the logarithm of the 1.5 moves 1.5 / 2.5 as much
    (of_scale,) = jax.tree.leaves(slope.log_w)
    np.testing.assert_allclose(of_scale, 0.6 * steep.log_v, rtol=1e-5)
    probabilities = theirs.fit(X, y).predict_proba(X)
    np.testing.assert_allclose(ours.fit(X, y).predict_proba(X), probabilities, rtol=1e-5)
    assert ours._kernels.gram.linear
    ours.save(tmp_path / "model")
    loaded = KernelLogisticClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(X), ours.predict_proba(X))


def test_a_fit_goes_on_from_the_coefficients_of_as_many_rows():
    X, y = data(150, np.float64)
    model = KernelLogisticClassifier(warm_start=True, tol=1e-9).fit(X, y)
    assert model.fit(X, y).n_iter_ == 1


@pytest.mark.parametrize("form", [sp.csr_array, np.asarray, lambda X: X @ X.T])
def test_a_kernel_of_ones_own_that_is_no_number_at_zero(form):
    X, y = np.abs(np.rint(data(150)[0])), data(150)[1]
    X[:, 0] += 1
    X, name = form(X), kernels.Scaled(1.0, Tanimoto())
    model = KernelLogisticClassifier(name).fit(X, y)
    assert np.isfinite(model.objective_) and model.score(X, y) > 0.8
    np.testing.assert_array_equal(model.predict(X[:3]), model.predict(X)[:3])


def test_large_points_are_not_copied_for_a_prediction(monkeypatch):
    X, y = np.random.default_rng(0).normal(size=(150, 2000)).astype(np.float32), np.arange(150) % 3
    model = KernelLogisticClassifier().fit(X, y)

    def copied(points, least=128):
        assert points.n < 150
        return points

    monkeypatch.setattr("xmcjax.estimators._kernel_sizes.filled_points", copied)
    assert model.predict(X[:3]).shape == (3,)
