"""Objectives of lanes and of multinomial regression, written down a second time in NumPy."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from xmcjax.penalties import L1, L2, ElasticNet, HuberPenalty

# φ(m) of each loss of the margin, and φ'(m) and φ''(m) of those that have them, with the width δ of Huber's.
VALUES = {
    "squared_hinge": lambda m, delta=1.0: np.maximum(1 - m, 0) ** 2,
    "logistic": lambda m, delta=1.0: np.logaddexp(0, -m),
    "hinge": lambda m, delta=1.0: np.maximum(1 - m, 0),
    "huber_hinge": lambda m, delta=1.0: np.select(
        [m >= 1, m >= 1 - delta], [0, (1 - m) ** 2 / (2 * delta)], 1 - m - delta / 2
    ),
}
SLOPES = {
    "squared_hinge": lambda m, delta=1.0: -2 * np.maximum(1 - m, 0),
    "logistic": lambda m, delta=1.0: -1 / (1 + np.exp(np.clip(m, -700, 700))),
    "huber_hinge": lambda m, delta=1.0: -np.clip(1 - m, 0, delta) / delta,
}
CURVATURES = {
    "squared_hinge": lambda m, delta=1.0: 2.0 * (m < 1),
    "logistic": lambda m, delta=1.0: -SLOPES["logistic"](m) * (1 + SLOPES["logistic"](m)),
    "huber_hinge": lambda m, delta=1.0: ((m < 1) & (m > 1 - delta)) / delta,
}
PENALTIES = [L2(), L1(), ElasticNet(0.5), ElasticNet(0.05), HuberPenalty(1.0), HuberPenalty(0.01)]


def rho(penalty, w):
    """ρ(w) of a penalty; None is ½ w²."""
    w = np.abs(w)
    if isinstance(penalty, HuberPenalty):
        e = penalty.huber_width
        return np.where(w <= e, w**2 / (2 * e), w - e / 2)
    if penalty is None or penalty.name == "l2":
        return w**2 / 2
    ratio = 1.0 if penalty.name == "l1" else penalty.parameter
    return ratio * w + (1 - ratio) * w**2 / 2


def lanes(X, y, w, b, loss, weight=1.0, shift=0.0, l2=1.0, l2_bias=1.0, penalty=None):
    """λ Σ ρ(w) + r ρ(b) + Σ weight φ(y (X w + b + shift)) of one lane or of several, as columns."""
    losses = weight * VALUES[loss](y * (X @ w + b + shift))
    return l2 * rho(penalty, w).sum(0) + max(l2_bias, 0) * rho(penalty, b) + losses.sum(0)


def lanes_slope(X, y, w, b, loss, weight=1.0, shift=0.0):
    """The gradient of the losses in w and in b."""
    slope = weight * y * SLOPES[loss](y * (X @ w + b + shift))
    return X.T @ slope, slope.sum(0)


def lane_minimum(X, y, loss, weight=1.0, shift=0.0, l2=1.0, l2_bias=1.0) -> float:
    """Of one lane with the penalty l2."""

    def both(v):
        w, b = v[:-1], v[-1]
        slope, slope_bias = lanes_slope(X, y, w, b, loss, weight, shift)
        value = lanes(X, y, w, b, loss, weight, shift, l2, l2_bias)
        return value, np.append(l2 * w + slope, l2_bias * b + slope_bias)

    return least(both, X.shape[1] + 1)


def least(value_and_gradient, size: int) -> float:
    """The least value of a smooth convex function of so many variables, by L-BFGS of scipy from 0."""
    import scipy.optimize  # half a second, which processes of their own that want other things do not wait

    options = dict(maxiter=20_000, maxfun=100_000, ftol=1e-15, gtol=1e-9)
    found = scipy.optimize.minimize(
        value_and_gradient, np.zeros(size), jac=True, method="L-BFGS-B", options=options
    )
    return float(found.fun)


def multinomial(X, y, W, b, l2, weight=1.0) -> float:
    """G of Gopal and Yang, 2013, in float64."""
    Z = X @ np.asarray(W, np.float64) + np.asarray(b, np.float64)
    losses = logsumexp(Z, axis=1) - Z[np.arange(len(y)), y]
    return l2 / 2 * float(np.sum(np.square(W))) + float(np.sum(weight * losses))


def multinomial_gradient(X, y, W, b, l2, weight=1.0):
    """(∇_W G, ∇_b G)."""
    Z = X @ W + b
    slope = np.exp(Z - logsumexp(Z, axis=1)[:, None])
    slope[np.arange(len(y)), y] -= 1
    slope = np.broadcast_to(weight, (len(y),))[:, None] * slope
    return l2 * W + X.T @ slope, slope.sum(0)


def multinomial_minimum(X, y, l2, weight=1.0, intercept=False) -> float:
    """By L-BFGS of scipy, in variables of the features' size, for X of any scale."""
    size, K = np.abs(X).max(), y.max() + 1
    X, l2 = X / size, l2 / size**2

    def both(x):
        W, b = x[: X.shape[1] * K].reshape(-1, K), x[X.shape[1] * K :]
        slope, slope_bias = multinomial_gradient(X, y, W, b, l2, weight)
        gradient = np.append(slope, slope_bias if intercept else 0 * slope_bias)
        return multinomial(X, y, W, b, l2, weight), gradient

    return least(both, (X.shape[1] + 1) * K)
