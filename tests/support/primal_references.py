"""Linear problems in float64, and their minima, found by Newton's method in scaled variables."""

from __future__ import annotations

import numpy as np

from tests.support.objectives import CURVATURES, SLOPES, VALUES


class Problem:
    """½ Σ r_j W_jk² + Σ_i loss(z_i) with z = F W, features scaled to a largest entry of 1.

    A loss is a function of the scores [n, K]; its derivatives are [n, K] and [n, K, K].

    Args:
        X: [n, d].
        bias: r of the bias, or None for no bias.
        ridge: r of the weights of X.
    """

    def __init__(self, X, bias, ridge):
        self._size = np.maximum(np.abs(X).max(axis=0), 1e-300)
        self.F, self.r = X / self._size, ridge / self._size**2
        if bias is not None:
            self.F, self.r = np.hstack([self.F, np.ones((len(X), 1))]), np.append(self.r, bias)

    def point(self, W, bias):
        """[features, columns] of weights [d, columns] and their biases."""
        W = W.astype(np.float64) * self._size[:, None]
        return W if bias is None else np.vstack([W, np.atleast_1d(bias)])

    def objective(self, W, loss, _) -> float:
        return float((self.r[:, None] * W**2).sum() / 2 + loss(self.F @ W))

    def minimum(self, loss, derivatives, columns: int) -> float:
        """By damped Newton steps from 0."""
        W = np.zeros((self.F.shape[1], columns))
        value = self.objective(W, loss, None)
        for _ in range(500):
            slope, curvature = derivatives(self.F @ W)
            g = (self.F.T @ slope + self.r[:, None] * W).ravel()
            H = np.einsum("ij,ikl,im->jkml", self.F, curvature, self.F).reshape(g.size, g.size)
            H[np.diag_indices(g.size)] += np.repeat(self.r, columns)
            scale = 1 / np.sqrt(np.maximum(np.diag(H), 1e-300))
            step = -scale * np.linalg.lstsq(scale[:, None] * H * scale, scale * g, rcond=1e-15)[0]
            if -(g @ step) <= 1e-15 * abs(value):
                break
            t = 1.0
            while t > 1e-12:
                new = W + t * step.reshape(W.shape)
                at = self.objective(new, loss, None)
                if at <= value + 1e-4 * t * (g @ step):
                    break
                t /= 2
            else:
                break
            W, value = new, at
        return value


def softmax(y):
    """Loss of the scores, and its derivatives [n, K] and [n, K, K]."""
    rows = np.arange(len(y))

    def log_sums(Z):
        top = Z.max(axis=1)
        return top + np.log(np.exp(Z - top[:, None]).sum(axis=1))

    def derivatives(Z):
        p = np.exp(Z - log_sums(Z)[:, None])
        slope = p.copy()
        slope[rows, y] -= 1
        return slope, p[:, :, None] * np.eye(Z.shape[1]) - p[:, :, None] * p[:, None, :]

    def loss(Z):
        # log(1 + Σ_{k ≠ y} e^{z_k − z_y}): of rows that are clearly right logsumexp(z) − z_y has no digits
        gains = Z - Z[rows, y][:, None]
        gains[rows, y] = -np.inf
        top = np.maximum(gains.max(axis=1), 0)
        others = np.exp(gains - top[:, None]).sum(axis=1)
        return float((top + np.log1p(others + np.expm1(-top))).sum())

    return loss, derivatives


def margin_loss(name: str, y, C, delta: float):
    """Σ C φ(y z) of scores [n, 1] and targets ±1 [n], and its derivatives, which the hinge has not.

    C is a number, or one for each row.
    """
    y, C = y[:, None].astype(np.float64), np.reshape(C, (-1, 1))

    def loss(Z):
        return float((C * VALUES[name](y * Z, delta)).sum())

    def derivatives(Z):
        m = y * Z
        return C * y * SLOPES[name](m, delta), (C * CURVATURES[name](m, delta))[:, :, None]

    return loss, derivatives
