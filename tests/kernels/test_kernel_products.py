"""Products with kernel matrices, and their derivatives, against matrices written out in NumPy."""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax.sharding import PartitionSpec as P

from tests.support.kernel_functions import CASES, distances2, everything, rbf
from tests.support.problems import needs_native
from tests.support.processes import run_program
from xmcjax import KernelLogisticClassifier, kernels
from xmcjax.kernels import KERNELS, RBF, Linear, Matern, Scaled
from xmcjax.native import call

N, D, COLUMNS = 23, 4, 3
W = np.array([0.3, 1.7])


@pytest.fixture
def X():
    # a common part that distances by way of inner products have to survive
    return np.random.default_rng(0).standard_normal((N, D)) + 3


def columns(*shape, seed=1):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape))


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 7 rows, so that 23 points make four of them and the last overlaps."""
    monkeypatch.setattr("xmcjax.kernels._gram._TILE_BYTES", 8 * len(W) * N * 7)


@pytest.mark.parametrize("name", KERNELS)
def test_an_estimator_takes_it_by_its_name(name, X):
    y = (X[:, 0] > 3).astype(int)
    model = KernelLogisticClassifier(kernel=name).fit(X, y)
    assert isinstance(model.kernel_, KERNELS[name]) and np.mean(model.predict(X) == y) > 0.9


TILES, STORED, CSR = ("linear", "rbf", "product"), ("rbf", "matern_0.5"), ("rbf", "sum")


@pytest.mark.parametrize("name", CASES)
def test_values(name, X):
    make, value = CASES[name]
    pairs = kernels.Pairs(X @ X.T, distances2(X, X), float(D))
    np.testing.assert_allclose(make(W[0]).value(pairs), value(W[0], X, X), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "memory", "form"),
    [(name, 0, np.asarray) for name in TILES]
    + [(name, 1e9, np.asarray) for name in STORED]
    + [(name, memory, sp.csr_matrix) for name, memory in zip(CSR, (1e9, 0), strict=True)],
)
def test_products_and_derivatives(name, memory, form, X, small_tiles):
    make, value = CASES[name]
    Z = X[:5] + 0.5
    points = kernels.points(form(X))
    gram = kernels.gram(make(W), points, memory=memory)
    assert gram.count == len(W) and (gram.stored is None) == (memory == 0)
    assert gram.rows == 7
    S, U = columns(N, len(W), COLUMNS), columns(N, len(W), COLUMNS, seed=2)
    product, across, by_kernel, by_S = everything(gram, kernels.points(form(Z), like=points), S, U)

    M = [value(w, X, X) for w in W]
    expected = np.stack([M[l] @ S[:, l] for l in range(len(W))], axis=1)
    np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-12)
    expected = np.stack([value(w, Z, X) @ S[:, l] for l, w in enumerate(W)], axis=1)
    np.testing.assert_allclose(across, expected, rtol=1e-12, atol=1e-12)
    h = 1e-6
    for l, w in enumerate(W):
        # along the line on which the leaves follow w
        up, down = (jax.tree.map(np.asarray, make(w + s * h)) for s in (1, -1))
        change = jax.tree.map(lambda leaf, a, b, l=l: leaf[l] * (a - b) / (2 * h), by_kernel, up, down)
        matrix = (value(w + h, X, X) - value(w - h, X, X)) / (2 * h)
        np.testing.assert_allclose(
            sum(jax.tree.leaves(change)), np.sum(U[:, l] * (matrix @ S[:, l])), rtol=1e-6
        )
        np.testing.assert_allclose(by_S[:, l], M[l].T @ U[:, l], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix], ids=["dense", "csr"])
def test_linear_kernel_goes_through_the_features(form, X):
    points = kernels.points(form(X))
    gram = kernels.gram(Linear(), points)
    assert gram.linear
    S, U = columns(N, 1, COLUMNS), columns(N, 1, COLUMNS, seed=2)
    mix = columns(COLUMNS, COLUMNS, seed=3)

    @jax.jit
    def products(gram, points, S, U):
        between = (S, lambda T: T @ mix)
        by_S = jax.grad(lambda S: jnp.sum(U * gram.matmat(S)))(S)
        return gram.sandwich(*between), gram.cross(points, *between), by_S

    mixed, across, by_S = products(gram, points, S, U)
    expected = X @ X.T @ np.asarray(S[:, 0]) @ mix
    np.testing.assert_allclose(mixed[:, 0], expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(across[:, 0], expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(by_S[:, 0], X @ X.T @ np.asarray(U[:, 0]), rtol=1e-12, atol=1e-12)
    # wide features: the matrix is cheaper
    assert kernels.gram(Linear(), kernels.points(np.tile(X, (1, 9)))).stored is not None


@pytest.mark.parametrize("native_calls", [pytest.param(True, marks=needs_native), False])
@pytest.mark.parametrize("memory", [0, 1e9])
def test_programs_of_many_kernels_are_as_short_as_of_few(memory, native_calls, X, monkeypatch):
    """Products and derivatives with a kernel per class: they were compiled for seconds a hundred classes."""
    monkeypatch.setattr("xmcjax.kernels._gram.native.available", lambda: native_calls)

    def equations(count):
        w, S = np.linspace(0.5, 2, count), columns(N, count, 2)

        def total(w, X, S):
            gram = kernels.gram(RBF(w), kernels.points(X), memory=memory)
            return jnp.sum(gram.matmat(S) ** 2) + jnp.sum(gram.matrices()[0])

        # how many lines they take depends on the digits of the shapes, too
        return str(jax.make_jaxpr(jax.grad(total, argnums=(0, 1, 2)))(w, X, S)).count("=")

    assert equations(12) == equations(3)


@pytest.mark.parametrize("v", [1.7, W], ids=["one", "several"])
@pytest.mark.parametrize(
    "make",
    [lambda v: Linear() + Scaled(v, Linear()), lambda v: Scaled(v, Scaled(3.0, Linear()) + Linear())],
)
def test_sums_of_linear_kernels_go_through_the_features(make, v, X):
    points = kernels.points(X)
    gram = kernels.gram(make(v), points)
    S, U = columns(N, np.size(v), COLUMNS), columns(N, np.size(v), COLUMNS, seed=2)
    assert gram.linear and f"{N},{N}]" not in str(jax.make_jaxpr(gram.matmat)(S))
    stored = dataclasses.replace(gram, stored=gram.matrices())
    assert not stored.linear
    ours, theirs = (jax.tree.leaves(everything(g, points, S, U)) for g in (gram, stored))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def test_a_kernel_with_a_value_of_its_own_is_not_linear(X):
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Squared(Scaled):
        def value(self, pairs):
            return self.v * pairs.inner**2

    gram = kernels.gram(Squared(0.5, Linear()), kernels.points(X))
    S = columns(N, 1, COLUMNS)
    np.testing.assert_allclose(gram.matmat(S)[:, 0], 0.5 * (X @ X.T) ** 2 @ S[:, 0], rtol=1e-11)


def test_derivative_in_dense_points(X, small_tiles):
    S, U = columns(N, 1, COLUMNS), columns(N, 1, COLUMNS, seed=2)

    @jax.jit
    @jax.value_and_grad
    def inner(X):
        return jnp.sum(U * kernels.gram(RBF(0.7), kernels.points(X), memory=0).matmat(S))

    slope = inner(X)[1]
    direction, h = np.random.default_rng(3).standard_normal(X.shape), 1e-5
    change = (inner(X + h * direction)[0] - inner(X - h * direction)[0]) / (2 * h)
    np.testing.assert_allclose(np.sum(slope * direction), change, rtol=1e-7)


@pytest.mark.parametrize("backend", [pytest.param("native", marks=needs_native), "jnp"])
@pytest.mark.parametrize(
    ("kernel", "width", "memory", "linear"),
    [
        (Linear(), 4, 0, True),
        (Linear(), 20, 1e9, False),
        (RBF(0.7), 4, 0, False),
        (RBF(0.7), 4, 1e9, False),
        (Matern(0.7), 4, 0, False),
        (Matern(0.7) + Scaled(0.5, Linear()), 4, 1e9, False),
    ],
)
def test_derivative_in_sparse_points(kernel, width, memory, linear, backend, small_tiles):
    """As in dense points: it was 0 where products go through the features, and an error elsewhere."""
    rng = np.random.default_rng(4)
    X = rng.standard_normal((N, width)) * (rng.random((N, width)) < 0.55)
    S, U = columns(N, 1, COLUMNS), columns(N, 1, COLUMNS, seed=2)

    def total(points):
        gram = kernels.gram(kernel, points, memory=memory)
        return jnp.sum(U * gram.matmat(S)) + jnp.sum(gram.cross(points, S) ** 2)

    sparse = kernels.points(sp.csr_matrix(X), backend=backend)
    assert sparse.centre is None and kernels.gram(kernel, sparse, memory=memory).linear == linear

    @jax.jit
    @jax.value_and_grad
    def of_values(value):
        moved = dataclasses.replace(op, value=value)
        return total(dataclasses.replace(sparse, op=moved, norms2=moved.row_norms2()))

    op: Any = sparse.op
    value = jnp.asarray(op.value)
    slope = of_values(value)[1]
    dense = jax.grad(lambda X: total(kernels.points(X)))(X)
    np.testing.assert_allclose(slope.ravel(), dense[X != 0], rtol=1e-9, atol=1e-9)
    direction, h = rng.standard_normal(value.shape), 1e-6
    change = (of_values(value + h * direction)[0] - of_values(value - h * direction)[0]) / (2 * h)
    np.testing.assert_allclose(np.sum(slope * direction), change, rtol=1e-7)


def test_sparse_points_for_a_gpu_have_no_derivatives_in_their_values():
    X = np.random.default_rng(4).standard_normal((N, D)) * (np.arange(N * D).reshape(N, D) % 3 == 0)
    points, S = kernels.points(sp.csr_matrix(X), backend="gpu"), columns(N, 1, 1)

    def total(points, S):
        return jnp.sum(kernels.gram(Linear(), points).matmat(S) ** 2)

    found = jax.jit(jax.grad(total, argnums=1))(points, S)
    np.testing.assert_allclose(found, 2 * (X @ X.T @ (X @ X.T @ S[:, 0]))[:, None], rtol=1e-9, atol=1e-9)
    with pytest.raises(
        TypeError, match=r"matmat: expected features of .* for derivatives in the values of X"
    ):
        jax.jit(jax.grad(total, allow_int=True))(points, S)


def test_products_with_sparse_features_have_derivatives_in_shard_map():
    X = np.random.default_rng(4).standard_normal((N, D)) * (np.arange(N * D).reshape(N, D) % 3 == 0)
    points, S = kernels.points(sp.csr_matrix(X)), columns(N, 1, 2)
    op: Any = points.op

    def slopes(value, S):
        def total(value, S):
            moved = dataclasses.replace(points, op=dataclasses.replace(op, value=value))
            return jnp.sum(kernels.gram(Linear(), moved).matmat(S) ** 2)

        return jax.grad(total, argnums=(0, 1))(value, S)

    mesh = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,))
    whole, lanes = P(), P(None, None, "i")
    sharded = jax.shard_map(slopes, mesh=mesh, in_specs=(whole, lanes), out_specs=(whole, lanes))
    given = jnp.asarray(op.value), S
    for found, expected in zip(jax.jit(sharded)(*given), slopes(*given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_products_with_sparse_features_have_derivatives_of_the_second_order():
    """In the columns and in the values."""
    X = np.random.default_rng(4).standard_normal((N, D)) * (np.arange(N * D).reshape(N, D) % 3 == 0)
    points, S = kernels.points(sp.csr_matrix(X)), columns(N, 1, 1)
    op: Any = points.op

    def total(value, S):
        moved = dataclasses.replace(points, op=dataclasses.replace(op, value=value))
        return jnp.sum(kernels.gram(Linear(), moved).matmat(S) ** 2)

    def slopes(value, S):
        return sum(jnp.sum(g**2) for g in jax.grad(total, argnums=(0, 1))(value, S))

    at, h = (jnp.asarray(op.value), S), 1e-5
    for i, moving in enumerate(at):
        found = jax.grad(slopes, argnums=i)(*at)
        direction = np.random.default_rng(5).standard_normal(moving.shape)
        steps = [h * direction if other is moving else 0.0 for other in at]
        up, down = (slopes(at[0] + s * steps[0], at[1] + s * steps[1]) for s in (1, -1))
        np.testing.assert_allclose(np.sum(found * direction), (up - down) / (2 * h), rtol=1e-6)


def test_precomputed(X):
    M = rbf(0.5, X, X)
    given = kernels.precomputed(M)
    S = columns(N, 1, COLUMNS)
    gram = kernels.gram(Linear(), given)
    np.testing.assert_allclose(gram.matmat(S)[:, 0], M @ S[:, 0], rtol=1e-13)
    test = kernels.precomputed_test(M[:5], given)
    np.testing.assert_allclose(gram.cross(test, S)[:, 0], M[:5] @ S[:, 0], rtol=1e-13)
    # a kernel of the distances in the feature space of another
    twice = kernels.gram(RBF(2.0), given).matmat(S)[:, 0]
    np.testing.assert_allclose(twice, np.exp(-(2 - 2 * M)) @ S[:, 0], rtol=1e-12)


@pytest.mark.parametrize("M", [[[0.0]], np.zeros((3, 3)), np.float32([[0, 0], [0, 2]])])
def test_a_kernel_matrix_of_zeros_is_semidefinite(M):
    given, S = kernels.precomputed(M), jnp.ones((len(M), 1, 1), np.asarray(M).dtype)
    for make in (kernels.gram, lambda kernel, given: kernels.low_rank(kernel, given, 1)):
        made = make(Linear(), given)
        np.testing.assert_array_equal(made.matmat(S)[:, 0, 0], np.sum(M, axis=1))
        np.testing.assert_allclose(made.cross(given, S)[:, 0, 0], np.sum(M, axis=1), rtol=1e-5)
    for least in (-1e-30, -1.0):
        with pytest.raises(ValueError, match="semidefinite kernel matrix, found the eigenvalue -1"):
            kernels.precomputed([[0.0, least], [least, 0.0]])


@pytest.mark.parametrize("count", [1, 2])
def test_matrices_alone_have_the_derivatives_of_products(count, X):
    """In what they multiply, and in themselves: there are no points to ask."""
    made = kernels.gram(RBF(W[:count]), kernels.points(X)).matrices_only()
    S, U = columns(N, count, COLUMNS), columns(N, count, COLUMNS, seed=2)
    by_S = jax.grad(lambda S: jnp.sum(U * made.matmat(S)))(S)
    np.testing.assert_allclose(by_S, made.matmat(U), rtol=1e-12)
    by_M = jax.grad(lambda made: jnp.sum(U * made.matmat(S)))(made).stored
    np.testing.assert_allclose(by_M, np.einsum("ilk,jlk->lij", U, S), rtol=1e-12)


def test_test_points_are_taken_from_lists(X):
    for form in (np.asarray, sp.csr_array):
        P = kernels.points(form(X))
        given, array = (kernels.points(T, like=P) for T in (X[:2].tolist(), X[:2]))
        np.testing.assert_array_equal(given.norms2, array.norms2)
        for wrong in ([1.0] * D, [[1.0]], []):
            with pytest.raises(ValueError, match=rf"^expected points \[m, {D}\], got shape \["):
                kernels.points(wrong, like=P)
        with pytest.raises(TypeError, match=r"^X: expected an array or a sparse matrix"):
            kernels.points(None, like=P)


@pytest.mark.parametrize("kernel", [RBF(2.0), Matern(2.0), Linear(), RBF(1.0) + Linear()])
def test_points_without_features_are_all_the_same(kernel):
    """Their distances are 0, and were divided by a number of features that is 0."""
    expected, S = 0.0 if isinstance(kernel, Linear) else 1.0, jnp.ones((3, 1, 1))
    for form, backend in ((np.asarray, "auto"), (sp.csr_array, "auto"), (sp.csr_array, "jnp")):
        P = kernels.points(form(np.zeros((3, 0))), backend=backend)
        every = [kernels.gram(kernel, P, memory=memory) for memory in (0, 1e9)]
        every += [kernels.low_rank(kernel, P, 2)] if backend == "auto" else []
        every += [kernels.fourier(kernel, P, 4)] if isinstance(kernel, RBF | Matern) else []
        for made in every:
            np.testing.assert_allclose(made.matrices(), np.full((1, 3, 3), expected), rtol=1e-12)
            across = made.cross(kernels.points(form(np.zeros((2, 0))), like=P), S)
            np.testing.assert_allclose(across, np.full((2, 1, 1), 3 * expected), rtol=1e-12)


def symmetric_product(M, S, threads=2):
    return call("symmetric_matmat", M=M, S=S, threads=threads)["out"]


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 3, 16, 67, 131])
def test_native_products_read_the_upper_half(n, dtype):
    """Rows and columns that fill no vector and no panel, alone and in groups."""
    rng = np.random.default_rng(n)
    upper = np.triu(rng.standard_normal((n, n))).astype(dtype)
    whole = np.asarray(upper + np.triu(upper, 1).T, np.float64)
    below = upper + np.tril(np.full((n, n), np.nan, dtype), -1)
    tolerance = 1e-12 if dtype == np.float64 else 1e-5

    def product(M, S, threads=2):
        return symmetric_product(M[None], S[:, None], threads)[:, 0]

    for k in (1, 2, 3, 4, 5, 6, 11):
        S = rng.standard_normal((n, k)).astype(dtype)
        out = jax.jit(product)(below, S)
        assert out.dtype == dtype
        np.testing.assert_allclose(out, whole @ S, rtol=tolerance, atol=tolerance * n)
    out = jax.vmap(product, in_axes=(None, 0))(below, np.stack([S, 2 * S]))
    np.testing.assert_allclose(out[1], 2 * (whole @ S), rtol=tolerance, atol=tolerance * n)
    some = rng.standard_normal((n, 3, 2)).astype(dtype)
    several = jax.jit(symmetric_product)(np.stack([below, -below, 2 * below]), some)
    expected = np.stack([a * (whole @ some[:, l]) for l, a in enumerate((1, -1, 2))], axis=1)
    np.testing.assert_allclose(several, expected, rtol=tolerance, atol=2 * tolerance * n)
    refusal = r"symmetric_matmat: expected S as float(32|64) \[n, count, columns\] = "
    with pytest.raises(Exception, match=refusal):
        jax.block_until_ready(product(below, np.ones((n + 1, 2), dtype)))


@needs_native
def test_threads_do_not_change_native_products():
    """Of two matrices that are cut into three parts."""
    n = 1900
    M = np.random.default_rng(0).standard_normal((n, n))
    M, S = M + M.T, M[:, :6].reshape(n, 2, 3)
    one, two = (symmetric_product(np.stack([M, 2 * M]), S, threads) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)
    for l in range(2):
        np.testing.assert_allclose(one[:, l], (l + 1) * (M @ S[:, l]), rtol=1e-11, atol=2e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_that_of_the_points(X, dtype):
    gram = kernels.gram(RBF(W), kernels.points(X.astype(dtype)))
    assert gram.matmat(columns(N, 2, 1).astype(dtype)).dtype == dtype
    # points far from the origin: the distances keep their digits
    far = kernels.gram(RBF(1.0), kernels.points((X + 1e3).astype(np.float32))).stored
    assert far is not None
    np.testing.assert_allclose(far[0], rbf(1.0, X, X), atol=1e-3)


BLOCKED = r"""
import re, numpy as np
import jax, jax.numpy as jnp
from xmcjax import kernels
jax.config.update("jax_enable_x64", False)
X = np.random.default_rng(0).standard_normal((20_000, 8)).astype(np.float32)
gram = kernels.gram(kernels.RBF(1.0), kernels.points(X), memory=1e9)
assert gram.stored is None
out = jax.jit(lambda gram, S: gram.matmat(S))(gram, jnp.ones((20_000, 1, 4), jnp.float32))
row = np.exp(-((X - X[7]) ** 2).sum(1) / 16).sum()
assert abs(float(out[7, 0, 0]) - row) < 1e-3 * row
# not ru_maxrss, which begins with that of the parent process
print(int(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1]) / 2**20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_20000_points_in_2_gib():
    # their matrix alone would be 1.5 GiB, and its making more
    assert float(run_program(BLOCKED)) < 2


@pytest.mark.parametrize("point", [np.nan, 1e30])
def test_a_point_that_is_no_number_is_near_no_other(point):
    points = kernels.points(np.float32([[0], [point], [5]]))
    for kernel in (kernels.RBF(1.0), kernels.Matern(1.0)):
        K = kernels.gram(kernel, points).matrices()[0]
        assert not (np.asarray(K) == 1)[1].any()


def test_a_kernel_that_is_no_pytree_is_refused():
    @dataclasses.dataclass(frozen=True)
    class Own(kernels.Kernel):
        w: float

        def value(self, pairs):
            return jnp.exp(-self.w * pairs.distance2)

    with pytest.raises(TypeError, match="got Own: let JAX know the class as one"):
        kernels.gram(Own(1.0) + kernels.Linear(), kernels.points([[0.0], [1.0]]))


def test_an_own_kernel_may_work_on_its_fields():
    @jax.tree_util.register_dataclass
    @dataclasses.dataclass(frozen=True)
    class Ours(kernels.Kernel):
        w: jax.Array

        def __post_init__(self):
            object.__setattr__(self, "w", jnp.asarray(self.w))

        def value(self, pairs):
            return jnp.exp(-self.w * pairs.distance2)

    K = kernels.gram(Ours(2.0), kernels.points(np.eye(2))).matrices()[0]
    np.testing.assert_allclose(K, [[1, np.exp(-4)], [np.exp(-4), 1]], rtol=1e-12)


NO_VALUES = {
    "a sum": (
        lambda self, pairs: jnp.sum(pairs.inner),
        r"of the shape .*, got float64 \[\]",
    ),
    "whole numbers": (lambda self, pairs: jnp.where(pairs.inner > 0, 1, 0), "of the shape .*, got int64"),
    "NumPy": (lambda self, pairs: np.exp(pairs.inner), "that JAX works out .* TracerArrayConversionError"),
}


@pytest.mark.parametrize("case", NO_VALUES)
def test_kernels_of_ones_own_that_give_no_array_of_pairs_are_refused(case):
    """By themselves, and as a part of another."""
    value, sentence = NO_VALUES[case]
    own = dataclasses.dataclass(frozen=True)(type("Ours", (kernels.Kernel,), {"value": value}))
    ours = jax.tree_util.register_dataclass(own)()
    for kernel in (ours, kernels.RBF(1.0) * (ours + kernels.RBF(1.0))):
        with pytest.raises(TypeError, match=f"^kernel Ours: expected a value {sentence}"):
            kernels.gram(kernel, kernels.points(np.ones((3, 2))))
