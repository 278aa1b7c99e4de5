"""The kernels for a GPU: interpreted they give the products of plain JAX, and they lower without a GPU."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.gpu_products import PRODUCTS, Rows, check_what_is_skipped, grouped, uneven
from tests.support.gpu_targets import abstract_gpu
from xmcjax import linops
from xmcjax.linops import Grouped

# entries that are read at once; lanes of a tile of a plain product, and of one that skips rows
GROUP, FULL, SKIPPING = 8, 128, 32


def operands(X, lanes, seed=1):
    """(D, V): rows and whole tiles of lanes of D are zero."""
    rng = np.random.default_rng(seed)
    (n, d), dtype = X.shape, X.dtype
    V = rng.normal(size=(d, lanes)).astype(dtype)
    D = np.where(rng.random((n, lanes)) < 0.05, rng.random((n, lanes)), 0).astype(dtype)
    D[:, : lanes // 2] *= rng.random((n, 1)) < 0.3
    return jnp.asarray(D), jnp.asarray(V)


# tiles that are full, begun and several; rows of one piece and of several
@pytest.mark.parametrize(
    ("dtype", "lanes", "piece"),
    [(np.float32, 3, 64), (np.float32, FULL + 5, 1), (np.float64, SKIPPING + 1, 2)],
)
def test_products_of_uneven_rows(dtype, lanes, piece):
    X = uneven(dtype, 70, 45)
    F, reference = grouped(X, piece), linops.make(X, backend="jnp")
    assert (F.rows.sums is None) == (piece == 64)
    D, V = operands(X, lanes)
    tolerance: dict[str, Any] = (
        dict(rtol=1e-13, atol=1e-13) if dtype == np.float64 else dict(rtol=1e-5, atol=3e-5)
    )
    for name, work in PRODUCTS.items():
        ours, theirs = work(F, D, V), work(reference, D, V)
        assert ours.dtype == dtype and ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, err_msg=name, **tolerance)
    assert (F.to_scipy() != X).nnz == 0


def test_pieces_of_pieces():
    """A row so long that the list of its pieces is itself one of several pieces."""
    rng = np.random.default_rng(0)
    X = sp.csr_matrix(rng.normal(size=(2, 40 * GROUP)))
    F = grouped(X, 1)
    assert F.rows.sums is not None and F.rows.sums.sums is not None
    D, V = operands(X, 2)
    np.testing.assert_allclose(F.matmat(V), X @ np.asarray(V), atol=1e-12)
    np.testing.assert_allclose(F.gram_matmat(D, V), X.T @ (D * (X @ np.asarray(V))), atol=1e-12)


@pytest.mark.parametrize("name", ["matmat", "gram_matmat"])
def test_a_lane_keeps_its_bits_beside_others(name):
    """The sums of a lane are made in one order, whatever its neighbours skip."""
    X = uneven(np.float32, 70, 45)
    F, (D, V) = grouped(X, 2), operands(X, 2 * SKIPPING)
    work = jax.jit(PRODUCTS[name])
    whole = np.asarray(work(F, D, V))
    for lane in (0, 40):
        alone = (jnp.arange(2 * SKIPPING) == lane).astype(np.float32)
        np.testing.assert_array_equal(work(F, D * alone, V * alone)[:, lane], whole[:, lane])


def test_what_is_skipped_is_not_read():
    check_what_is_skipped("interpreted")


def test_lanes_without_a_vector_ask_for_no_row():
    X = uneven(np.float64, 70, 45)
    F, (D, V) = grouped(X, 64), operands(X, SKIPPING + 3)
    V = V.at[:, SKIPPING:].set(0).at[:, 3].set(0)
    np.testing.assert_allclose(F.gram_matmat(D, V), X.T @ (D * (X @ np.asarray(V))), atol=1e-12)


def described(n, d, nonzeros, dtype):
    """An operator of arrays that are described only, as large as they like."""

    def rows(m, p):
        groups = jax.ShapeDtypeStruct((nonzeros // GROUP + m, GROUP), dtype)
        pieces = jax.ShapeDtypeStruct((m,), np.int32)
        index = jax.ShapeDtypeStruct(groups.shape, np.int32)
        none, one = (jax.ShapeDtypeStruct((k,), np.int32) for k in (0, 1))
        return Rows(groups, index, pieces, pieces, pieces, none, one, None, (m, p))

    return Grouped(rows(n, d), rows(d, n), (n, d), "triton")


@pytest.mark.parametrize(
    ("n", "d", "nonzeros", "lanes", "dtype"),
    [
        (31246, 21053, 1_940_000, 512, np.float64),
        (490449, 135909, 37_000_000, 300, np.float32),
        (3 * 10**6, 337067, 3 * 10**9, 1024, np.float32),
    ],
)
@pytest.mark.parametrize("name", PRODUCTS)
# From jax 0.11 on. Where a release has no such backend any more, gpu_ready says so and plain JAX is used.
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")
def test_lowers_for_a_gpu(name, n, d, nonzeros, lanes, dtype):
    """To a kernel of Triton, at the sizes of real sets, beyond 2^31 entries and elements too."""
    D, V = (jax.ShapeDtypeStruct((rows, lanes), dtype) for rows in (n, d))
    F = described(n, d, nonzeros, dtype)
    with abstract_gpu():
        text = jax.jit(PRODUCTS[name]).trace(F, D, V).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("xla.gpu.triton") == (2 if name == "gram_matmat" else 1)
    assert "stablehlo.while" not in text  # which an interpreted kernel would be


def test_a_cpu_does_not_run_them_uninterpreted():
    F = grouped(uneven(np.float32, 70, 45), 64, "triton")
    with pytest.raises(ValueError, match="interpret"):
        F.matmat(jnp.ones((45, 2), jnp.float32))
    op = linops.make(uneven(np.float32, 70, 45), backend="gpu")
    assert isinstance(op, Grouped) and op.interpret and not linops.gpu_ready()


def test_too_many_groups_are_refused():
    X = sp.csr_matrix((2, 3))

    class Long:
        shape, nnz, dtype = X.shape, 0, X.dtype
        indptr = np.array([0, 2**34, 2**35])

    with pytest.raises(ValueError, match="at most 2\\^31-1 groups"):
        Rows.of(Long())


def test_products_of_lanes_of_a_mesh():
    """In shard_map with its check, which asks what a kernel's result varies over."""
    X = sp.random(9, 5, 0.5, format="csr", dtype=np.float32, random_state=0)
    op = linops.make(X, backend="gpu")
    mesh = jax.make_mesh((1,), ("lanes",), axis_types=(jax.sharding.AxisType.Auto,))
    lanes = jax.sharding.PartitionSpec(None, "lanes")
    for product, rows in ((op.matmat, 5), (op.rmatmat, 9)):
        V = jnp.asarray(np.random.default_rng(1).standard_normal((rows, 4)), jnp.float32)
        found = jax.jit(jax.shard_map(product, mesh=mesh, in_specs=lanes, out_specs=lanes))(V)
        np.testing.assert_array_equal(found, jax.jit(product)(V))
