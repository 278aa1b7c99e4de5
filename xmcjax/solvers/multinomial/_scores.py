"""Scores of all instances on the host, and the products that Newton's method needs of them.

An array of the classes has them on the axis `axis`. For dense features weights are [K, d+1] and scores
[K, n]: vectors lie along the instances, so that any number of classes fills them. For CSR features weights
are [d+1, K] and scores [n, K]: an entry meets one contiguous row of weights. The last of d+1 is b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from xmcjax import linops, native
from xmcjax.solvers.multinomial._problem import Problem

# Of a block of dense instances, whose features and scores stay in the cache.
_BLOCK_NUMBERS = 1 << 17
_LEAST_ROWS, _MOST_ROWS = 64, 512

# Multiplications of a product up to which conjugate gradients keep the dtype of the scores: it costs nothing.
_FEW = 1 << 20
# Of weights, λ and curvatures, between which float32 has them and what conjugate gradients make of them.
_LEAST, _MOST = 1e-25, 1e25

# Multiplications of a part of a product with dense features, between which Ctrl-C is answered.
_PART = 1 << 32

Product = Callable[[np.ndarray], np.ndarray]


class Along(NamedTuple):
    """The losses φ(t) = Σ_i c_i (log Σ_k e^{z_ik} − z_{i,y_i}) at scores Z + t U."""

    P: np.ndarray  #: softmax of Z + t U
    value: float  #: φ
    slope: float  #: φ'
    curvature: float  #: φ''


class _Scores:
    """What both kinds of features have in common."""

    axis: int
    _along_call: str

    def __init__(self, problem: Problem, dtype: np.dtype, work: np.dtype, squares: np.ndarray, threads: int):
        self.dtype, self._threads = dtype, threads
        self.n, self.d = problem.op.shape
        #: of conjugate gradients
        self.work = work
        #: ‖x_i‖², float64
        self.squares = squares
        self.y, self.weight = np.asarray(problem.y), np.asarray(problem.weight).astype(dtype)
        self.intercept = problem.intercept
        self._unit = bool(np.all(self.weight == 1))
        rows = np.arange(self.n)
        self._own = (self.y, rows) if self.axis == 0 else (rows, self.y)
        self._native = native.available()

    def largest_gradient(self) -> float:
        """√(Σ_i c_i² (‖x_i‖² + 1)), the last 1 for b: by what rounding of the probabilities is multiplied."""
        c = self.weight.astype(np.float64)
        return float(np.sqrt((c * c) @ (self.squares + int(self.intercept))))

    def of_rows(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers of the instances [n], to be multiplied by scores."""
        return numbers[None, :] if self.axis == 0 else numbers[:, None]

    def product(self, V: np.ndarray) -> np.ndarray:
        """X V, in the dtype of X."""
        raise NotImplementedError

    def transposed(self, R: np.ndarray) -> np.ndarray:
        """Xᵀ R; last the sums of R, or 0 without intercept."""
        raise NotImplementedError

    def along(self, Z: np.ndarray, U: np.ndarray, t: float) -> Along:
        """The losses at Z + t U."""
        if not self._native:
            return self._along(Z, U, t)
        P, sums = np.empty_like(Z), np.empty(3)
        given = dict(Z=Z, U=U, y=self.y, weight=self.weight, t=t, threads=self._threads)
        native.InPlace.once(self._along_call, **given, P=P, sums=sums)
        return Along(P, *map(float, sums))

    def _along(self, Z: np.ndarray, U: np.ndarray, t: float) -> Along:
        axis, c = self.axis, self.weight.astype(np.float64)
        Z = Z + np.asarray(t, Z.dtype) * U
        top = Z.max(axis=axis, keepdims=True)
        P = np.exp(Z - top)
        mass = P.sum(axis=axis, keepdims=True)
        P /= mass
        mean = (P * U).sum(axis=axis)
        losses = (top.ravel() - Z[self._own]) + np.log(mass.ravel())
        spread = (P * U * U).sum(axis=axis) - mean * mean
        return Along(P, float(c @ losses), float(c @ (mean - U[self._own])), float(c @ spread))

    def slope(self, P: np.ndarray) -> np.ndarray:
        """c (P − Y), by which the losses grow with the scores."""
        R = P.copy() if self._unit else P * self.of_rows(self.weight)
        R[self._own] -= self.weight
        return R


class DenseScores(_Scores):
    """Of dense features, with scores in their dtype."""

    axis, _along_call = 0, "softmax_along_by_class"

    def __init__(self, problem: Problem, work: np.dtype, squares: np.ndarray, threads: int):
        super().__init__(problem, np.dtype(problem.op.dtype), work, squares, threads)
        self._X = np.asarray(problem.op.X)  # type: ignore[union-attr]
        #: the features and a column of ones, or of zeros without intercept; [n, d+1] for conjugate gradients
        self.X = np.full((self.n, self.d + 1), self.intercept, self.work)
        self.X[:, : self.d] = self._X
        if self._native:
            rows = _BLOCK_NUMBERS // (self.d + 1) // _LEAST_ROWS * _LEAST_ROWS
            self._rows = min(max(rows, _LEAST_ROWS), _MOST_ROWS)
            self._blocks = self._in_blocks(self.X)
            self._weights = self._in_blocks(self.weight[:, None])[:, 0]

    def _in_blocks(self, A: np.ndarray) -> np.ndarray:
        """[n, m] as blocks of transposed rows [blocks, m, rows], filled up with zeros."""
        blocks = -(-self.n // self._rows)
        whole = np.zeros((blocks * self._rows, A.shape[1]), self.work)
        whole[: self.n] = A
        return np.ascontiguousarray(whole.reshape(blocks, self._rows, -1).transpose(0, 2, 1))

    def product(self, V: np.ndarray) -> np.ndarray:
        W = V[:, :-1].astype(self.dtype)
        U = np.empty((len(V), self.n), self.dtype)
        for part in self.parts(W.size):
            U[:, part] = W @ self._X[part].T
        U += V[:, -1:].astype(self.dtype)
        return U

    def transposed(self, R: np.ndarray) -> np.ndarray:
        out = np.zeros((len(R), self.d + 1), R.dtype)
        for part in self.parts(out.size):
            out[:, :-1] += R[:, part] @ self._X[part]
        out[:, -1] = self.intercept * R.sum(axis=1)
        return out

    def squared_transposed(self, C: np.ndarray) -> np.ndarray:
        """Xᵀ with its entries squared, times C."""
        out = np.zeros((len(C), self.d + 1), self.work)
        for part in self.parts(out.size):
            out += C[:, part] @ np.square(self.X[part])
        return out

    def parts(self, numbers: int) -> list[slice]:
        """Of the instances, where each is multiplied by so many numbers: between them Ctrl-C is answered."""
        rows = max(_PART // max(numbers, 1), _MOST_ROWS)
        return [slice(first, first + rows) for first in range(0, self.n, rows)]

    def hessian(self, P: np.ndarray) -> Product:
        """V ↦ Xᵀ c (P ∘ U − P (P·U)) for U = X V, with V [K, d+1], in the dtype of conjugate gradients."""
        if not self._native:
            P, c = P.astype(self.work), self.of_rows(self.weight.astype(self.work))

            def plain(V):
                U = V @ self.X.T
                U -= (P * U).sum(axis=0)
                U *= P
                U *= c
                return U @ self.X

            return plain
        V = np.empty((len(P), self.d + 1), self.work)
        out = np.empty_like(V)
        given = dict(X=self._blocks, P=self._in_blocks(P.T), weight=self._weights, V=V)
        call = native.InPlace("softmax_hessian", **given, threads=self._threads, out=out)

        def product(direction):
            V[:] = direction
            call()
            return out

        return product


class SparseScores(_Scores):
    """Of CSR features. Xᵀ R reads the columns of X: their entries meet rows of R, which are fewer than W has.

    Args:
        problem: whose features are CSR.
        dtype: of the scores; float32 leaves an error of G of some 1e-7.
        work: dtype of conjugate gradients.
        squares: ‖x_i‖².
        threads: of a product.
    """

    axis, _along_call = 1, "softmax_along"

    def __init__(self, problem: Problem, dtype: np.dtype, work: np.dtype, squares: np.ndarray, threads: int):
        super().__init__(problem, dtype, work, squares, threads)
        X = problem.op.to_scipy()  # type: ignore[union-attr]
        Xt = X.T.tocsr()
        self._X, self._Xt = self._operator(X, dtype), self._operator(Xt, dtype)
        self._small, self._small_t = self._operator(X, self.work), self._operator(Xt, self.work)
        self._squared = self._operator(Xt.multiply(Xt), self.work)

    def product(self, V: np.ndarray) -> np.ndarray:
        V = V.astype(self.dtype)
        U = self._times(self._X, V[:-1])
        U += V[-1]
        return U

    def transposed(self, R: np.ndarray) -> np.ndarray:
        return np.vstack([self._times(self._Xt, R), self.intercept * R.sum(axis=0, keepdims=True)])

    def squared_transposed(self, C: np.ndarray) -> np.ndarray:
        """Xᵀ with its entries squared, times C."""
        return np.vstack([self._times(self._squared, C), C.sum(axis=0, keepdims=True)])

    def hessian(self, P: np.ndarray) -> Product:
        """V ↦ Xᵀ c (P ∘ U − P (P·U)) for U = X V, with V [d+1, K], in the dtype of conjugate gradients."""
        P, c = P.astype(self.work, copy=False), self.weight.astype(self.work)
        K = P.shape[1]
        V, out = (np.empty((self.d + 1, K), self.work) for _ in range(2))
        U = np.empty((self.n, K), self.work)
        into, back = self._product(self._small, V[:-1], U), self._product(self._small_t, U, out[:-1])
        curve = (
            native.InPlace("softmax_curvature", P=P, weight=c, threads=self._threads, U=U)
            if self._native
            else None
        )

        def product(direction):
            nonlocal U
            V[:] = direction
            into()
            U += V[-1]
            if curve is None:
                U -= (P * U).sum(axis=1, keepdims=True)
                U *= P
                U *= c[:, None]
            else:
                curve()
            back()
            out[-1] = U.sum(axis=0) if self.intercept else 0
            return out

        return product

    def _operator(self, X, dtype: np.dtype):
        """A matrix as what multiplies by it wants it."""
        X = X.astype(dtype, copy=False)
        return linops.make(X, dtype, backend="native", threads=self._threads) if self._native else X

    def _times(self, X, V: np.ndarray) -> np.ndarray:
        out = np.empty((X.shape[0], V.shape[1]), V.dtype)
        self._product(X, np.ascontiguousarray(V), out)()
        return out

    def _product(self, X, V: np.ndarray, out: np.ndarray) -> Callable[[], None]:
        """A call that makes out = X V."""
        if not self._native:

            def plain():
                out[:] = X @ V

            return plain
        arrays = tuple(np.asarray(a) for a in X.arrays)
        return native.InPlace("csr_matmat", X=arrays, V=V, threads=X.threads, out=out)


def scores_of(problem: Problem, precise: bool, threads: int) -> DenseScores | SparseScores:
    """The products of the features of a problem on one device, dense or CSR.

    Args:
        problem: to be solved.
        precise: whether scores of CSR features have the dtype of X, and not float32.
        threads: of a product.
    """
    squares = _squares(problem.op)
    work = np.dtype(np.float32 if _narrow(problem, squares) else problem.op.dtype)
    if isinstance(problem.op, linops.Dense):
        return DenseScores(problem, work, squares, threads)
    return SparseScores(problem, np.dtype(problem.op.dtype) if precise else work, work, squares, threads)


def _squares(op) -> np.ndarray:
    """‖x_i‖² in float64, [n]."""
    if isinstance(op, linops.Dense):
        X = np.asarray(op.X)
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)
    X = op.to_scipy().astype(np.float64)
    return np.asarray(X.power(2).sum(axis=1)).ravel()


def _narrow(problem: Problem, squares: np.ndarray) -> bool:
    """Whether float32 gains time, and has the numbers of a problem of float64."""
    n, d = problem.op.shape
    weight = np.asarray(problem.weight, np.float64)
    curvature = float(weight @ squares)
    numbers = float(weight.max()), float(problem.l2), curvature or 1.0, float(squares.max()) or 1.0
    return n * d * problem.classes > _FEW and all(_LEAST < a < _MOST for a in numbers)
