"""Objectives of multi-class SVMs and lower bounds of their minima, written down a second time in NumPy.

A loss of a row is a maximum over its dual set, so that for W = Bᵀα every α in the set bounds the minimum:

    min_W ½ ‖W‖² + Σ_i loss_i(W) = max_α  Σ α − ½ Σ ρ α² − ½ ‖Bᵀα‖²   over  G α ≥ h.

C is a number, or one for each row, [n].
:func:`bound` maximises that by a feasible interior point method, whose iterates are all inside the set.
"""

from __future__ import annotations

import numpy as np

_LONG = np.longdouble


def objective(W, X, y, kind: str, k: int, C) -> float:
    """P at W [d, m], in extended precision."""
    W, X = W.astype(_LONG), X.astype(_LONG)
    if kind == "llw":  # Σ_c w_c = 0, which rounding has moved, and which no prediction depends on
        W = W - W.mean(axis=1, keepdims=True)
    Z = X @ W
    own = np.arange(len(y)), y
    if kind.startswith("ovr"):
        Z[own] *= -1
        gains = np.maximum(1 + Z, 0)
        losses = (gains**2 if kind == "ovr_squared" else gains).sum(axis=1)
    else:
        gains = 1 + Z - (0 if kind == "llw" else Z[own][:, None])
        gains = np.sort(np.delete(gains.ravel(), np.ravel_multi_index(own, Z.shape)).reshape(len(y), -1))[
            :, ::-1
        ]
        if kind in ("ww", "llw"):
            losses = np.maximum(gains, 0).sum(axis=1)
        elif kind in ("cs", "alpha"):
            losses = np.maximum(gains[:, :k].mean(axis=1), 0)
        else:
            losses = np.maximum(gains[:, :k], 0).mean(axis=1)
    return float((W**2).sum() / 2 + (C * losses).sum())


def bound(X, y, m: int, kind: str, k: int, C, gamma: float = 0.0) -> float:
    """A lower bound of the minimum, which it meets but for rounding; with a smoothing ρ = γ/C."""
    return bounds(X, y, m, kind, k, C, gamma)[0]


def bounds(X, y, m: int, kind: str, k: int, C, gamma: float = 0.0) -> tuple[float, float]:
    """A lower bound of the minimum, and the objective of the weights that belong to it, without a smoothing.

    They are equal but for rounding, unless features are so large that the interior point method fails.
    """
    X = X.astype(np.float64)
    (n, d), others = X.shape, ~np.eye(m, dtype=bool)[y]
    pairs = np.argwhere(np.ones((n, m), bool) if kind.startswith("ovr") else others)
    B = np.zeros((len(pairs), m, d))
    for row, (i, c) in enumerate(pairs):
        B[row, c] = X[i] if kind.startswith("ovr") and c == y[i] else -X[i]
        if kind in ("ww", "cs", "alpha", "beta"):
            B[row, y[i]] = X[i]
        elif kind == "llw":
            B[row] += X[i] / m
    B = B.reshape(len(pairs), m * d)
    C = np.broadcast_to(C, n)
    ridge = (0.5 if kind == "ovr_squared" else gamma) / C[pairs[:, 0]]
    largest = max(float(((B**2).sum(axis=1) + ridge).max()), 1e-300)
    unit = min(C.min(), 1 / largest)  # of α: what a variable alone would go to
    G, h = _constraints(pairs, n, kind, k, C / unit)
    # in γ = α / unit:  max Σ γ − ½ unit (Σ ρ γ² + ‖Bᵀγ‖²)
    inside = _interior(np.sqrt(unit) * B, unit * ridge, G, h, min(1.0, C.min() / unit) / (2 * m))
    alpha = unit * inside.astype(_LONG)
    w = B.astype(_LONG).T @ alpha
    least = float(alpha.sum() - (ridge * alpha**2).sum() / 2 - (w**2).sum() / 2)
    return least, objective(w.reshape(m, d).T, X, y, kind, k, C)


def _constraints(pairs, n: int, kind: str, k: int, C: np.ndarray):
    """G γ ≥ h of the dual set."""
    v = len(pairs)
    G, h = [np.eye(v)], [np.zeros(v)]
    sums = (pairs[:, 0][None, :] == np.arange(n)[:, None]).astype(float)  # [n, v]
    if kind in ("ww", "llw", "ovr"):
        G.append(-np.eye(v))
        h.append(-C[pairs[:, 0]])
    elif kind in ("cs", "alpha", "beta"):
        G.append(-sums)
        h.append(-C)
    if kind == "beta" and k > 1:
        G.append(-np.eye(v))
        h.append(-C[pairs[:, 0]] / k)
    if kind == "alpha" and k > 1:  # x_j ≤ Σ x / k
        G.append(sums[pairs[:, 0]] / k - np.eye(v))
        h.append(np.zeros(v))
    return np.vstack(G), np.concatenate(h)


def _interior(B, ridge: np.ndarray, G, h, start: float):
    """argmax Σ x − ½ (Σ ridge x² + ‖Bᵀx‖²) over G x ≥ h: predictor and corrector from a point inside."""
    v, p = B.shape
    x = np.full(v, start)
    slack = G @ x - h
    u = 1 / slack
    size = np.maximum(np.sqrt((B**2).sum(axis=0)), 1e-150)
    # the products BBᵀ would lose what features far below the longest add: w = Bᵀx stays a variable
    N, lower = B / size, np.diag(-1 / size**2)

    def direction(centre, K, dual, slack, u):
        right = -dual + G.T @ ((centre - slack * u) / slack)
        scale = 1 / np.sqrt(np.abs(np.diag(K)))
        both = scale * np.linalg.solve(
            scale[:, None] * K * scale, scale * np.concatenate([right, np.zeros(p)])
        )
        step = both[:v]
        return step, G @ step, (centre - slack * u - u * (G @ step)) / slack

    best, best_x = -np.inf, x
    for _ in range(200):
        w = B.T @ x
        value = x.sum() - (ridge * x) @ x / 2 - (w @ w) / 2
        if value > best:
            best, best_x = value, x
        gap = slack @ u
        if gap <= 1e-13 * abs(value):
            break
        dual = ridge * x + B @ w - 1 - G.T @ u
        K = np.block([[np.diag(ridge) + G.T @ ((u / slack)[:, None] * G), N], [N.T, lower]])
        try:
            step, dslack, du = direction(0.0, K, dual, slack, u)
            t = _longest(slack, u, dslack, du)
            mu = gap / len(h)
            sigma = (((slack + t * dslack) @ (u + t * du)) / gap) ** 3
            step, dslack, du = direction(sigma * mu - dslack * du, K, dual, slack, u)
        except np.linalg.LinAlgError:
            break
        t = _longest(slack, u, dslack, du)
        new = x + t * step
        if not (np.all(np.isfinite(new)) and np.all(G @ new - h > 0)):
            break
        x, u = new, u + t * du
        slack = G @ x - h
    return best_x


def _longest(s, u, ds, du) -> float:
    both = np.concatenate([-ds / s, -du / u])
    return float(min(1.0, 0.99 / max(both.max(), 1e-300)))


def multilabel_objective(W, X, Y, C) -> float:
    """½‖W‖² + Σ C_i [1 + max_N z − min_Y z]₊ of the multi-label SVM, row by row; Y of truth values."""
    total = (np.asarray(W, np.float64) ** 2).sum() / 2
    for x, labels, cost in zip(np.asarray(X, np.float64), Y, np.broadcast_to(C, len(X)), strict=True):
        z = x @ np.asarray(W, np.float64)
        if labels.any() and not labels.all():
            total += cost * max(0.0, 1 + z[~labels].max() - z[labels].min())
    return float(total)


def multilabel_dual(alpha, X, Y, C) -> float:
    """Its dual objective ½Σ|α| − ½‖Xᵀα‖² of dual variables that are made feasible here."""
    up, down = np.maximum(alpha, 0) * Y, np.maximum(-alpha, 0) * ~Y
    sums = [side.sum(axis=1) for side in (up, down)]
    s = np.minimum(np.minimum(*sums), C)
    up, down = (
        side * (s / np.where(total > 0, total, 1))[:, None]
        for side, total in zip((up, down), sums, strict=True)
    )
    return float(s.sum() - ((np.asarray(X, np.float64).T @ (up - down)) ** 2).sum() / 2)
