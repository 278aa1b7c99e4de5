"""Rows of scores as distributions over the classes, in float64: by native kernels, or by NumPy without them.

A given array [n, K] is overwritten by the array that is returned in its place.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xmcjax import native


class Instances(NamedTuple):
    """What belongs to the rows of arrays [n, K]."""

    y: np.ndarray  #: the classes of the rows, int32 [n]
    weight: np.ndarray  #: c, [n]
    threads: int  #: at most; their number changes no bit

    @property
    def own(self) -> tuple[np.ndarray, np.ndarray]:
        """The places of the rows' classes in an array [n, K]."""
        return np.arange(len(self.y)), self.y


def residuals(rows: Instances, Z: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[c (P − Y), in the place of Z, log Σ e^z − z_y], [n, K] and [n], of Z + 1 bᵀ and P = softmax of it.

    p_y − 1 is computed from the p of the other classes, so that it has all its digits where it is small. So
    has log Σ e^z − z_y, because the largest term is taken out of the sum.
    """
    losses = np.empty(len(Z))
    if native.available():
        given = dict(bias=bias, **rows._asdict())
        native.InPlace.once("softmax_residuals", **given, Z=Z, losses=losses)
        return Z, losses
    top, others = _log_sums(Z, bias)
    losses[:] = -(Z[rows.own] - top) + np.log1p(others)
    return _residuals(rows, np.exp(_log_p(Z, top, others), out=Z)), losses


def stepped(
    rows: Instances, Z: np.ndarray, bias: np.ndarray, U: np.ndarray, direction: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[log P, in the place of Z, Q, in that of U, Σ_i c_i q_i]: P = softmax(Z + 1 bᵀ) after a step.

    The step goes along the scores U + 1 aᵀ of a direction with the intercepts a: q = p (1 + u − pᵀu) where
    that is a distribution, else p e^u over its sum.
    """
    totals = np.empty(Z.shape[1])
    if native.available():
        given = dict(bias=bias, direction=direction, weight=rows.weight, threads=rows.threads)
        native.InPlace.once("softmax_stepped", **given, Z=Z, U=U, totals=totals)
        return Z, U, totals
    log_p = _log_p(Z, *_log_sums(Z, bias))
    P = np.exp(log_p)
    U += direction
    U -= np.einsum("ij,ij->i", P, U)[:, None]
    linear = (U.min(axis=1) > -1)[:, None]
    highest = U.max(axis=1, keepdims=True)
    U[:] = np.where(linear, 1 + U, np.exp(np.where(linear, 0, U - highest)))
    U *= P
    U /= U.sum(axis=1, keepdims=True)
    return log_p, U, rows.weight @ U


def distances(
    rows: Instances, log_p: np.ndarray, Q: np.ndarray, kept: np.ndarray, taken: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """[c (Q − Y), in the place of Q, KL(q ‖ p)], [n, K] and [n], after Q is divided anew among the classes.

    Classes keep the parts `kept` of Q, and what they give away is divided as `taken` says, both [K]. The
    distance is Σ q log(q/p) − q + p, no term of which is negative.
    """
    found = np.empty(len(Q))
    if native.available():
        given = dict(log_p=log_p, kept=kept, taken=taken, **rows._asdict())
        native.InPlace.once("softmax_distances", **given, Q=Q, distances=found)
        return Q, found
    free = Q @ (1 - kept)
    Q *= kept
    Q += free[:, None] * taken
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.log(Q)
        terms -= log_p
        terms *= Q
    terms[~(Q > 0)] = 0
    terms -= Q
    terms += np.exp(log_p)
    return _residuals(rows, Q), terms.sum(axis=1)


def probabilities(Z: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """softmax(Z + 1 bᵀ), in the place of Z."""
    return np.exp(_log_p(Z, *_log_sums(Z, bias)), out=Z)


def _log_sums(Z: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[the largest score of each row, Σ e^(z − top) over the others]; Z becomes Z + 1 bᵀ."""
    Z += bias
    at = np.arange(len(Z)), Z.argmax(axis=1)
    top = Z[at]
    E = np.exp(Z - top[:, None])
    E[at] = 0
    return top, E.sum(axis=1)


def _log_p(Z: np.ndarray, top: np.ndarray, others: np.ndarray) -> np.ndarray:
    """log P, in the place of the scores."""
    Z -= top[:, None]
    Z -= np.log1p(others)[:, None]
    return Z


def _residuals(rows: Instances, Q: np.ndarray) -> np.ndarray:
    """c (Q − Y), in the place of Q."""
    Q *= rows.weight[:, None]
    Q[rows.own] = 0
    Q[rows.own] = -Q.sum(axis=1)
    return Q
