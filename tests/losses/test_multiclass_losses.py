"""The losses of scores and labels: values, derivatives, ties, masks, dtypes and transforms."""

from __future__ import annotations

import itertools
import math
from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.losses import (
    CASES,
    CONVEX,
    ROWS,
    M,
    compiled,
    examples,
    expected,
    mask,
    top_k,
)
from xmcjax import losses


def test_derivatives_in_the_variational_parameters():
    h, (z, y) = 1e-6, examples()
    for f in (losses.lc_bound, losses.dm_bound):
        a = jnp.asarray(np.linspace(-1, 1, ROWS))
        slope = jax.grad(lambda a, f=f: jnp.sum(f(z, y, a)))(a)
        np.testing.assert_allclose(slope, (f(z, y, a + h) - f(z, y, a - h)) / (2 * h), rtol=1e-6, atol=1e-6)
    best = jax.grad(lambda a: jnp.sum(losses.lc_bound(z, y, a)))(-jax.nn.logsumexp(z, axis=-1))
    np.testing.assert_allclose(best, 0, atol=1e-13)


@pytest.mark.parametrize("name", CONVEX)
def test_with_ties_the_gradient_is_a_subgradient(name):
    """f(z') ≥ f(z) + ⟨g, z' − z⟩, at small whole numbers where classes tie and hinges bend."""
    rng = np.random.default_rng(4)
    z = jnp.asarray(rng.integers(-1, 2, (ROWS, M)).astype(float)).at[0].set(0)
    y = jnp.asarray(rng.integers(0, M, ROWS))
    value, g = compiled(name)(z, y)
    for scale in (1e-3, 1.0):
        step = jnp.asarray(scale * rng.normal(size=(ROWS, M)))
        assert np.all(compiled(name)(z + step, y)[0] >= value + jnp.sum(g * step, axis=-1) - 1e-12)
    others = np.delete(g[0], int(y[0]))
    np.testing.assert_allclose(others, others[0], rtol=1e-14)  # all tie: they share alike


def test_ties_of_the_truncated_entropy():
    z, y = jnp.asarray([0.0, 2.0, 2.0, 2.0, -1.0]), jnp.asarray(0)
    value, g = jax.value_and_grad(lambda z: losses.truncated_topk_entropy(z, y, 3))(z)
    total = 1 + np.exp(2) + np.exp(-1)
    share = np.exp(2) / 3 / total
    np.testing.assert_allclose(value, np.log(total))
    np.testing.assert_allclose(g, [1 / total - 1, share, share, share, np.exp(-1) / total], rtol=1e-13)


def test_the_cross_entropy_sums_rows_as_often_as_its_formula():
    z, y = jnp.zeros((4, 5), jnp.float32), jnp.arange(4)

    def formula(z):
        return jax.nn.logsumexp(z, axis=-1) - jnp.take_along_axis(z, y[:, None], axis=-1)[:, 0]

    def sums(f):
        return jax.jit(jax.grad(lambda z: jnp.sum(f(z)))).lower(z).as_text().count("stablehlo.reduce(")

    for loss in (losses.softmax_cross_entropy, partial(losses.topk_entropy, k=1)):
        assert sums(lambda z, loss=loss: loss(z, y)) == sums(formula)


@pytest.mark.parametrize("name", CASES)
def test_minus_infinity_is_a_closed_class_and_nan_is_handed_on(name):
    z, y = examples()
    where = mask().at[jnp.arange(ROWS), y].set(True)
    found, g = compiled(name)(jnp.where(where, z, -jnp.inf), y)
    np.testing.assert_allclose(found, compiled(name)(z, y, where)[0], rtol=1e-13, atol=1e-15)
    assert np.isfinite(g).all()
    # NaN of both signs: XLA's order of the k largest has them at its two ends
    for dtype, sign in itertools.product((jnp.float64, jnp.float32), (1, -1)):
        bad, _ = compiled(name)(z.astype(dtype).at[:, 3].set(math.copysign(math.nan, sign)), y)
        ignored = (y == 3) if name == "lee_lin_wahba" else np.zeros(ROWS, bool)  # it does not read z_y
        np.testing.assert_array_equal(np.isnan(bad), ~ignored)


@pytest.mark.parametrize("name", CASES)
def test_closed_classes_are_as_if_they_were_absent(name):
    z, y = examples()
    own = jnp.arange(M)[None] == y[:, None]
    where = mask()
    anything = jnp.asarray([jnp.nan, jnp.inf, -1e30])[y % 3][:, None]
    noise = jnp.where(where | own, z, anything)
    clean, found = compiled(name)(z, y, where), compiled(name)(noise, y, where)
    for a, b in zip(clean, found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.any(np.where(where | own, 0, found[1]))
    # the class of the label counts although it is closed, and alone it costs nothing
    np.testing.assert_array_equal(compiled(name)(z, y, where & ~own)[0], compiled(name)(z, y, where | own)[0])
    if not name.endswith("_bound"):
        for nothing in compiled(name)(z, y, jnp.zeros((ROWS, M), bool)):
            np.testing.assert_array_equal(nothing, 0)


def test_no_mask_and_one_mask_for_all_rows():
    z, y = examples()
    np.testing.assert_array_equal(losses.crammer_singer(z, y), compiled("crammer_singer")(z, y)[0])
    shared = jnp.arange(M) % 3 > 0
    each = compiled("crammer_singer")(z, y, jnp.broadcast_to(shared, z.shape))[0]
    np.testing.assert_array_equal(losses.crammer_singer(z, y, where=shared), each)


def test_fewer_open_classes_than_k_and_one():
    z, y = jnp.asarray([0.0, 3, 1, 5, 2]), jnp.asarray(0)
    where = jnp.asarray([True, True, True, False, False])
    assert losses.topk_hinge(z, y, 2, where=where) == (4 + 2) / 2
    assert losses.topk_hinge(z, y, 3, "beta", where=where) == (4 + 2) / 3
    np.testing.assert_allclose(losses.truncated_topk_entropy(z, y, 2, where=where), np.log1p(np.exp(1)))
    for f in (losses.topk_hinge, losses.topk_entropy, losses.truncated_topk_entropy):
        value, g = jax.value_and_grad(lambda z, f=f: f(z, y, 3, where=where))(z)
        assert value == 0 and not np.any(g)


@pytest.mark.parametrize("name", CASES)
def test_labels_that_are_not_known_when_tracing(name):
    """A label beyond the classes gives NaN in its own row only; its gradient is 0."""
    z, y = examples()
    bad = y.at[jnp.asarray([1, 2, 5])].set(jnp.asarray([-1, M, 2**33]))
    wrong = np.isin(np.arange(ROWS), [1, 2, 5])
    (found, g), (value, slope) = compiled(name)(z, bad), compiled(name)(z, y)
    assert np.isnan(found[wrong]).all()
    np.testing.assert_array_equal(g[wrong], 0)
    np.testing.assert_array_equal(found[~wrong], value[~wrong])
    np.testing.assert_array_equal(g[~wrong], slope[~wrong])


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.uint32, jnp.uint64])
def test_labels_of_any_integer_dtype(dtype):
    z = jnp.asarray(np.random.default_rng(7).normal(size=(3, 300)))
    reference = losses.crammer_singer(z, jnp.asarray([0, 5, 100]))
    np.testing.assert_array_equal(losses.crammer_singer(z, jnp.asarray([0, 5, 100], dtype)), reference)


@pytest.mark.parametrize(
    ("name", "k", "dtype"),
    [
        ("topk_hinge", 7, np.float64),
        ("topk_hinge", 65, np.float64),
        ("topk_entropy", 65, np.float32),
        ("truncated_topk_entropy", 7, np.float64),
    ],
)
def test_many_classes_and_ties(name, k, dtype):
    """Scores that often tie, and every way of finding the largest of them."""
    rng = np.random.default_rng(8)
    z = np.concatenate([rng.normal(size=(3, 801)), rng.integers(0, 40, (3, 801)) / 4]).astype(dtype)
    y, case = jnp.asarray(rng.integers(0, 801, 6)), top_k(name, k)
    if name == "topk_hinge":
        case = top_k(name, k, variant="beta")
    found, reference = case.f(jnp.asarray(z), y), expected(case.reference, z, y)
    np.testing.assert_allclose(found, reference, rtol=2e-5 if dtype == np.float32 else 1e-11)


@pytest.mark.parametrize("name", ["topk_hinge_alpha", "topk_entropy", "truncated_topk_entropy"])
def test_the_k_largest_are_found_without_sorting(name):
    """XLA for CPUs sorts whole rows where it does not recognise the k largest: a hundred times as slow."""
    case, y = CASES[name], jnp.zeros(2, jnp.int32)

    def total(z):
        return jnp.sum(case.f(z, y))

    z = jnp.zeros((2, 1000), jnp.float32)
    program = jax.jit(jax.value_and_grad(total)).lower(z).compile().as_text()
    assert program is not None and "TopK" in program and " sort(" not in program


def test_weights_of_0_change_no_ordered_hinge():
    """Of few weights and of many, whose ranks are found in another way."""
    z = jnp.asarray(np.random.default_rng(0).integers(-2, 4, (20, 80)), jnp.float32)
    y = jnp.arange(20)
    for beta in ([1.0], [1.0, 0.5, 0.25]):
        few, many = (
            jax.value_and_grad(lambda z, beta=beta: jnp.sum(losses.ordered_hinge(z, y, beta)))(z)
            for beta in (np.float32(beta), np.float32(beta + [0.0] * 70))
        )
        chex.assert_trees_all_close(few, many, rtol=1e-6)
        gains = jnp.where(jnp.arange(80) == y[:, None], -1, z - z[y, y][:, None])
        np.testing.assert_allclose(jnp.sum(few[1] * (gains + 1)), few[0], rtol=1e-5)


def test_ordered_hinges_are_those_that_they_contain():
    z, y = examples()
    for beta, same in (
        (np.ones(1), losses.crammer_singer),
        (np.ones(M - 1), losses.weston_watkins),
        (np.full(3, 1 / 3), partial(losses.topk_hinge, k=3, variant="beta")),
    ):
        for where in (None, mask()):
            found = losses.ordered_hinge(z, y, beta, where=where)
            np.testing.assert_allclose(found, same(z, y, where=where), rtol=1e-13)
    # β that is not known when it is traced
    for beta in ([0.5, 1.0], [-1.0, -2.0]):
        assert np.isnan(jax.jit(losses.ordered_hinge)(z, y, jnp.asarray(beta))).all()
    slope = jax.grad(lambda beta: jnp.sum(losses.ordered_hinge(z, y, beta)))(jnp.asarray([1.0, 0.5]))
    ranked = -np.sort(
        -np.where(
            np.arange(M) == np.asarray(y)[:, None], 0, np.maximum(0, 1 + z - z[np.arange(ROWS), y][:, None])
        )
    )
    np.testing.assert_allclose(slope, ranked[:, :2].sum(axis=0), rtol=1e-13)


def test_one_vs_all():
    z, _ = examples()
    t = jnp.asarray(np.random.default_rng(10).choice([-1.0, 1.0], z.shape))
    noise = jnp.where(mask(), z, jnp.nan)
    for loss in losses.MARGIN_LOSSES.values():
        f = partial(losses.one_vs_all, loss=loss)
        reference = np.asarray(loss.value(t * z))
        np.testing.assert_allclose(f(z, t), reference.sum(axis=-1), rtol=1e-13)
        found, g = jax.jit(jax.vmap(jax.value_and_grad(lambda z, t, w, f=f: f(z, t, where=w))))(
            noise, t, mask()
        )
        np.testing.assert_allclose(found, np.sum(reference, axis=-1, where=np.asarray(mask())), rtol=1e-13)
        np.testing.assert_allclose(g, np.where(mask(), t * loss.grad(t * z), 0), rtol=1e-12, atol=1e-15)
    half = f(z.astype(jnp.bfloat16), t.astype(jnp.int8))
    assert half.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(half, np.float64), reference.sum(axis=-1), rtol=2e-2)


def test_forms_of_arguments():
    Z, Y = np.zeros((4, 5), np.float32), np.array([0, 1, 2, 4])
    assert losses.crammer_singer([[2.0, 1.5]], [0]).tolist() == [0.5]
    assert losses.crammer_singer([2.0, 1.5], 0).shape == ()
    for f in (losses.topk_hinge, losses.topk_entropy, losses.truncated_topk_entropy):
        np.testing.assert_array_equal(f(Z, Y, np.int64(2)), f(Z, Y, 2))
    for f in (losses.lc_bound, losses.lc_bound_conjugate, losses.dm_bound, losses.dm_bound_conjugate):
        assert f(Z, Y, np.zeros(4)).dtype == jnp.float32
    assert losses.smooth_topk_hinge(Z, Y, 2, 1).dtype == jnp.float32


@pytest.mark.parametrize("variant", ["alpha", "beta"])
def test_gamma_may_be_traced_and_has_a_derivative(variant):
    z, y = examples()
    f = jax.jit(lambda gamma: jnp.sum(losses.smooth_topk_hinge(z, y, 3, gamma, variant)))
    h = 1e-6
    for gamma in (0.3, 2.0):
        difference = (f(gamma + h) - f(gamma - h)) / (2 * h)
        np.testing.assert_allclose(jax.grad(f)(gamma), difference, rtol=1e-6)
        slope = jax.grad(f)
        difference = (slope(gamma + h) - slope(gamma - h)) / (2 * h)
        assert abs(difference) > 1e-3
        np.testing.assert_allclose(jax.grad(slope)(gamma), difference, rtol=1e-5)
    for gamma in (0.0, -1.0, jnp.nan):
        assert np.isnan(f(gamma))


def test_mixed_derivatives_of_the_ordered_hinge():
    z, beta = jnp.array([0.3, 0.9, -0.2, 1.4, 0.1]), jnp.array([1.0, 0.6, 0.2])

    def f(z, beta):
        return losses.ordered_hinge(z, 1, beta)

    mixed = jax.jacfwd(jax.grad(f, 1), 0)(z, beta)
    np.testing.assert_array_equal(mixed, [[0, -1, 0, 1, 0], [1, -1, 0, 0, 0], [0, -1, 0, 0, 1]])
    np.testing.assert_array_equal(jax.jacrev(jax.grad(f, 0), 1)(z, beta).T, mixed)
    with_mask = jax.jacfwd(jax.grad(lambda b, z: losses.ordered_hinge(z, 1, b, where=z > 0.2)), 1)
    np.testing.assert_array_equal(with_mask(beta, z), [[0, -1, 0, 1, 0], [1, -1, 0, 0, 0], [0, 0, 0, 0, 0]])


def test_the_slope_of_a_hinge_at_its_bend_is_0():
    margins = jnp.array([0.5, 1.0, 1.5])
    for loss in losses.MARGIN_LOSSES.values():
        np.testing.assert_allclose(jax.vmap(jax.grad(loss.value))(margins), loss.grad(margins), atol=1e-15)


@pytest.mark.parametrize(
    ("k", "dtype"), [(2, jnp.float32), (3, jnp.float64), (14, jnp.float32), (33, jnp.float32)]
)
def test_ties_of_the_topk_entropy(k, dtype):
    """k competitors that tie are all at 1/k, where rounding has some of them there and others not."""

    def with_k_competitors(z):
        return jnp.log1p(k * jnp.exp(jnp.mean(z[1:] - z[0])))

    def check(f, exact, z, closed):
        for transform in (jax.grad, jax.hessian):
            # one program, where derivatives that are not compiled as a whole are dozens
            found = jax.jit(transform(f))(jnp.concatenate([z, jnp.ones(closed, dtype)]))[: k + 1]
            np.testing.assert_allclose(found[..., : k + 1], jax.jit(transform(exact))(z), atol=2e-6)

    z = jnp.full(k + 1, 0.5, dtype)
    check(lambda z: losses.topk_entropy(z, 0, k), with_k_competitors, z, 0)
    where = jnp.arange(k + 4) <= k
    check(lambda z: losses.topk_entropy(z, 0, k, where=where), with_k_competitors, z, 3)
    # one more than k
    one_more = jax.jit(jax.value_and_grad(lambda z: losses.topk_entropy(z, 0, k)))
    value, gradient = one_more(jnp.zeros(k + 2, dtype))
    np.testing.assert_allclose(value, np.log(k + 2), rtol=1e-6)
    np.testing.assert_allclose(gradient[1:], 1 / (k + 2), atol=1e-6)
