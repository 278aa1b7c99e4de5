"""Multi-class and top-k SVMs with any C, any size of the features, in both precisions; see harness.py."""

from __future__ import annotations

import sys

import numpy as np
import scipy.sparse as sp

from tests.attack import _checked_fit
from tests.attack.harness import Wrong, main
from tests.support import dual_references as reference

PURPOSE = "C, scales of features, precisions: what is said to have converged is within tol of the minimum"
KINDS = ("ww", "cs", "llw", "ovr", "ovr_squared", "alpha", "beta")


def prepare(folder):
    """Small problems, X [n, d] and y; the classes of the last can be told apart."""
    rng = np.random.default_rng(0)
    problems = []
    for n, d, m, apart in ((18, 3, 3, 1.0), (16, 6, 4, 1.0), (20, 2, 4, 0.0), (15, 5, 3, 8.0)):
        y = np.concatenate([np.arange(m), rng.integers(0, m, n - m)])
        X = apart * rng.normal(size=(m, d))[y] + rng.normal(size=(n, d))
        X[rng.random((n, d)) < 0.2] = 0
        problems.append((X, y))
    return problems


def case(problems, rng):
    """A fit, and its objective against a bound of its minimum."""
    from xmcjax import MulticlassSVC, TopKSVC

    X, y = problems[rng.integers(len(problems))]
    m = int(y.max()) + 1
    kind = str(rng.choice(KINDS))
    C = 10.0 ** rng.integers(-8, 9)
    X = _checked_fit.sized(X, rng)
    intercept = bool(rng.random() < 0.3)
    tol = 10.0 ** rng.integers(-5, -1)
    k = 1 if kind not in ("alpha", "beta") else int(rng.integers(1, m - 1))
    options = dict(C=C, tol=tol, fit_intercept=intercept, random_state=0)
    model = TopKSVC(k, kind, **options) if kind in ("alpha", "beta") else MulticlassSVC(kind, **options)
    how = _checked_fit.description(model, X)
    said = _checked_fit.fit(model, sp.csr_array(X) if rng.random() < 0.5 else X, y, how)
    if said is None:
        return "refused"
    if not (np.isfinite(model.coef_).all() and np.isfinite(model.intercept_).all()):
        raise Wrong(f"{how}: weights that are not finite, and {said or 'no warning'}")
    W, features = model.coef_.T, X
    if intercept:
        W, features = np.vstack([W, model.intercept_]), np.hstack([X, np.ones((len(X), 1), X.dtype)])
    value = reference.objective(W, features, y, kind, k, C)
    least, found = reference.bounds(features, y, m, kind, k, C)
    if least - value > 1e-6 * abs(value):
        raise AssertionError(f"{how}: the bound {least:.17g} is above the objective {value:.17g}")
    if said:
        if not any("raise" in text or "scale" in text for text in said):
            raise Wrong(f"{how}: no remedy in {said}")
        return "warned"
    if not value - least <= 1.001 * tol * abs(value) + 1e-300:
        if value <= found:  # the reference has no better weights, and its bound is not the minimum
            return "not decided"
        raise Wrong(f"{how}: converged at {value:.9g}, the minimum is {least:.9g} to {found:.9g}")
    return "right"


if __name__ == "__main__":
    sys.exit(main(__spec__))
