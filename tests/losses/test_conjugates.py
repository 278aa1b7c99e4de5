"""Convex conjugates: the inequality of Fenchel and Young, and the domains."""

from __future__ import annotations

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.functions import MARGINS
from tests.support.losses import (
    CASES,
    CONVEX,
    MULTILABEL,
    ROWS,
    M,
    compiled,
    compiled_conjugate,
    examples,
    mask,
    signs,
)
from xmcjax import losses


def both_sides(name, z, v, y, where=None):
    """f(z) + f*(v) − ⟨z, v⟩, [ROWS]."""
    value, _ = compiled(name)(z, y, where)
    return value + compiled_conjugate(name)(v, y, where) - jnp.sum(z * v, axis=-1)


@pytest.mark.parametrize("name", CONVEX)
def test_fenchel_young(name):
    """f(z) + f*(v) ≥ ⟨z, v⟩ for v = ∇f(z'), with equality at z' = z."""
    z, y = examples(seed=11)
    elsewhere, _ = examples(seed=12)
    for where in (None, mask()):
        _, v = compiled(name)(z, y, where)
        np.testing.assert_allclose(both_sides(name, z, v, y, where), 0, atol=1e-11)
        gap = both_sides(name, elsewhere, v, y, where)
        assert np.all(gap >= -1e-11) and np.any(gap > 1e-3)


@pytest.mark.parametrize("name", CONVEX)
def test_infinite_outside_the_domain(name):
    z, y = examples(seed=14)
    _, v = compiled(name)(z, y)
    row, other = jnp.arange(ROWS), (y + 1) % M
    conjugate = compiled_conjugate(name)
    assert np.isfinite(conjugate(v, y)).all()
    outside = [
        v.at[row, other].set(-0.01).at[row, y].add(v[row, other] + 0.01),  # a negative dual variable
        v.at[row, y].set(-1.1),
    ]
    if not name.endswith("_bound"):
        outside.append(v.at[row, y].add(0.01))  # the rows no longer sum to 0
    if name != "lc_bound":  # the others have bounded slopes
        outside.append(v.at[row, other].add(1.01).at[row, y].add(-1.01))
    for far in outside:
        np.testing.assert_array_equal(conjugate(far, y), np.inf)
    found = conjugate(v, y, jnp.broadcast_to(jnp.arange(M) > 0, z.shape))
    np.testing.assert_array_equal(found[(v[:, 0] != 0) & (y != 0)], np.inf)
    assert np.isnan(conjugate(v.at[:, 0].set(jnp.nan), y)).all()


def test_the_two_simplices_of_the_top_k_losses():
    y = jnp.asarray(0)
    alpha = partial(losses.topk_hinge_conjugate, labels=y, k=2)
    beta = partial(alpha, variant="beta")
    inside = jnp.asarray([-0.5, 0.25, 0.2, 0.05])
    beta_only = jnp.asarray([-0.5, 0.4, 0.1, 0.0])  # 0.4 is more than half of 0.5, not of 1
    neither = jnp.asarray([-1.0, 0.6, 0.4, 0.0])
    assert alpha(inside) == -0.5 and beta(inside) == -0.5
    assert alpha(beta_only) == np.inf and beta(beta_only) == -0.5
    assert alpha(neither) == beta(neither) == np.inf
    assert losses.topk_entropy_conjugate(neither, y, 2) == np.inf
    assert losses.crammer_singer_conjugate(neither, y) == -1
    np.testing.assert_allclose(
        losses.topk_entropy_conjugate(inside, y, 2), sum(p * np.log(p) for p in (0.25, 0.2, 0.05, 0.5))
    )


@pytest.mark.parametrize("others", [0, 1, 2, 3])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_derivatives_of_the_entropies_with_few_classes_open(k, others):
    """Of fewer than k other classes the domain is 0 alone, to which all duals of the loss belong."""
    y, where = jnp.asarray(0), jnp.arange(5) <= others
    loss = partial(losses.topk_entropy, labels=y, k=k, where=where)
    conjugate = partial(losses.topk_entropy_conjugate, labels=y, k=k, where=where)
    z, h = jnp.asarray([0.3, -0.2, 0.4, 0.1, 0.2]), 1e-6
    slope = jax.grad(loss)
    if others < k:
        np.testing.assert_array_equal(conjugate(slope(z)), 0)
        np.testing.assert_array_equal(jax.grad(conjugate)(slope(z)), 0)
    along = jnp.asarray([0.7, 0.2, -0.5, 0.4, 0.9])
    found = jax.jvp(lambda z: conjugate(slope(z)), (z,), (along,))[1]
    ends = [conjugate(slope(z + step * along)) for step in (-h, h)]
    np.testing.assert_allclose(found, (ends[1] - ends[0]) / (2 * h), atol=1e-8)


@pytest.mark.parametrize("variant", ["alpha", "beta"])
def test_no_dual_variables_of_the_simplex_do_better(variant):
    """⟨z, v⟩ − f*(v) of points all over the set, corners included, stays below the loss, and comes close."""
    rng, k, y = np.random.default_rng(15), 2, jnp.zeros(20_000, int)
    z = jnp.asarray(np.array([0.0, 2.0, 1.0, 0.5, -1.0]))
    # corners: k entries of 1/k, in beta fewer too
    sizes = [k] if variant == "alpha" else range(1, k + 1)
    corners = np.array(
        [np.isin(range(4), c) / k for size in sizes for c in itertools.combinations(range(4), size)]
    )
    weights = rng.dirichlet(np.full(len(corners) + 1, 0.1), 20_000)[:, 1:]  # the corner 0 too
    x = weights @ corners
    v = jnp.asarray(np.concatenate([-x.sum(axis=-1, keepdims=True), x], axis=-1))
    hinge = partial(losses.topk_hinge, variant=variant), partial(losses.topk_hinge_conjugate, variant=variant)
    pairs = [hinge, (losses.topk_entropy, losses.topk_entropy_conjugate)]
    for f, conjugate in pairs[: 2 if variant == "alpha" else 1]:
        gap = f(z, y[0], k) - (v @ z - conjugate(v, y, k))
        assert np.all(np.isfinite(gap)) and np.min(gap) + 1e-12 >= 0 and np.min(gap) < 0.05


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, jnp.bfloat16) for name in CONVEX), ("topk_entropy", jnp.float32)]
)
def test_a_rounded_gradient_is_inside(name, dtype):
    """Of 20,000 classes, in the dtype of the scores."""
    case, rng = CASES[name], np.random.default_rng(16)
    z = jnp.asarray(rng.normal(size=(4, 20_000)) * 2, dtype)
    y = jnp.asarray(rng.integers(0, 9, 4))
    conjugate = case.conjugate
    assert conjugate is not None

    @jax.jit
    def gradient_and_conjugate(z):
        v = jax.grad(lambda z: jnp.sum(case.f(z, y)))(z)
        return v, conjugate(v, y)

    v, found = gradient_and_conjugate(z)
    assert v.dtype == found.dtype == dtype and np.isfinite(np.asarray(found, np.float32)).all()


@pytest.mark.parametrize("name", CONVEX)
def test_conjugates_under_vmap_and_grad(name):
    conjugate = CASES[name].conjugate
    z, y = examples(seed=17)
    _, v = compiled(name)(z, y)
    found = compiled_conjugate(name)(v, y)
    by_row, g = jax.jit(jax.vmap(jax.value_and_grad(conjugate)))(v, y)
    np.testing.assert_allclose(by_row, found, rtol=1e-12)
    assert np.isfinite(jnp.where(v != 0, g, 0)).all()
    with jax.numpy_rank_promotion("raise"):
        assert jax.eval_shape(conjugate, v.reshape(4, 6, M), y.reshape(4, 6)).shape == (4, 6)


@pytest.mark.parametrize("name", MARGINS)
def test_conjugates_of_the_margin_losses(name):
    loss = MARGINS[name]
    m = jnp.linspace(-3, 3, 121)
    u = loss.grad(m)
    np.testing.assert_allclose(loss.value(m) + loss.conjugate(u), m * u, atol=1e-13)
    gap = loss.value(m)[:, None] + loss.conjugate(u)[None] - m[:, None] * u[None]
    assert np.all(gap >= -1e-13) and np.any(gap > 0.1)
    # inside the domain against the maximum over a fine grid
    grid = jnp.linspace(-40, 40, 800_001)
    for dual in (-0.9, -0.5, -0.1):
        np.testing.assert_allclose(
            loss.conjugate(jnp.asarray(dual)), jnp.max(dual * grid - loss.value(grid)), atol=1e-8
        )
    assert loss.conjugate(jnp.asarray(1e-3)) == np.inf
    assert loss.conjugate(jnp.asarray(0.0)) == 0
    below = loss.conjugate(jnp.asarray(-1.001))
    assert np.isfinite(below) if name == "squared_hinge" else below == np.inf
    assert np.isnan(loss.conjugate(jnp.asarray(jnp.nan)))
    for dtype in (jnp.float16, jnp.bfloat16, jnp.float32):
        x = u.astype(dtype)
        found = jax.jit(loss.conjugate)(x)
        assert found.dtype == dtype
        np.testing.assert_allclose(
            found.astype(jnp.float64),
            loss.conjugate(x.astype(jnp.float64)),
            atol=8 * float(jnp.finfo(dtype).eps),
        )
    # the second call has the shape of the first, and the other byte order
    for order in "<>":
        x = np.array([-1.0, -0.5], f"{order}f4")
        np.testing.assert_array_equal(loss.conjugate(x), loss.conjugate(jnp.array([-1.0, -0.5], jnp.float32)))


@pytest.mark.parametrize("name", MULTILABEL)
def test_conjugates_of_rows_with_several_labels(name):
    f, _, conjugate = MULTILABEL[name]
    (z, _), (elsewhere, _), t, where = examples(seed=18), examples(seed=19), signs(), mask()

    @jax.jit
    def gap(z, at):
        v = jax.grad(lambda z: jnp.sum(f(z, t, where=where)))(at)
        return f(z, t, where=where) + conjugate(v, t, where=where) - jnp.sum(z * v, axis=-1), v

    there, v = gap(z, z)
    np.testing.assert_allclose(there, 0, atol=1e-11)
    other, _ = gap(elsewhere, z)
    assert np.all(other >= -1e-11) and np.any(other > 1e-3)
    free = jnp.any(v != 0, axis=-1)
    outside = [
        jnp.where(where, v, 1e-3),  # classes that do not count
        jnp.where(where, v + 0.01, v),  # the rows no longer sum to 0
        2.5 * v if name == "multilabel_hinge" else 50 * v,  # too large
    ]
    if name == "multilabel_hinge":
        outside.append(-v)  # of the wrong sign
    closed = jnp.any(~where, axis=-1)
    for far, these in itertools.zip_longest(outside, [closed], fillvalue=free):
        assert jnp.any(these)
        np.testing.assert_array_equal(conjugate(far, t, where=where)[these], np.inf)
    assert np.isnan(conjugate(v.at[:, 0].set(jnp.nan), t)).all()


def test_the_losses_of_one_label_are_those_of_several():
    z, y = examples()
    t = jnp.where(jnp.arange(M) == y[:, None], 1, -1)
    for one, several in (
        (losses.crammer_singer, losses.multilabel_hinge),
        (losses.softmax_cross_entropy, losses.multilabel_cross_entropy),
    ):
        np.testing.assert_allclose(several(z, t, where=mask() | (t > 0)), one(z, y, where=mask()), rtol=1e-12)
    # a loss so small that float32 does not see it beside 1
    z, t = jnp.zeros(6, jnp.float32).at[0].set(20), jnp.asarray([1, -1, -1, -1, -1, -1])
    np.testing.assert_allclose(losses.multilabel_cross_entropy(z, t), 5 * np.exp(-20.0), rtol=1e-6)


@pytest.mark.parametrize("name", ["squared_hinge", "logistic"])
def test_the_conjugate_of_one_vs_all(name):
    z, _ = examples(seed=18)
    t = jnp.asarray(np.random.default_rng(19).choice([-1.0, 1.0], z.shape))
    conjugate = partial(losses.one_vs_all_conjugate, targets=t, loss=MARGINS[name], where=mask())

    @jax.jit
    def both_sides(z):
        def total(z):
            value = losses.one_vs_all(z, t, MARGINS[name], where=mask())
            return jnp.sum(value), value

        (_, value), v = jax.value_and_grad(total, has_aux=True)(z)
        return value + conjugate(v) - jnp.sum(z * v, axis=-1), v

    gap, v = both_sides(z)
    np.testing.assert_allclose(gap, 0, atol=1e-11)
    closed = ~np.all(mask(), axis=-1)
    np.testing.assert_array_equal(conjugate(jnp.where(mask(), v, 1e-3))[closed], np.inf)
    np.testing.assert_array_equal(conjugate(t), np.where(np.any(mask(), axis=-1) | closed, np.inf, 0))
