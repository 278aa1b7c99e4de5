"""When a label is done, from sums over its positives alone: X is not multiplied."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import scipy.sparse as sp

from xmcjax._range import squared_norms
from xmcjax.lanes._label_math import of_margins
from xmcjax.losses import MarginLoss
from xmcjax.solvers import newton_cg

# Fewest labels whose sums are worth a thread.
FEWEST = 16
# Halvings of the interval of margins in `enough_margin`.
_HALVINGS = 10


class StoppingRule:
    """‖∇f‖ ≤ ε₀ max(1, min(|P|, |N|)) / n · ‖∇f(0)‖ (Schultheis and Babbar 2022, eqs. 12 and 13).

    Args:
        X: features, CSR or dense [n, d].
        weight: s > 0 of the rows, float64 [n]; None for ones.
        loss: φ.
        C: weight of the losses.
        eps: ε₀.
        bias: whether there is one.
        threads: for the sums of many labels.
    """

    def __init__(
        self,
        X: Any,
        weight: np.ndarray | None,
        loss: MarginLoss,
        C: float,
        eps: float,
        bias: bool,
        threads: int = 1,
    ):
        self._threads = threads
        self._X, self._weight, self._C, self._eps, self._bias = X, weight, C, eps, bias
        #: Σ s: the rows, counted with their weights
        self.n = X.shape[0] if weight is None else float(weight.sum())
        #: Σ_i s_i x_i
        self.total = np.asarray(X.sum(axis=0, dtype=np.float64)).ravel() if weight is None else X.T @ weight
        self._total_norm2 = float(self.total @ self.total)
        # |φ'(0)|
        self._slope_at_zero = _steepness(loss, 0.0)
        self._loss = loss

    def counts(self, positives: list[np.ndarray]) -> np.ndarray:
        """|P| of each label, counted with the sample weights."""
        if self._weight is None:
            return np.array([len(rows) for rows in positives])
        return np.array([self._weight[rows].sum() for rows in positives])

    def sums(self, positives: list[np.ndarray]) -> sp.csr_array:
        """Σ_P s_i x_i of each label, float64 [k, d]."""
        size = -(-len(positives) // self._threads)
        if self._threads == 1 or size < FEWEST:
            return self._sums(positives)
        parts = [positives[first : first + size] for first in range(0, len(positives), size)]
        with ThreadPoolExecutor(len(parts), "xmcjax-sums") as pool:  # SciPy leaves the GIL
            return sp.csr_array(sp.vstack(list(pool.map(self._sums, parts)), format="csr"))

    def _sums(self, positives: list[np.ndarray]) -> sp.csr_array:
        # in the index dtype of X: scipy would convert the whole of X to a wider one
        index = self._X.indices.dtype if sp.issparse(self._X) else np.int64
        indptr = np.cumsum([0] + [len(rows) for rows in positives], dtype=index)
        indices = np.concatenate(positives).astype(index)
        weights = np.ones(len(indices)) if self._weight is None else self._weight[indices]
        shape = (len(positives), self._X.shape[0])
        dtype = np.float64 if self._X.dtype == np.float64 else np.float32
        chosen = sp.csr_array((weights.astype(dtype), indices, indptr), shape=shape)
        sums = sp.csr_array(chosen @ self._X)
        # scipy's astype would sort the entries
        return sp.csr_array((sums.data.astype(np.float64), sums.indices, sums.indptr), shape=sums.shape)

    def gradient_norms_at_zero(
        self, counts, sums: sp.csr_array, positive: Any = 1.0, negative: Any = 1.0
    ) -> np.ndarray:
        """‖∇f(0)‖ = C |φ'(0)| ‖a Σ_P s x − b Σ_N s x‖ = C |φ'(0)| ‖(a+b) Σ_P s x − b Σ s x‖.

        Args:
            counts, sums: of k labels.
            positive, negative: a and b, the weights of their positive and negative rows; numbers or [k].
        """
        negative = np.asarray(negative)
        both = positive + negative
        with np.errstate(over="ignore", invalid="ignore"):  # the label's status reports an overflow
            squares = (
                both**2 * squared_norms(sums)
                - 2 * both * negative * (sums @ self.total)
                + negative**2 * self._total_norm2
            )
            if self._bias:
                squares = squares + (both * counts - negative * self.n) ** 2
            return self._C * self._slope_at_zero * np.sqrt(np.maximum(squares, 0))

    def totals(self, counts, positive, negative) -> tuple[np.ndarray, np.ndarray]:
        """Σ c over the positive and over the negative rows of labels; arguments as above."""
        return self._C * positive * counts, self._C * negative * (self.n - counts)

    def factors(self, counts) -> np.ndarray:
        """ε₀ max(1, min(|P|, |N|)) / n of each label."""
        # the lightest row stands for one row
        unit = 1 if self._weight is None else self._weight.min()
        return newton_cg.gradient_tolerance(self._eps, counts / unit, self.n / unit, 1.0)

    def enough_margin(self) -> float:
        """The least margin m ≥ 0 with |φ'(m)| ≤ ε₀ |φ'(0)|: rows beyond it are as good as without a loss."""

        def enough(margin: float) -> bool:
            return _steepness(self._loss, margin) <= self._eps * self._slope_at_zero

        low, high = 0.0, 1.0
        while not enough(high) and high < 1e3:
            low, high = high, 2 * high
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high


def _steepness(loss: MarginLoss, margin: float) -> float:
    """|φ'(m)|."""
    return abs(float(of_margins(loss, [margin])[1][0]))
