"""Kernel functions written down a second time in NumPy, and the products that all kernel matrices have."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax.kernels import RBF, Linear, Matern, Scaled


def distances2(X, Z):
    return ((X[:, None] - Z[None]) ** 2).sum(-1)


def matern(nu):
    def value(w, X, Z):
        r = np.sqrt(w / X.shape[1] * distances2(X, Z))
        return {
            0.5: np.exp(-r),
            1.5: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r),
            2.5: (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r),
        }[nu]

    return value


def rbf(w, X, Z):
    return np.exp(-w / (2 * X.shape[1]) * distances2(X, Z))


# the kernel of an array of w, and its matrix for one w
CASES = {
    "linear": (lambda w: Scaled(w, Linear()), lambda w, X, Z: w * X @ Z.T),
    "rbf": (RBF, rbf),
    "matern_0.5": (lambda w: Matern(w, 0.5), matern(0.5)),
    "matern_1.5": (Matern, matern(1.5)),
    "matern_2.5": (lambda w: Matern(w, 2.5), matern(2.5)),
    "sum": (lambda w: Scaled(2 * w, Linear()) + RBF(w), lambda w, X, Z: 2 * w * X @ Z.T + rbf(w, X, Z)),
    "product": (lambda w: Matern(0.5) * RBF(w), lambda w, X, Z: matern(1.5)(0.5, X, Z) * rbf(w, X, Z)),
}


@jax.jit
def everything(gram, test, S, U):
    """Both products, and the derivatives of Σ U ∘ (M S) in the hyperparameters and in S."""

    def inner(kernel, S):
        return jnp.sum(U * dataclasses.replace(gram, kernel=kernel).matmat(S))

    return gram.matmat(S), gram.cross(test, S), *jax.grad(inner, argnums=(0, 1))(gram.kernel, S)
