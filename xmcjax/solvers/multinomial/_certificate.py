"""A bound in float64 on the distance of G from its minimum, whatever rounding did before.

A matrix Q [n, K] whose rows are distributions is a point of the dual problem; with an intercept it must also
give each class its weight, Σ_i c_i q_ik = Σ_{i: y_i = k} c_i. At any W and b, with P their probabilities,

    G(W, b) − min G ≤ G(W, b) − D(Q) = ‖λW − V‖²/(2λ) + Σ_i c_i KL(q_i ‖ p_i),   V = Xᵀ (c ∘ (Y − Q)).

Q = P gives ‖∇G‖²/(2λ), which is far too much where λ is small. So Q also follows P along a Newton direction
δ, q = p (1 + u − pᵀu) with u = δᵀx: the first term is then the residual of the Newton system alone, and the
bound is hardly above ½ ∇Gᵀ H⁻¹ ∇G.

Rounding of the scores by δ_i changes G by Σ_i c_i δ_iᵀ (p_i − y_i), and G less the distance by
Σ_i c_i δ_iᵀ (q_i − y_i). Weights far from the minimum have huge scores, whose rounding alone may be larger
than the minimum of G; the bound allows for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from xmcjax._cores import blas_threads
from xmcjax.linops import Csr, Dense
from xmcjax.solvers.host_newton import conjugate_gradients, halved
from xmcjax.solvers.multinomial import _distributions
from xmcjax.solvers.multinomial._distributions import Instances
from xmcjax.solvers.multinomial._exact_products import features_of
from xmcjax.solvers.multinomial._problem import Problem
from xmcjax.solvers.multinomial._scores import threads_of

# Scores of a problem, n K, above which several arrays of them are too much to ask for.
MOST_SCORES = 1 << 26
# Products with the Hessian per direction, at most.
_MOST_CG = 500
# Rounding error of a sum, relative to the sum of the absolute values of its terms.
_SUM_ROUNDING = 4 * float(np.finfo(np.float64).eps)
_MOST_HALVINGS = 40
# No gap is asked for below _ROUNDINGS times the rounding error of a bound, or below _GAP_ROUNDING times G,
# unless the tolerance is smaller.
_ROUNDINGS, _GAP_ROUNDING = 4.0, 1e-12


class Direction(NamedTuple):
    """What a run knows of a Newton direction at its last weights, and of the bound without one."""

    make: Callable[[float], np.ndarray]  #: (wanted) -> [d+1, K] with a residual that is small beside `wanted`
    value: float  #: G, in any precision
    bound: float  #: ‖∇G‖²/(2λ), in any precision


class Certified(NamedTuple):
    """Weights, and what is certain about them."""

    W: np.ndarray  #: [d, K], in the dtype of X
    bias: np.ndarray  #: [K]
    value: float  #: G
    gap: float  #: (G − D) / G for the largest D that was found; infinite where they are not finite
    enough: bool  #: whether G − D is as small as was asked for
    gradient_norm: float  #: ‖∇G‖


class _Point(NamedTuple):
    W: np.ndarray
    bias: np.ndarray
    value: float
    Z: np.ndarray  # X W
    gradient: np.ndarray  # [d+1, K], the last row for b
    wrong: np.ndarray  # c_i (1 − p_i) of the class of i, [n]
    rounding: np.ndarray  # of the scores of a row at most, [n]


class _Moved(NamedTuple):
    slope: np.ndarray  # c (Q − Y), [n, K]
    distance: float  # Σ_i c_i KL(q_i ‖ p_i)


def possible(problem: Problem) -> bool:
    """Whether the features are at hand, and the scores few enough."""
    stored = isinstance(problem.op, (Csr, Dense)) and problem.op.shape[0] * problem.classes <= MOST_SCORES
    of_jax = (a for a in (problem.y, problem.weight) if isinstance(a, jax.Array))
    return stored and all(a.is_fully_addressable for a in of_jax)


class Certifier:
    """The problem in float64.

    Args:
        problem: for which :func:`possible` is true.
    """

    def __init__(self, problem: Problem):
        self._dtype = problem.op.dtype
        c = np.asarray(problem.weight, np.float64)
        self._rows = Instances(np.asarray(problem.y, np.int32), c, threads_of(problem))
        self._X = features_of(problem.op, self._rows.threads)
        self._c, self._l2 = c, float(problem.l2)
        # rounding error of q and p near 1, in the sum of q log(q/p) − q + p
        self._rounding = 2 * float(np.finfo(np.float64).eps) * float(c.sum())
        self._K, self._intercept = problem.classes, problem.intercept
        self._wanted = np.bincount(self._rows.y, c, self._K)
        self._constant = self._without_weights()

    def _without_weights(self) -> float:
        """G at W = 0 and the best b: Σ c times the entropy of the classes, or log K where there is no b."""
        total, wanted = float(self._c.sum()), self._wanted[self._wanted > 0]
        return float(wanted @ np.log(total / wanted)) if self._intercept else total * float(np.log(self._K))

    def _asked(self, value: float, least: float, tol: float, rounding: float) -> float:
        """The gap G − D that is asked for, by a value of G and the bound `least` of D with its rounding.

        Where W lowers G by at most the part g, compared with the best b alone, the variation of its scores is
        worth about g² G. With a larger gap b may be wrong by more than that, and even W = 0 may pass.
        """
        gained = max(self._constant - least, 0.0) / value if value > 0 else 0.0
        return min(tol * value, max(gained * gained * value, _GAP_ROUNDING * value, _ROUNDINGS * rounding))

    def _enough(self, now: _Point, least: float, tol: float) -> float:
        """:meth:`_asked` at a point, with the rounding error of a bound by Q near P."""
        rounding = self._rounding + 4 * float(now.rounding @ now.wrong) + _SUM_ROUNDING * now.value
        return self._asked(now.value, least, tol, rounding)

    def certified(
        self, W, bias, tol: float, newton_steps: int = 0, given: Direction | None = None
    ) -> Certified:
        """The weights, or better ones, with their gap.

        Args:
            W, bias: [d, K] and [K].
            tol: gap that is enough, as a part of G; where weights gain little it is less, see :meth:`_asked`.
            newton_steps: Newton steps that may be made where the gap is not small enough.
            given: makes a Newton direction at these weights, in any precision; without it, and for more
                steps, directions are made here.
        """
        with (
            np.errstate(over="ignore", invalid="ignore", divide="ignore"),
            blas_threads(self._rows.threads),
        ):
            # where the gradient alone will not do, X is multiplied for weights and direction together
            first = None
            if given is not None:
                wanted = self._asked(given.value, given.value - given.bound, tol, self._rounding)
                first = given.make(wanted) if given.bound > wanted else None
            now, least = self._at(W, bias, first)
            if not np.isfinite(now.value):
                return self._result(now, -np.inf, tol)
            if first is None:
                least = self._least_at(now)
            if given is not None and now.value - least > (wanted := self._enough(now, least, tol)):
                more = self._least(now, given.make(wanted)) if first is None else self._least_at(now)
                least = max(least, more)
                if not newton_steps:
                    return self._result(now, least, tol)
            for step in range(newton_steps + 1):
                wanted = self._enough(now, least, tol)
                if not now.value - least > wanted:
                    break
                direction = self._direction(now, wanted, give_up=step == newton_steps)
                if direction is None:
                    break
                least = max(least, self._least(now, direction))
                if now.value - least <= self._enough(now, least, tol) or step == newton_steps:
                    break
                better = self._searched(now, direction)
                if better is None:
                    break
                now = better
                least = max(least, self._least_at(now))
        return self._result(now, least, tol)

    def _result(self, now: _Point, least: float, tol: float) -> Certified:
        fall = now.value - least
        # where G and the fall are exactly 0, the gap is 0
        gap = max(fall, 0.0) / now.value if now.value > 0 else 0.0 if fall <= 0 else np.inf
        return Certified(
            now.W.astype(self._dtype),
            now.bias.astype(self._dtype),
            now.value,
            float(gap) if np.isfinite(gap) else np.inf,
            bool(fall <= self._enough(now, least, tol)),
            float(np.linalg.norm(now.gradient)),
        )

    def _at(self, W, bias, direction=None) -> tuple[_Point, float]:
        """The point of the weights, rounded to the dtype of X; :meth:`_least` of a direction, −∞ without."""
        W, bias = (np.asarray(a).astype(self._dtype).astype(np.float64) for a in (W, bias))
        more = () if direction is None else (_matrix(direction[:-1]),)
        (Z, *U), sizes = self._X.scored(np.abs(W).max(axis=1), W, *more)
        slope, losses = _distributions.residuals(self._rows, Z.copy(), bias)
        value = self._l2 / 2 * float(np.vdot(W, W)) + float(self._c @ losses)
        moved = None if direction is None else self._moved(Z, bias, U[0], direction[-1])
        products = self._X.transposed(slope, *(() if moved is None else (moved.slope,)))
        gradient = np.vstack([self._l2 * W + products[0], self._last(slope)])
        rounding = _SUM_ROUNDING * (sizes + np.abs(bias).max())
        now = _Point(W, bias, value, Z, gradient, -slope[self._rows.own], rounding)
        return now, (-np.inf if moved is None else self._least_of(now, moved, products[1]))

    def _product(self, V) -> np.ndarray:
        """X V."""
        return self._X.products(_matrix(V))[0]

    def _transposed(self, R) -> np.ndarray:
        """Xᵀ R."""
        return self._X.transposed(R)[0]

    def _last(self, slope):
        return np.ones(len(slope)) @ slope if self._intercept else np.zeros(self._K)

    def _least_at(self, now: _Point) -> float:
        """:meth:`_least` for Q = P."""
        if self._intercept:
            return self._least(now)
        # the distance is ‖∇G‖²/(2λ)
        return self._at_least(now, now.gradient[:-1], now.wrong)

    def _least(self, now: _Point, direction=None) -> float:
        """A lower bound of D(Q), with Q changed to give each class its weight; −∞ where that overflows.

        Q is what P becomes by a step along a direction [d+1, K], or P without one.
        """
        if direction is None:
            moved = self._moved(now.Z, now.bias, np.zeros_like(now.Z), np.zeros(self._K))
        else:
            moved = self._moved(now.Z, now.bias, self._product(direction[:-1]), direction[-1])
        return self._least_of(now, moved, self._transposed(moved.slope))

    def _moved(self, Z, bias, U, last) -> _Moved:
        """Q after a step along a direction with scores U and intercepts `last`; U is overwritten."""
        last = np.asarray(last, np.float64)
        log_p, Q, found = _distributions.stepped(self._rows, Z.copy(), bias, U, last)
        slope, distances = _distributions.distances(self._rows, log_p, Q, *self._balance(found))
        with np.errstate(over="ignore", invalid="ignore"):
            return _Moved(slope, float(self._c @ distances))

    def _least_of(self, now: _Point, moved: _Moved, product) -> float:
        """:meth:`_least` of Q, where `product` is Xᵀ c (Q − Y)."""
        distance, apart = moved.distance, self._l2 * now.W + product
        if self._intercept:
            distance += float(np.abs(now.bias - now.bias.mean()) @ np.abs(self._last(moved.slope)))
        return self._at_least(now, apart, -moved.slope[self._rows.own], distance)

    def _at_least(self, now: _Point, apart, wrong, distance: float = 0.0) -> float:
        """G − distance − ‖apart‖²/(2λ), less its rounding; `wrong` are c_i (1 − q_i) of the class of i."""
        distance += float(np.vdot(apart, apart)) / (2 * self._l2)
        both = now.wrong + wrong
        rounding = self._rounding + 2 * float(now.rounding @ both) + _SUM_ROUNDING * now.value
        distance = max(distance, 0.0) + rounding
        return now.value - distance if np.isfinite(distance) else -np.inf

    def _balance(self, found):
        """The part of its weight that each class keeps, and its share of what others give away, both [K].

        The weights are `found`, and should be `_wanted`: classes with too much give to classes with too
        little. Without an intercept all classes keep their weights.
        """
        lacking = np.maximum(self._wanted - found, 0)
        if not (self._intercept and lacking.sum() > 0):
            return np.ones(self._K), np.zeros(self._K)
        kept = np.where(found > self._wanted, self._wanted / np.where(found > 0, found, 1), 1)
        return kept, lacking / lacking.sum()

    def _direction(self, now: _Point, wanted: float, give_up: bool):
        """−H⁻¹ ∇G by CG, preconditioned by the diagonal, until its residual is small in the bound, [d+1, K].

        With `give_up`, None where the model of G falls by more than twice the gap that is wanted.
        """
        c, l2 = self._c[:, None], self._l2
        P = _distributions.probabilities(now.Z.copy(), now.bias)
        curvature = c * P * (1 - P)
        diagonal = np.vstack([l2 + self._X.squared_transposed(curvature), curvature.sum(axis=0)])
        diagonal = np.where(diagonal > 0, diagonal, 1)

        def product(V):
            R = P * (self._product(V[:-1]) + (V[-1] if self._intercept else 0))
            R = c * (R - P * R.sum(axis=1)[:, None])
            return np.vstack([l2 * V[:-1] + self._transposed(R), self._last(R)])

        def hopeless(fall: float) -> bool:
            return give_up and fall > 2 * wanted

        def enough(r, rz: float, fall: float) -> bool:
            # the bound is about the fall plus ‖r‖²/(2λ)
            small = np.vdot(r[:-1], r[:-1]) <= l2 * max(wanted - fall, 0.2 * wanted)
            return hopeless(fall) or bool(small and np.abs(r[-1]).sum() <= 0.01 * wanted)

        x, fall = conjugate_gradients(product, -now.gradient, diagonal, enough, _MOST_CG)
        return None if hopeless(fall) else x

    def _searched(self, now: _Point, direction) -> _Point | None:
        """The point at the first of t = 1, ½, ¼, … where G falls; None where G falls for none."""

        def at(t: float) -> _Point:
            bias = now.bias + t * direction[-1]
            bias = bias - bias.mean() if self._intercept else bias
            return self._at(now.W + t * direction[:-1], bias)[0]

        return halved(at, now.value, _MOST_HALVINGS)


def _matrix(V) -> np.ndarray:
    return np.ascontiguousarray(V, np.float64)
