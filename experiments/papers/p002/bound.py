"""The two curves of figure 1 of Gopal and Yang, 2013: G, and its bound by double majorization, by L-BFGS.

The bound of log Σ_k e^{z_k} is a + Σ_k log(1 + e^{z_k − a}) for any a (Bouchard, 2007); both are minimised
by scipy's L-BFGS with five pairs, the bound over W and the a_i together.
"""

from __future__ import annotations

import numpy as np
import scipy.optimize
import scipy.special


def curves(X, y: np.ndarray, lam: float, iterations: int) -> dict[str, list[float]]:
    """The values after each iteration: "value" of G, and "bound" of the bound.

    Args:
        X: features [n, d], dense or CSR.
        y: classes 0 … K−1, [n].
        lam: λ.
        iterations: the most of each run.
    """
    X = X.astype(np.float64)
    classes = int(y.max()) + 1
    size, rows = X.shape[1] * classes, np.arange(len(y))

    def value(point):
        W = point.reshape(-1, classes)
        Z = X @ W
        sums = scipy.special.logsumexp(Z, axis=1)
        P = np.exp(Z - sums[:, None])
        losses = float(sums.sum() - Z[rows, y].sum())
        P[rows, y] -= 1
        return lam / 2 * float(point @ point) + losses, (lam * W + X.T @ P).ravel()

    def bound(point):
        W, a = point[:size].reshape(-1, classes), point[size:]
        Z = X @ W
        P = scipy.special.expit(Z - a[:, None])
        losses = float(a.sum() + np.logaddexp(0, Z - a[:, None]).sum() - Z[rows, y].sum())
        slope = 1 - P.sum(axis=1)
        P[rows, y] -= 1
        return (
            lam / 2 * float(np.vdot(W, W)) + losses,
            np.concatenate([(lam * W + X.T @ P).ravel(), slope]),
        )

    return {
        "value": _trace(value, np.zeros(size), iterations),
        "bound": _trace(bound, _start(y, size, classes), iterations),
    }


def _start(y: np.ndarray, size: int, classes: int) -> np.ndarray:
    """The start: W = 0 and the best a for it, at which K / (1 + e^a) = 1."""
    return np.concatenate([np.zeros(size), np.full(len(y), np.log(max(classes - 1, 1)))])


def _trace(function, start: np.ndarray, iterations: int) -> list[float]:
    values = [function(start)[0]]
    scipy.optimize.minimize(
        function,
        start,
        jac=True,
        method="L-BFGS-B",
        callback=lambda intermediate_result: values.append(float(intermediate_result.fun)),
        options={"maxcor": 5, "maxiter": iterations, "maxfun": 3 * iterations, "ftol": 0.0, "gtol": 0.0},
    )
    return values
