"""Low-rank kernel matrices and random Fourier features against their definitions in NumPy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.kernel_functions import everything, rbf
from xmcjax import kernels
from xmcjax.kernels import RBF, Linear, Matern

N, D, M, RANK = 24, 3, 5, 8
W = np.array([0.5, 4.0])


def data():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, D)) + 1, rng.standard_normal((M, D)) + 1


def approximated(method, form=np.asarray):
    points = kernels.points(form(data()[0]))
    return kernels.low_rank(RBF(W), points, RANK, method=method), points


def written_out(w, places, X, Z, corrected):
    """(M̃ of the training points, M̃ between Z and them)."""
    I = X[places]
    inner, columns = rbf(w, I, I), rbf(w, X, I)
    full = columns @ np.linalg.solve(inner, columns.T)
    if corrected:
        np.fill_diagonal(full, 1.0)
    return full, rbf(w, Z, I) @ np.linalg.solve(inner, columns.T)


@pytest.mark.parametrize(("method", "form"), [("cholesky", np.asarray), ("nystrom", sp.csr_matrix)])
def test_products_and_derivatives(method, form):
    X, Z = data()
    gram, points = approximated(method, form)
    rng = np.random.default_rng(1)
    S, U = (jnp.asarray(rng.standard_normal((N, 2, 2))) for _ in range(2))
    product, across, by_kernel, by_S = everything(gram, kernels.points(form(Z), like=points), S, U)
    h = 1e-5
    for l, w in enumerate(W):
        places = np.asarray(gram.places[l])
        assert len(set(places)) == RANK
        full, test = written_out(w, places, X, Z, method == "cholesky")
        np.testing.assert_allclose(gram.matrices()[l], full, atol=1e-10)
        np.testing.assert_allclose(product[:, l], full @ S[:, l], atol=1e-9)
        np.testing.assert_allclose(across[:, l], test @ S[:, l], atol=1e-9)
        np.testing.assert_allclose(by_S[:, l], full @ U[:, l], atol=1e-9)
        sides = [written_out(w + s * h, places, X, Z, method == "cholesky")[0] for s in (1, -1)]
        change = np.sum(U[:, l] * ((sides[0] - sides[1]) / (2 * h) @ S[:, l]))
        np.testing.assert_allclose(by_kernel.w[l], change, rtol=1e-6)


def test_pivots_are_those_of_the_definition():
    X, _ = data()
    gram, _ = approximated("cholesky")
    for l, w in enumerate(W):
        full, picked = rbf(w, X, X), []
        for place in np.asarray(gram.places[l]):
            left = full.diagonal().copy()
            if picked:
                columns = full[:, picked]
                left -= np.sum(columns * np.linalg.solve(full[np.ix_(picked, picked)], columns.T).T, axis=1)
            assert left[place] > left.max() - 1e-9
            picked.append(place)


def test_full_rank_is_the_full_matrix():
    X, Z = data()
    points = kernels.points(X)
    for gram in (
        kernels.low_rank(RBF(4.0), points, N),
        kernels.low_rank(RBF(4.0), points, N, method="nystrom"),
    ):
        np.testing.assert_allclose(gram.matrices()[0], rbf(4.0, X, X), atol=1e-10)
        S = jnp.ones((N, 1, 1))
        cross = gram.cross(kernels.points(Z, like=points), S)[:, 0, 0]
        np.testing.assert_allclose(cross, rbf(4.0, Z, X).sum(axis=1), atol=1e-8)


@pytest.mark.slow
def test_other_kernels_and_given_products():
    X, Z = data()
    points = kernels.points(X)
    # a kernel of rank 3 needs no more
    assert len(kernels.low_rank(Linear(), points, N).places[0]) == D
    given = kernels.precomputed(rbf(4.0, X, X))
    some = kernels.low_rank(Linear(), given, RANK)
    same = kernels.low_rank(RBF(4.0), points, RANK)
    np.testing.assert_allclose(some.matrices()[0], same.matrices()[0], atol=1e-10)
    test = kernels.precomputed_test(rbf(4.0, Z, X), given)
    S = jnp.asarray(np.random.default_rng(2).standard_normal((N, 1, 2)))
    np.testing.assert_allclose(some.cross(test, S), same.cross(kernels.points(Z, like=points), S), atol=1e-10)


@pytest.mark.parametrize(
    "kernel",
    [pytest.param(RBF(W), marks=pytest.mark.slow), Matern(W, 1.5)],
    ids=["rbf", "matern"],
)
def test_fourier_features(kernel):
    X, Z = data()
    points = kernels.points(X)
    gram = kernels.fourier(kernel, points, 40_000, seed=3)
    exact = kernels.gram(kernel, points)
    for a, b in zip(gram.matrices(), exact.matrices(), strict=True):
        np.testing.assert_allclose(a, b, atol=0.03)
        np.testing.assert_allclose(np.diagonal(a), 1)
    small = kernels.fourier(kernel, points, 6, seed=3)
    S, U = jnp.asarray(np.random.default_rng(4).standard_normal((2, N, 2, 1)))
    test = kernels.points(Z, like=points)
    product, across, by_kernel, _ = everything(small, test, S, U)
    np.testing.assert_allclose(product[:, 0, 0], small.matrices()[0] @ S[:, 0, 0])
    own = small.cross(points, S)
    np.testing.assert_allclose(own, product, rtol=1e-10)
    assert across.shape == (M, 2, 1)
    h = 1e-6
    up, down = (small.at(dataclasses.replace(kernel, w=W + s * h * np.eye(2)[1])).matmat(S) for s in (1, -1))
    np.testing.assert_allclose(by_kernel.w[1], np.sum(U * (up - down)) / (2 * h), rtol=1e-5)


@pytest.mark.parametrize("method", ["cholesky", "fourier"])
def test_matrices_have_the_derivatives_of_products(method):
    X = kernels.points(np.random.default_rng(0).normal(size=(9, 4)))
    made = kernels.low_rank(RBF(0.7), X, 4) if method == "cholesky" else kernels.fourier(RBF(0.7), X, 64)
    S = jnp.asarray(np.random.default_rng(1).normal(size=(9, 1, 9)))

    def by_matrices(w):
        return jnp.sum(made.at(RBF(w)).matrices()[0] * S[:, 0].T)

    def by_products(w):
        return jnp.trace(made.at(RBF(w)).matmat(S)[:, 0])

    for transform in (lambda f: f, jax.grad, lambda f: jax.jit(jax.grad(f))):
        np.testing.assert_allclose(transform(by_matrices)(0.7), transform(by_products)(0.7), rtol=1e-9)
    assert abs(jax.grad(by_matrices)(0.7)) > 1e-3


def test_columns_of_another_shape_are_refused():
    P = kernels.points([[0.0], [1.0], [3.0]])
    every = [kernels.gram(kernel, P, memory=memory) for kernel in (RBF(1.0), Linear()) for memory in (0, 1e9)]
    for made in (*every, kernels.low_rank(RBF(1.0), P, 2)):
        for shape in ((3, 2, 1), (3, 1), (4, 1, 1)):
            for product in (made.matmat, lambda S, made=made: made.cross(P, S)):
                with pytest.raises(ValueError, match=r"^S: expected columns \[3, 1, k\], found shape \["):
                    product(jnp.ones(shape, P.dtype))


def test_columns_that_are_no_array_are_refused():
    P = kernels.points([[0.0], [1.0], [3.0]])
    every = [kernels.gram(kernel, P, memory=memory) for kernel in (RBF(1.0), Linear()) for memory in (0, 1e9)]
    for made in (*every, kernels.low_rank(RBF(1.0), P, 2), kernels.fourier(RBF(1.0), P, 2)):
        of_classes = kernels.class_kernels(made, 1.0, 0.1, 2)
        for count, products in (
            (1, [made.matmat, lambda S, made=made: made.sandwich(S, lambda T: T)]),
            (1, [lambda S, made=made: made.cross(P, S, lambda T: T)]),
            (2, [of_classes.matmat, lambda S, made=of_classes: made.cross(P, S)]),
        ):
            for product in products:
                for S, kind in (([[[1.0]] * count] * 3, "list"), (None, "NoneType")):
                    with pytest.raises(TypeError, match=rf"^S: expected .* \[3, {count}, k\], found {kind}$"):
                        product(S)


CROSSED = [
    lambda P: kernels.gram(Linear(), P, memory=0),
    lambda P: kernels.gram(RBF(1.0), P),
    lambda P: kernels.low_rank(RBF(1.0), P, 2),
    lambda P: kernels.fourier(RBF(1.0), P, 4),
]


@pytest.mark.parametrize("make", CROSSED)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_points_that_were_not_made_like_the_training_points_are_refused(make, form):
    """Each set by itself is less its own mean: with those of another one values were wrong without a word."""
    X = np.random.default_rng(0).normal(size=(9, 3)) + 5
    P, T = kernels.points(form(X)), X[:4]
    cross, S = make(P).cross, jnp.ones((9, 1, 1))
    sentence = r"^points: expected points\(T, like=training points\), found "
    for made, found in (
        (kernels.points(form(T)), "another mean subtracted than that of the training points$"),
        (kernels.points(form(T[:, :2])), "width 2 beside 3$"),
        (kernels.points(form(T), np.float32), "float32 beside float64$"),
        (kernels.precomputed(np.eye(9)), "GivenProducts beside Points$"),
    ):
        with pytest.raises(ValueError, match=sentence + found):
            cross(made, S)
    with pytest.raises(TypeError, match=r"^points: expected what points\(X\) or precomputed\(M\) returns"):
        cross(T, S)
    again = cross(kernels.points(form(T), like=P), S)
    np.testing.assert_allclose(cross(P, S)[:4], again, rtol=1e-12)
    # a set that has been copied, or loaded, has the same numbers
    np.testing.assert_array_equal(cross(jax.tree.map(jnp.array, P), S), cross(P, S))


@pytest.mark.parametrize("make", [*CROSSED, lambda P: kernels.gram(RBF(W), P, memory=0)])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, "jnp"])
def test_products_with_no_test_points(make, form):
    """They have no rows, and derivatives that are 0; a tile of one row was cut out of them."""
    backend, form = ("jnp", sp.csr_array) if form == "jnp" else ("auto", form)
    P = kernels.points(form(np.random.default_rng(0).normal(size=(9, 3)) + 5), backend=backend)
    T, made = kernels.points(form(np.zeros((0, 3))), like=P), make(P)
    S = jnp.ones((9, made.count, 2))
    assert made.cross(T, S).shape == (0, made.count, 2)
    assert not np.any(jax.grad(lambda S: made.cross(T, S).sum())(S))
    family = kernels.class_kernels(made, 1.0, 0.1, made.count)
    assert family.cross(T, S).shape == (0, made.count, 2)


def test_no_test_points_have_derivatives_that_are_0():
    P = kernels.points(np.random.default_rng(0).normal(size=(9, 3)))
    T, S = kernels.points(np.zeros((0, 3)), like=P), jnp.ones((9, 1, 2))

    def total(w, P, T):
        return kernels.gram(RBF(w), P, memory=0).cross(T, S).sum()

    for slope in jax.tree.leaves(jax.grad(total, argnums=(0, 1, 2))(0.7, P, T)):
        assert not np.any(slope)
    given = kernels.precomputed(np.eye(9))
    none = kernels.precomputed_test(np.zeros((0, 9)), given)
    for made in (kernels.gram(Linear(), given), kernels.low_rank(RBF(1.0), given, 2)):
        assert made.cross(none, S).shape == (0, 1, 2)


@pytest.mark.parametrize("kernel", [RBF(1.0), Linear()])
@pytest.mark.parametrize("memory", [0, 1e9])
def test_products_with_no_training_points(kernel, memory):
    for form, backend in ((np.asarray, "auto"), (sp.csr_array, "auto"), (sp.csr_array, "jnp")):
        P = kernels.points(form(np.zeros((0, 3))), backend=backend)
        made, S = kernels.gram(kernel, P, memory=memory), jnp.ones((0, 1, 2))
        assert made.matmat(S).shape == (0, 1, 2) and made.matrices().shape == (1, 0, 0)
        across = made.cross(kernels.points(np.ones((4, 3)), like=P), S)
        np.testing.assert_array_equal(across, np.zeros((4, 1, 2)))


def test_given_products_of_another_width_are_refused():
    cross, S = kernels.gram(Linear(), kernels.precomputed(np.eye(9))).cross, jnp.ones((9, 1, 1))
    sentence = r"^points: expected precomputed_test\(M, training points\), found "
    for made, found in (
        (kernels.precomputed(np.eye(4)), "width 4 beside 9$"),
        (kernels.points(np.eye(9)), "Points beside GivenProducts$"),
    ):
        with pytest.raises(ValueError, match=sentence + found):
            cross(made, S)


@pytest.mark.parametrize("make", CROSSED)
def test_points_that_are_traced_are_taken_as_they_are(make):
    X = np.random.default_rng(0).normal(size=(9, 3)) + 5
    P, S = kernels.points(X), jnp.ones((9, 1, 1))
    made, T = make(P), kernels.points(X[:4], like=P)
    plain = made.cross(T, S)
    np.testing.assert_allclose(jax.jit(lambda T, S: made.cross(T, S))(T, S), plain, rtol=1e-12)
    np.testing.assert_allclose(jax.jit(lambda made: made.cross(T, S))(made), plain, rtol=1e-12)
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), T)
    np.testing.assert_allclose(
        jax.vmap(lambda T: made.cross(T, S))(several), np.stack([plain] * 2), rtol=1e-12
    )
    slope = jax.grad(lambda S: made.cross(T, S).sum())(S)
    assert float(jnp.vdot(slope, S)) == pytest.approx(float(plain.sum()), rel=1e-12)
    with pytest.raises(ValueError, match=r"found width 2 beside 3\b"):
        jax.jit(lambda S: made.cross(kernels.points(X[:4, :2]), S))(S)


def test_incomplete_cholesky_refuses_what_is_traced():
    """It picks points by their numbers; those of Nystrom are drawn without them."""
    X = data()[0]

    def made(w, X, method):
        return kernels.low_rank(RBF(w), kernels.points(X), 2, method=method).matrices().sum()

    for transformed in (jax.jit(made, static_argnums=2), jax.grad(made)):
        with pytest.raises(TypeError, match=r"^low_rank: .* found traced ones, .* outside jit"):
            transformed(1.0, X, "cholesky")
        assert np.all(np.isfinite(transformed(1.0, X, "nystrom")))


def test_traced_points_have_to_be_dense():
    """Rows of sparse points are taken on the host; the sentence that names Nystrom says so."""
    X = data()[0]

    def made(points, method="nystrom"):
        return kernels.low_rank(RBF(1.0), points, 2, method=method).matrices()

    sparse = kernels.points(sp.csr_array(X))
    with pytest.raises(
        TypeError, match=r"^low_rank: expected dense points, or sparse ones of known numbers,"
    ):
        jax.jit(made)(sparse)
    with pytest.raises(TypeError, match=r'(?m)or take method="nystrom" of dense points$'):
        jax.jit(lambda points: made(points, "cholesky"))(sparse)
    np.testing.assert_allclose(jax.jit(made)(kernels.points(X)), made(sparse), rtol=1e-9)
    # hyperparameters may be traced beside them
    by_w = jax.grad(lambda w: kernels.low_rank(RBF(w), sparse, 2, method="nystrom").matrices().sum())(1.0)
    assert np.isfinite(by_w) and by_w


@pytest.mark.parametrize("method", ["cholesky", "nystrom"])
def test_points_whose_products_are_0(method):
    """A pivot, or an active point, of no length: F is 0 there, and the root was singular."""
    for X in (np.zeros((4, 2)), np.array([[1.0, 0], [0, 0], [-1, 0], [0, 0]])):
        P, S = kernels.points(X), jnp.asarray(np.random.default_rng(0).standard_normal((4, 1, 2)))
        made = kernels.low_rank(Linear(), P, 4, method=method)
        np.testing.assert_allclose(made.matrices()[0], X @ X.T, atol=1e-12)
        np.testing.assert_allclose(made.cross(P, S)[:, 0], X @ X.T @ S[:, 0], atol=1e-12)


@pytest.mark.parametrize(
    "make", [kernels.gram, lambda k, X: kernels.low_rank(k, X, 2), lambda k, X: kernels.fourier(k, X, 2)]
)
def test_features_are_not_points(make):
    sentence = r"^points: expected what points\(X\) or precomputed\(M\) returns, got ndarray$"
    with pytest.raises(TypeError, match=sentence):
        make(RBF(1.0), np.eye(3))
