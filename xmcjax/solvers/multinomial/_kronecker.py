"""A preconditioner of one basis for all classes, for dense features whose whole blocks cost too much.

The Hessian of the losses, Σ_i c_i (diag p_i − p_i p_iᵀ) ⊗ x_i x_iᵀ, is near B ⊗ A with

    B = Σ_i c_i (diag p_i − p_i p_iᵀ),   A = Σ_i ω_i x_i x_iᵀ,   ω_i = c_i (1 − ‖p_i‖²).

Of all matrices with the eigenvectors E of B and Q of A, the nearest to it has its diagonal in their basis
(T. George et al., "Fast approximate natural gradient descent in a Kronecker-factored eigenbasis", 2018, §3),

    S_kj = Σ_i c_i ((E ∘ E)ᵀ p_i − (Eᵀ p_i) ∘ (Eᵀ p_i))_k (Qᵀ x_i)_j².

Q is kept as long as it serves; E and S are made anew for each direction, as they cost less than a product
with the Hessian. Conjugate gradients work with V Q and the features X Q, so that Q itself multiplies nothing
between the first right side and the direction.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xmcjax.solvers.multinomial._preconditioners import (
    Direction,
    Preconditioner,
    Stop,
    centred,
    conjugate_gradients,
    weighted_gram,
)
from xmcjax.solvers.multinomial._scores import DenseScores


class Basis(NamedTuple):
    """A basis of the weights of a class."""

    Q: np.ndarray  #: [d+1, d+1], whose columns are the basis
    features: np.ndarray  #: X Q, in blocks as native products want them


def basis(scores: DenseScores, P: np.ndarray, rest: np.ndarray) -> Basis | None:
    """The eigenvectors of A at probabilities P [K, n], with 1 − the largest of each instance in `rest`.

    None where rounding leaves A without eigenvectors.
    """
    found = _eigenvectors(weighted_gram(scores, scores.weight * scores.spread(P, rest).sum(axis=0)), scores)
    return None if found is None else Basis(found, scores.turned(found))


def kronecker(scores: DenseScores, P: np.ndarray, made: Basis, l2: float) -> Kronecker | None:
    """(E ⊗ Q) (S + λ)⁻¹ (E ⊗ Q)ᵀ at probabilities P [K, n]; None where B has no eigenvectors."""
    weighed = P * scores.weight.astype(scores.work)
    B = -(weighed @ P.T).astype(np.float64)
    # the diagonal is minus the sum of the other numbers of its row, exact where p is nearly 1 too
    B[np.diag_indices(len(B))] = 0
    B[np.diag_indices(len(B))] = -B.sum(axis=1)
    E = _eigenvectors(B, scores)
    if E is None:
        return None
    S = np.zeros((len(P), scores.d + 1), scores.work)
    weight = scores.in_blocks(scores.weight[None, :])
    for p, c, x in zip(scores.in_blocks(P), weight, made.features, strict=True):
        # S_kj = Σ_i c_i ((E ∘ E)ᵀ p_i − (Eᵀ p_i)²)_k (Qᵀ x_i)_j²
        S += (_variances(E, p) * c) @ np.square(x).T
    return Kronecker(scores, made, E, 1 / (np.maximum(S, 0) + S.dtype.type(l2)))


def _variances(E: np.ndarray, p: np.ndarray) -> np.ndarray:
    """(E ∘ E)ᵀ p − (Eᵀ p)², [K, instances].

    The row of E of a class with p > ½ is subtracted from all rows first. That does not change the result, and
    without it rounding would leave nothing of the result where p is nearly 1.
    """
    most = p > 0.5
    of_most, others = E.T @ most, np.where(most, 0, p)
    first, mass = E.T @ others, others.sum(axis=0)
    second = (E * E).T @ others - of_most * (2 * first - of_most * mass)
    return second - np.square(first - of_most * mass)


class Kronecker(Preconditioner):
    """What :func:`kronecker` makes.

    Args:
        scores: of the features.
        made: the basis of the weights.
        E: the basis of the classes, [K, K].
        inverse: of the diagonal in both, [K, d+1].
    """

    def __init__(self, scores: DenseScores, made: Basis, E: np.ndarray, inverse: np.ndarray):
        super().__init__(scores, lambda r: self._inside(r @ made.Q) @ made.Q.T)
        self._basis, self._E, self._inverse = made, E, inverse

    def _inside(self, r: np.ndarray) -> np.ndarray:
        """M r times Q, from r times Q."""
        return centred(self._E @ ((self._E.T @ r) * self._inverse), 0)

    def solve(self, P: np.ndarray, r: np.ndarray, ridge: float, stop: Stop, max_steps: int) -> Direction:
        """:meth:`Preconditioner.solve` with all vectors multiplied by Q."""
        Q, last = self._basis.Q, self._basis.Q[-1]
        turned, l2 = r @ Q, r.dtype.type(ridge)

        def ridged(p: np.ndarray, q: np.ndarray) -> None:
            # λ V without the intercepts, which are V Q times the last row of Q
            q += l2 * p
            q -= np.outer(l2 * (p @ last), last)

        def residual() -> tuple[float, float]:
            intercepts = turned @ last
            return float(np.vdot(turned, turned) - np.vdot(intercepts, intercepts)), float(
                np.abs(intercepts).sum()
            )

        hessian = self._scores.hessian(P, self._basis.features)  # type: ignore[call-arg]
        found = conjugate_gradients(hessian, self._inside, turned, ridged, residual, stop, max_steps)
        return found._replace(x=centred(found.x @ Q.T, 0))


def _eigenvectors(A: np.ndarray, scores: DenseScores) -> np.ndarray | None:
    """The eigenvectors of a symmetric matrix, in the dtype of conjugate gradients; None by rounding."""
    try:
        values, vectors = np.linalg.eigh(A.astype(scores.work))
    except np.linalg.LinAlgError:
        return None
    return vectors if np.all(np.isfinite(values)) else None
