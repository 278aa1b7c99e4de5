"""Random Fourier features: M ≈ Fᵀ F with F = r^{−½} [cos(Ωx); sin(Ωx)], Ω drawn from the kernel's spectrum.

Rahimi and Recht, "Random features for large-scale kernel machines", 2007. The draw is one for all
hyperparameters: with standard normal G the frequencies of the RBF are Ω = √(w/d) G; the Matern
kernel divides each by the root of a χ² variable with 2ν degrees of freedom over their number.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from xmcjax._arguments import whole_number
from xmcjax._fork import methods_need_threads_of_jax
from xmcjax._pytrees import pytree
from xmcjax.kernels._factored import Factored, Factors
from xmcjax.kernels._functions import RBF, Kernel, Matern, check_columns, stack
from xmcjax.kernels._points import Points, check_points, check_test_points


@methods_need_threads_of_jax
@dataclasses.dataclass(frozen=True)
class Fourier(Factored):
    """Made by :func:`fourier`.

    Attributes:
        directions: G, [d, r/2].
        phases: G x of the training points, [r/2, n].

    Example:
        >>> from xmcjax.kernels import RBF, fourier, gram, points
        >>> features = fourier(RBF(1.0), points([[0.0], [1.0]]), rank=4000)
        >>> print(features.matrices()[0].round(1))
        [[1.  0.6]
         [0.6 1. ]]
    """

    directions: jax.Array
    phases: jax.Array

    def made(self, kernel) -> Factors:
        return self._features(kernel, self.phases)

    def cross(self, points, S: jax.Array, between=None) -> jax.Array:
        """As :meth:`xmcjax.kernels.Gram.cross`, with points made by ``points(T, like=training points)``."""
        check_columns(S, self.n, self.count)
        check_test_points(points, self.points)
        S = S if between is None else between(S[:, 0])[:, None]
        rows = self._features(self.kernel, points.op.matmat(self.directions).T).F
        own = self.made(self.kernel).F
        out = [
            jnp.matmul(a.T, jnp.matmul(b, S[:, l], precision="highest"), precision="highest")
            for l, (a, b) in enumerate(zip(rows, own, strict=True))
        ]
        return jnp.stack(out, axis=1)

    def _features(self, kernel, phases: jax.Array) -> Factors:
        half = self.directions.shape[1]
        F = []
        for l in range(self.count):
            angle = jnp.sqrt(kernel.w[l] / self.points.divisor) * phases
            F.append(jnp.concatenate([jnp.cos(angle), jnp.sin(angle)]) / half**0.5)
        return Factors(tuple(F), None)


pytree(data_fields=["kernel", "points", "factors", "directions", "phases"], meta_fields=["count"])(Fourier)


def fourier(kernel: Kernel, points: Points, rank: int, *, seed=0) -> Fourier:
    """An RBF or Matern kernel on training points by random Fourier features.

    Args:
        kernel: its w is a number, or an array [L] for L base kernels.
        points: by their features.
        rank: r, features, an even number: a cosine and a sine of each frequency.
        seed: of the draw, for :func:`numpy.random.default_rng`.

    Raises:
        TypeError: another kernel, or points that are known by products only.
        ValueError: a rank that is not even and above 0, a hyperparameter that is not above 0.

    Example:
        >>> from xmcjax.kernels import RBF, gram, points
        >>> X = points([[0.0], [1.0], [2.0]])
        >>> error = fourier(RBF(1.0), X, rank=4000).matrices()[0] - gram(RBF(1.0), X).matrices()[0]
        >>> bool(abs(error).max() < 0.1)
        True
    """
    if not isinstance(kernel, (RBF, Matern)):
        raise TypeError(f"random Fourier features: expected an RBF or Matern kernel, got {kernel}")
    check_points(points)
    if not isinstance(points, Points):
        raise TypeError("random Fourier features: expected points by their features")
    if whole_number("rank", rank, 1) % 2:
        raise ValueError(f"rank: expected an even number above 0, got {rank}")
    kernel, count = stack(kernel, points.dtype)
    rng = np.random.default_rng(whole_number("seed", seed, 0))
    G = rng.standard_normal((points.op.shape[1], rank // 2))
    if isinstance(kernel, Matern):
        freedom = 2 * kernel.nu
        G /= np.sqrt(rng.chisquare(freedom, rank // 2) / freedom)
    directions = jnp.asarray(G.astype(points.dtype))
    phases = points.op.matmat(directions).T
    blank = Factors((jnp.zeros((rank, points.n), points.dtype),) * count, None)
    return Fourier(kernel, points, blank, count, directions, phases).at(kernel)
