"""The multi-class losses once more, a row at a time in numpy, from their definitions; and a table of all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import brentq, minimize_scalar

from xmcjax import losses

M = 9  # classes of the examples


def hinge(s):
    return np.maximum(0, 1 + s)


def crammer_singer(z, y, others):
    return max([0.0, *(1 + z[others] - z[y])])


def weston_watkins(z, y, others):
    return sum(hinge(z[others] - z[y]))


def lee_lin_wahba(z, y, others):
    return sum(hinge(z[others]))


def topk_hinge(z, y, others, k, variant):
    if variant == "beta":
        return sum(sorted(hinge(z[others] - z[y]))[-k:]) / k
    return max(0.0, sum(sorted(1 + z[others] - z[y])[-k:]) / k) if len(others) >= k else 0.0


def smooth_topk_hinge(z, y, others, k, gamma, variant):
    """max ⟨b, x⟩ − γ/2 ‖x‖² over 1ᵀx = s and 0 ≤ x ≤ cap by a root search, and over s by another search."""
    b = 1 + z[others] - z[y]

    def at_sum(s):
        cap = (s if variant == "alpha" else 1.0) / k
        if len(b) * cap < s or s == 0:
            return 0.0 if s == 0 else -np.inf

        def x_of(t):
            return np.clip((b - t) / gamma, 0, cap)

        low, high = b.min() - gamma * (cap + 1), b.max()
        x = x_of(brentq(lambda t: x_of(t).sum() - s, low, high, xtol=1e-14) if len(b) * cap > s else low)
        return b @ x - gamma / 2 * x @ x

    most = min(1.0, len(b) / k) if variant == "beta" else float(len(b) >= k)
    best = minimize_scalar(lambda s: -at_sum(s), bounds=(0, most), method="bounded", options={"xatol": 1e-9})
    return max(0.0, -best.fun, at_sum(most))


def softmax(z, y, others):
    return np.logaddexp.reduce([0.0, *(z[others] - z[y])])


def topk_entropy(z, y, others, k):
    """The multiplier of Σ p = 1 by a root search, then the maximum itself."""
    a = z[others] - z[y]
    if len(a) < k:
        return 0.0
    p = np.full(k, 1 / k)
    if len(a) > k:

        def p_of(t):
            return np.exp(np.minimum(a - t, -np.log(k)))

        p = p_of(brentq(lambda t: p_of(t).sum() - 1, a.min() - 50, a.max() + 50, xtol=1e-14))
    return np.logaddexp(0, a @ p - np.sum(p * np.log(np.maximum(p, 1e-300))))


def truncated_topk_entropy(z, y, others, k):
    a = np.sort(z[others] - z[y])
    return np.logaddexp.reduce([0.0, *a[: max(len(a) - k + 1, 0)]])


def ordered_hinge(z, y, others, beta):
    hinges = sorted(hinge(z[others] - z[y]), reverse=True)
    return sum(weight * h for weight, h in zip(beta, hinges, strict=False))


def simplex(b):
    """The projection, by sorting (Held, Wolfe and Crowder 1974)."""
    falling = np.sort(b)[::-1]
    thresholds = (np.cumsum(falling) - 1) / np.arange(1, len(b) + 1)
    return np.maximum(b - thresholds[np.count_nonzero(falling > thresholds) - 1], 0)


def sparsemax(z, y, others):
    a = z[[y, *others]] - z[y]
    p = simplex(a)
    return a @ p - p @ p / 2 + 0.5


def multilabel_hinge(z, positive, negative):
    pairs = [1 + z[j] - z[y] for y in positive for j in negative]
    return max([0.0, *pairs])


def multilabel_cross_entropy(z, positive, negative):
    counted = z[[*positive, *negative]]
    return np.mean([np.logaddexp.reduce(counted - z[y]) for y in positive]) if positive else 0.0


def lc_bound(z, y, others, log_a):
    return np.sum(np.exp(z[[y, *others]] + log_a)) - log_a - 1 - z[y]


def dm_bound(z, y, others, a):
    return a + np.sum(np.logaddexp(0, z[[y, *others]] - a)) - z[y]


def parameter(labels):
    """A variational parameter for each row, from its label."""
    return -1.5 - 0.2 * jnp.asarray(labels).astype(jnp.float64)


@dataclasses.dataclass(frozen=True)
class Case:
    """A loss: `f(scores, labels, where=)`, what it should be, and its conjugate."""

    f: Callable
    reference: Callable
    conjugate: Callable | None
    convex: bool = True


def _with_parameter(f):
    def bound(scores, labels, where=None):
        return f(scores, labels, parameter(labels).astype(scores.dtype), where=where)

    return bound


def _bound(f, reference, conjugate):
    def by_row(z, y, others):
        return reference(z, y, others, float(parameter(y)))

    return Case(_with_parameter(f), by_row, _with_parameter(conjugate))


def top_k(name, k, **options) -> Case:
    """The case of a top-k loss and its options."""
    f, conjugate = getattr(losses, name), getattr(losses, f"{name}_conjugate", None)
    return Case(
        partial(f, k=k, **options),
        partial(globals()[name], k=k, **options),
        conjugate and partial(conjugate, k=k, **options),
        convex=conjugate is not None,
    )


BETA = np.array([1.0, 0.5, 0.5, 0.25])


def _plain(name, reference) -> Case:
    return Case(getattr(losses, name), reference, getattr(losses, f"{name}_conjugate"))


CASES = {
    "crammer_singer": _plain("crammer_singer", crammer_singer),
    "weston_watkins": _plain("weston_watkins", weston_watkins),
    "lee_lin_wahba": _plain("lee_lin_wahba", lee_lin_wahba),
    "topk_hinge_alpha": top_k("topk_hinge", 3, variant="alpha"),
    "topk_hinge_beta": top_k("topk_hinge", 3, variant="beta"),
    "topk_hinge_alpha_of_1": top_k("topk_hinge", 1, variant="alpha"),
    "topk_hinge_beta_of_most": top_k("topk_hinge", M - 1, variant="beta"),
    "smooth_topk_hinge_alpha": top_k("smooth_topk_hinge", 3, gamma=0.5, variant="alpha"),
    "smooth_topk_hinge_beta": top_k("smooth_topk_hinge", 3, gamma=2.0, variant="beta"),
    "softmax_cross_entropy": _plain("softmax_cross_entropy", softmax),
    "topk_entropy": top_k("topk_entropy", 2),
    "topk_entropy_of_most": top_k("topk_entropy", M - 1),
    "truncated_topk_entropy": top_k("truncated_topk_entropy", 3),
    "ordered_hinge": Case(
        partial(losses.ordered_hinge, beta=BETA),
        partial(ordered_hinge, beta=BETA),
        partial(losses.ordered_hinge_conjugate, beta=BETA),
    ),
    "sparsemax": _plain("sparsemax", sparsemax),
    "lc_bound": _bound(losses.lc_bound, lc_bound, losses.lc_bound_conjugate),
    "dm_bound": _bound(losses.dm_bound, dm_bound, losses.dm_bound_conjugate),
}
# of targets ±1 in place of a label: `f(scores, targets, where=)`, its reference of (z, positive, negative)
MULTILABEL = {
    f.__name__: (f, globals()[f.__name__], getattr(losses, f"{f.__name__}_conjugate"))
    for f in (losses.multilabel_hinge, losses.multilabel_cross_entropy)
}
CONVEX = [name for name, case in CASES.items() if case.convex]
ROWS = 24  # of every example, so that a program serves many tests


@cache
def compiled(name):
    """(scores, labels, where) -> (losses [rows], their gradients [rows, M]), one program a dtype."""
    f = CASES[name].f

    @jax.jit
    def both(scores, labels, where):
        def total(z):
            value = f(z, labels, where=where)
            return jnp.sum(value), value

        (_, value), slope = jax.value_and_grad(total, has_aux=True)(scores)
        return value, slope

    return lambda scores, labels, where=None: both(scores, labels, OPEN if where is None else where)


@cache
def compiled_conjugate(name):
    """(duals, labels, where) -> their conjugates [rows], one program a dtype."""
    conjugate = CASES[name].conjugate
    assert conjugate is not None
    program = jax.jit(lambda duals, labels, where: conjugate(duals, labels, where=where))
    return lambda duals, labels, where=None: program(duals, labels, OPEN if where is None else where)


OPEN = np.ones((ROWS, M), bool)


def examples(seed=0, dtype=np.float64):
    """(scores [ROWS, M], labels [ROWS]); the scores of some rows lie close together, of others apart."""
    rng = np.random.default_rng(seed)
    scale = np.resize([0.3, 3.0], ROWS)[:, None]
    z, y = scale * rng.normal(size=(ROWS, M)), rng.integers(0, M, ROWS)
    return jnp.asarray(z.astype(dtype)), jnp.asarray(y)


def mask(seed=1):
    """A mask of [ROWS, M] that leaves from no to all classes, with and without the label."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.uniform(size=(ROWS, M)) < np.linspace(0, 1, ROWS)[:, None])


def expected(reference, scores, labels, where=None):
    """The reference for each row, [rows]."""
    scores = np.asarray(scores, np.float64)
    where = np.ones(scores.shape, bool) if where is None else np.asarray(where)
    values = []
    for z, y, opened in zip(scores, np.asarray(labels), where, strict=True):
        others = [c for c in range(len(z)) if opened[c] and c != y]
        values.append(reference(z, int(y), others))
    return np.array(values, np.float64)


def signs(seed=2):
    """Targets [ROWS, M] of ±1, from no to all of them 1."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(np.where(rng.uniform(size=(ROWS, M)) < np.linspace(0, 1, ROWS)[:, None], 1, -1))


def expected_of_signs(reference, scores, targets, where):
    """The reference of (z, positive, negative) for each row, [rows]."""
    rows = zip(np.asarray(scores, np.float64), np.asarray(targets), np.asarray(where), strict=True)
    return np.array(
        [
            reference(z, *(list(np.flatnonzero((t == sign) & opened)) for sign in (1, -1)))
            for z, t, opened in rows
        ]
    )
