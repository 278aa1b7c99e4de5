"""What the losses refuse, and what they say: what was expected and what was given."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.losses import CASES
from xmcjax import losses

Z, Y = np.zeros((4, 5), np.float32), np.array([0, 1, 2, 4])
FUNCTIONS = {
    **{name: case.f for name, case in CASES.items()},
    **{f"{name}_conjugate": case.conjugate for name, case in CASES.items() if case.conjugate},
}
PLAIN = {name: f for name, f in FUNCTIONS.items() if "bound" not in name}  # those need a parameter
WITH_K = (
    losses.topk_hinge,
    losses.topk_hinge_conjugate,
    losses.smooth_topk_hinge,
    losses.smooth_topk_hinge_conjugate,
    losses.topk_entropy,
    losses.topk_entropy_conjugate,
    losses.truncated_topk_entropy,
)


@pytest.mark.parametrize("name", PLAIN)
def test_scores_and_labels(name):
    f = PLAIN[name]
    for scores, found in (
        (Z.astype(int), "int64"),
        (Z.astype(bool), "bool"),
        (Z.astype(complex), "complex128"),
    ):
        with pytest.raises(TypeError, match=f"expected scores of a floating point dtype, got {found}"):
            f(scores, Y)
    for labels, found in ((Y.astype(float), "float64"), (Y > 1, "bool")):
        with pytest.raises(TypeError, match=f"expected integer labels, got {found}"):
            f(Z, labels)
    for labels in (Y[:3], Y[:, None], 0):
        with pytest.raises(
            ValueError, match=r"expected labels of shape \(4,\) for scores of \(4, 5\), got \("
        ):
            f(Z, labels)
    for labels, found in (([0, 1, 5, 2], 5), ([0, -1, 7, 2], -1), (jnp.asarray([0, 1, 2, 2**40]), 2**40)):
        with pytest.raises(ValueError, match=f"expected labels from 0 to 4 for 5 classes, got {found}"):
            f(Z, labels)
    for scores in (np.float32(1), Z[:, :0]):
        with pytest.raises(ValueError, match=r"shape \[..., m\] with at least one class, got \("):
            f(scores, Y)


@pytest.mark.parametrize("name", PLAIN)
def test_masks(name):
    f = PLAIN[name]
    with pytest.raises(TypeError, match="expected a boolean mask where, got float32"):
        f(Z, Y, where=np.ones(5, np.float32))
    for where in (np.ones(4, bool), np.ones((3, 4, 5), bool), np.ones((2, 5), bool)):
        with pytest.raises(ValueError, match=r"expected a mask where that broadcasts to \(4, 5\), got \("):
            f(Z, Y, where=where)


@pytest.mark.parametrize("f", WITH_K, ids=lambda f: f.__name__)
def test_k(f):
    for k in (0, -1, 5, 6):
        with pytest.raises(ValueError, match=rf"expected k from 1 to m-1 = 4 for 5 classes, got {k}"):
            f(Z, Y, k)
    with pytest.raises(TypeError, match="expected k to be an int known when tracing, got float"):
        f(Z, Y, 2.0)
    with pytest.raises(TypeError, match="expected k to be an int known when tracing, got bool"):
        f(Z, Y, True)
    with pytest.raises(TypeError, match=r"expected k to be an int known when tracing, got .*Tracer"):
        jax.jit(f)(Z, Y, 2)
    np.testing.assert_array_equal(f(Z, Y, np.int64(2)), f(Z, Y, 2))


def test_variants():
    for f in WITH_K[:4]:
        with pytest.raises(ValueError, match="expected the variant 'alpha' or 'beta', got 'gamma'"):
            f(Z, Y, 2, variant="gamma")


def test_variational_parameters():
    bounds = (losses.lc_bound, losses.lc_bound_conjugate, losses.dm_bound, losses.dm_bound_conjugate)
    for f in bounds:
        name = "log_a" if f.__name__.startswith("lc") else "a"
        with pytest.raises(TypeError, match=f"expected {name} of a floating point dtype, got int64"):
            f(Z, Y, np.zeros(4, int))
        with pytest.raises(ValueError, match=rf"expected {name} of the labels' shape \(4,\), got \(\)"):
            f(Z, Y, np.float32(0))
        assert f(Z, Y, np.zeros(4)).dtype == jnp.float32


def test_one_vs_all():
    targets = np.where(Z == 0, 1, -1)
    for f in (losses.one_vs_all, losses.one_vs_all_conjugate):
        with pytest.raises(
            TypeError, match=r"expected a MarginLoss such as losses\.squared_hinge, got 'hinge'"
        ):
            f(Z, targets, "hinge")
        with pytest.raises(
            ValueError, match=r"expected targets of the shape of the \w+, \(4, 5\), got \(4,\)"
        ):
            f(Z, targets[:, 0], losses.hinge)
        with pytest.raises(ValueError, match="expected targets of 1 and -1, got 0"):
            f(Z, targets * 0, losses.hinge)
        with pytest.raises(TypeError, match="expected targets of real numbers, got bool"):
            f(Z, targets > 0, losses.hinge)
        with pytest.raises(TypeError, match="of a floating point dtype, got int64"):
            f(targets, targets, losses.hinge)


@pytest.mark.parametrize("name", PLAIN)
def test_what_is_known_when_tracing_is_refused_when_tracing(name):
    f = PLAIN[name]
    with pytest.raises(TypeError, match="floating point"):
        jax.jit(f)(Z.astype(int), Y)
    with pytest.raises(ValueError, match="expected labels of shape"):
        jax.eval_shape(f, Z, Y[:2])
    with pytest.raises(ValueError, match="from 0 to 4"):
        jax.jit(partial(f, labels=np.array([0, 1, 2, 9])))(Z)
    with pytest.raises(ValueError, match="from 0 to 4"):
        jax.grad(lambda z: jnp.sum(f(z, np.array([0, 1, 2, 9]))))(Z)


def test_lists_are_taken():
    assert losses.crammer_singer([[2.0, 1.5]], [0]).tolist() == [0.5]
    assert losses.crammer_singer([2.0, 1.5], 0).shape == ()
