"""What the experiments with all-in-one SVMs share: the multi-class sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from experiments import _data
from xmcjax.data import fit_transforms
from xmcjax.datasets import make_texts

TEXT = "log,idf,unit"


class Parts(NamedTuple):
    """Features, and classes 0 … m−1; a class that only the test part has is −1 there."""

    X: sp.csr_array | np.ndarray
    y: np.ndarray
    X_test: sp.csr_array | np.ndarray
    y_test: np.ndarray


def load(name: str) -> Parts:
    """A set by its name in ``SETS``, scaled as in the paper; "digits" comes with scikit-learn."""
    return SETS[name](name)


def _files(name: str) -> Parts:
    """A set of files, unscaled."""
    return _numbered(*_data.fetch(name)[:4])


def _numbered(X, y, X_test, y_test) -> Parts:
    classes = np.unique(y)
    place = np.minimum(np.searchsorted(classes, y_test), len(classes) - 1)
    return Parts(X, np.searchsorted(classes, y), X_test, np.where(classes[place] == y_test, place, -1))


def _dense(name: str) -> Parts:
    X, y, X_test, y_test = _data.fetch(name)[:4]
    return _numbered(X.toarray(), y, X_test.toarray(), y_test)


def _unit_variance(name: str) -> Parts:
    """Scaled to [−1, 1] by the range of the training part, then by its standard deviation, not centred."""
    X, y, X_test, y_test = _dense(name)
    X, X_test = X.astype(np.float64), X_test.astype(np.float64)
    low, high = X.min(axis=0), X.max(axis=0)
    X, X_test = (2 * (A - low) / (high - low) - 1 for A in (X, X_test))
    deviation = X.std(axis=0)
    return Parts((X / deviation).astype(np.float32), y, (X_test / deviation).astype(np.float32), y_test)


def _standardised(name: str) -> Parts:
    """Scaled to mean 0 and standard deviation 1 in the training part."""
    X, y, X_test, y_test = _dense(name)
    mean, deviation = X.mean(axis=0, dtype=np.float64), X.std(axis=0, ddof=1, dtype=np.float64)
    X, X_test = (((A - mean) / deviation).astype(np.float32) for A in (X, X_test))
    return Parts(X, y, X_test, y_test)


def _text(name: str) -> Parts:
    X, y, X_test, y_test = _files(name)
    fitted = fit_transforms(TEXT, X)
    return Parts(fitted.apply(X), y, fitted.apply(X_test), y_test)


def _classes(name: str) -> Parts:
    """A set of experiments._data.CLASS_SETS."""
    split = _data.load_classes(name)
    return Parts(split.X, split.y, split.X_test, split.y_test)


def _digits(name: str) -> Parts:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    test = np.arange(len(y)) % 5 == 0
    return Parts(X[~test], y[~test], X[test], y[test])


def _made_texts(name: str) -> Parts:
    """Short texts of a thousand classes, or a hundred: half of their four to ten words are of the class."""
    n, d, m = (2_500, 1_000, 100) if name == "made_few" else (25_000, 10_000, 1_000)
    X, y = make_texts(n, d, m, seed=0)
    test = np.arange(n) >= n * 4 // 5
    fitted = fit_transforms(TEXT, X[~test])
    return Parts(fitted.apply(X[~test]), y[~test], fitted.apply(X[test]), y[test])


def _made_speech(name: str) -> Parts:
    """Dense features of 26 classes, like spoken letters: neighbours are correlated, and rows have norm 30."""
    rng = np.random.default_rng(0)
    n, d, m = 7_500, 600, 26
    smooth = np.exp(-0.5 * ((np.arange(d)[:, None] - np.arange(d)) / 3) ** 2)
    y = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
    X = (0.3 * rng.normal(size=(m, d))[y] + rng.normal(size=(n, d))) @ smooth
    X = (30 * X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    test = np.arange(n) >= 6_000
    return Parts(X[~test], y[~test], X[test], y[test])


def _made_dense(name: str) -> Parts:
    """Dense features of a thousand classes: random directions around the mean of each class, of norm 1."""
    rng = np.random.default_rng(0)
    n, d, m = 12_500, 400, 1_000
    y = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
    X = 0.3 * rng.normal(size=(m, d))[y] + rng.normal(size=(n, d))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    test = np.arange(n) >= 10_000
    return Parts(X[~test], y[~test], X[test], y[test])


SETS: dict[str, Callable[[str], Parts]] = {
    "digits": _digits,
    "iris": _dense,
    "glass": _dense,
    "satimage": _unit_variance,
    "letter": _unit_variance,
    "splice": _dense,
    "usps": _files,
    "clef": _standardised,
    "news20_bydate": _text,
    "clinc150": _text,
    "naics2017": _text,
    "caltech101_silhouettes": _classes,
    "made_texts": _made_texts,
    "made_few": _made_texts,
    "made_speech": _made_speech,
    "made_dense": _made_dense,
}


def test_error(W: np.ndarray, X, y: np.ndarray) -> float:
    """The test error in percent."""
    return 100 * float(np.mean(np.argmax(X @ W, axis=1) != y))
