"""Small multi-class problems, their objectives written down a second time, and a QP solver."""

from __future__ import annotations

import functools

import numpy as np

from xmcjax.solvers.multiclass_dual import FORMULATIONS

ALL = tuple(FORMULATIONS)


def data(n=20, d=4, m=3, seed=0, dtype=np.float64):
    """Overlapping classes, with a row of zeros and two equal rows of different classes."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).astype(dtype)
    X[rng.random((n, d)) < 0.3] = 0
    y = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
    X[m] = 0
    X[0] = X[1]
    return X, y


def constraints(X, y, m, formulation):
    """(i, c, B): the hinge losses max(0, 1 − B[row] · vec(W)) with vec(W) class by class."""
    n, d = X.shape
    pairs, B = [], []
    for i in range(n):
        for c in range(m):
            b = np.zeros((m, d))
            if formulation in ("ww", "cs") and c != y[i]:
                b[y[i]], b[c] = X[i], -X[i]
            elif formulation == "llw" and c != y[i]:
                b[c] = -X[i]
            elif formulation in ("ovr", "ovr_squared"):
                b[c] = X[i] if c == y[i] else -X[i]
            elif formulation not in ("ww", "cs", "llw"):
                raise NotImplementedError(f"the losses of {formulation} are not written down here")
            else:
                continue
            pairs.append((i, c))
            B.append(b.ravel())
    return pairs, np.array(B)


def primal(W, X, y, formulation, C):
    """The objective at W [d, m]."""
    pairs, B = constraints(X, y, W.shape[1], formulation)
    loss = np.maximum(0, 1 - B @ W.T.ravel())
    if formulation == "ovr_squared":
        loss = loss**2
    if formulation == "cs":
        i = np.array([i for i, _ in pairs])
        loss = np.array([loss[i == k].max() for k in range(len(X))])
    return (W**2).sum() / 2 + C * loss.sum()


@functools.cache
def optimum(formulation, C, **size):
    """(W, optimum) of :func:`data`, which several tests share."""
    return quadratic_program(*data(**size), formulation, C)


def quadratic_program(X, y, formulation, C):
    """(W, optimum) of the primal with slack variables, by :func:`interior_point`."""
    d, m = X.shape[1], y.max() + 1
    pairs, B = constraints(X, y, m, formulation)
    # one slack a pair, or an instance for Crammer-Singer
    slack = np.array([i for i, _ in pairs]) if formulation == "cs" else np.arange(len(pairs))
    slacks, w = slack.max() + 1, m * d
    S = np.zeros((len(pairs), slacks))
    S[np.arange(len(pairs)), slack] = 1
    squared = formulation == "ovr_squared"
    Q = np.diag(np.concatenate([np.ones(w), np.full(slacks, 2 * C * squared)]))
    q = np.concatenate([np.zeros(w), np.full(slacks, C * (not squared))])
    # B w + S ξ ≥ 1, ξ ≥ 0, and Σ_c w_c = 0 for LLW
    G = np.block([[B, S], [np.zeros((slacks, w)), np.eye(slacks)]])
    h = np.concatenate([np.ones(len(pairs)), np.zeros(slacks)])
    E = np.hstack([np.tile(np.eye(d), m), np.zeros((d, slacks))])
    v = interior_point(Q, q, G, h, E[: d * (formulation == "llw")])
    return v[:w].reshape(m, d).T, v @ Q @ v / 2 + q @ v


def interior_point(Q, q, G, h, E):
    """argmin ½ vᵀQv + qᵀv with G v ≥ h and E v = 0: Mehrotra's predictor and corrector."""
    point = np.zeros(len(q)), np.zeros(len(E)), np.ones(len(h)), np.ones(len(h))
    for _ in range(100):
        v, nu, s, u = point
        dual, slack, equal = Q @ v + q - G.T @ u - E.T @ nu, G @ v - s - h, E @ v
        mu = s @ u / len(s)
        if max(np.abs(dual).max(), np.abs(slack).max()) < 1e-8 and mu < 1e-10:
            return v
        K = np.block([[Q + G.T @ ((u / s)[:, None] * G), -E.T], [E, np.zeros((len(E), len(E)))]])
        residuals = G, K, dual, slack, equal
        _, _, ds, du = step = _direction(point, residuals, 0.0)
        t = _longest(point, step)
        sigma = (((s + t * ds) @ (u + t * du)) / (s @ u)) ** 3
        step = _direction(point, residuals, sigma * mu - ds * du)
        t = _longest(point, step)
        point = tuple(a + t * b for a, b in zip(point, step, strict=True))
    raise AssertionError("the interior point method did not converge")


def _direction(point, residuals, centre):
    (v, _, s, u), (G, K, dual, slack, equal) = point, residuals
    # s du + u ds = centre − s u,  ds = G dv + slack
    right = -dual + G.T @ ((centre - s * u - u * slack) / s)
    both = np.linalg.solve(K, np.concatenate([right, -equal]))
    dv = both[: len(v)]
    ds = G @ dv + slack
    return dv, both[len(v) :], ds, (centre - s * u - u * ds) / s


def _longest(point, step):
    (_, _, s, u), (_, _, ds, du) = point, step
    return min(1.0, 0.995 / max(np.concatenate([-ds / s, -du / u]).max(), 1e-300))
