"""Label matrices for the systems in which all labels of a row are one loss."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

N, D, L = 120, 15, 6


@functools.cache
def problem():
    """Rows with none to four labels; the last label has no row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)) * (rng.random((N, D)) < 0.5)
    Y = (X @ rng.normal(size=(D, L)) + rng.normal(size=(N, L)) > 1.5).astype(int)
    Y[:, -1] = 0
    assert set(np.unique(Y.sum(1))) >= {0, 1, 2, 3}
    return X, Y


def check_that_one_label_a_row_is_a_class(make: Callable, atol: float) -> None:
    X, Y = problem()
    one = Y.sum(1) == 1
    y = Y[one].argmax(1)
    present = np.unique(y)
    by_class, by_label = make().fit(X[one], y), make().fit(X[one], Y[one][:, present])
    np.testing.assert_allclose(by_class.coef_, by_label.coef_, rtol=0, atol=atol)
    assert by_class.score(X[one], y) == by_label.score(X[one], Y[one][:, present])
