"""The CUDA kernels, compiled for the CPU: products and sums against float64 and plain JAX, and their bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support import cuda_builds
from tests.support.gpu_products import PRODUCTS, check_what_is_skipped, grouped, uneven
from tests.support.internals import cuda, ids
from xmcjax import linops, losses

TILE, PANEL = cuda.TILE, cuda.TILE * cuda.PANEL
DENSE = {
    "matmat": lambda A, D, V: A @ V,
    "rmatmat": lambda A, D, V: A.T @ D,
    "gram_matmat": lambda A, D, V: A.T @ (D * (A @ V)),
    "squared_rmatmat": lambda A, D, V: A.power(2).T @ D,
}
MASKS = ("random", "tiles", "none", "all")


@pytest.fixture(autouse=True)
def kernels():
    cuda_builds.register()


def operator(X, piece=64):
    return grouped(X, piece, "cuda")


def operands(X, lanes, mask, seed=1):
    """(D, V); whole lanes of V are zero, as those of solved systems are."""
    rng = np.random.default_rng(seed)
    (n, d), dtype = X.shape, X.dtype
    V = rng.normal(size=(d, lanes)).astype(dtype)
    V[:, rng.random(lanes) < 0.2] = 0
    active = {
        "random": rng.random((n, lanes)) < 0.05,
        "tiles": np.repeat(rng.random((n, -(-lanes // TILE))) < 0.3, TILE, axis=1)[:, :lanes],
        "none": np.zeros((n, lanes), bool),
        "all": np.ones((n, lanes), bool),
    }[mask]
    return np.where(active, rng.normal(size=(n, lanes)), 0).astype(dtype), V


def relative(ours, reference) -> float:
    """Against the sums of absolute terms, which bound what rounding may do."""
    difference = np.abs(np.asarray(ours, np.float64) - reference[0])
    return float(np.max(difference / np.maximum(reference[1], 1e-30), initial=0))


def reference(X, name, D, V):
    """(the product in float64, the same of absolute values)."""
    work = DENSE[name]
    A, D, V = X.astype(np.float64), D.astype(np.float64), V.astype(np.float64)
    return work(A, D, V), work(abs(A), abs(D), abs(V))


@pytest.mark.parametrize("mask", MASKS)
# lanes of less than a tile, of whole ones and not, in packs and not, and of two panels
@pytest.mark.parametrize(
    ("lanes", "piece"), [(1, 64), (7, 1), (33, 2), (128, 64), (132, 2), (300, 64), (512, 1), (PANEL + 40, 4)]
)
def test_products_are_those_of_float64(lanes, piece, mask):
    X = uneven()
    F, (D, V) = operator(X, piece), operands(X, lanes, mask)
    assert (F.rows.long.size > 0) == (piece < 8)
    for name, work in PRODUCTS.items():
        ours = jax.jit(work)(F, D, V)
        assert ours.dtype == np.float32
        expected = reference(X, name, D, V)
        assert ours.shape == expected[0].shape
        assert relative(ours, expected) < 3e-6, name


@pytest.mark.parametrize("seed", range(4))
def test_products_of_random_shapes(seed):
    rng = np.random.default_rng(seed)
    n, d, lanes, piece = (int(rng.integers(1, most)) for most in (1500, 400, 90, 6))
    X = sp.random(n, d, float(rng.random() ** 2), "csr", np.float32, rng)
    F, (D, V) = operator(X, piece), operands(X, lanes, MASKS[seed % 2], seed)
    plain = linops.make(X, backend="jnp")
    for name, work in PRODUCTS.items():
        assert relative(work(F, D, V), reference(X, name, D, V)) < 3e-6, name
        np.testing.assert_allclose(work(F, D, V), work(plain, D, V), rtol=1e-4, atol=1e-4)


def test_products_of_float64():
    X = uneven(np.float64)
    F, (D, V) = operator(X, 2), operands(X, 70, "random")
    for name, work in PRODUCTS.items():
        assert relative(work(F, D, V), reference(X, name, D, V)) < 1e-14, name
    np.testing.assert_allclose(F.row_norms2(), (X.toarray() ** 2).sum(1), rtol=1e-13)
    np.testing.assert_allclose(F.mean(), X.toarray().mean(0), atol=1e-13)
    assert F.take_rows([3, 3]).kernels == "cuda"


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (4, 6)])
def test_matrices_of_nothing(shape):
    F, (n, d) = operator(sp.csr_matrix(shape, dtype=np.float32)), shape
    for lanes in (0, 3):
        D, V = np.ones((n, lanes), np.float32), np.ones((d, lanes), np.float32)
        np.testing.assert_array_equal(F.matmat(V), np.zeros((n, lanes)))
        np.testing.assert_array_equal(F.rmatmat(D), np.zeros((d, lanes)))
        np.testing.assert_array_equal(F.gram_matmat(D, V), np.zeros((d, lanes)))


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_same_bits_in_any_company(name):
    """Twice, and for a lane whatever its neighbours skip and however many there are."""
    X = uneven()
    F, (D, V) = operator(X, 2), operands(X, 130, "random")
    V = np.where(V == 0, np.float32(1), V)
    work = jax.jit(PRODUCTS[name])
    whole = np.asarray(work(F, D, V))
    assert np.asarray(work(F, D, V)).tobytes() == whole.tobytes()
    for lane in (0, 40, 129):
        alone = (np.arange(130) == lane).astype(np.float32)
        np.testing.assert_array_equal(work(F, D * alone, V * alone)[:, lane], whole[:, lane])
        np.testing.assert_array_equal(work(F, D[:, [lane]], V[:, [lane]])[:, 0], whole[:, lane])


def test_what_is_skipped_is_not_read():
    check_what_is_skipped("cuda")


def test_the_sums_of_a_row_are_made_in_the_order_of_its_entries():
    """Float32, rounded once for each entry, and the pieces of a long row from the first to the last."""
    X = sp.csr_matrix(np.random.default_rng(3).normal(size=(1, 50)).astype(np.float32))
    V = np.random.default_rng(4).normal(size=(50, 2)).astype(np.float32)
    pieces = []
    for first in range(0, 50, 16):
        total = np.zeros(2, np.float32)
        for x, v in zip(X.toarray()[0, first : first + 16], V[first : first + 16], strict=True):
            # a product of two numbers of float32 is exact in float64, and the sum is as good as exact
            total = (np.float64(x) * v.astype(np.float64) + total).astype(np.float32)
        pieces.append(total)
    expected = pieces[0]
    for piece in pieces[1:]:
        expected = expected + piece
    np.testing.assert_array_equal(operator(X, 2).matmat(V)[0], expected)


LOSSES = [losses.squared_hinge, losses.logistic, losses.HuberHinge(0.5), losses.poisson]


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize(("n", "lanes", "by_row", "by_lane"), [(300, 5, True, False), (9000, 33, True, True)])
def test_sums_of_the_search(loss, n, lanes, by_row, by_lane):
    rng = np.random.default_rng(n)

    def numbers(*shape):
        return rng.normal(size=shape).astype(np.float32)

    shape = (n if by_row else 1, lanes if by_lane else 1)
    z, m, c, o = numbers(n, lanes), numbers(n, lanes), abs(numbers(*shape)), numbers(1, lanes)
    y = rng.choice(np.int8([-1, 1]), (n, lanes))
    t, beta, fresh = abs(numbers(lanes)), numbers(lanes), rng.random(lanes) < 0.3
    z[:, fresh] = np.nan  # of lanes that begin, nothing is read
    work = jax.jit(lambda *a: cuda.cuda_plane_sums(loss.native, loss.parameter, *a))
    ours = work(z, m, y, c, o, t, beta, fresh)
    assert ours.shape == (6, lanes) and ours.dtype == np.float32
    assert np.asarray(work(z, m, y, c, o, t, beta, fresh)).tobytes() == np.asarray(ours).tobytes()
    z, m, c, o, t, beta = (np.float64(a) for a in (np.where(fresh, 0, z), m, c, o, t, beta))
    # in the type of the numbers, so that rows beside a kink stay on their side
    at = z.astype(np.float32) + t.astype(np.float32) * m.astype(np.float32) + beta.astype(np.float32)
    at, y = jnp.asarray((at + o.astype(np.float32)).astype(np.float64)), jnp.asarray(np.float64(y))
    before = jnp.where(fresh, 0, loss.score_value(jnp.asarray(z + o), y))
    slope, curvature = c * loss.score_grad(at, y), c * loss.score_curv(at, y)
    change = c * loss.score_value(at, y) - c * before
    terms = [change, slope, slope * m, curvature, curvature * m, curvature * m * m]
    size = [c * (loss.score_value(at, y) + abs(before)), *terms[1:]]
    expected = [np.stack([np.sum(f(a), axis=0) for a in b]) for f, b in ((np.asarray, terms), (np.abs, size))]
    assert relative(ours, expected) < 5e-6


def test_the_search_over_no_rows_sums_to_nothing():
    none, one, lanes = (np.ones(shape, np.float32) for shape in ((0, 33), (1, 1), 33))
    arguments = none, none, none.astype(np.int8), one, one, lanes, lanes, lanes > 0
    work = jax.jit(lambda *a: cuda.cuda_plane_sums(0, 0.0, *a)).lower(*arguments).compile()
    for _ in range(10):  # memory of the result that was not zero before
        jax.block_until_ready([jnp.full((6, 33), jnp.nan, np.float32) for _ in range(10)])
        assert not np.asarray(work(*arguments)).any()


def test_the_numbers_of_the_losses_are_those_of_ids_def():
    text = (cuda_builds.SOURCES / "plane_sums.h").read_text()
    for number, name in enumerate(ids.LISTS["loss"]):
        spelled = "k" + "".join(word.capitalize() for word in name.split("_"))
        assert f"{spelled} = {number}" in text
    assert (
        int((cuda_builds.SOURCES / "handlers.cc").read_text().split("XMCJAX_CUDA_ABI ")[1].split()[0])
        == cuda.ABI
    )


def test_arrays_that_do_not_fit_are_refused():
    """By the library itself, which else would read beyond them."""
    X = uneven()
    rows = operator(X).rows.cuda
    with pytest.raises(jax.errors.JaxRuntimeError, match="another shape or type"):
        cuda.cuda_matmat(rows, jnp.ones((83, 3), np.float64), 150).block_until_ready()
    with pytest.raises(jax.errors.JaxRuntimeError, match="another shape or type"):
        # fewer groups than the pieces name cannot be seen, fewer ends of pieces can
        cuda.cuda_matmat(rows._replace(stop=rows.stop[:9]), jnp.ones((83, 3), np.float32), 150)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pairs_of_entries_and_weights(dtype):
    """Scores of sparse rows with sparse weights, features with none and with many of them."""
    X, rng = uneven(dtype), np.random.default_rng(3)
    W = np.where(rng.random((83, 700)) < rng.random((83, 1)) ** 2, rng.normal(size=(83, 700)), 0)
    W[[4, 9]] = 0
    W = sp.csr_matrix(W.astype(dtype))
    arrays = X.data, X.indices, X.indptr, W.data, W.indices, W.indptr
    first, again = (np.asarray(cuda.cuda_pairs(*arrays, 700)) for _ in range(2))
    exact = X.astype(np.float64) @ W.astype(np.float64)
    terms = abs(X).astype(np.float64) @ abs(W).astype(np.float64)
    assert relative(first, (exact.toarray(), terms.toarray())) <= 20 * np.finfo(dtype).eps
    np.testing.assert_array_equal(first, again)
    assert not first[0].any()
