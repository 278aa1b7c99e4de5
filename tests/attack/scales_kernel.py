"""Kernel multinomial regression with any variances, lengths and size of the features, in both precisions."""

from __future__ import annotations

import sys

import numpy as np
import scipy.sparse as sp

from tests.attack import _checked_fit, scales
from tests.attack.harness import Wrong, main

PURPOSE = "variances, lengths, precisions: what is said to have converged is at its optimum in float64"
# Times tol: where products of float32 are not precise enough for less, a fit may end there.
ROUNDED = 10


def prepare(folder):
    """Small problems, X [n, d] and y: of few classes, and of so many that a fit begins with nonlinear CG."""
    rng = np.random.default_rng(1)
    y = np.arange(60) % 30
    many = rng.normal(size=(30, 4))[y] + 0.5 * rng.normal(size=(60, 4)), y
    return [*scales.prepare(folder), many]


def case(problems, rng):
    """A fit, and in float64 its residual, and its objective beside that of a Newton method."""
    from xmcjax import KernelLogisticClassifier

    X, y = problems[rng.integers(len(problems))]
    size = 10.0 ** rng.integers(-3, 4)
    X = (X * size).astype(rng.choice([np.float32, np.float64]))
    kernel = str(rng.choice(["rbf", "matern", "linear", "precomputed"]))
    v, w = 10.0 ** rng.integers(-8, 9), 10.0 ** rng.integers(-6, 7) / size**2
    sigma2 = float(rng.choice([0.0, 1.0, 10.0 ** rng.integers(-8, 9)]))
    likelihood = str(rng.choice(["softmax", "one_vs_rest"]))
    given = _gram("rbf", X, w).astype(X.dtype) if kernel == "precomputed" else X
    model = KernelLogisticClassifier(
        kernel,
        v=v,
        w=w if kernel in ("rbf", "matern") else None,
        sigma2=sigma2,
        likelihood=likelihood,
        tol=10.0 ** rng.integers(-5, -1),
    )
    how = _checked_fit.description(model, X)
    sparse = kernel != "precomputed" and rng.random() < 0.3
    said = _checked_fit.fit(model, sp.csr_matrix(given) if sparse else given, y, how)
    if said is None:
        return "refused"
    if not np.isfinite(model.dual_coef_).all():
        raise Wrong(f"{how}: coefficients that are not finite, and {said or 'no warning'}")
    if said:
        if not any("raise" in text or "float64" in text for text in said):
            raise Wrong(f"{how}: no remedy in {said}")
        return "warned"
    base = given.astype(np.float64) if kernel == "precomputed" else _gram(kernel, X, w)
    problem = _Problem(v * base + sigma2, y, likelihood)
    value, residual = problem.at(model.dual_coef_.astype(np.float64))
    # kernel values are numbers of the type of X: what that does to u it does to the probabilities at most
    rounded = 4 * np.finfo(X.dtype).eps * float((np.abs(v * base + sigma2) @ np.abs(model.dual_coef_)).max())
    if residual > 1.01 * ROUNDED * model.tol + rounded:
        raise Wrong(
            f"{how}: converged with a residual of {residual:.3g}, of which {rounded:.3g} may be rounding"
        )
    # kernel values that were rounded are those of no kernel where v is large: there may be no minimum
    if kernel != "precomputed" or X.dtype == np.float64:
        least = problem.minimum()
        if not value - least <= 1.01 * 10 * model.tol * value + rounded * len(y):
            raise Wrong(f"{how}: converged at {value:.9g}, the minimum is {least:.9g} at most")
    return "right" if residual <= 1.01 * model.tol else "right, but for rounding"


def _gram(kernel: str, X, w: float):
    X = X.astype(np.float64)
    if kernel == "linear":
        return X @ X.T
    r2 = w * ((X[:, None] - X) ** 2).sum(axis=2)
    if kernel == "rbf":
        return np.exp(-r2 / (2 * X.shape[1]))
    r = np.sqrt(3 * r2 / X.shape[1])  # Matérn, ν = 3/2
    return (1 + r) * np.exp(-r)


class _Problem:
    """Φ(α) = Σ_i ℓ_i(u_i) + ½ Σ_c α_cᵀ K α_c, u = K α."""

    def __init__(self, K, y, likelihood: str):
        self._K, self._softmax = K, likelihood == "softmax"
        self._Y = np.eye(int(y.max()) + 1)[y]

    def _probabilities(self, u):
        if not self._softmax:
            return np.exp(-np.logaddexp(0, -u))
        p = np.exp(u - u.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    def at(self, alpha) -> tuple[float, float]:
        """Φ and ‖α + π − y‖∞."""
        u = self._K @ alpha
        if self._softmax:
            top = u.max(axis=1, keepdims=True)
            losses = np.log(np.exp(u - top).sum(axis=1)) + ((top - u) * self._Y).sum(axis=1)
        else:
            losses = np.logaddexp(0, np.where(self._Y > 0, -u, u)).sum(axis=1)
        residual = alpha + self._probabilities(u) - self._Y
        return float(losses.sum() + np.vdot(alpha, u) / 2), float(np.abs(residual).max())

    def minimum(self) -> float:
        """By Newton steps, (I + W K) δ = −(α + π − y), that are halved where Φ would rise."""
        n, C = self._Y.shape
        alpha = np.zeros((n, C))
        value, _ = self.at(alpha)
        for _ in range(300):
            p = self._probabilities(self._K @ alpha)
            curvature = np.einsum("ic,cd->icd", p if self._softmax else p * (1 - p), np.eye(C))
            if self._softmax:
                curvature = curvature - p[:, :, None] * p[:, None, :]
            system = np.eye(n * C) + np.einsum("icd,ij->icjd", curvature, self._K).reshape(n * C, n * C)
            step = -np.linalg.solve(system, (alpha + p - self._Y).ravel()).reshape(n, C)
            t = 1.0
            while t > 1e-12:
                new = alpha + t * step
                at, _ = self.at(new)
                if at < value:
                    break
                t /= 2
            else:
                break
            alpha, before, value = new, value, at
            if before - value <= 1e-14 * abs(value):
                break
        return value


if __name__ == "__main__":
    sys.exit(main(__spec__))
