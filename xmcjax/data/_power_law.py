"""Synthetic data with the shape of extreme classification: few frequent labels, a long tail."""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp

from xmcjax._arguments import number, whole_number
from xmcjax.data._text import value_dtype
from xmcjax.data._text_format import MAX_COLUMNS, MAX_ROWS

# The probability that a row with a label shows one of the label's own features.
_SHOWN = 0.4
_OWN_FEATURES = 8
# The largest mean number of repetitions of a feature in a row, beyond the first occurrence.
_REPEATS = 3.0
# Rows made at a time: memory holds the result and a few copies of such a block.
_BLOCK = 1 << 16


def make_power_law(
    n: int,
    d: int,
    n_labels: int,
    *,
    labels_per_row: float = 3.0,
    nonzeros_per_row: float = 50.0,
    exponent: float = 1.0,
    seed: int = 0,
    dtype: np.typing.DTypeLike = np.float32,
) -> tuple[sp.csr_matrix, sp.csr_matrix]:
    """Makes a multi-label data set like a bag of words, with a long tail of rare labels.

    The frequency of the label of rank r falls as r^-exponent, and so does the frequency of the feature
    of rank r (Zipf's law); ranks are assigned at random. Every label has eight features of its own,
    drawn with probability ∝ the square root of the features' frequencies, so that labels share features
    and frequent features say little. A row shows each feature of its labels with probability 0.4, and at
    least one background feature. Values are counts ≥ 1, so that every transform applies. Rare labels may
    get no row at all, as in a split of real data.

    Time and memory grow with the non-zeros, n·nonzeros_per_row, and with d and n_labels.

    Args:
        n: rows, at least 0.
        d: features, at least 1.
        n_labels: labels L, at least 1.
        labels_per_row: mean number of labels of a row, from 1 to L; every row has at least one.
        nonzeros_per_row: about the mean number of non-zeros of a row, from 1 to d. It is larger where the
            labels' own features alone are more.
        exponent: of the power laws, at least 0; 0 makes all equally frequent.
        seed: equal arguments and seeds give equal data.
        dtype: float32 or float64.

    Returns:
        X, CSR [n, d], and Y, CSR [n, L] of ones, both of ``dtype`` with sorted rows.

    Raises:
        ValueError: an argument out of range.

    Example:
        >>> X, Y = make_power_law(100, 50, 200, seed=0)
        >>> X.shape, Y.shape
        ((100, 50), (100, 200))
    """
    dtype = value_dtype(dtype)
    _check(n, d, n_labels, labels_per_row, nonzeros_per_row, exponent)
    whole_number("seed", seed, 0, 2**63 - 1)
    rng = np.random.default_rng(seed)
    labels = _PowerLaw(rng, n_labels, exponent, labels_per_row)
    own_per_row = labels_per_row * min(_OWN_FEATURES, d) * _SHOWN
    background = _PowerLaw(rng, d, exponent, max(nonzeros_per_row - own_per_row, 0.0))
    own = background.draw(rng, (n_labels, min(_OWN_FEATURES, d)), power=0.5)

    X_blocks = [sp.csr_matrix((0, d), dtype=dtype)]
    Y_blocks = [sp.csr_matrix((0, n_labels), dtype=dtype)]
    for begin in range(0, n, _BLOCK):
        rows = min(_BLOCK, n - begin)
        Y = labels.sample(rng, rows)
        X = background.sample(rng, rows)
        # A feature appears 1 + Poisson times.
        X.data += rng.poisson(np.minimum(background.rates[X.indices], _REPEATS))
        X = (X + _own_features(rng, Y, own, d)).astype(dtype)
        X.sort_indices()
        X_blocks.append(X)
        Y_blocks.append(Y.astype(dtype))
    return sp.vstack(X_blocks, format="csr"), sp.vstack(Y_blocks, format="csr")


def _check(
    n: int, d: int, n_labels: int, labels_per_row: float, nonzeros_per_row: float, exponent: float
) -> None:
    for name, value, low, high in (
        ("n", n, 0, MAX_ROWS),
        ("d", d, 1, MAX_COLUMNS),
        ("n_labels", n_labels, 1, MAX_COLUMNS),
    ):
        whole_number(name, value, low, high)
    for name, value, low, high in (
        ("labels_per_row", labels_per_row, 1, n_labels),
        ("nonzeros_per_row", nonzeros_per_row, 1, d),
        ("exponent", exponent, 0, 10),
    ):
        if not low <= number(name, value) <= high:
            raise ValueError(f"{name} must be from {low} to {high}, got {value}")


def _own_features(rng: np.random.Generator, Y: sp.csr_matrix, own: np.ndarray, d: int) -> sp.csr_matrix:
    """The features of each row's labels, each shown with probability 0.4; CSR [rows, d]."""
    shown = rng.random((Y.nnz, own.shape[1])) < _SHOWN
    entry, feature = np.nonzero(shown)
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))[entry]
    columns = own[Y.indices[entry], feature]
    return sp.csr_matrix((np.ones(rows.size, np.int64), (rows, columns)), (Y.shape[0], d))


class _PowerLaw:
    """Rows as sets of numbers 0 … size−1: each number is in a row or not, independently of the others.

    Number j of rank r_j is in a row with probability 1 − e^{−m p_j}, p_j ∝ r_j^-exponent, as if m
    words were drawn for the row; m makes the expected size of a row ``per_row``.
    """

    def __init__(self, rng: np.random.Generator, size: int, exponent: float, per_row: float):
        p = np.arange(1, size + 1, dtype=np.float64) ** -exponent
        p = rng.permutation(p / p.sum())
        self.rates = _draws(p, per_row) * p  # m p_j
        self._p = p

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...], power: float = 1.0) -> np.ndarray:
        """Numbers drawn with probability ∝ p^power, int32."""
        cumulative = np.cumsum(self._p**power)
        places = np.searchsorted(cumulative, cumulative[-1] * rng.random(shape), side="right")
        return np.minimum(places, cumulative.size - 1).astype(np.int32)

    def sample(self, rng: np.random.Generator, rows: int) -> sp.csr_matrix:
        """Ones [rows, size]; an empty set gets one number drawn with probability p."""
        # Column j takes the rows a_j k + b_j modulo a prime P ≥ rows, k = 0, 1, …: they are distinct, and
        # time and memory are those of the non-zeros, however frequent or rare the column is.
        prime = _prime_from(rows)
        counts = rng.binomial(prime, -np.expm1(-self.rates))
        steps = rng.integers(1, max(prime, 2), counts.size)
        starts = rng.integers(prime, size=counts.size)
        columns = np.repeat(np.arange(counts.size), counts)
        k = np.arange(columns.size) - np.repeat(np.cumsum(counts) - counts, counts)
        places = (steps[columns] * k + starts[columns]) % prime
        columns, places = columns[places < rows], places[places < rows]

        empty = np.flatnonzero(np.bincount(places, minlength=rows) == 0)
        drawn = self.draw(rng, empty.shape)
        places, columns = np.concatenate([places, empty]), np.concatenate([columns, drawn])
        sample = sp.csr_matrix((np.ones(places.size, np.int64), (places, columns)), (rows, self.rates.size))
        sample.sort_indices()
        return sample


def _draws(p: np.ndarray, distinct: float) -> float:
    """The number of draws m with Σ_j (1 − e^{−m p_j}) = distinct, by bisection."""

    def expected(m: float) -> float:
        return float(-np.expm1(-m * p).sum())

    # To draw all numbers would take infinitely many draws; aiming for a billionth less makes no difference.
    distinct *= 1 - 1e-9
    low, high = 0.0, 1.0
    while expected(high) < distinct:
        low, high = high, 4 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) < distinct else (low, middle)
    return high if distinct > 0 else 0.0


def _prime_from(number: int) -> int:
    """The smallest prime not below ``number``."""
    prime = max(number, 2)
    while any(prime % divisor == 0 for divisor in range(2, math.isqrt(prime) + 1)):
        prime += 1
    return prime
