"""Every backend gives the products of a dense matrix; the native one the same bits in any company."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from jax.experimental.sparse import BCOO

from tests.support import problems
from tests.support.gpu_products import PRODUCTS
from tests.support.problems import needs_native
from xmcjax import linops

BACKENDS = ["gpu", *problems.BACKENDS]
LANES = [1, 3, 8, 16, 21, 40]


def matrix(dtype, n=57, d=31, density=0.2, seed=0):
    X = sp.random(n, d, density, format="csr", random_state=seed, dtype=np.float64)
    X.data = X.data - 0.5
    X = X.tolil()
    X[3] = 0  # an empty row
    X[:, 5] = 0  # an empty column
    return X.tocsr().astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
# only native products have a form for each number of lanes
@pytest.mark.parametrize(
    ("backend", "lanes"),
    [(backend, lanes) for backend in ("dense", "jnp", "gpu") for lanes in (1, 21)]
    + [pytest.param("native", lanes, marks=needs_native) for lanes in LANES],
)
def test_products(backend, lanes, dtype):
    X = matrix(dtype)
    F = linops.make(X, backend=backend)
    assert isinstance(F, linops.LinOp) and F.shape == X.shape and F.dtype == dtype
    A = X.toarray().astype(np.float64)
    rng = np.random.default_rng(1)
    V, C = (rng.normal(size=(k, lanes)).astype(dtype) for k in (X.shape[1], X.shape[0]))
    D = np.where(rng.random(C.shape) < 0.3, np.abs(C), 0).astype(dtype)
    tolerance: dict[str, Any] = (
        dict(rtol=1e-12, atol=1e-12) if dtype == np.float64 else dict(rtol=1e-4, atol=1e-5)
    )
    np.testing.assert_allclose(F.matmat(jnp.asarray(V)), A @ V, **tolerance)
    np.testing.assert_allclose(F.rmatmat(jnp.asarray(C)), A.T @ C, **tolerance)
    np.testing.assert_allclose(F.matmat(V), A @ V, **tolerance)  # arrays of NumPy too
    np.testing.assert_allclose(F.rmatmat(D), A.T @ D, **tolerance)
    np.testing.assert_allclose(
        F.gram_matmat(jnp.asarray(D), jnp.asarray(V)), A.T @ (D * (A @ V)), **tolerance
    )
    np.testing.assert_allclose(F.squared_rmatmat(jnp.asarray(D)), (A * A).T @ D, **tolerance)
    np.testing.assert_allclose(F.row_norms2(), (A * A).sum(1), **tolerance)
    np.testing.assert_allclose(F.mean(), A.mean(0), **tolerance)
    rows = np.array([5, 3, 3, 40])
    np.testing.assert_allclose(F.take_rows(rows).matmat(jnp.asarray(V)), A[rows] @ V, **tolerance)
    other = matrix(dtype, n=2 * lanes, seed=2) if lanes > 2 else X  # whose columns are others
    places = jnp.asarray(rng.integers(0, len(A), lanes), jnp.int32)
    products = F.inner(places, linops.make(other, backend=backend))
    np.testing.assert_allclose(products, A[places] @ other.toarray().T, **tolerance)


@pytest.mark.parametrize("backend", BACKENDS)
def test_under_jit_and_vmap(backend):
    X = matrix(np.float64)
    F = linops.make(X, backend=backend)
    V = jnp.asarray(np.random.default_rng(0).normal(size=(4, X.shape[1], 5)))
    got = jax.jit(jax.vmap(lambda F, V: F.matmat(V), in_axes=(None, 0)))(F, V)
    np.testing.assert_allclose(got, X.toarray() @ np.asarray(V), rtol=1e-12, atol=1e-12)


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_lane_keeps_its_bits_in_any_company(dtype):
    """Alone, in a padded tile, in a full one, beside idle or busy lanes, on any number of threads."""
    X = matrix(dtype, n=300, d=60)
    rng = np.random.default_rng(2)
    V = rng.normal(size=(60, 40)).astype(dtype)
    C = np.where(rng.random((300, 40)) < 0.05, rng.normal(size=(300, 40)), 0).astype(dtype)
    wide = linops.make(X, backend="native", threads=3)
    narrow = linops.make(X, backend="native")
    whole = [wide.matmat(V), wide.rmatmat(C), wide.gram_matmat(C, V)]
    for l in (0, 7, 17, 39):
        v, c = V[:, l : l + 1], C[:, l : l + 1]
        alone = [narrow.matmat(v), narrow.rmatmat(c), narrow.gram_matmat(c, v)]
        few = slice(l, l + 5)
        together = [
            narrow.matmat(V[:, few]),
            narrow.rmatmat(C[:, few]),
            narrow.gram_matmat(C[:, few], V[:, few]),
        ]
        for a, b, w in zip(alone, together, whole, strict=True):
            np.testing.assert_array_equal(a[:, 0], w[:, l])
            np.testing.assert_array_equal(b[:, 0], w[:, l])
    for few in (2, 3, 4, 7, 8, 9, 15):  # in vectors of 2, 4, 8 and 16
        np.testing.assert_array_equal(narrow.matmat(V[:, :few]), whole[0][:, :few])


@needs_native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_inner_products_have_the_bits_of_products_with_all_columns(dtype):
    X, Y = matrix(dtype, n=67, d=900), matrix(dtype, n=130, d=900, seed=2)
    one, two = (linops.make(X, backend="native", threads=k) for k in (1, 2))
    places = jnp.asarray(np.random.default_rng(1).permutation(67), jnp.int32)
    others = linops.make(Y, backend="native")
    whole = others.matmat(jnp.asarray(X[places].toarray().T)).T
    for op in (one, two):
        np.testing.assert_array_equal(op.inner(places, others), whole)
        for k in (1, 5, 16, 33):
            np.testing.assert_array_equal(op.inner(places[-k:], others), whole[-k:])


def test_one_column_is_multiplied_as_a_row():
    """XLA has no fast product of a transposed matrix and a column on CPUs."""
    F, C = linops.make(np.ones((7, 3), np.float32)), jnp.ones((7, 1), jnp.float32)
    for product in (F.rmatmat, F.squared_rmatmat):
        assert "tensor<7x3xf32>) -> tensor<3x7xf32>" not in jax.jit(product).lower(C).as_text()


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_rows_and_no_entries(backend):
    F = linops.make(sp.csr_matrix((3, 4)), np.float32, backend=backend)
    np.testing.assert_array_equal(F.matmat(jnp.ones((4, 2), jnp.float32)), np.zeros((3, 2)))
    np.testing.assert_array_equal(F.rmatmat(jnp.ones((3, 2), jnp.float32)), np.zeros((4, 2)))


def test_dtypes_are_kept_or_made_float32():
    X = matrix(np.float64)
    assert linops.make(X).dtype == np.float64
    assert linops.make(X.astype(np.int32)).dtype == np.float32
    assert linops.make(X.astype(np.longdouble)).dtype == np.float32
    assert linops.make(X, np.float32).dtype == np.float32
    with jax.enable_x64(False):
        assert linops.make(X).dtype == np.float32


@pytest.mark.parametrize("backend", BACKENDS)
def test_entries_twice_and_out_of_order(backend):
    parts = np.array([1.0, 2.0, 4.0, 3.0]), np.array([2, 0, 2, 1]), np.array([0, 3, 4])
    X = sp.csr_matrix(parts, shape=(2, 3))
    F, A = linops.make(X, backend=backend), np.array([[2.0, 0, 5], [0, 3, 0]])
    np.testing.assert_array_equal(F.row_norms2(), (A * A).sum(1))
    np.testing.assert_array_equal(F.squared_rmatmat(jnp.ones((2, 1)))[:, 0], (A * A).sum(0))
    np.testing.assert_array_equal(F.matmat(jnp.eye(3)), A)
    assert X.nnz == 4  # the caller's matrix is as it was


def test_numbers_in_an_array_of_jax_are_looked_at_where_they_are_known():
    finite = jnp.array([1.0, 2.0])
    assert linops.real_array("c", finite, finite=True) is finite
    wrong = jnp.array([1.0, jnp.nan])
    assert linops.real_array("c", wrong) is wrong
    with pytest.raises(ValueError, match=r"^c: expected finite numbers, found NaN or infinity$"):
        linops.real_array("c", wrong, finite=True)
    for values in (jnp.ones(2, complex), jax.random.key(0)):
        with pytest.raises(TypeError, match=r"^c: expected an array of real numbers, found values of "):
            linops.real_array("c", values)

    @jax.jit
    def total(c):
        with pytest.raises(ValueError, match=r"^known: expected finite numbers"):
            linops.real_array("known", wrong, finite=True)
        return jnp.sum(linops.real_array("c", c, finite=True))

    assert jnp.isnan(total(wrong)) and total(finite) == 3


def test_rows_of_a_dense_operator_are_those_of_numpy():
    A = np.arange(6.0).reshape(3, 2)
    op = linops.make(A)
    for rows in ([], [2, 0], [-1], slice(1, 3), np.array([True, False, True]), 1):
        np.testing.assert_array_equal(op.take_rows(rows).matmat(jnp.eye(2)), np.atleast_2d(A[rows]))
    with pytest.raises(IndexError, match="7 is out of bounds"):
        op.take_rows([0, 7])


@pytest.mark.parametrize("first", range(0, 64, 16))
def test_a_dense_operator_has_numbers_of_its_own(first):
    memory = np.zeros(64 + 240, np.uint8)
    begin = (first - memory.ctypes.data) % 64
    A = memory[begin : begin + 240].view(np.float32).reshape(10, 6)
    A[:] = np.arange(60).reshape(10, 6)
    for given in (A, A.T, A[::2], A.astype(int)):
        before = given.copy()
        op = linops.make(given)
        given[:] = -1
        assert isinstance(op, linops.Dense)
        np.testing.assert_array_equal(op.X, before)
        given[:] = before


@pytest.mark.parametrize("shape", [(0, 5), (31, 0), (0, 0)])
@pytest.mark.parametrize("backend", BACKENDS)
def test_products_of_no_rows_and_of_no_columns(backend, shape):
    n, d = shape
    op: Any = linops.make(np.zeros(shape) if backend == "dense" else sp.csr_matrix(shape), backend=backend)
    V, C = jnp.ones((d, 2), op.dtype), jnp.ones((n, 2), op.dtype)
    for found, size in (
        (op.matmat(V), (n, 2)),
        (op.rmatmat(C), (d, 2)),
        (op.squared_rmatmat(C), (d, 2)),
        (op.gram_matmat(C, V), (d, 2)),
        (op.row_norms2(), (n,)),
        (op.inner(jnp.arange(n, dtype=jnp.int32), op), (n, n)),
        (op.inner(jnp.zeros(0, jnp.int32), op), (0, n)),
    ):
        np.testing.assert_array_equal(found, np.zeros(size))
    if backend != "dense":
        assert op.to_scipy().shape == shape
    assert op.take_rows([]).shape == (0, d)


def test_a_matrix_that_jax_traces_stays_a_dense_one():
    A = jnp.ones((3, 3), jnp.float32)
    for backend in ("auto", "dense"):
        found = jax.jit(lambda A, b=backend: linops.make(A, backend=b).matmat(A))(A)
        np.testing.assert_array_equal(found, np.full((3, 3), 3.0))
    for traced, backend in ((A, "jnp"), (A, "gpu"), (BCOO.fromdense(A), "auto")):
        with pytest.raises(TypeError, match=r"^X: expected numbers, found an array that JAX traces"):
            jax.jit(lambda X, b=backend: linops.make(X, backend=b).matmat(A))(traced)


@pytest.mark.parametrize("backend", ["gpu", pytest.param("native", marks=needs_native)])
def test_products_of_kernels_have_the_derivatives_of_a_dense_matrix(backend):
    X = matrix(np.float64, n=11, d=7, density=0.4)
    F, A = linops.make(X, backend=backend), linops.make(X.toarray())
    rng = np.random.default_rng(3)
    D, V, moved_D, moved_V = (jnp.asarray(rng.normal(size=(rows, 2))) for rows in (11, 7, 11, 7))

    @jax.jit
    def derivatives(F, D, V):
        def cubes(D, V):
            return sum(jnp.sum(product(F, D, V) ** 3) for product in PRODUCTS.values())

        def gradient(V):
            return jax.grad(lambda V: jnp.sum(F.matmat(V) ** 3))(V)

        return (
            jax.jvp(cubes, (D, V), (moved_D, moved_V)),
            jax.grad(cubes, argnums=(0, 1))(D, V),
            jax.jvp(gradient, (V,), (moved_V,)),
            jax.vmap(gradient)(jnp.stack([V, moved_V])),
            jax.jacfwd(F.rmatmat)(D),
        )

    found, expected = (jax.tree.leaves(derivatives(op, D, V)) for op in (F, A))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)
    ours, theirs = (jax.grad(lambda V, op=op: jnp.sum(op.gram_matmat(D, V) ** 3))(V) for op in (F, A))
    np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


@needs_native
def test_products_of_native_kernels_have_derivatives_in_the_values_of_X():
    X = matrix(np.float64, n=11, d=7, density=0.4)
    D, V = jnp.ones((11, 2)) / 3, jnp.arange(14.0).reshape(7, 2)

    def of_values(F):
        squares = [jnp.sum(product(F, D, V) ** 2) for product in PRODUCTS.values()]
        squares.append(jnp.sum(F.inner(jnp.int32([2, 0, 10]), F) ** 3))  # of both matrices
        return sum(squares) + jnp.sum(F.row_norms2() ** 2)

    found = jax.grad(of_values, allow_int=True)(linops.make(X, backend="native")).value
    dense = np.asarray(jax.grad(of_values)(linops.make(X.toarray())).X)
    np.testing.assert_allclose(
        found, dense[np.repeat(np.arange(11), np.diff(X.indptr)), X.indices], rtol=1e-10
    )


def test_values_of_X_for_a_gpu_have_no_derivatives():
    F = linops.make(matrix(np.float64), backend="gpu")
    sentence = (
        r'^matmat: expected features of backend="dense", "native" or "jnp" for derivatives '
        r'in the values of X, found those of backend="gpu"(\n|$)'
    )
    with pytest.raises(TypeError, match=sentence):
        jax.grad(lambda F: jnp.sum(F.matmat(jnp.ones((31, 2)))), allow_int=True)(F)


@pytest.mark.parametrize("backend", BACKENDS)
def test_arrays_of_another_dtype_or_shape_are_one_sentence_for_every_backend(backend):
    F = linops.make(np.ones((3, 2), np.float32), backend=backend)
    right, narrow = np.ones((2, 4), np.float32), np.ones((3, 1), np.float32)
    for V, found in (
        (right.astype(np.float64), r"float64 \[2, 4\]"),
        (right.astype(int), r"int64 \[2, 4\]"),
        (jnp.asarray(right, jnp.bfloat16), r"bfloat16 \[2, 4\]"),
        (right[0], r"float32 \[4\]"),
        (right[None], r"float32 \[1, 2, 4\]"),
        (right.T, r"float32 \[4, 2\]"),
    ):
        with pytest.raises(ValueError, match=rf"^matmat: expected V as float32 \[2, lanes\], found {found}$"):
            F.matmat(V)
    with pytest.raises(TypeError, match=r"^rmatmat: expected C as float32 \[3, lanes\], found list$"):
        F.rmatmat(narrow.tolist())  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        ValueError, match=r"^squared_rmatmat: expected D as float32 \[3, lanes\], found float32 "
    ):
        F.squared_rmatmat(right)
    with pytest.raises(
        ValueError, match=r"^gram_matmat: expected V as float32 \[2, 1\], found float32 \[2, 4\]$"
    ):
        F.gram_matmat(narrow, right)
    others = linops.make(np.ones((4, 3), np.float32), backend=backend)
    with pytest.raises(
        ValueError, match=r"^inner: expected rows of float32 \[m, 2\], found float32 \[4, 3\]$"
    ):
        F.inner(jnp.int32([0]), others)
    for places in (jnp.ones(1), jnp.int32([[0]]), np.int64(0)):
        with pytest.raises(
            TypeError, match=r"^inner: expected places of rows as whole numbers \[p\], found "
        ):
            F.inner(places, F)
    for place in (3, -1, 2**40):
        with pytest.raises(ValueError, match=rf"^inner: expected places of rows from 0 to 2, found {place}$"):
            F.inner(np.array([0, place]), F)
    np.testing.assert_array_equal(F.inner(np.array([1, 0]), F), F.inner(jnp.int32([1, 0]), F))
    with jax.enable_x64(False):  # what JAX makes float32 is float32
        F.matmat(right.astype(np.float64))
