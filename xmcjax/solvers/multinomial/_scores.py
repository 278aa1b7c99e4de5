"""Scores of all instances on the host, and the products that Newton's method needs of them.

Arrays with a number per class have the classes on the axis `axis`. For dense features weights are [K, d+1]
and scores [K, n]: SIMD vectors run along the instances, and are full with any number of classes. For CSR
features weights are [d+1, K] and scores [n, K]: an entry meets one contiguous row of weights. The last of d+1
is b.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from xmcjax import _sparse, linops, native
from xmcjax._cores import threads_of_product
from xmcjax._range import squared_norms
from xmcjax.solvers.multinomial._problem import Problem

# A block of dense instances has about _BLOCK_NUMBERS features, which stay in the cache with their scores, and
# _LEAST_ROWS to _MOST_ROWS instances.
_BLOCK_NUMBERS = 1 << 17
_LEAST_ROWS, _MOST_ROWS = 64, 512

# Multiplications of a product up to which conjugate gradients keep the dtype of X: it costs nothing.
_FEW = 1 << 17
# Weights, λ and curvatures within this range, and what conjugate gradients make of them, fit into float32.
_LEAST, _MOST = 1e-25, 1e25

# Number of arrays given back that are kept for reuse: the right side, direction and scores of conjugate
# gradients in a step, and the gradient, scores and probabilities before it.
_MOST_SPARE = 6

# A native gradient of dense features has sums in double for each of up to _GROUPS groups of blocks. It pays
# where the sums, each as large as _NUMBERS_OF_A_SUM numbers of float32, take no more memory than X and P.
_GROUPS, _NUMBERS_OF_A_SUM = 16, 2

# Multiplications of a part of a product with dense features. Ctrl-C is answered between parts.
_PART = 1 << 32


class Hessian(NamedTuple):
    """Products with the Hessian of the losses: out = Xᵀ c (P ∘ U − P (P·U)) for U = X V."""

    V: np.ndarray  #: to be filled, in the dtype of conjugate gradients
    out: np.ndarray
    product: Callable[[], None]  #: makes `out`


class Along(NamedTuple):
    """The losses φ(t) = Σ_i c_i (log Σ_k e^{z_ik} − z_{i,y_i}) at scores Z + t U."""

    P: np.ndarray  #: softmax of Z + t U
    rest: np.ndarray  #: 1 − the largest p of an instance, with all its digits, [n]
    value: float  #: φ
    slope: float  #: φ'
    curvature: float  #: φ''


def lacking(P: np.ndarray, rest: np.ndarray) -> np.ndarray:
    """1 − P. For a class with p > ½ it is `rest`, whose digits 1 − p would round away."""
    return np.where(P > 0.5, rest, 1 - P)


class _Scores:
    """What both kinds of features have in common."""

    axis: int
    _along_call: str

    def __init__(self, problem: Problem, dtype: np.dtype, work: np.dtype, squares: np.ndarray, threads: int):
        self.dtype, self.threads = dtype, threads
        self.n, self.d = problem.op.shape
        #: of conjugate gradients
        self.work = work
        #: ‖x_i‖², float64
        self.squares = squares
        self.y, self.weight = np.asarray(problem.y), np.asarray(problem.weight).astype(dtype)
        self.intercept = problem.intercept
        #: whether all weights are 1
        self.unit = bool(np.all(self.weight == 1))
        rows = np.arange(self.n)
        #: flat indices of the scores of the rows' own classes
        self._own = self.y * np.intp(self.n) + rows if self.axis == 0 else rows * problem.classes + self.y
        self.native = native.available()
        self._spare: list[np.ndarray] = []
        #: where the weights are and where the intercepts
        self.lead: tuple = (
            (slice(None), slice(0, self.d)) if self.axis == 0 else (slice(0, self.d), slice(None))
        )
        self.last: tuple = (slice(None), self.d) if self.axis == 0 else (self.d, slice(None))

    def room(self, shape: tuple[int, ...], dtype) -> np.ndarray:
        """An array with any content: one that was given back, or a new one, whose pages the system clears."""
        fit = (i for i, a in enumerate(self._spare) if a.shape == shape and a.dtype == dtype)
        place = next(fit, None)
        return np.empty(shape, dtype) if place is None else self._spare.pop(place)

    def give(self, *arrays: np.ndarray) -> None:
        """Gives arrays back that nobody reads any more."""
        self._spare = [*self._spare, *arrays][-_MOST_SPARE:]

    def largest_gradient(self) -> float:
        """√(Σ_i c_i² (‖x_i‖² + 1)), the 1 for b: the factor of rounding of P in the gradient."""
        c = self.weight.astype(np.float64)
        return float(np.sqrt((c * c) @ (self.squares + int(self.intercept))))

    def of_rows(self, numbers: np.ndarray) -> np.ndarray:
        """Numbers of the instances [n], to be multiplied by scores."""
        return numbers[None, :] if self.axis == 0 else numbers[:, None]

    def product(self, V: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """X V, in the dtype of the scores; written to `out` where that is given."""
        raise NotImplementedError

    def transposed(self, R: np.ndarray) -> np.ndarray:
        """Xᵀ R, and last the sums of R, or 0 without intercept."""
        raise NotImplementedError

    def along(self, Z: np.ndarray, U: np.ndarray, t: float, P: np.ndarray | None = None) -> Along:
        """The losses at Z + t U; the probabilities may be written to the array P."""
        if not self.native:
            return self._along(Z, U, t)
        P, rest, sums = np.empty_like(Z) if P is None else P, np.empty(self.n, Z.dtype), np.empty(3)
        given = dict(Z=Z, U=U, y=self.y, weight=self.weight, t=t, threads=self.threads)
        native.InPlace.once(self._along_call, **given, P=P, rest=rest, sums=sums)
        return Along(P, rest, *map(float, sums))

    def _along(self, Z: np.ndarray, U: np.ndarray, t: float) -> Along:
        axis, c = self.axis, self.weight.astype(np.float64)
        Z = Z + np.asarray(t, Z.dtype) * U
        top = Z.max(axis=axis, keepdims=True)
        P = np.exp(Z - top)
        # the 1 of the class with the highest score is left out: it would take the digits of the others
        highest = np.equal(Z, top)
        others = np.where(highest, 0, P).sum(axis=axis) + (highest.sum(axis=axis) - 1)
        P /= self.of_rows(1 + others)
        V = U - self.of_rows(U.ravel()[self._own])
        mean = (P * V).sum(axis=axis)
        losses = (top.ravel() - Z.ravel()[self._own]) + np.log1p(others)
        spread = (P * V * V).sum(axis=axis) - mean * mean
        rest = others / (1 + others)
        return Along(P, rest.astype(P.dtype), float(c @ losses), float(c @ mean), float(c @ spread))

    def slope(self, P: np.ndarray, rest: np.ndarray) -> np.ndarray:
        """c (P − Y), the gradient of the losses in the scores."""
        R = P.copy() if self.unit else P * self.of_rows(self.weight)
        R.ravel()[self._own] = -self.weight * lacking(P.ravel()[self._own], rest)
        return R

    def _centre(self, U: np.ndarray, P: np.ndarray) -> None:
        """U − P·U over the classes, in its place.

        U of an instance's own class is subtracted first, which does not change the result: where its p is
        nearly 1, its part of P·U would leave nothing but rounding of the others.
        """
        U -= self.of_rows(U.ravel()[self._own])
        U -= (P * U).sum(axis=self.axis, keepdims=True)

    def spread(self, P: np.ndarray, rest: np.ndarray) -> np.ndarray:
        """P (1 − P)."""
        return P * lacking(P, self.of_rows(rest))

    def at_zero(self, K: int) -> tuple[np.ndarray, Along]:
        """Scores of 0 and their losses."""
        shape = (K, self.n) if self.axis == 0 else (self.n, K)
        value = float(np.sum(self.weight, dtype=np.float64)) * float(np.log(K))
        P, rest = np.full(shape, 1 / K, self.dtype), np.full(self.n, 1 - 1 / K, self.dtype)
        return np.zeros(shape, self.dtype), Along(P, rest, value, 0.0, 0.0)

    def gradient(self, P: np.ndarray, rest: np.ndarray) -> np.ndarray:
        """Xᵀ c (P − Y), the gradient of the losses in the weights; P is as before when it returns."""
        if not self.unit:
            return self.transposed(self.slope(P, rest))
        flat = P.reshape(-1)
        own = flat[self._own]
        try:
            flat[self._own] = -lacking(own, rest)
            return self.transposed(P)
        finally:
            flat[self._own] = own


class DenseScores(_Scores):
    """Scores of dense features.

    Args:
        problem: whose features are dense.
        dtype: of the scores; float32 leaves an error of G of some 1e-7.
        work: dtype of conjugate gradients.
        squares: ‖x_i‖².
        threads: of a product.
    """

    axis, _along_call = 0, "softmax_along_by_class"

    def __init__(self, problem: Problem, dtype: np.dtype, work: np.dtype, squares: np.ndarray, threads: int):
        super().__init__(problem, dtype, work, squares, threads)
        self._X = np.asarray(problem.op.X).astype(dtype, copy=False)  # type: ignore[union-attr]
        rows = _BLOCK_NUMBERS // (self.d + 1) // _LEAST_ROWS * _LEAST_ROWS
        # rows of a block; without native calls there is one block
        self._rows = min(max(rows, _LEAST_ROWS), _MOST_ROWS) if self.native else self.n
        if self.native:
            blocks = self._in_blocks(self._X, self.d + 1)
            blocks[:, self.d, :] = self.intercept
            #: X and c for native products
            self.blocks = {"X": blocks, "weight": self._in_blocks(self.weight[:, None], 1)[:, 0]}
            self._y_in_blocks = self._in_blocks(self.y[:, None], 1)[:, 0].astype(np.int32)

    def in_blocks(self, P: np.ndarray) -> np.ndarray:
        """Numbers of the instances [m, n], such as probabilities, as native products want them."""
        return self._in_blocks(P.T, len(P))

    def turned(self, Q: np.ndarray) -> np.ndarray:
        """X Q for Q [d+1, d+1], as native products want it."""
        XQ = self._X.astype(self.work, copy=False) @ Q[:-1]
        if self.intercept:
            XQ += Q[-1]
        return self._in_blocks(XQ, self.d + 1)

    def solve(self, P: np.ndarray, **given: Any) -> None:
        """Conjugate gradients at probabilities P, natively; `given` are the other fields of the call."""
        own = dict(P=self.in_blocks(P), y=self._y_in_blocks, threads=self.threads)
        native.InPlace.once("softmax_solve", **self.blocks, **own, **given)

    def features(self, chosen) -> np.ndarray:
        """Rows of the features, in the dtype of conjugate gradients."""
        return self._X[chosen].astype(self.work, copy=False)

    def rows(self, chosen, factor: np.ndarray) -> np.ndarray:
        """Features with the 1 of the intercept, or 0 without one, each row times its factor, [rows, d+1]."""
        out = np.empty((len(factor), self.d + 1), self.work)
        np.multiply(self._X[chosen], factor[:, None], out=out[:, : self.d], casting="same_kind")
        out[:, self.d] = self.intercept * factor
        return out

    def _in_blocks(self, A: np.ndarray, columns: int) -> np.ndarray:
        """[n, m] as blocks of transposed rows [blocks, columns, rows], filled up with zeros."""
        whole = np.zeros((-(-self.n // self._rows), columns, self._rows), self.work)
        last = self.n // self._rows
        full = A[: last * self._rows].reshape(last, self._rows, A.shape[1])
        whole[:last, : A.shape[1]] = full.transpose(0, 2, 1)
        if last < len(whole):
            whole[last, : A.shape[1], : self.n - last * self._rows] = A[last * self._rows :].T
        return whole

    def product(self, V: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        V = V.astype(self.dtype, copy=False)
        U = np.empty((len(V), self.n), self.dtype) if out is None else out
        if self._in_work():
            X = self.blocks["X"]
            native.InPlace.once("softmax_scores_by_class", X=X, V=V, threads=self.threads, out=U)
            if self.intercept:
                return U
        else:
            for part in self.parts(V.size):
                U[:, part] = V[:, :-1] @ self._X[part].T
        # without an intercept b is what a run was given, and the blocks of features have no 1 for it
        if np.any(V[:, -1]):
            U += V[:, -1:]
        return U

    def _in_work(self) -> bool:
        """Whether the blocks of native products have the dtype of the scores."""
        return self.native and self.dtype == self.work

    def _sums_are_few(self, K: int) -> bool:
        """Whether the sums of a native gradient are few beside what it reads."""
        groups = min(len(self.blocks["X"]), _GROUPS)
        return _NUMBERS_OF_A_SUM * groups * K * (self.d + 1) <= self.n * (self.d + K)

    def gradient(self, P: np.ndarray, rest: np.ndarray) -> np.ndarray:
        if not (self._in_work() and self._sums_are_few(len(P))):
            return super().gradient(P, rest)
        out, X = np.empty((len(P), self.d + 1), self.dtype), self.blocks["X"]
        given = dict(P=P, rest=rest, y=self.y, weight=self.weight, threads=self.threads)
        native.InPlace.once("softmax_gradient_by_class", X=X, **given, out=out)
        return out

    def transposed(self, R: np.ndarray) -> np.ndarray:
        out = np.zeros((len(R), self.d + 1), R.dtype)
        for part in self.parts(out.size):
            out[:, :-1] += R[:, part] @ self._X[part]
        if self.intercept:
            out[:, -1] = R.sum(axis=1)
        return out

    def squared_transposed(self, C: np.ndarray) -> np.ndarray:
        """Xᵀ with its entries squared, times C."""
        out = np.zeros((len(C), self.d + 1), self.work)
        rows = max(_BLOCK_NUMBERS // (self.d + 1), len(C))
        for part in (slice(first, first + rows) for first in range(0, self.n, rows)):
            out[:, :-1] += C[:, part] @ np.square(self._X[part], dtype=self.work, casting="same_kind")
        if self.intercept:
            out[:, -1] = C.sum(axis=1)
        return out

    def parts(self, numbers: int) -> list[slice]:
        """Parts of the instances, each multiplied by `numbers` numbers: Ctrl-C is answered between parts."""
        rows = max(_PART // max(numbers, 1), _MOST_ROWS)
        return [slice(first, first + rows) for first in range(0, self.n, rows)]

    def hessian(self, P: np.ndarray, turned: np.ndarray | None = None) -> Hessian:
        """The product at probabilities P, with V [K, d+1]; `turned` are features of :meth:`turned`."""
        V, out = (np.empty((len(P), self.d + 1), self.work) for _ in range(2))
        if self.native:
            at = dict(P=self.in_blocks(P), y=self._y_in_blocks)
            given = dict(**self.blocks, **at, V=V, threads=self.threads, out=out)
            if turned is not None:
                given["X"] = turned
            return Hessian(V, out, native.InPlace("softmax_hessian", **given))
        P, c = P.astype(self.work), self.of_rows(self.weight.astype(self.work))
        X = self.rows(slice(None), np.ones(self.n, self.work)) if turned is None else turned[0].T

        def plain():
            U = V @ X.T
            self._centre(U, P)
            U *= P
            U *= c
            out[:] = U @ X

        return Hessian(V, out, plain)


class _CsrRows(NamedTuple):
    """A CSR matrix as native calls take it."""

    value: np.ndarray
    column: np.ndarray
    offset: np.ndarray  #: the halves of 64-bit numbers

    @property
    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return self.value, self.column, self.offset


class SparseScores(_Scores):
    """Scores of CSR features. Xᵀ R reads columns of X: their entries meet rows of R, fewer than W has.

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
        kept = self.native and problem.op.native  # type: ignore[union-attr]
        Xt = self._rows(X.T.tocsr())
        X = self._rows(problem.op if kept else X)
        # values of the same dtype are held once, and the places of the entries in any case
        self._X, self._Xt = _of_dtype(X, dtype), _of_dtype(Xt, dtype)
        self._small, self._small_t = (
            _of_dtype(own if dtype == work else A, work) for own, A in ((self._X, X), (self._Xt, Xt))
        )
        #: vectors of conjugate gradients
        self._vectors: np.ndarray | None = None

    def product(self, V: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        V = V.astype(self.dtype, copy=False)
        U = np.empty((self.n, V.shape[1]), self.dtype) if out is None else out
        self._product(self._X, np.ascontiguousarray(V[:-1]), U)()
        if np.any(V[-1]):
            U += V[-1]
        return U

    def transposed(self, R: np.ndarray) -> np.ndarray:
        out = self.room((self.d + 1, R.shape[1]), R.dtype)
        self._product(self._Xt, np.ascontiguousarray(R), out[:-1])()
        out[-1] = R.sum(axis=0) if self.intercept else 0
        return out

    def squared_transposed(self, C: np.ndarray) -> np.ndarray:
        """Xᵀ with its entries squared, times C."""
        Xt, out = self._small_t, np.empty((self.d, C.shape[1]), C.dtype)
        squared = Xt._replace(value=np.square(Xt.value)) if isinstance(Xt, _CsrRows) else Xt.power(2)
        self._product(squared, np.ascontiguousarray(C), out)()
        return np.vstack([out, C.sum(axis=0, keepdims=True)])

    def hessian(self, P: np.ndarray) -> Hessian:
        """The product at probabilities P, with V [d+1, K]."""
        P, c = P.astype(self.work, copy=False), self.weight.astype(self.work)
        V, out = (np.empty((self.d + 1, P.shape[1]), self.work) for _ in range(2))
        U = np.empty((self.n, P.shape[1]), self.work)
        into, back = self._product(self._small, V[:-1], U), self._product(self._small_t, U, out[:-1])

        def product():
            into()
            U[:] += V[-1]
            self._centre(U, P)
            U[:] *= P
            U[:] *= c[:, None]
            back()
            out[-1] = U.sum(axis=0) if self.intercept else 0

        return Hessian(V, out, product)

    def solve(self, P: np.ndarray, **given: Any) -> None:
        """Conjugate gradients at probabilities P, natively; `given` are the other fields of the call."""
        K = P.shape[1]
        if self._vectors is None:
            self._vectors = np.empty((3, self.d + 1, K), self.work)
        X, Xt, U = self._small.arrays, self._small_t.arrays, self.room((self.n, K), self.work)
        P, c = (a.astype(self.work, copy=False) for a in (P, self.weight))
        own = dict(P=P, weight=c, y=self.y, U=U, vectors=self._vectors, intercept=int(self.intercept))
        native.InPlace.once("softmax_solve_csr", X=X, Xt=Xt, **own, **given, threads=self.threads)
        self.give(U)

    def native_diagonal(self, P: np.ndarray, rest: np.ndarray, l2: float, last: float) -> np.ndarray:
        """1 / (Xᵀ with its entries squared, times c p (1 − p), + λ), where λ is `last` in the last row."""
        inverse = np.empty((self.d + 1, P.shape[1]), self.work)
        weight = self.weight.astype(self.work, copy=False)
        given = dict(P=P, rest=rest, weight=weight, ridge=l2, last_ridge=last)
        native.InPlace.once(
            "softmax_diagonal", Xt=self._small_t.arrays, **given, threads=self.threads, inverse=inverse
        )
        return inverse

    def _rows(self, X):
        """A matrix in the form that its products want."""
        if not self.native:
            return X
        arrays = X.arrays if isinstance(X, linops.Csr) else native.csr_arrays(_sparse.csr(X))
        return _CsrRows(*map(np.asarray, arrays))

    def _product(self, X, V: np.ndarray, out: np.ndarray) -> Callable[[], None]:
        """A call that makes out = X V."""
        if not self.native:

            def plain():
                out[:] = X @ V

            return plain
        return native.InPlace("softmax_product", X=X.arrays, V=V, threads=self.threads, out=out)


def _of_dtype(X, dtype: np.dtype):
    """A matrix with its values in a dtype; the places of its entries are not copied."""
    if not isinstance(X, _CsrRows):
        return X.astype(dtype, copy=False)
    return X._replace(value=X.value.astype(dtype, copy=False))


def threads_of(problem: Problem) -> int:
    """Threads of products with features that are at hand: all cores where a product takes milliseconds."""
    if isinstance(problem.op, linops.Csr):
        return problem.op.threads
    n, d = problem.op.shape
    return threads_of_product(n * d * problem.classes)


def scores_of(problem: Problem, precise: bool, threads: int) -> DenseScores | SparseScores:
    """The products of the features of a problem on one device, dense or CSR.

    Args:
        problem: to be solved.
        precise: whether scores have the dtype of X, and not float32 where that gains time.
        threads: of a product.
    """
    op = problem.op
    squares = squared_norms(linops.host_features(op), np.float64)
    work = np.dtype(np.float32 if _narrow(problem, squares) else op.dtype)
    dtype = np.dtype(op.dtype) if precise else work
    kind = DenseScores if isinstance(op, linops.Dense) else SparseScores
    return kind(problem, dtype, work, squares, threads)


def _narrow(problem: Problem, squares: np.ndarray) -> bool:
    """Whether float32 gains time, and holds the numbers of a problem of float64."""
    n, d = problem.op.shape
    weight = np.asarray(problem.weight, np.float64)
    curvature = float(weight @ squares)
    numbers = float(weight.max()), float(problem.l2), curvature or 1.0, float(squares.max()) or 1.0
    return n * d * problem.classes > _FEW and all(_LEAST < a < _MOST for a in numbers)
