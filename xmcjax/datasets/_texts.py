"""Synthetic short texts of many classes."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmcjax._arguments import number, whole_number

_OWN_WORDS = 12
_LENGTHS = (4, 11)


def make_texts(
    n: int, d: int, n_classes: int, *, share: float = 0.5, seed: int = 0
) -> tuple[sp.csr_array, np.ndarray]:
    """Makes short texts of four to ten words, each of one class.

    Words have frequencies 1/rank (Zipf's law). Each class has twelve words of its own, drawn with these
    frequencies; a word of a text is one of its class's words with probability `share`, else any word.

    Args:
        n: rows, at least n_classes: the first n_classes rows are one of each class.
        d: words, at least 1.
        n_classes: at least 1.
        share: of the words of a text that are drawn from those of its class, from 0 to 1.
        seed: equal arguments and seeds give equal data.

    Returns:
        X, CSR [n, d], counts in float32, and y, the classes 0 … n_classes − 1 of the rows, [n].

    Raises:
        ValueError: an argument out of range.
        TypeError: a size that is no whole number.

    Example:
        >>> from xmcjax import datasets
        >>> X, y = datasets.make_texts(50, 30, 4)
        >>> X.shape, y[:6].tolist()[:4]
        ((50, 30), [0, 1, 2, 3])
    """
    m = whole_number("n_classes", n_classes, 1)
    n, d = whole_number("n", n, m), whole_number("d", d, 1)
    if not 0 <= number("share", share) <= 1:
        raise ValueError(f"share must be from 0 to 1, got {share}")
    rng = np.random.default_rng(whole_number("seed", seed, 0, 2**63 - 1))
    frequency = 1 / np.arange(1, d + 1)
    own = rng.choice(d, (m, _OWN_WORDS), p=frequency / frequency.sum())
    y = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
    lengths = rng.integers(*_LENGTHS, n)
    rows = np.repeat(np.arange(n), lengths)
    common = rng.choice(d, len(rows), p=frequency / frequency.sum())
    of_class = rng.random(len(rows)) < share
    words = np.where(of_class, own[y[rows], rng.integers(0, _OWN_WORDS, len(rows))], common)
    return sp.csr_array((np.ones(len(rows), np.float32), (rows, words)), shape=(n, d)), y
