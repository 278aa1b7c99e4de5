"""Steps of :mod:`xmcjax.solvers._admm` with dense features, in the native library.

A call makes several steps (native/dual/simd_dense_splitting.cc). The rows of a block are stored transposed,
side by side. Scores and dual variables are in float32 or float64. Sums over rows, and arrays with a number
per class and feature, are in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from xmcjax.native import InPlace
from xmcjax.solvers import _admm
from xmcjax.solvers._anderson import Extrapolation, Iteration
from xmcjax.solvers._formulations import Formulation

# A block has about _NUMBERS numbers, in _LEAST_ROWS to _MOST_ROWS rows, a multiple of 64.
_NUMBERS, _LEAST_ROWS, _MOST_ROWS = 1 << 16, 64, 512
#: κ of the steps.
RELAXED = 1.8
# Number of dual variables up to which steps are extrapolated.
_COPIED = 1 << 21


def extrapolation(steps: Iteration, n: int, m: int) -> Extrapolation | None:
    """Extrapolation of steps, if the dual variables [n, m] are few enough for copies of many rounds."""
    return Extrapolation(steps) if n * m <= _COPIED else None


class RowMap(NamedTuple):
    """The row map of a formulation as the library knows it."""

    number: int  #: RowMap of native/core/isa.h
    k: int
    radius: float  #: C, or the most that a row's dual variables add up to


def row_map(form: Formulation, C: float, k: int, m: int) -> RowMap:
    """The row map of a formulation.

    Args:
        form: the formulation.
        C: weight of the losses.
        k: of the top-k losses.
        m: number of classes.
    """
    if form.name == "ww":  # the sum is bounded by the number of classes alone
        return RowMap(3, m - 1, C * (m - 1))
    if form.name in ("cs", "topk_beta") or (form.name == "topk_alpha" and k == 1):
        return RowMap(3, k, C)
    if form.name == "topk_alpha":
        return RowMap(4, k, C)
    return RowMap({"llw": 0, "ovr": 1, "ovr_squared": 2}[form.name], 1, C)


class Basis(NamedTuple):
    """Features X̃ = X ``rotation``, or ``rows`` where they are given, with X̃ᵀX̃ = diag(``eigenvalue``)."""

    X: np.ndarray  #: [n, d]
    eigenvalue: np.ndarray  #: [r]
    rotation: np.ndarray  #: [d, r]: W = rotation W̃
    rows: np.ndarray | None  #: X̃ [n, r]

    def part(self, rows: slice) -> np.ndarray:
        """X̃ of some rows, in float64."""
        if self.rows is not None:
            return self.rows[rows]
        return self.X[rows].astype(np.float64, copy=False) @ self.rotation


class Blocks:
    """The steps.

    Args:
        basis: of the features.
        y: the class of each row, [n].
        m: number of classes.
        form: the formulation.
        C: weight of the losses, a number, or one above 0 for each row, [n].
        k: of the top-k losses.
        dtype: of scores and dual variables.
        threads: that a call may use; their number changes no bit of the result.
    """

    free, least = True, 0.0
    polish: Callable[[], float] | None = None

    def __init__(
        self,
        basis: Basis,
        y: np.ndarray,
        m: int,
        form: Formulation,
        C: Any,
        k: int,
        dtype: type[np.floating],
        threads: int = 1,
    ):
        self._basis, self._form, self._n, self._m = basis, form, len(y), m
        C, shares = float(np.max(C)), np.broadcast_to(C / np.max(C), len(y))
        self.exact, self.shortens = dtype == np.float64, not form.ridge(C)
        self.extrapolation = extrapolation(self, self._n, m) if self.exact else None
        self._map = row_map(form, C, k, m)
        self._C = self._map.radius if form.sparse else C
        # each gain that is 0 but for rounding adds about its weight times the rounding of 2
        terms = self._n if form.sparse else self._n * m
        self.rounding = 0.0 if self.exact else 2 * self._C * terms * float(np.finfo(dtype).eps)
        r = len(basis.eigenvalue)
        rows = _NUMBERS // max(r, 1) // _LEAST_ROWS * _LEAST_ROWS
        self._rows = min(max(rows, _LEAST_ROWS), _MOST_ROWS)
        blocks = -(-self._n // self._rows)
        self._y = np.zeros((blocks, self._rows), np.int32)
        self._y.ravel()[: self._n] = y
        self._share = np.ones((blocks, self._rows), dtype)
        self._share.ravel()[: self._n] = shares
        self._real = np.arange(blocks * self._rows).reshape(blocks, 1, self._rows) < self._n
        self._X = np.zeros((blocks, r, self._rows), dtype)
        for b in range(blocks):
            part = basis.part(slice(b * self._rows, (b + 1) * self._rows))
            self._X[b, :, : len(part)] = part.T
        self._W, self._V, self._O = (np.zeros((m, r)) for _ in range(3))
        self._A, self._new = (np.zeros((blocks, m, self._rows), dtype) for _ in range(2))
        level = np.zeros((blocks, 2, self._rows), dtype)
        self._rho, self._count, self._found = np.zeros(()), np.zeros((), np.int32), np.zeros(6)
        self._call = InPlace(
            "dense_splitting",
            f"the dual variables of {m} classes and {self._n} rows",
            **dict(X=self._X, y=self._y, share=self._share, eigenvalue=basis.eigenvalue),
            **dict(W=self._W, V=self._V, O=self._O),
            **dict(alpha=self._A, next=self._new, level=level, found=self._found),
            **dict(rho=self._rho, count=self._count, radius=self._map.radius, relaxed=RELAXED),
            **dict(map=self._map.number, k=self._map.k, classes=m, instances=self._n, threads=threads),
        )

    def start(self, alpha: sp.csr_array, W: np.ndarray | None = None) -> None:
        """Takes dual variables [n, m], and weights [d, m] that may be better than those they give.

        Where all dual variables are 0, equal ones take their place, with the value of the largest D.
        """
        A, pairs = self._A, self._form.sparse
        if alpha.nnz:
            whole = np.zeros((A.shape[0] * self._rows, self._m), A.dtype)
            whole[: self._n] = alpha.toarray()
            A[...] = whole.reshape(-1, self._rows, self._m).transpose(0, 2, 1)
            V = self._weights(A)
        else:
            A[...] = self._real * A.dtype.type(self._map.radius / (self._m - 1) if pairs else self._C)
            A *= self._share[:, None]
            if not self._form.has_own:
                np.put_along_axis(A, self._y[:, None], 0, 1)
            V = self._weights(A)
            gain, square = A.sum(dtype=np.float64), float(np.vdot(V, V))
            over = A / self._share[:, None]
            ridge = float(self._form.ridge(self._C)) * float(
                np.einsum("bcr,bcr->", A, over, dtype=np.float64)
            )
            factor = gain / (square + ridge) if square + ridge > gain else 1.0
            A *= A.dtype.type(factor)
            V *= factor
        self._V[...] = V
        self._W[...] = -V if W is None else (self._basis.rotation.T @ W).T
        self._best_W, self._best_A, self._factor = self._W.copy(), A.copy(), 1.0

    def _weights(self, A: np.ndarray) -> np.ndarray:
        """−X̃ᵀ coefficients(A), [m, r]."""
        own, R = self._y[:, None], A.copy()
        if self._form.sparse:
            np.put_along_axis(R, own, -A.sum(axis=1, keepdims=True), 1)
        elif self._form.has_own:
            np.put_along_axis(R, own, -np.take_along_axis(A, own, 1), 1)
        else:
            R -= self._real * A.mean(axis=1, keepdims=True)
        V = np.zeros_like(self._V)
        for block, X in zip(R, self._X, strict=True):
            V += block @ X.T
        return self._form.centred(V.T).T

    def begin(self) -> tuple[float, float]:
        A, wide = self._A, np.float64
        variables = float(np.einsum("bcr,bcr->", A, A, dtype=wide))
        if self._form.sparse:
            sums = A.sum(axis=1, dtype=wide)
            variables += float(np.vdot(sums, sums))
        return variables, float(np.sum(self._basis.eigenvalue * self._W**2))

    def use(self, rho: float) -> None:
        self._rho[...] = rho

    def look(self) -> _admm.Look:
        self._count[...] = 0
        self._call()
        loss, gain, primal, dual = self._found[:4].tolist()
        return _admm.Look(primal / 2 + self._C * loss, gain, dual)

    def move(self, count: int) -> tuple[float, float]:
        self._count[...] = count
        self._call()
        changed, moved = self._found[4:].tolist()
        return changed, moved

    def position(self) -> np.ndarray:
        W = np.sqrt(self._rho * self._basis.eigenvalue) * self._W
        return np.concatenate([self._A.ravel() / np.sqrt(self._rho), W.ravel()])

    def state(self) -> list[np.ndarray]:
        return [self._A.copy(), self._W.copy(), self._V.copy()]

    def put(self, state: list[np.ndarray]) -> None:
        for array, value in zip((self._A, self._W, self._V), state, strict=True):
            array[...] = value

    def keep_weights(self) -> None:
        self._best_W[...] = self._W

    def keep_alpha(self, factor: float) -> None:
        self._best_A[...] = self._new
        self._factor = factor

    def best(self) -> tuple[np.ndarray, sp.csr_array]:
        A = self._best_A.transpose(0, 2, 1).reshape(-1, self._m)[: self._n]
        W = self._form.centred(self._basis.rotation @ self._best_W.T)
        return W, sp.csr_array(self._factor * A.astype(np.float64))
