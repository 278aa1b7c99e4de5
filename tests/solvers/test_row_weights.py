"""Multi-class SVMs whose rows have different C, by every method that knows them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import dual_references
from tests.support.problems import needs_native, svm_problem
from xmcjax import linops
from xmcjax.solvers import Status, topk_sdca
from xmcjax.solvers import multiclass_dual as md

FORMULATIONS = list(md.FORMULATIONS)


def problem(n=24, m=3, dtype=np.float64):
    X, y = svm_problem(n=n, m=m, dtype=dtype)
    return X, y, np.random.default_rng(5).choice([0.1, 0.7, 3.0], n) * np.random.default_rng(6).random(n)


@pytest.mark.parametrize(
    ("backend", "form"),
    [
        ("dense", np.asarray),
        ("jnp", sp.csr_matrix),  # whose programs are of the rows, however they were given
        *(pytest.param("native", form, marks=needs_native) for form in (np.asarray, sp.csr_matrix)),
    ],
)
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_the_optimum_is_that_of_an_interior_point_method(formulation, backend, form):
    X, y, C = problem(m=4)
    least = dual_references.bound(X, y, 4, formulation, 1, C)
    backend = "auto" if backend == "native" else backend
    found = md.run(form(X), y, formulation=formulation, C=C, tol=1e-8, backend=backend, max_epochs=5000)
    assert found.status == Status.CONVERGED and found.gap <= 1e-8
    assert found.primal == pytest.approx(least, rel=1e-7)
    assert found.primal == pytest.approx(
        dual_references.objective(found.W, X, y, formulation, 1, C), rel=1e-9
    )


def sparse_problem(n=60):
    """Features of which an eighth are not zero, the last row all zeros."""
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    X = np.where(rng.random((n, 24)) < 0.1, rng.standard_normal((n, 24)), 0)
    X[np.arange(n), y] += rng.random(n)
    X[-1] = 0
    return sp.csr_matrix(X), y, np.random.default_rng(5).choice([0.1, 0.7, 3.0], n)


@pytest.mark.parametrize("scale", [1, 100])
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_sparse_features(formulation, scale):
    X, y, C = sparse_problem()
    C = scale * C
    found = md.run(X, y, formulation=formulation, C=C, tol=1e-7, max_epochs=5000)
    least = dual_references.bound(X.toarray(), y, 3, formulation, 1, C)
    assert found.status == Status.CONVERGED and found.primal == pytest.approx(least, rel=1e-6)
    assert found.W.shape == (24, 3) and found.alpha.shape == (60, 3)
    again = md.run(X, y, formulation=formulation, C=C, tol=1e-6, max_epochs=5000, start=found.alpha)
    assert again.primal == pytest.approx(least, rel=1e-5) and again.epochs <= found.epochs


@needs_native
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, None])
@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_numbers_of_rows_share_their_programs(formulation, form, compilations):
    """Of steps for all rows at once, and of proximal point steps, to which a large C leads."""
    X, y, C = sparse_problem(140)
    X = X if form is None else form(X.toarray() + 0.1)

    def runs(*sizes):
        for n in sizes:
            md.run(X[:n], y[:n], formulation=formulation, C=100 * C[:n], tol=1e-12, max_epochs=200)

    runs(138)
    assert compilations(lambda: runs(137, 139, 140)) == []


@pytest.mark.parametrize(("form", "backend"), [(np.asarray, "dense"), (sp.csr_matrix, "jnp")])
def test_numbers_of_rows_share_the_programs_of_plain_jax(form, backend, compilations):
    """Rows behind count in no figure of the solution."""
    X, y, _ = sparse_problem(140)
    X = form(X.toarray())

    def found(n, start=None):
        return md.run(X[:n], y[:n], formulation="ww", C=0.7, tol=1e-6, backend=backend, start=start)

    found(138)
    ended = []
    programs = compilations(lambda: ended.append(found(137)))
    assert [one for one in programs if "jit(stage)" not in one] == []  # which puts arrays on the device
    (one,) = ended
    native = md.run(X[:137], y[:137], formulation="ww", C=0.7, tol=1e-7)
    assert one.status == Status.CONVERGED and one.alpha.shape == (137, 3)
    assert one.primal == pytest.approx(native.primal, rel=2e-6)
    assert one.density_alpha == pytest.approx(native.density_alpha, abs=0.05) and 0 <= one.shrunk < 1
    again = found(137, one.alpha)
    assert again.alpha.shape == (137, 3) and again.epochs <= one.epochs


@needs_native
def test_few_passes_of_lee_lin_wahba():
    """Ascent over instances takes the weights of rows, and nothing else is needed."""
    X, y, C = sparse_problem(200)
    found = md.run(X, y, formulation="llw", C=C, tol=1e-4)
    assert found.status == Status.CONVERGED and found.newton_steps == 0 < found.epochs < 200


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_float32(formulation):
    X, y, C = problem(dtype=np.float32)
    found = md.run(X, y, formulation=formulation, C=C, tol=1e-4)
    assert found.status == Status.CONVERGED and found.W.dtype == np.float32
    least = dual_references.bound(X, y, 3, formulation, 1, C)
    assert least * (1 - 1e-9) <= found.primal <= least * (1 + 2e-4)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_equal_weights_are_a_number(formulation):
    X, y, _ = problem()
    one = md.run(X, y, formulation=formulation, C=0.7)
    rows = md.run(X, y, formulation=formulation, C=np.full(len(y), 0.7))
    np.testing.assert_array_equal(rows.W, one.W)
    assert rows.epochs == one.epochs


@pytest.mark.parametrize(
    ("formulation", "backend", "weighted"),
    [
        *((formulation, "dense", weighted) for formulation in FORMULATIONS for weighted in (False, True)),
        *(pytest.param(formulation, "native", True, marks=needs_native) for formulation in FORMULATIONS),
        ("ww", "jnp", True),
    ],
)
def test_a_class_may_have_no_row(formulation, backend, weighted):
    X, y, C = problem(n=36, m=4)
    kept = np.flatnonzero(y != 1)[:24]  # as many rows as above, for the same programs
    assert len(kept) == 24
    X, y, C = X[kept], y[kept], C[kept] if weighted else 0.7
    backend = "auto" if backend == "native" else backend
    found = md.run(X, y, formulation=formulation, C=C, classes=4, tol=1e-8, backend=backend, max_epochs=5000)
    assert found.W.shape == (4, 4) and found.status == Status.CONVERGED
    assert found.primal == pytest.approx(dual_references.bound(X, y, 4, formulation, 1, C), rel=1e-7)


def test_a_solver_of_the_table_takes_them():
    from xmcjax.solvers import SOLVERS

    X, y, C = problem(m=4)
    solver = SOLVERS["multiclass_dual"]
    made = solver.problem(X, y, formulation="llw", C=C)
    assert made.C.shape == (24,) and made.C_of_classes.shape == (24, 1)
    found = solver.run(made, solver.hparams(tol=1e-8, max_epochs=5000))
    assert float(found.value) == pytest.approx(dual_references.bound(X, y, 4, "llw", 1, C), rel=1e-7)


@pytest.mark.parametrize("gamma", [0.0, 0.25])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize(("variant", "k"), [("alpha", 1), ("alpha", 3), ("beta", 2)])
def test_topk_svms(variant, k, form, gamma):
    X, y, weight = problem(m=5)
    weight[7] = 0
    options = dict(variant=variant, gamma=gamma, weight=weight, max_epochs=20_000)
    found = topk_sdca.solve(form(X), y, k, 0.8, tol=1e-8, **options)
    kept = weight > 0
    least = dual_references.bound(X[kept], y[kept], 5, variant, k, 0.8 * weight[kept], gamma)
    assert found.status == Status.CONVERGED and found.primal == pytest.approx(least, rel=1e-7)
    gram = topk_sdca.Gram(jax.numpy.asarray(X @ X.T))
    again = topk_sdca.solve(gram, y, k, 0.8, tol=1e-6, **options)
    assert again.primal == pytest.approx(least, rel=1e-5)


def test_weights_of_topk_lanes():
    X, y, weight = problem(m=4)
    op = linops.make(X)
    both = topk_sdca.problem(op, y, k=[1, 2], C=[1.0, 2.0], weight=weight)
    np.testing.assert_array_equal(both.bound, [weight, 2 * weight])
    masked = topk_sdca.problem(op, y, weight=weight, mask=weight > 0.5)
    np.testing.assert_array_equal(masked.bound, [weight * (weight > 0.5)])


def test_equal_weights_of_topk_svms_are_another_C():
    X, y, _ = problem(m=4)
    one = topk_sdca.solve(X, y, 2, 1.5)
    rows = topk_sdca.solve(X, y, 2, 0.5, weight=np.full(len(y), 3.0))
    np.testing.assert_array_equal(rows.W, one.W)
