"""Newton steps on the host: their products, and runs that the table of methods does not cover."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import multinomial as helpers
from tests.support.problems import needs_native
from xmcjax import native
from xmcjax.lanes import precision
from xmcjax.solvers import Status, multinomial
from xmcjax.solvers.multinomial import block_newton


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", helpers.KINDS)
# of CSR features many classes take another way, in one part of the registers or several
@pytest.mark.parametrize("classes", [2, 5, 17, 64, 70, 211])
def test_products_are_those_of_numpy(kind, dtype, classes):
    rng = np.random.default_rng(0)
    V, direction = rng.normal(size=(2, 41, classes))
    for twins in (False, True):
        scores, X, y, c = helpers.scores_of(kind, dtype, classes=classes, twins=twins)
        turned = (lambda a: a.T) if scores.axis == 0 else (lambda a: a)
        Xb = np.hstack([X, np.ones((len(y), 1))])
        Z, U, t = Xb @ V, Xb @ direction, 0.7
        close: dict[str, Any] = (
            dict(rtol=1e-4, atol=1e-3) if dtype == np.float32 else dict(rtol=1e-10, atol=1e-9)
        )
        found_Z, found_U = (scores.product(np.ascontiguousarray(turned(a))) for a in (V, direction))
        np.testing.assert_allclose(turned(found_Z), Z, **close)
        along = scores.along(found_Z, found_U, t)
        P = np.exp(Z + t * U)
        P /= P.sum(1, keepdims=True)
        rows, mean = np.arange(len(y)), (P * U).sum(1)
        np.testing.assert_allclose(turned(along.P), P, **close)
        own = (Z + t * U)[rows, y]
        expected = (
            c @ (np.log(np.exp(Z + t * U).sum(1)) - own),
            c @ (mean - U[rows, y]),
            c @ ((P * U * U).sum(1) - mean**2),
        )
        np.testing.assert_allclose((along.value, along.slope, along.curvature), expected, **close)
        R = c[:, None] * P
        R[rows, y] -= c
        np.testing.assert_allclose(
            turned(scores.transposed(scores.slope(along.P, along.rest))), Xb.T @ R, **close
        )
        np.testing.assert_allclose(turned(scores.gradient(along.P, along.rest)), Xb.T @ R, **close)
        curved = c[:, None] * (P * U - P * mean[:, None])
        hessian = scores.hessian(along.P)
        hessian.V[:] = turned(direction)
        hessian.product()
        np.testing.assert_allclose(turned(hessian.out), Xb.T @ curved, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", helpers.KINDS)
@pytest.mark.parametrize("lam", [10.0, 1.0, 1e-3])
@pytest.mark.parametrize("few", [0, 1 << 60], ids=["narrow", "as given"])
def test_the_gap_is_that_which_is_promised(kind, dtype, lam, few, monkeypatch):
    monkeypatch.setattr("xmcjax.solvers.multinomial._scores._FEW", few)
    X, y = helpers.sparse_set(dtype=dtype)
    problem = helpers.problem(helpers.KINDS[kind](X), y, lam, intercept=True)
    solution = multinomial.run(problem, "block_newton", multinomial.HParams(1e-5, 100))
    assert solution.status == Status.CONVERGED
    expected = helpers.minimum(X.astype(float), y, lam, intercept=True)
    found = helpers.objective(X.astype(float), y, solution.W, solution.bias, lam)
    assert found - expected <= 1.01e-5 * found
    assert solution.gap <= 1e-5
    assert solution.W.dtype == dtype


def test_directions_of_the_run_are_enough_for_its_certificate(monkeypatch):
    def direction(*_):
        raise AssertionError("the certificate made a direction of its own")

    monkeypatch.setattr("xmcjax.solvers.multinomial._certificate.Certifier._direction", direction)
    for kind in helpers.KINDS:
        X, y = helpers.sparse_set()
        problem = helpers.problem(helpers.KINDS[kind](X), y, 0.05, intercept=True)
        assert multinomial.run(problem, "block_newton").status == Status.CONVERGED


def test_nothing_is_compiled(compilations):
    X, y = helpers.sparse_set(113, 40, 6)

    def fits():
        for kind in helpers.KINDS:
            multinomial.run(helpers.problem(helpers.KINDS[kind](X), y, 0.7, intercept=True), "block_newton")

    multinomial.run(helpers.problem(*helpers.sparse_set(50), 0.7))  # what JAX does at its first array
    assert compilations(fits) == []


@pytest.mark.parametrize("kind", helpers.KINDS)
def test_a_run_that_was_stopped_goes_on(kind, tmp_path):
    X, y = helpers.sparse_set()
    problem = helpers.problem(helpers.KINDS[kind](X), y, 0.05, intercept=True)
    hp = multinomial.HParams(1e-8, 100)
    multinomial.run(problem, "block_newton", hp._replace(max_steps=3), checkpoint=tmp_path / "state")
    again = multinomial.run(problem, "block_newton", hp, checkpoint=tmp_path / "state")
    assert again.history[0].steps == 3
    assert again.status == Status.CONVERGED
    whole = multinomial.run(problem, "block_newton", hp)
    assert again.value == pytest.approx(whole.value, rel=1e-7)


def test_more_than_the_gap_may_be_asked_for():
    X, y = helpers.sparse_set()
    problem = helpers.problem(X.toarray(), y, 0.5)
    hp = multinomial.HParams(1e-3, 100, gradient_tolerance=1e-9)
    solution = multinomial.run(problem, "block_newton", hp)
    at_zero = np.linalg.norm(helpers.gradient(X, y, np.zeros((40, 7)), np.zeros(7), 0.5)[0])
    assert solution.gradient_norm <= 1e-9 * at_zero
    assert multinomial.run(problem, "block_newton", hp._replace(gradient_tolerance=None)).gap <= 1e-3
    with pytest.raises(
        ValueError, match="gradient_tolerance: expected a finite number of at least 0, got -1"
    ):
        multinomial.run(problem, "block_newton", hp._replace(gradient_tolerance=-1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("twins", [False, True])
def test_an_intercept_that_is_given_stays_where_none_is_trained(dtype, twins):
    X, y = helpers.sparse_set(600, classes=5, dtype=dtype)
    b0, hp = np.arange(0.0, 10.0, 2.0), multinomial.HParams(1e-9, 100)
    rng = np.random.default_rng(0)
    V = np.vstack([rng.normal(size=(40, 5)), b0])
    expected = X.toarray().astype(float) @ V[:-1] + b0
    found = []
    for kind in helpers.KINDS:
        problem = helpers.problem(helpers.KINDS[kind](X), y, 0.3, intercept=False)
        with native.twins() if twins else contextlib.nullcontext(), pytest.MonkeyPatch.context() as patch:
            patch.setattr("xmcjax.solvers.multinomial._scores._FEW", 0)
            scores = block_newton.scores_of(problem, precise=True, threads=2)
            Z = scores.product(V if kind == "csr" else np.ascontiguousarray(V.T))
            np.testing.assert_allclose(Z if kind == "csr" else Z.T, expected, rtol=1e-4, atol=1e-4)
            found.append(multinomial.run(problem, "block_newton", hp, W0=np.zeros((40, 5)), b0=b0))
    for solution in found:
        np.testing.assert_allclose(solution.bias, b0 - b0.mean(), rtol=1e-6)
        least = helpers.objective(X.astype(float), y, solution.W, solution.bias, 0.3)
        assert solution.value == pytest.approx(least, rel=1e-5)
    assert found[0].value == pytest.approx(found[1].value, rel=1e-6)


def test_rows_without_weight_and_classes_without_rows():
    X, y = helpers.sparse_set()
    weight = (np.arange(len(y)) % 3 > 0).astype(float)
    whole = helpers.problem(X.toarray(), y, 1.0, classes=9, weight=weight)
    kept = helpers.problem(X.toarray()[weight > 0], y[weight > 0], 1.0, classes=9)
    hp = multinomial.HParams(1e-10, 100)
    one, other = (multinomial.run(p, "block_newton", hp) for p in (whole, kept))
    assert one.value == pytest.approx(other.value, rel=1e-9)
    np.testing.assert_allclose(one.W[:, 7], one.W[:, 8], atol=1e-6)  # nothing tells them apart


def test_features_of_any_scale_end_with_a_promise_or_a_word():
    X, y = helpers.sparse_set(dtype=np.float32)
    for scale in (1e-6, 1e-3, 1e3, 1e6):
        for kind in helpers.KINDS:
            problem = helpers.problem(helpers.KINDS[kind](X * np.float32(scale)), y, 1.0, intercept=True)
            solution = multinomial.run(problem, "block_newton", multinomial.HParams(1e-4, 300))
            expected = helpers.minimum(X.astype(float) * scale, y, 1.0, intercept=True)
            found = helpers.objective(X.astype(float) * scale, y, solution.W, solution.bias, 1.0)
            assert solution.status != Status.CONVERGED or found - expected <= 1.1e-4 * found
            assert solution.status in (Status.CONVERGED, Status.STALLED, Status.MAX_STEPS)


def test_other_features_are_refused():
    X, y = helpers.sparse_set()
    problem = helpers.problem(X, y, 1.0)
    with pytest.raises(ValueError, match="block_newton: expected dense or CSR features on a CPU"):
        block_newton.init(dataclasses.replace(problem, axis="classes"), multinomial.HParams())
    with pytest.raises(ValueError, match="block_newton runs on the host and cannot be compiled: call run"):
        multinomial.initial(problem, multinomial.HParams(), None, None, method="block_newton")
    with pytest.raises(ValueError, match="expected starting weights"):
        multinomial.run(problem, "block_newton", W0=np.zeros((40, 3)))


@needs_native
@pytest.mark.parametrize("kind", helpers.KINDS)
@pytest.mark.parametrize("classes", [5, 70])
def test_products_do_not_depend_on_the_threads(kind, classes):
    rng = np.random.default_rng(5)
    scores, *_ = helpers.scores_of(kind, np.float32, n=2100, classes=classes)
    V = rng.normal(size=(41, classes)).astype(np.float32)
    P = rng.dirichlet(np.ones(classes), 2100).astype(np.float32)
    if kind == "dense":
        V, P = (np.ascontiguousarray(A.T) for A in (V, P))
    found, rest = [], helpers.rest(P, scores.axis)
    for threads in (1, 2, 3):
        scores.threads = threads
        inverse = np.ones((classes, 41, 41) if kind == "dense" else V.shape, np.float32)
        x, r, sums = np.empty_like(V), V.copy(), np.empty(2)
        given = dict(ridge=0.5, least=np.array([0.0, 0.0, -1.0, -1.0]), max_steps=4)
        scores.solve(P, inverse=inverse, **given, r=r, x=x, sums=sums)
        found.append((scores.product(V), scores.gradient(P, rest), x, r, sums))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@needs_native
def test_blocks_hold_all_rows():
    X, V = np.zeros((2, 3, 64), np.float32), np.zeros((4, 3), np.float32)
    with pytest.raises(ValueError, match="softmax_scores_by_class: expected blocks of 129 rows"):
        native.InPlace("softmax_scores_by_class", X=X, V=V, threads=1, out=np.zeros((4, 129), np.float32))()


@needs_native
def test_rows_of_a_block_fill_its_tiles():
    block = np.zeros((1, 3, 65), np.float32)
    with pytest.raises(ValueError, match="softmax_hessian: expected rows in a multiple of 64"):
        native.InPlace(
            "softmax_hessian",
            X=block,
            P=block,
            weight=block[:, 0],
            y=np.zeros((1, 65), np.int32),
            V=np.zeros((3, 3), np.float32),
            threads=1,
            out=np.zeros((3, 3), np.float32),
        )()


def test_sparse_features_with_a_small_lambda_begin_with_larger_ones():
    X, y = helpers.sparse_set(400)
    X = sp.csr_matrix(X)
    problem = helpers.problem(X, y, 1e-4)
    solution = multinomial.run(problem, "block_newton", multinomial.HParams(1e-6, 200))
    assert solution.status == Status.CONVERGED
    expected = helpers.minimum(X, y, 1e-4)
    assert solution.value == pytest.approx(expected, rel=1e-5)


def test_the_gradient_of_small_features_is_no_rounding():
    # ‖∇G(0)‖ is small because the features are, and has to fall to its part all the same
    X, y = helpers.sparse_set(dtype=np.float32)
    for kind in helpers.KINDS.values():
        problem = helpers.problem(kind(X * np.float32(1e-8)), y, 1e-14)
        hp = multinomial.HParams(0.0, 100, gradient_tolerance=1e-2)
        begun = multinomial.run(problem, "block_newton", hp._replace(max_steps=1)).history[0]
        solution = multinomial.run(problem, "block_newton", hp)
        assert solution.status == Status.CONVERGED
        assert solution.gradient_norm <= 1e-2 * begun.gradient_norm


@pytest.mark.parametrize("kind", helpers.KINDS)
@pytest.mark.parametrize("scale", [1e-30, 1e25])
def test_numbers_that_float32_does_not_have(kind, scale, monkeypatch):
    # where little is to do, float64 is taken anyway
    monkeypatch.setattr("xmcjax.solvers.multinomial._scores._FEW", 0)
    X, y = helpers.sparse_set()
    plain = multinomial.run(helpers.problem(helpers.KINDS[kind](X), y, 1.0), "block_newton")
    scaled = helpers.problem(helpers.KINDS[kind](X * scale), y, scale**2)
    solution = multinomial.run(scaled, "block_newton", multinomial.HParams(max_steps=30))
    assert solution.status == Status.CONVERGED
    assert solution.history[-1].steps <= plain.history[-1].steps + 5
    assert solution.value == pytest.approx(plain.value, rel=1e-4)


@pytest.mark.parametrize("kind", helpers.KINDS)
def test_a_run_goes_on_in_float64_where_float32_does_not_do(kind, monkeypatch):
    """Of scores of some 1e4 that cancel, float32 leaves nothing that tells the classes apart."""
    monkeypatch.setattr("xmcjax.solvers.multinomial._scores._FEW", 0)
    widened, plain = [], block_newton.Host._widened

    def noted(host, point):
        widened.append(host)
        return plain(host, point)

    monkeypatch.setattr(block_newton.Host, "_widened", noted)
    X, y = helpers.sparse_set()
    X = X.toarray()
    X[:, 0] = 1e4 + 3 * (y % 2)
    made = helpers.problem(X if kind == "dense" else sp.csr_matrix(X), y, 1e-3, intercept=True)
    solution = multinomial.run(made, "block_newton", multinomial.HParams(1e-4, 500))
    assert widened
    assert solution.status == Status.CONVERGED
    assert solution.gap <= 1e-4


def collinear(dtype, n, d, K, rank):
    """Dense features of a rank; for `rank` d − 3 the first three columns are the next three."""
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(K), rng.integers(0, K, n - K)]).astype(np.int32)
    X = rng.normal(size=(K, d))[y] / 2 + rng.normal(size=(n, d))
    if rank == d - 3:
        X[:, :3] = X[:, 3:6]
    else:
        X = X[:, :rank] @ rng.normal(size=(rank, d))
    return X.astype(dtype), y


@pytest.mark.parametrize("few", [0, 1 << 60], ids=["narrow", "as given"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_collinear_features_with_a_small_lambda_take_as_few_steps_as_others(dtype, few, monkeypatch):
    monkeypatch.setattr("xmcjax.solvers.multinomial._scores._FEW", few)
    X, y = collinear(dtype, 500, 20, 4, 17)
    with precision(dtype):
        solution = multinomial.run(helpers.problem(X, y, 1e-7, intercept=True), "block_newton")
    assert solution.status == Status.CONVERGED
    assert solution.gap <= 1e-4
    assert solution.history[-1].steps <= 6
    assert solution.value == pytest.approx(solution.history[-1].value, rel=1e-4)


def test_steps_that_float32_cannot_measure_end_a_run():
    """What they promise is of directions whose curvature is less than rounding."""
    X, y = collinear(np.float32, 1000, 20, 3, 6)
    with precision(np.float32):
        solution = multinomial.run(helpers.problem(X, y, 1e-8, intercept=True), "block_newton")
    assert solution.status == Status.CONVERGED
    assert solution.history[-1].steps <= 25


def test_a_step_that_changes_nothing_is_the_last(monkeypatch):
    """Where the decrement says of the same point that it has converged, it has been judged before."""
    monkeypatch.setattr(block_newton.Host, "_searched", lambda *_: None)
    monkeypatch.setattr(block_newton.Host, "_decrement", lambda *_: True)
    X, y = helpers.sparse_set()
    solution = multinomial.run(helpers.problem(X, y, 1.0), "block_newton")
    assert solution.history[-1].steps <= 2
    assert solution.status == Status.CONVERGED and solution.gap <= 1e-4


@pytest.mark.parametrize("kind", helpers.KINDS)
def test_the_last_record_is_that_of_the_weights_that_are_returned(kind, monkeypatch, tmp_path):
    """Where the certificate has made them, and where they are those of the last step."""
    X, y = helpers.sparse_set()
    problem = helpers.problem(helpers.KINDS[kind](X), y, 1.0, intercept=True)
    by_step = multinomial.run(problem, "block_newton")
    records, weights = [], []

    def observe(state, record):
        records.append(record)
        weights.append((np.array(state.W), np.array(state.bias)))

    monkeypatch.setattr(block_newton.Host, "_searched", lambda *_: None)
    by_certificate = multinomial.run(problem, "block_newton", checkpoint=tmp_path / "state", observe=observe)
    assert [record.steps for record in by_step.history] == list(range(len(by_step.history)))
    assert [record.steps for record in by_certificate.history] == [0, 1, 1]
    assert records == by_certificate.history
    for solution in (by_step, by_certificate):
        last = solution.history[-1]
        assert last.value == pytest.approx(solution.value, rel=1e-12)
        assert last.gradient_norm == pytest.approx(solution.gradient_norm, rel=1e-6)
        assert last.bound == solution.bound
        assert last.value == pytest.approx(helpers.objective(X, y, solution.W, solution.bias, 1.0))
    for found, expected in zip(weights[-1], (by_certificate.W, by_certificate.bias), strict=True):
        np.testing.assert_array_equal(found, expected)
    # what is stored is what a run goes on from
    assert multinomial.run(problem, "block_newton", checkpoint=tmp_path / "state").history[0] != records[-1]


def test_no_direction_is_made_of_a_gradient_that_is_rounding(monkeypatch):
    """Where float32 brings nothing more, conjugate gradients in it would take all their steps for nothing."""

    def direction(state, _):
        raise AssertionError("a direction was made in float32")

    monkeypatch.setattr(block_newton, "direction", direction)
    monkeypatch.setattr(block_newton.Host, "_searched", lambda *_: None)
    X, y = helpers.sparse_set(dtype=np.float32)
    with precision(np.float32):
        solution = multinomial.run(helpers.problem(X.toarray(), y, 1.0), "block_newton")
    assert solution.status == Status.CONVERGED and solution.gap <= 1e-4


def test_products_in_parts_are_those_in_one(monkeypatch):
    whole = helpers.scores_of("dense", np.float64)[0]
    assert isinstance(whole, block_newton.DenseScores)
    monkeypatch.setattr("xmcjax.solvers.multinomial._scores._PART", 1)
    rng = np.random.default_rng(1)
    for function, array in (
        (whole.product, rng.normal(size=(7, 41))),
        (whole.transposed, rng.normal(size=(7, 700))),
        (whole.squared_transposed, rng.normal(size=(7, 700))),
    ):
        assert len(whole.parts(1)) == 2
        found = function(array)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("xmcjax.solvers.multinomial._scores._PART", 1 << 40)
            np.testing.assert_allclose(found, function(array), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lam", [1.0, 0.1])
def test_dense_features_for_which_blocks_cost_too_much(dtype, lam, monkeypatch):
    """One basis takes their place, where the diagonal takes many more steps."""
    monkeypatch.setattr("xmcjax.solvers.multinomial._costs._MOST_NUMBERS", 50 * 50)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 12, 600)
    turned = np.linalg.qr(rng.normal(size=(40, 40)))[0]
    X = 0.3 * rng.normal(size=(12, 40))[y] + rng.normal(size=(600, 40)) * np.geomspace(0.05, 3, 40) @ turned
    problem, hp = helpers.problem(X.astype(dtype), y, lam, intercept=True), multinomial.HParams(1e-6, 200)
    monkeypatch.setattr("xmcjax.solvers.multinomial._costs.of_a_basis", lambda *sizes: np.inf)
    plain = multinomial.run(problem, "block_newton", hp)
    monkeypatch.undo()
    monkeypatch.setattr("xmcjax.solvers.multinomial._costs._MOST_NUMBERS", 50 * 50)
    solution = multinomial.run(problem, "block_newton", hp)
    assert solution.status == plain.status == Status.CONVERGED
    assert solution.value == pytest.approx(plain.value, rel=1e-5)
    assert solution.history[-1].inner < 0.7 * plain.history[-1].inner


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", [0, 5])
def test_counts_that_are_not_scaled(seed, dtype):
    # λ is 10⁻¹⁰ of Σ ‖x_i‖², and a slope along a direction leaps where one row of large counts changes sides
    rng = np.random.default_rng(seed)
    X = sp.random_array((300, 400), density=0.05, format="csr", rng=rng)
    X.data = np.ceil(np.exp(2.5 * rng.normal(size=X.nnz)))
    y = np.argmax(np.log1p(X) @ rng.normal(size=(400, 30)) + rng.gumbel(size=(300, 30)), axis=1)
    problem = helpers.problem(X.astype(dtype), np.unique(y, return_inverse=True)[1], 0.01)
    found = multinomial.run(problem, "block_newton", multinomial.HParams(tolerance=1e-4))
    assert found.status == Status.CONVERGED
    assert found.gap <= 1e-4


def test_squares_that_are_no_numbers_end_the_run():
    X, y = helpers.sparse_set(300, 200, 7, dtype=np.float64)
    with np.errstate(all="ignore"):
        found = multinomial.run(helpers.problem(X * 1e160, y), "block_newton")
    assert found.status == Status.NONFINITE


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", helpers.KINDS)
@pytest.mark.parametrize("larger", [30.0, 1e3, 1e6])
def test_a_start_that_is_worse_than_0_is_replaced(kind, dtype, larger):
    """Where all probabilities are 0 and 1 the Hessian has no curvature in the intercepts."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, 60).astype(np.int32)
    X = helpers.KINDS[kind](sp.csr_matrix(rng.normal(size=(60, 4)) + 2 * np.eye(3, 4)[y]).astype(dtype))
    with jax.enable_x64(dtype == np.float64):
        problem = helpers.problem(X, y, intercept=True)
        found = multinomial.run(problem, "block_newton")
        start = (larger * np.asarray(a) for a in (found.W, found.bias))
        again = multinomial.run(problem, "block_newton", **dict(zip(("W0", "b0"), start, strict=True)))
    assert again.status == Status.CONVERGED
    assert abs(again.value - found.value) < 1e-3 * found.value


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", helpers.KINDS)
def test_starts_in_any_order_of_memory(kind, dtype):
    X, y = helpers.sparse_set(100, 30, 3, dtype=dtype)
    W0 = np.random.default_rng(0).normal(size=(30, 3)).astype(dtype)
    with jax.enable_x64(dtype == np.float64):
        problem = helpers.problem(helpers.KINDS[kind](X), y, intercept=True)
        starts = np.ascontiguousarray(W0), np.asfortranarray(W0)
        found = [multinomial.run(problem, "block_newton", W0=start) for start in starts]
    assert found[0].value == found[1].value
    np.testing.assert_array_equal(found[0].W, found[1].W)


@pytest.mark.parametrize("twins", [False, True])
@pytest.mark.parametrize(("part", "alike"), [(0.3, True), (0.1, False)])
def test_full_csr_features_are_solved_as_an_array(part, alike, twins):
    """Their diagonal took hundreds of products with the Hessian where whole blocks take some."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 5
    X = (rng.normal(size=(5, 30))[y] + rng.normal(size=(400, 30))) * np.geomspace(1e-2, 10, 30)
    X *= rng.random(X.shape) < part
    with native.twins() if twins else contextlib.nullcontext():
        dense, sparse = (
            multinomial.run(helpers.problem(A, y, 1e-3, intercept=True), "block_newton")
            for A in (X, sp.csr_matrix(X))
        )
    assert dense.status == sparse.status == Status.CONVERGED
    assert np.array_equal(dense.W, sparse.W) == alike
    if alike:
        assert sparse.history[-1].inner < 50
