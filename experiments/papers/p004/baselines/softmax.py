"""Multinomial logistic regression, ½‖W‖² + C Σ_i log Σ_c exp(z_ic − z_iy), by L-BFGS.

With the dual variables C (softmax(z_i) − e_y) the duality gap of any W is ½‖∇P(W)‖², which is what
the iteration stops at.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import scipy.optimize
import scipy.special

from experiments.papers.p004.baselines._base import GRID, TOL, Fitted, linear, one_hot


@dataclasses.dataclass(frozen=True)
class Softmax:
    """Softmax regression without bias.

    Attributes:
        max_iter: of L-BFGS.
    """

    grid: tuple[float, ...] = GRID
    max_iter: int = 20_000

    def fit(self, X, y, C: float, start=None) -> Fitted:
        """See :class:`experiments.papers.p004.baselines.Method`; `start` are weights [d, m]."""
        dtype, X = X.dtype, X.astype(np.float64)
        Y = one_hot(y, np.float64)
        shape = X.shape[1], Y.shape[1]
        gap = np.inf

        def objective(w):
            nonlocal gap
            W = w.reshape(shape)
            Z = np.asarray(X @ W)
            log_sums = scipy.special.logsumexp(Z, axis=1, keepdims=True)
            losses = log_sums.sum() - (Z * Y).sum()
            # ∇P = W + C Xᵀ(softmax(Z) − Y)
            gradient = W + C * (X.T @ (np.exp(Z - log_sums) - Y))
            value = float(np.square(w).sum() / 2 + C * losses)
            gap = float(np.square(gradient).sum() / 2 / value)
            return value, gradient.ravel()

        def done(intermediate_result):
            if objective(intermediate_result.x) and gap <= TOL:
                raise StopIteration

        w = np.zeros(shape) if start is None else start
        # only the gap ends the iteration: scipy's tolerances cannot be reached
        options = {"maxiter": self.max_iter, "maxfun": 2 * self.max_iter, "gtol": 0.0, "ftol": 0.0}
        found = scipy.optimize.minimize(
            objective, w.ravel(), jac=True, method="L-BFGS-B", callback=done, options=options
        )
        objective(found.x)
        W = found.x.reshape(shape)
        return Fitted(linear(W.astype(dtype)), gap, W)
