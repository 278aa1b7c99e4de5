"""Multinomial regression with any λ, any size of the features, in both precisions, by every method."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import scipy.sparse as sp

from tests.attack.harness import Wrong, main
from tests.attack.scales import prepare  # noqa: F401

PURPOSE = "λ, scales of features, precisions: what is said to have converged is within tol of the minimum"
METHODS = ("auto", "newton", "dual", "lbfgs", "lc", "lc_extrapolated", "admm")


def case(problems, rng):
    """A fit, and its objective against the minimum, found by Newton's method in scaled variables."""
    from sklearn.exceptions import ConvergenceWarning

    X, y = problems[rng.integers(len(problems))]
    X = X * 10.0 ** rng.integers(-8, 9)
    if rng.random() < 0.3:
        X[:, rng.integers(X.shape[1])] *= 10.0 ** rng.integers(-8, 9)
    X = X.astype(rng.choice([np.float32, np.float64]))
    model, excess = _multinomial(rng)
    how = f"{model!r} on X of {X.dtype}, largest entry {np.abs(X).max():.3g}"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(sp.csr_matrix(X) if rng.random() < 0.5 else X, y)
        except ValueError as refusal:
            if "\n" in str(refusal):
                raise Wrong(f"{how}: refused by more than a line: {refusal}") from None
            return "refused"
    said = [str(w.message) for w in caught]
    if any(not issubclass(w.category, ConvergenceWarning) for w in caught):
        raise Wrong(f"{how}: warns of {said}")
    with np.errstate(over="ignore", invalid="ignore"):
        found = excess(model, X.astype(np.float64), y)
    if not all(np.isfinite(value) for value, _, _ in found):
        raise Wrong(f"{how}: weights that are not finite, and {said or 'no warning'}")
    if said:
        if not any(
            "raise" in text or "loosen" in text or "scale" in text or "look for" in text for text in said
        ):
            raise Wrong(f"{how}: no remedy in {said}")
        return "warned"
    for value, least, tol in found:
        if value - least > 1.01 * tol * abs(value) + 1e-13 * abs(value):
            raise Wrong(f"{how}: converged at {value:.9g}, the minimum is {least:.9g} at most")
    return "right"


def _multinomial(rng):
    from xmcjax import MultinomialLogisticRegression

    lam, intercept = 10.0 ** rng.integers(-14, 9), bool(rng.random() < 0.5)
    model = MultinomialLogisticRegression(
        str(rng.choice(METHODS)), lam, fit_intercept=intercept, tol=10.0 ** rng.integers(-6, -1)
    )

    def excess(model, X, y):
        problem = _Problem(X, 0.0 if intercept else None, lam)
        point = problem.point(model.coef_.T, model.intercept_ if intercept else None)
        return [
            (problem.objective(point, *_softmax(y)), problem.minimum(*_softmax(y), y.max() + 1), model.tol)
        ]

    return model, excess


class _Problem:
    """½ Σ r_j W_jk² + Σ_i loss(z_i) with z = F W, features scaled to a largest entry of 1.

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


def _softmax(y):
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

    return lambda Z: float((log_sums(Z) - Z[rows, y]).sum()), derivatives


if __name__ == "__main__":
    sys.exit(main(__spec__))
