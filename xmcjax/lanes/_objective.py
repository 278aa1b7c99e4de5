"""The objective of one label at weights that are not those of its lane, with sums in float64."""

from __future__ import annotations

import functools

import jax
import numpy as np

from xmcjax._fork import needs_threads_of_jax
from xmcjax.losses import MarginLoss
from xmcjax.penalties import Penalty


class Objective:
    """f(w) = R(w) + l2_bias R(b) + C Σ_i s_i c_i φ(y_i z_i) of one label after another.

    Args:
        n: rows.
        loss: φ.
        penalty: R.
        weight: C s of the rows, [1] or [n].
        l2_bias: of the bias, 1, or 0 where it is not regularised.
    """

    def __init__(self, n: int, loss: MarginLoss, penalty: Penalty, weight: np.ndarray, l2_bias: float):
        self._weight = np.broadcast_to(weight, n)
        self._loss, self._penalty, self._l2_bias = loss, penalty, l2_bias

    def targets(self, positives: np.ndarray, positive: float, negative: float, dtype):
        """(y, C s c), both [n], of a label, from its rows and the weights of rows with and without it."""
        y = np.full(len(self._weight), -1, dtype)
        y[positives] = 1
        return y, self._weight * np.where(y > 0, positive, negative)

    def losses(self, z: np.ndarray, y: np.ndarray, c: np.ndarray) -> float:
        """Σ_i c_i φ(y_i z_i)."""
        return float(c @ np.asarray(_losses(self._loss, np.asarray(z, y.dtype), y), np.float64))

    def of_weights(self, w: np.ndarray) -> np.ndarray:
        """R of each weight, [d]: of all of them, because each other length would be compiled anew."""
        return np.asarray(_penalties(self._penalty, w), np.float64)

    def of_bias(self, bias: float, dtype) -> float:
        """The penalty of the bias."""
        return self._l2_bias * float(_penalties(self._penalty, np.asarray(bias, dtype)))


@needs_threads_of_jax
@functools.partial(jax.jit, static_argnames=("loss",))
def _losses(loss: MarginLoss, z, y):
    return loss.score_value(z, y)


@needs_threads_of_jax
@functools.partial(jax.jit, static_argnames=("penalty",))
def _penalties(penalty: Penalty, w):
    return penalty.value(w)
